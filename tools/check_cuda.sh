#!/usr/bin/env bash
# Builds, tests and measures the CUDA backend in one call on a machine with a GPU. Installs nothing, and continues after a
# failure so that one call reports all failures. Logs and JSON go to build-logs/.
#   tools/check_cuda.sh [build] [start] [test] [golden] [sanitize] [attention] [bench] [statistics] [shapes] [precision] [capture] [attribution] [python]  (default: all)
# Environment variables: BATCHES, ROUNDS and SECONDS_EACH of the tables; LAYERS of the other shapes (empty: all layers);
# TOKENIZER, a tokenizer.json, also as .json.xz; DATA, a folder for the checkpoints (default: in memory if there is space);
# CAPTURE_OPTIONS of bench/capture_table.py; PYTHON, an interpreter with torch and transformers; DEVICE; NANOBIND, a folder
# with the Python package nanobind if PYTHON has none.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
readonly parts=" ${*:-build start test golden sanitize attention bench statistics shapes precision capture attribution python} "
. tools/steps.sh

readonly golden_tests=${GOLDEN_TESTS:-*olden*:*Bfloat16*}
readonly sanitized=${SANITIZED:-*Cuda*smollm3_list:*Cuda*/glm4:*Cuda*/gemma3_text:*CudaProperty*/qwen3}
readonly python=${PYTHON:-.venv/bin/python}
readonly device=${DEVICE:-cuda}
read -ra capture_options <<<"${CAPTURE_OPTIONS:-}"
readonly batches=${BATCHES:-8x4096,1x32768,1x65536,1x131072}

data_folder() {  # in memory if 48 GB are free
  local free
  free=$(df --output=avail -k /dev/shm 2>/dev/null | tail -1)
  if [ "${free:-0}" -gt 48000000 ]; then echo /dev/shm/qkscope-bench; else echo "${TMPDIR:-/tmp}/qkscope-bench"; fi
}
readonly data=${DATA:-$(data_folder)}

tokenizer() {
  local file
  for file in "${TOKENIZER:-}" {shared,../shared}/tokenizers/smollm3.json.xz; do
    [ -f "$file" ] && echo "$file" && return
  done
}

# google_test PROGRAM FILTER [WRAPPER...]: fails if the filter selects no test.
google_test() {
  local program=build/tests/$1 filter=$2 output
  shift 2
  output=$(mktemp)
  "$@" "$program" --gtest_filter="$filter" 2>&1 | tee "$output"
  local status=${PIPESTATUS[0]}
  grep -qE '\[  (PASSED|FAILED)  \] [1-9]' "$output" || { echo "error: no test ran for $filter"; status=1; }
  rm -f "$output"
  return "$status"
}

results() {  # results NAME: passed, skipped and failed tests of a log
  grep -E '\[  (PASSED|SKIPPED|FAILED) ' "build-logs/$1.log" | sort | uniq | head -20
}

checkpoint() {  # checkpoint SHAPE [LAYERS]: writes it if missing and prints its folder
  local folder=$data/$1${2:+-$2-layers} file
  file=$(tokenizer)
  [ -e "$folder/model.safetensors" ] ||
    "$python" bench/make_checkpoint.py "$folder" --shape "$1" --dtype bfloat16 ${2:+--layers "$2"} \
      ${file:+--tokenizer "$file"} >&2
  echo "$folder"
}

# A program that uses no GPU links no CUDA library and starts with less than 20 ms of processor time. Wall time also
# depends on what else the machine does.
start_time() {
  if ldd build/bin/qkscope | grep -E 'libcu(da|blas|dnn)|libnvrtc'; then
    echo "error: qkscope is linked to the libraries above"
    return 1
  fi
  "$python" - <<'PYTHON'
import os, sys
def once():
    pid = os.posix_spawn("build/bin/qkscope", ["qkscope", "--version"], os.environ)
    _, status, used = os.wait4(pid, 0)
    if status: sys.exit("error: qkscope --version failed")
    return 1000 * (used.ru_utime + used.ru_stime)
best = min(once() for _ in range(20))
print(f"qkscope --version: {best:.1f} ms of processor time, the best of 20")
if best >= 20: sys.exit("error: more than 20 ms")
PYTHON
}

# `auto` and `cuda` find the GPU; a hidden GPU or a missing module is reported with the reason.
device_choice() {
  local out trace="build/bin/qkscope trace --model tests/golden/smollm3_list --token-ids 1,2,3,4,5 --hooks logits"
  out=$(mktemp -d)
  $trace --out "$out/cpu" --device cpu && $trace --out "$out/cuda" --device cuda || return 1
  $trace --out "$out/auto" --verbose 2>&1 | grep 'device memory:' && cmp "$out/auto" "$out/cuda" ||
    { echo "error: auto did not take the GPU"; return 1; }
  refused 'CUDA_VISIBLE_DEVICES is' env CUDA_VISIBLE_DEVICES= $trace --out "$out/none" --device cuda || return 1
  refused 'no part for NVIDIA GPUs' env QKSCOPE_CUDA_MODULE=/none.so $trace --out "$out/none" --device cuda || return 1
  CUDA_VISIBLE_DEVICES='' $trace --out "$out/hidden" 2>&1 | grep 'the CPU is used: .*CUDA_VISIBLE_DEVICES' &&
    cmp "$out/hidden" "$out/cpu" || { echo "error: without a GPU auto must say so and take the CPU"; return 1; }
  rm -rf "$out"
}

