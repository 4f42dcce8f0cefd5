# For scripts that check a machine in one call: parts by name, a log per step in build-logs/, one short line on stdout,
# and on to the next step after a failure. Set `parts` to the wanted names first; exit with $failed. Sourced, not run.
failed=0

[ -e .venv ] || ln -s "$(python3 -c 'import sys; print(sys.prefix)')" .venv  # the environment of the python3 at hand
part() { [[ $parts == *" $1 "* ]]; }
step() {  # step NAME COMMAND...
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
