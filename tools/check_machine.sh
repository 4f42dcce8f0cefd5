#!/usr/bin/env bash
# Builds, tests and measures in one call. Installs nothing, reports what is missing, and continues after a failure so that
# one call reports all failures.
#   tools/check_machine.sh [test] [asan] [bench]      (default: all)
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
readonly parts=" ${*:-test asan bench} "
. tools/steps.sh

uname -mr
c++ --version | head -1
lscpu | grep 'Model name'
step configure cmake --preset release && grep 'qkscope:' build-logs/configure.log
step build cmake --build --preset release -j "$(nproc)" -- -k 0 || exit 1
part test && { step test ctest --preset release -j "$(nproc)"; grep -E 'tests passed|Failed|Skipped' build-logs/test.log; }
if part asan; then
  step asan-configure cmake --preset asan && step asan-build cmake --build --preset asan -j "$(nproc)" &&
    step asan-test ctest --preset asan -j "$(nproc)"
fi
if part bench; then
  for threads in 2 "$(nproc)"; do
    step "bench-$threads" .venv/bin/python bench/forward_table.py build/bench-data/smollm2-135m --threads "$threads" --rounds 2
    cat "build-logs/bench-$threads.log"
  done
fi
exit $failed
