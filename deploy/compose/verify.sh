#!/usr/bin/env bash
# Brings the mesh up on a real container engine, runs the README's commands against it, and takes everything away again.
#
#   deploy/compose/verify.sh           start, check, remove
#   deploy/compose/verify.sh --keep    leave the mesh running at the end
#
# Needs docker (or root, to start a dockerd that is installed), docker compose in either form, and the checkout's .venv (`make setup`).
# Where no image registry answers, base and upstream images are made from packages (needs debootstrap; for Kafka, mvn).
set -euo pipefail
cd "$(dirname "$0")/../.."
source deploy/compose/verify/engine.sh
source deploy/compose/verify/images.sh
source deploy/compose/verify/checks.sh

keep=${1:-}
work=$(mktemp -d)
export DOCKER_BUILDKIT=0 COMPOSE_DOCKER_CLI_BUILD=0 COMPOSE_PROJECT_NAME=${COMPOSE_PROJECT_NAME:-inferway}

trap 'echo "stopped at ${BASH_SOURCE[0]}:$LINENO: $BASH_COMMAND" >&2' ERR
set -E
step() { printf '%s %s\n' "$(date +%H:%M:%S)" "$*"; }

take_down() {
  local code=$?
  if [ "$code" != 0 ]; then compose ps || true; compose logs --tail 40 || true; fi
  if [ "$keep" != --keep ]; then
    step "Removing the mesh"
    compose down --volumes --timeout 20 >"$work/down.log" 2>&1 || true
    stop_engine
    rm -rf "$work"
  fi
  [ "$code" = 0 ] && step "All checks passed" || step "FAILED"
  exit "$code"
}

start_engine
trap take_down EXIT
choose_images
step "Building our images"
compose build >"$work/build.log" 2>&1 || { tail -40 "$work/build.log"; exit 1; }
step "Starting the mesh"
compose up -d >"$work/up.log" 2>&1 || { tail -40 "$work/up.log"; exit 1; }
step "Running the checks"
run_checks
