#!/usr/bin/env bash
# Fails when the committed generated code is not what the contracts compile to.
set -euo pipefail
cd "$(dirname "$0")/.."
fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
protos/generate.sh "$fresh"
diff -rq --exclude=__pycache__ "$fresh" protos/gen || { echo "protos/gen is stale: run 'make gen' and commit the result" >&2; exit 1; }
