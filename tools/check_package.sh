#!/usr/bin/env bash
# check_package.sh FOLDER: tests the .tar.gz and the .deb in FOLDER in minimal Debian 12 roots (debootstrap, cached in
# FOLDER/root): `qkscope demo` must write its table, figures and report. The .tar.gz runs without a network, the .deb
# with its dependencies from apt. Needs root.
set -euo pipefail
cd "$1"
[ "$(id -u)" -eq 0 ] || { echo "error: check_package.sh needs root, for chroot" >&2; exit 2; }

say() { printf '\033[1m%s\033[0m\n' "$*" >&2; }
fail() { echo "failed: $*" >&2; exit 1; }

if [ ! -f root/complete ]; then
  say "Making a bare Debian 12"
  rm -rf root
  debootstrap --variant=minbase bookworm root >debootstrap.log
  touch root/complete
fi

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

# check_demo PROGRAM [UNSHARE OPTIONS]: runs the demo in ./trial and checks its output files.
check_demo() {
  local program=$1 figures
  inside "${@:2}" "cd /tmp && $program --version && $program demo" >demo.log 2>demo.err ||
    { cat demo.log demo.err >&2; fail "$program demo"; }
  grep -q LC2-1200 demo.log || fail "no table: $(cat demo.log)"
  figures=trial/tmp/results/demo/figures
  [ -s "$figures/report.html" ] || fail "no report"
  for kind in svg png pdf; do
    [ "$(find "$figures" -name "*.$kind" -size +1k | wc -l)" -ge 22 ] || fail "fewer than 22 figures as $kind"
  done
  grep -q LiberationSans "$figures/position_signal.pdf" || fail "the figures are not in Liberation Sans"
  head -1 demo.log
}

for compiler in gcc c++ gnuplot python3; do
  [ ! -e "root/usr/bin/$compiler" ] || fail "the bare root has $compiler"
done

say "The .tar.gz, without a network"
fresh_root
mkdir -p trial/home/somebody
tar -xzf qkscope-*.tar.gz -C trial/home/somebody
time check_demo "/home/somebody/qkscope-*/bin/qkscope" --net
mv trial/home/somebody trial/opt/moved
rm -rf trial/tmp/results
inside 'cd /opt/moved/qkscope-*/share/qkscope &&
  ../../bin/qkscope sweep configs/demo/sweep.yaml --data demo --only S1-1200 --out /tmp --quiet' >moved.log ||
  fail "after it was moved"

say "The .deb, with what apt installs for it"
fresh_root
cp /etc/resolv.conf trial/etc/ 2>/dev/null || true
cp /etc/apt/apt.conf.d/*proxy* trial/etc/apt/apt.conf.d/ 2>/dev/null || true
cp qkscope_*.deb trial/tmp/
inside 'apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends /tmp/qkscope_*.deb' \
  >apt.log 2>&1 || { cat apt.log >&2; fail "apt-get install"; }
time check_demo qkscope
for file in man/man1/qkscope.1 bash-completion/completions/qkscope zsh/vendor-completions/_qkscope fish/vendor_completions.d/qkscope.fish; do
  [ -s "trial/usr/share/$file" ] || fail "the .deb has no $file"
done
inside 'sniff-qk --help && apt-get remove -y -q qkscope' >/dev/null 2>&1
[ ! -e trial/usr/bin/qkscope ] && [ ! -e trial/usr/share/qkscope ] || fail "removing it leaves something"
rm -rf trial
du -h qkscope-*.tar.gz qkscope_*.deb
