#!/usr/bin/env bash
# Tests determinism under load: several processes capture the demo model repeatedly, with little memory, a slow disk and
# different numbers of threads, and are killed and resumed. Every capture must equal an undisturbed one byte for byte.
#   tools/check_under_load.sh [SECONDS [PROCESSES [MIB]]]      (default: 1200 seconds, 8 processes, 1536 MiB each)
# QKSCOPE=PROGRAM replaces build/bin/qkscope. A capture that differs is kept and its path printed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
readonly seconds=${1:-1200} processes=${2:-8} mebibytes=${3:-1536}
readonly program=${QKSCOPE:-build/bin/qkscope}
readonly threads=(1 2 3 5)
readonly most_wait=$((2 * processes))  # seconds; a capture takes about as long

work=$(mktemp -d "${TMPDIR:-/tmp}/qkscope-load-XXXXXX")
kept=false
trap '$kept || rm -rf "$work"' EXIT

cat >"$work/run.yaml" <<YAML
dataset: {path: $PWD/share/demo/corpus.jsonl}
model: {name: $PWD/share/demo/checkpoints/LC2-1200, dtype: float32, device_map: cpu}
tokenizer: {max_length: 256}
capture:
  head_sampling: {count: 8, seed: 0}
  sampler: {type: log_uniform, base_rate: 1.0}
  min_bucket_size: 16
output: {data_root: replaced}
YAML

# capture ROOT THREADS
capture() {
  exec "$program" capture --config "$work/run.yaml" --set "output.data_root=$1" --limit 130 --threads "$2" --quiet
}

# hard_capture ROOT THREADS: captures with limited memory on a slow disk.
hard_capture() {
  ulimit -v $((mebibytes * 1024))
  export LD_PRELOAD="$work/slow_disk.so"
  capture "$@"
}

bytes_of() {  # bytes_of ROOT: one checksum for the names and contents of all its files
  (cd "$1" && find . -type f | LC_ALL=C sort | xargs sha256sum) | sha256sum
}

# Starts a capture and kills it at a random moment. Fails if the capture ended before.
begin_and_kill() {  # begin_and_kill ROOT THREADS
  (hard_capture "$@") &
  local victim=$!
  sleep "$(random_wait)"
  kill -KILL "$victim" 2>/dev/null || true
  local status=0
  wait "$victim" 2>/dev/null || status=$?
  [ "$status" -eq 137 ]
}

# Captures until the time is over. Every other capture is killed once and resumed.
keep_capturing() {  # keep_capturing NUMBER
  local root="$work/$1" round=0 kills=0 end=$((SECONDS + seconds)) count
  while [ $SECONDS -lt $end ]; do
    count=${threads[$(((round + $1) % ${#threads[@]}))]}
    rm -rf "$root"
    if [ $((round % 2)) -eq 1 ] && begin_and_kill "$root" "$count"; then kills=$((kills + 1)); fi
    (hard_capture "$root" "$count") || { echo "$root: the capture failed" >&2; return 1; }
    [ "$(bytes_of "$root")" = "$alone" ] || { echo "$root: differs from $work/alone" >&2; return 1; }
    round=$((round + 1))
  done
  echo "$round $kills" >"$work/$1.done"
}

random_wait() { printf '%d.%03d' $((RANDOM % most_wait)) $((RANDOM % 1000)); }  # seconds

c++ -O1 -shared -fPIC -U_FORTIFY_SOURCE -D_GNU_SOURCE -o "$work/slow_disk.so" tools/slow_disk.cpp
(capture "$work/alone" 1)
alone=$(bytes_of "$work/alone")

crowd=()
for number in $(seq "$processes"); do
  keep_capturing "$number" &
  crowd+=($!)
done
for one in "${crowd[@]}"; do wait "$one" || kept=true; done
if $kept; then exit 1; fi
cat "$work"/*.done | awk -v processes="$processes" \
  '{ captures += $1; kills += $2 } END { print captures " captures by " processes " processes, " kills " killed and continued: all the same bytes" }'
