#!/usr/bin/env bash
# Compiles the contracts into protos/gen (Python, stubs and the descriptor set that Envoy transcodes with).
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
out=${1:-protos/gen}
google=$("$python" -c 'import google.api.annotations_pb2 as a, pathlib; print(pathlib.Path(a.__file__).parents[2])')
mkdir -p "$out"
mapfile -t files < <(find protos/inferway -name '*.proto' | sort)
"$python" -m grpc_tools.protoc -Iprotos -I"$google" --python_out="$out" --pyi_out="$out" --grpc_python_out="$out" \
  --include_imports --include_source_info --descriptor_set_out="$out/inferway.binpb" "${files[@]}"
# Files without a service get an empty stub module: drop those.
grep -L '^class .*Stub' $(find "$out/inferway" -name '*_pb2_grpc.py') | xargs -r rm
