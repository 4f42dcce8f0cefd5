#!/usr/bin/env bash
# Packs the fuzzing corpus of a parser into tests/fuzz/corpus/NAME.tar.xz; the same inputs give the same bytes.
#   tools/pack_corpus.sh NAME [FOLDER]
# The inputs come from the archive and from FOLDER (default: build-fuzz/corpus/NAME, where `./run.sh fuzz NAME` writes new
# inputs). Inputs with a hand-written name stay; inputs that libFuzzer named by their SHA-1 are reduced to the smallest
# set with the same coverage (libFuzzer's set cover).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
readonly name=${1:?usage: tools/pack_corpus.sh NAME [FOLDER]}
readonly found=${2:-build-fuzz/corpus/$name}
readonly archive=tests/fuzz/corpus/$name.tar.xz
readonly program=build-fuzz/fuzz/fuzz_$name
export LC_ALL=C

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/all" "$work/kept"
if [ -f "$archive" ]; then tar -xJf "$archive" -C "$work/all"; fi
if [ -d "$found" ]; then find "$found" -maxdepth 1 -type f -exec cp -t "$work/all" {} +; fi

find "$work/all" -type f | grep -vE '/[0-9a-f]{40}$' | xargs -r cp -t "$work/kept"
if ls "$work/all" | grep -xE '[0-9a-f]{40}' >/dev/null; then
  [ -x "$program" ] || { echo "error: $program is not there: './run.sh fuzz $name 1' builds it" >&2; exit 1; }
  "$program" -set_cover_merge=1 "$work/kept" "$work/all" >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
  grep 'MERGE-OUTER' "$work/log" | tail -1
fi

tar --sort=name --format=ustar --owner=0 --group=0 --numeric-owner --mode=0644 --mtime=@0 \
  -C "$work/kept" -cf "$work/packed.tar" $(ls "$work/kept")
xz -9e --threads=1 <"$work/packed.tar" >"$archive"
echo "$archive: $(ls "$work/kept" | wc -l) of $(ls "$work/all" | wc -l) inputs, $(stat -c %s "$archive") bytes"