refused() {  # refused REASON COMMAND...
  local reason=$1 said
  shift
  said=$("$@" 2>&1) && { echo "error: passed, expected a refusal: $*"; return 1; }
  echo "$said"
  grep -q "$reason" <<<"$said" || { echo "error: expected '$reason'"; return 1; }
}

table() {  # table NAME BATCHES FOLDER...
  local name=$1 list=$2
  shift 2
  step "$name" "$python" bench/cuda_table.py "$@" --batches "$list" --rounds "${ROUNDS:-2}" \
    --seconds "${SECONDS_EACH:-4}" --device "$device" --out "build-logs/$name.json"
  grep -E '^(\||from)' "build-logs/$name.log"
}

uname -mr
nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.sm,power.limit --format=csv,noheader 2>&1
if part build; then
  step configure cmake --preset release && grep 'qkscope:' build-logs/configure.log
  step build cmake --build build --target ${TARGETS:-qkscope sniff-qk forward_bench attention_kernel_bench attention_library attribution_bench qkscope_cuda test_engine_device test_engine_cuda test_engine_forward test_analysis_attribution} -- -k 0 || exit 1
fi
if part start; then
  step start start_time
  tail -1 build-logs/start.log
  step device device_choice
  grep -E 'device|CPU' build-logs/device.log
fi
if part test; then
  for program in test_engine_device test_engine_cuda test_engine_forward; do
    step "$program" google_test "$program" '*'
    results "$program"
  done
fi
if part golden; then
  step golden google_test test_engine_forward "$golden_tests"
  results golden
  grep -E 'float32|bfloat16|float16' build-logs/golden.log | head -80
fi
if part sanitize; then
  step memcheck google_test test_engine_forward "$sanitized" compute-sanitizer --tool memcheck --error-exitcode 9
  # racecheck reports false races for the synchronisation inside cuDNN's kernels.
  step racecheck google_test test_engine_cuda '*Bits*bf16*:*ScoreRows.*' compute-sanitizer --tool racecheck --error-exitcode 9
  step racecheck-pass google_test test_engine_forward "*CudaProperty*Chosen*/smollm3_list" compute-sanitizer --tool racecheck \
    --kernel-regex-exclude kns=cudnn --error-exitcode 9
  grep -hE 'ERROR SUMMARY|RACECHECK SUMMARY' build-logs/{memcheck,racecheck,racecheck-pass}.log
fi
if part attention; then
  step attention build/bench/attention_kernel_bench
  grep '^|' build-logs/attention.log
fi
part bench && table bench "$batches" "$(checkpoint smollm3-3b)"
if part statistics; then
  step statistics build/bench/forward_bench --model "$(checkpoint smollm3-3b)" --device "$device" --statistics \
    --batch "${STATISTICS_BATCHES:-8x4096,1x131072}" --repeats "${STATISTICS_REPEATS:-5}"
  grep '^{' build-logs/statistics.log
fi
if part shapes; then
  layers=${LAYERS-8}
  table shapes "${BATCHES:-1x32768,1x131072}" "$(checkpoint llama-3.2-1b "$layers")" \
    "$(checkpoint qwen3-8b "$layers")" "$(checkpoint qwen3-14b "$layers")"
fi
if part precision; then
  step precision "$python" bench/precision_table.py "$(checkpoint smollm3-3b)"
  grep '^|' build-logs/precision.log
fi
if part capture; then
  step capture "$python" bench/capture_table.py "$(checkpoint smollm3-3b)" --work "$data" --device "$device" \
    --out build-logs/capture.json "${capture_options[@]}"
  grep '^|' build-logs/capture.log
fi
if part attribution; then
  step attribution-test google_test test_analysis_attribution '*Cuda*'
  results attribution-test
  grep bfloat16 build-logs/attribution-test.log | head -90
  step attribution build/bench/attribution_bench --model "$(checkpoint smollm3-3b)" --device "$device" \
    --tokens "${ATTRIBUTION_TOKENS:-131072}"
  grep '^{' build-logs/attribution.log
fi
if part python; then
  packages=$PWD/build/python${NANOBIND:+:$(realpath "$NANOBIND")}${PYTHONPATH:+:$PYTHONPATH}
  PYTHONPATH=$packages step configure-python cmake --preset release -DQKSCOPE_BINDINGS=ON
  step build-python cmake --build build --target _engine qkscope_cuda &&
    PYTHONPATH=$packages step python "$python" -u tests/python/test_cuda.py
  PYTHONPATH=$packages step python-heads "$python" -u tests/python/test_cuda_heads.py
  grep -E '^(Ran|OK|FAILED|FAIL:|ERROR:|100 caches)' build-logs/python.log
  PYTHONPATH=$packages step python-bench "$python" bench/python_bench.py "$(checkpoint smollm3-3b)" --device "$device" \
    --dtype bfloat16 --runs 5
  tail -5 build-logs/python-bench.log
fi
exit $failed
