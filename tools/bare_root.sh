# Shell functions for check_package.sh, check_python_package.sh and check_ubuntu.sh, to be sourced in the folder that holds the
# roots: ./root, a minimal system made by debootstrap once, and ./trial, a fresh copy of it. Before, set `system` to its name
# and `bootstrap` to the arguments of debootstrap (default: Debian 12). Needs root, for chroot.
[ "$(id -u)" -eq 0 ] || { echo "error: $(basename "$0") needs root, for chroot" >&2; exit 2; }

say() { printf '\033[1m%s\033[0m\n' "$*" >&2; }
fail() { echo "failed: $*" >&2; exit 1; }

[ -v bootstrap ] || bootstrap=(bookworm root)
if [ ! -f root/complete ]; then
  say "Making a bare ${system:-Debian 12}"
  rm -rf root
  debootstrap --variant=minbase "${bootstrap[@]}" >debootstrap.log || fail "debootstrap: $(tail -3 debootstrap.log)"
  touch root/complete
fi
for program in gcc c++ gnuplot python3; do
  [ ! -e "root/usr/bin/$program" ] || fail "the bare root has $program"
done

# fresh_root: copies the minimal root to ./trial.
fresh_root() {
  rm -rf trial
  cp -a root trial
}

# inside [UNSHARE OPTIONS] COMMAND: runs a shell command in ./trial with its own /proc, which programs need to find the
# libraries in their own folder.
inside() {
  unshare --pid --fork --mount-proc="$PWD/trial/proc" "${@:1:$#-1}" chroot trial /bin/sh -c "${@: -1}"
}

# install_inside PACKAGE...: Debian packages, or .deb files of ./trial, with what they depend on.
install_inside() {
  cp /etc/resolv.conf trial/etc/ 2>/dev/null || true
  cp /etc/apt/apt.conf.d/*proxy* trial/etc/apt/apt.conf.d/ 2>/dev/null || true
  inside "apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $*" >apt.log 2>&1 ||
    { cat apt.log >&2; fail "apt-get install $*"; }
}
