#!/usr/bin/env bash
# check_ubuntu.sh FOLDER COMMAND...: runs a command of run.sh in the checkout FOLDER/clone, in a minimal Ubuntu 24.04, whose g++
# is version 13 (debootstrap, cached in FOLDER/root). Debian 12 has no package with Ubuntu's key, so the root is for tests
# alone. Needs root.
set -euo pipefail
tools=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$1"
readonly system="Ubuntu 24.04"
readonly bootstrap=(--no-check-gpg --components=main,universe noble root "" gutsy)
. "$tools/bare_root.sh"

fresh_root
install_inside sudo ca-certificates
cp -r clone trial/root/qkscope
cp /etc/pip.conf trial/etc/ 2>/dev/null || true
# Tests read /sys, for huge pages.
inside "mount -t sysfs sysfs /sys && cd /root/qkscope &&
  env -i HOME=/root LANG=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin ./run.sh ${*:2}" || fail "run.sh ${*:2}"
rm -rf trial
