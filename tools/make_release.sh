#!/usr/bin/env bash
# make_release.sh [-DOPTION=VALUE...] [PYTHON...]: everything that a release consists of, in dist/: wheels for these interpreters
# (those on the PATH), an sdist, a .tar.gz, a .deb, release notes, an SBOM and SHA256SUMS. Every package is installed in a bare
# Debian 12 before it is copied there, with the Debian packages in $SOURCE_PACKAGES for the sdist. Stops at the first failure.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
readonly parts=' all '
. tools/steps.sh
readonly dist=$PWD/dist
options=()
while [[ ${1:-} == -D* ]]; do options+=("$1") && shift; done
root=()
[ "$(id -u)" -eq 0 ] || root=(sudo)

# must NAME COMMAND...: a step without which there is no release.
must() {
  step "release-$1" "${@:2}" && return
  echo "error: ./run.sh release: the part '$1' failed; its output is in build-logs/release-$1.log, and dist/ is incomplete" >&2
  exit 1
}

check_tree() {
  [ -z "$(git status --porcelain)" ] || { echo "error: uncommitted changes: commit or remove them"; git status --short; return 1; }
  tools/release_info.py version
}

# try_python_package FILE [DEBIAN PACKAGE...]
try_python_package() { "${root[@]}" tools/check_python_package.sh build-package "$@"; }

# The wheel that Debian 12's Python can install.
wheel_for_debian() { ls build-wheel/dist/qkscope-*-cp311-*.whl 2>/dev/null; }

write_checksums() (
  cd "$dist" && sha256sum -- * >SHA256SUMS.part && mv SHA256SUMS.part SHA256SUMS && sha256sum --quiet --check SHA256SUMS
)

must version check_tree
version=$(tools/release_info.py version)
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
rm -rf "$dist"
mkdir "$dist"
tools/release_info.py notes >"$dist/RELEASE_NOTES.md" || exit 1
must wheels ./run.sh wheel "${options[@]}" "$@"
if wheel_for_debian >/dev/null; then
  must wheel-in-bare-root try_python_package "$(wheel_for_debian)"
else
  echo "wheel-in-bare-root: left out: no wheel for Python 3.11, which is Debian 12's; each wheel was tried in an environment of its own"
fi
must packages ./run.sh package "${options[@]}"
# shellcheck disable=SC2086  # one word per package
must sdist-in-bare-root try_python_package "build-wheel/dist/qkscope-$version.tar.gz" ${SOURCE_PACKAGES:-}
cp build-wheel/dist/qkscope-* build-package/qkscope-"$version"-*.tar.gz build-package/qkscope_"$version"_*.deb "$dist/" || exit 1
must sbom tools/make_sbom.py "$dist" build-package --modules build-wheel/module-* --out "$dist/qkscope-$version.cdx.json"
must checksums write_checksums
grep -q "^## $version (unreleased)" CHANGELOG.md &&
  echo "note: CHANGELOG.md calls $version unreleased: write the date there before the tag v$version"
du -h "$dist"/*
