# The container engine: the running one, else a dockerd of our own that ends with the script.

engine_pid=

compose() {
  if docker compose version >/dev/null 2>&1; then
    docker compose -f deploy/compose/compose.yaml "$@"
  else
    docker-compose -f deploy/compose/compose.yaml "$@"
  fi
}

start_engine() {
  if docker info >/dev/null 2>&1; then return; fi
  if [ "$(id -u)" != 0 ] || ! command -v dockerd >/dev/null; then
    echo "No container engine answers. Start docker, or install docker.io, docker-compose and iptables and run this script as root." >&2
    exit 1
  fi
  step "Starting dockerd"
  dockerd >"$work/dockerd.log" 2>&1 &
  engine_pid=$!
  for _ in $(seq 100); do
    if docker info >/dev/null 2>&1; then return; fi
    kill -0 "$engine_pid" 2>/dev/null || { tail -20 "$work/dockerd.log"; exit 1; }
    sleep 0.3
  done
  echo "dockerd did not start within 30 s; see $work/dockerd.log" >&2
  exit 1
}

stop_engine() {
  if [ -n "$engine_pid" ]; then
    kill "$engine_pid" 2>/dev/null || true
    wait "$engine_pid" 2>/dev/null || true
  fi
}
