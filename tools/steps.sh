# Shell functions for check_*.sh, to be sourced: named parts, a log per step in build-logs/, one line per step on stdout,
# and the next step after a failure. Set `parts` to the selected names before; exit with $failed.
failed=0

[ -e .venv ] || ln -s "$(python3 -c 'import sys; print(sys.prefix)')" .venv  # the environment of the current python3
part() { [[ $parts == *" $1 "* ]]; }
step() {  # step NAME COMMAND...: runs the command with its output in build-logs/NAME.log
  local name=$1 log=build-logs/$1.log start=$SECONDS
  shift
  mkdir -p build-logs
  if "$@" >"$log" 2>&1; then
    echo "$name: ok, $((SECONDS - start)) s"
  else
    echo "$name: FAILED after $((SECONDS - start)) s"
    grep -E 'error|FAILED|Error' "$log" | cut -c1-300 | head -40
    tail -15 "$log" | cut -c1-300
    failed=1
    return 1
  fi
}
