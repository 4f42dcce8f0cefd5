#!/usr/bin/env bash
# check_wheel.sh ENVIRONMENT [demo]: tests the qkscope package installed in a Python environment: it loads the demo's model,
# and its commands work from another folder, with the right exit codes and signal handling. Runs one run of the demo's
# sweep, or with `demo` all runs and the figures, which need gnuplot.
set -euo pipefail
environment=$(cd "$1" && pwd)
what=${2:-one run}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
qkscope=$environment/bin/qkscope

fail() { echo "failed: $*" >&2; exit 1; }

"$environment/bin/python" - <<'PYTHON'
import pathlib
import qkscope

demo = pathlib.Path(qkscope.__file__).parent / "share/qkscope/demo/checkpoints/S3-4720"
logits = qkscope.load(str(demo)).cache("a text", "logits")["logits"]
print("qkscope", qkscope.__version__, "logits", logits.shape)
PYTHON
"$qkscope" --version
"$environment/bin/sniff-qk" --help >help.txt
grep -q -- --dry-run help.txt || fail "sniff-qk --help: $(cat help.txt)"

data=$("$environment/bin/python" -c 'import importlib.util as u, pathlib; print(pathlib.Path(u.find_spec("qkscope").origin).parent)')/share/qkscope
if [ "$what" = demo ]; then
  "$qkscope" demo >table.txt 2>progress.txt
  [ -s results/demo/figures/report.html ] || fail "qkscope demo left no report"
else
  "$qkscope" sweep "$data/configs/demo/sweep.yaml" --data "$data/demo" --only S1-1200 --no-figures >table.txt 2>progress.txt
fi
grep -q S1-1200 table.txt || fail "no table: $(cat table.txt)"

status=0
"$qkscope" inspect ./nowhere 2>message.txt || status=$?
[ "$status" -eq 2 ] || fail "bad input ends with status $status: $(cat message.txt)"

# The installed command must exec the program, so that a signal reaches it and it prints how to resume.
"$qkscope" demo --quiet --no-figures --out stopped >/dev/null 2>message.txt &
sleep 0.7
kill -TERM $!
status=0
wait $! || status=$?
[ "$status" -ne 0 ] || fail "an interrupted demo ends with status 0"
