#!/usr/bin/env bash
# check_package.sh FOLDER: tests the .tar.gz and the .deb in FOLDER in minimal Debian 12 roots (debootstrap, cached in
# FOLDER/root): `qkscope demo` must write its table, figures and report. The .tar.gz runs without a network, the .deb
# with its dependencies from apt. Needs root.
set -euo pipefail
tools=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$1"
. "$tools/bare_root.sh"

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
cp qkscope_*.deb trial/tmp/
install_inside '/tmp/qkscope_*.deb'
time check_demo qkscope
for file in man/man1/qkscope.1 bash-completion/completions/qkscope zsh/vendor-completions/_qkscope fish/vendor_completions.d/qkscope.fish; do
  [ -s "trial/usr/share/$file" ] || fail "the .deb has no $file"
done
inside 'sniff-qk --help && apt-get remove -y -q qkscope' >/dev/null 2>&1
[ ! -e trial/usr/bin/qkscope ] && [ ! -e trial/usr/share/qkscope ] || fail "removing it leaves something"
rm -rf trial
du -h qkscope-*.tar.gz qkscope_*.deb
