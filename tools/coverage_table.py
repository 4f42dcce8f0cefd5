#!/usr/bin/env python3
"""Adds up a summary of llvm-cov (standard input, JSON) per room: coverage.sh calls it."""
import json
import pathlib
import sys
from collections import defaultdict

SOURCE = pathlib.Path(__file__).resolve().parent.parent / "src"
ROOMS = ["input/checkpoint", "input/tokenizer", "input/texts", "base/tables"]
# The files that read; the others of these rooms write, lock and publish.
READERS = {
    "base/io": ["byte_reader.h", "checksum.cpp", "csv_rows.cpp", "json.cpp", "mapped_file.cpp"],
    "capture/format": ["buckets.cpp", "captures.cpp", "head_reader.cpp", "journal.cpp", "manifest.cpp", "segment.cpp"],
}


def main():
    rooms = defaultdict(lambda: [0, 0, 0, 0])
    files = []
    for file in json.load(sys.stdin)["data"][0]["files"]:
        path = pathlib.Path(file["filename"])
        if not path.is_relative_to(SOURCE):
            continue
        name = path.relative_to(SOURCE)
        room = str(name.parent)
        if room not in ROOMS and name.name not in READERS.get(room, []):
            continue
        summary = file["summary"]
        counts = [summary[kind][what] for kind in ("lines", "branches") for what in ("covered", "count")]
        rooms[room] = [a + b for a, b in zip(rooms[room], counts)]
        rooms["all"] = [a + b for a, b in zip(rooms["all"], counts)]
        files.append((counts[3] - counts[2], str(name), counts))
    print("| room | lines | branches |\n| --- | --- | --- |")
    for room, (lines, all_lines, branches, all_branches) in sorted(rooms.items(), key=lambda item: item[0] == "all"):
        print(f"| {room} | {lines} of {all_lines} ({100 * lines / all_lines:.1f} %) | "
              f"{branches} of {all_branches} ({100 * branches / all_branches:.1f} %) |")
    print("\nFiles with most branches that were never taken:")
    for missing, name, counts in sorted(files, reverse=True)[:25]:
        print(f"{missing:5} of {counts[3]:5}  {name}")


if __name__ == "__main__":
    main()
