# What a newcomer would do, and what the networks promise. Each check says in one line what it found; the first failure ends the script.

url=http://127.0.0.1:${INFERWAY_HTTP_PORT:-8600}
model=smollm2-135m-instruct
python=(env PYTHONPATH=.:protos/gen .venv/bin/python)

run_checks() {
  wait_for_answer
  key=$(compose run --rm key 2>/dev/null | tr -d '\r')
  check "curl streams events and ends with [DONE]" streams
  check "GET /v1/models lists $model" lists_model
  check "without a key there is an OpenAI-shaped 401" refuses
  check "a gRPC client streams over the same port" "${python[@]}" deploy/compose/verify/grpc_answer.py "${url#http://}" "$key" "$model"
  check "two replicas run in the engine node" two_replicas
  check "both compute by the native kernels that are in the image" native_kernels
  check "the ledger has the requests" ledger_has_rows
  check "every service runs as a user that is not root" no_root
  check "Envoy cannot reach etcd or Kafka" separated envoy etcd:2379 kafka:9092
  check "the router cannot reach Kafka" separated router kafka:9092
  check "the engine cannot reach Envoy" separated engine-node envoy:8080
}

check() {
  local name=$1
  shift
  if "$@" >"$work/check.log" 2>&1; then step "ok    $name"; else step "FAIL  $name"; tail -20 "$work/check.log"; return 1; fi
}

wait_for_answer() {
  for _ in $(seq 150); do
    key=$(compose run --rm key 2>/dev/null | tr -d '\r') || key=
    if [ -n "$key" ] && streams >/dev/null 2>&1; then return; fi
    sleep 2
  done
  echo "The mesh did not answer within 5 minutes." >&2
  return 1
}

chat() {
  curl -sSN --max-time 60 "$url/v1/chat/completions" -H "authorization: Bearer $key" -H 'content-type: application/json' \
    -d "{\"model\":\"$model\",\"stream\":true,\"max_completion_tokens\":16,\"messages\":[{\"role\":\"user\",\"content\":\"Say hello.\"}]}"
}

streams() { chat | tee /dev/stderr | tail -2 | grep -q '^data: \[DONE\]'; }

lists_model() { curl -sS --max-time 10 -H "authorization: Bearer $key" "$url/v1/models" | grep -q "\"$model\""; }

refuses() {
  curl -sS --max-time 10 -o "$work/refused" -w '%{http_code}' "$url/v1/models" | grep -q 401 && grep -q '"error"' "$work/refused"
}

two_replicas() {
  [ "$(compose exec -T engine-node sh -c 'cat /proc/[0-9]*/cmdline | tr "\0" " " | grep -o "[s]ervices.engine " | wc -l')" = 2 ]
}

# Every replica says in the registry how it computes; where the CPU has no AVX2 it says that torch serves, and why.
native_kernels() {
  local path="native kernels ("
  grep -qw avx2 /proc/cpuinfo || path="has no AVX2"
  compose exec -T etcd etcdctl get --prefix --print-value-only /inferway/v1/replicas/ | tee /dev/stderr | grep -c "$path" | grep -qx 2
}

# The ledger follows within seconds; `inferway usage` asks metering on its loopback port.
ledger_has_rows() {
  for _ in $(seq 30); do
    if INFERWAY_HOME="$work/home" INFERWAY_PORT_BASE=8600 .venv/bin/inferway usage | tee /dev/stderr | grep -q "$model"; then return; fi
    sleep 1
  done
  return 1
}

no_root() {
  local service
  for service in scheduler metering router engine-node gateway envoy; do
    if ! compose exec -T "$service" sh -c '! grep -q "^Uid:[[:space:]]*0[[:space:]]" /proc/1/status'; then
      echo "$service runs as root"
      return 1
    fi
  done
}

# separated SERVICE HOST:PORT...: none of the addresses can be connected to from inside SERVICE.
separated() {
  local service=$1 address
  shift
  for address in "$@"; do
    if compose exec -T "$service" timeout 5 bash -c "exec 3<>/dev/tcp/${address%:*}/${address#*:}" 2>/dev/null; then
      echo "$service reaches $address"
      return 1
    fi
  done
}
