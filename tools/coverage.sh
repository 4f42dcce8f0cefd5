#!/usr/bin/env bash
# Measures which lines and branches of the code that reads foreign bytes the tests and the replayed fuzzing corpora execute
# (clang's source-based coverage; build-coverage/). `./run.sh coverage` calls this.
#   tools/coverage.sh [FILE...]    a table of the rooms, or the branches of source files (src/...) that were never taken
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
readonly build=build-coverage mutations=3000
readonly tests=(base_io base_tables input_checkpoint input_tokenizer input_texts capture_format)
readonly fuzzers=(card gguf head_file parquet part records safetensors tokenizer torch_zip weight_index)

programs=("${tests[@]/#/$build/tests/test_}" "${fuzzers[@]/#/$build/fuzz/fuzz_}")
if [ $# -eq 0 ]; then
  cmake --preset coverage >/dev/null
  cmake --build "$build" --target "${tests[@]/#/test_}" "${fuzzers[@]/#/fuzz_}"
  rm -rf "$build/profiles"
  export LLVM_PROFILE_FILE="$PWD/$build/profiles/%p-%m%c.profraw" PATH="$PWD/.venv/bin:$PATH"
  for name in "${tests[@]}"; do
    "$build/tests/test_$name" --gtest_brief=1 || echo "warning: tests of $name failed; their branches may be missing" >&2
  done
  for name in "${fuzzers[@]}"; do "$build/fuzz/fuzz_$name" "$build/tests/fuzz/corpus/$name" "$mutations"; done
  llvm-profdata merge -sparse "$build"/profiles/*.profraw -o "$build/all.profdata"
fi
python3 tools/coverage_table.py "$build/all.profdata" "${programs[@]}" -- "$@"
