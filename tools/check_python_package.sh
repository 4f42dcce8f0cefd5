#!/usr/bin/env bash
# check_python_package.sh FOLDER FILE [DEBIAN PACKAGE...]: installs a wheel or an sdist with pip in a minimal Debian 12 root
# (FOLDER/root), beside Debian's Python and the named Debian packages, and tests it with check_wheel.sh. pip has no network
# there: the packages that pip needs are downloaded before. Needs root.
set -euo pipefail
tools=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
file=$(realpath "$2")
cd "$1"
. "$tools/bare_root.sh"
readonly debian_python=3.11

say "$(basename "$file") in a bare Debian 12"
rm -rf wheels
"$tools/release_info.py" requirements >requirements.txt
python3 -m pip download --quiet --disable-pip-version-check --only-binary=:all: --python-version "$debian_python" \
  --dest wheels -r requirements.txt || fail "pip download of tools/release_info.py requirements"
fresh_root
install_inside python3-venv "${@:3}"
mkdir trial/opt/try
cp -r wheels "$file" "$tools/check_wheel.sh" trial/opt/try/
start=$SECONDS
inside --net "env -i HOME=/root LANG=C.UTF-8 PATH=/usr/bin:/bin sh -c 'python3 -m venv /opt/environment &&
  /opt/environment/bin/pip install --no-index --find-links /opt/try/wheels /opt/try/$(basename "$file")'" >pip.log 2>&1 ||
  { tail -50 pip.log >&2; fail "pip install $(basename "$file")"; }
say "Installed in $((SECONDS - start)) s"
inside --net "env -i HOME=/root LANG=C.UTF-8 PATH=/usr/bin:/bin /opt/try/check_wheel.sh /opt/environment" ||
  fail "check_wheel.sh in the bare root"
rm -rf trial
