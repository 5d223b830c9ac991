#!/usr/bin/env bash
# Installs the locked packages into .venv with uv; uv itself comes by pip into its own small environment.
set -euo pipefail
python=$1 lock=$2
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
  echo "Python 3.11 or newer is needed; '$python' is $("$python" --version 2>&1). Install it or run: make PYTHON=/path/to/python3.11" >&2; exit 1; }
free_mb=$(df -Pm . | awk 'NR==2 {print $4}')
[ "$free_mb" -ge 9000 ] || [ -x .venv/bin/python ] || {
  echo "9 GB of free disk are needed here for the first install (torch and CUDA libraries); there are $free_mb MB. Free some space and run it again." >&2; exit 1; }
uv=$(command -v uv || true)
if [ -z "$uv" ]; then
  [ -x .venv-uv/bin/uv ] || { echo "• fetching uv"; "$python" -m venv .venv-uv && .venv-uv/bin/pip install -q --disable-pip-version-check uv; }
  uv=$PWD/.venv-uv/bin/uv
fi
[ -x .venv/bin/python ] || { echo "• creating .venv"; "$uv" venv -q --no-python-downloads --python "$python" .venv; }
echo "• installing $(grep -c '==' "$lock") locked packages (the first time takes a minute or two)"
"$uv" pip sync -q --require-hashes --python .venv/bin/python "$lock"
"$uv" pip install -q --no-deps --python .venv/bin/python -e .
# Where there are no kernels the mesh works all the same: the line says what is missing.
printf '• '; .venv/bin/python -m services.engine.cpu_runner || true
