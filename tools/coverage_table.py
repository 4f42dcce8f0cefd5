#!/usr/bin/env python3
"""Adds up what llvm-cov says of the readers per room, or lists the branches of files that were never taken.

coverage_table.py PROFILE PROGRAM... -- [FILE...]     coverage.sh calls it

A branch is one side of a condition in the source. Several instances of a template count once: a side is taken if any
instance takes it. Not counted: conditions with a constant value, and those inside of macros (assertions).
"""
import json
import pathlib
import re
import subprocess
import sys
from collections import defaultdict

SOURCE = pathlib.Path(__file__).resolve().parent.parent / "src"
ROOMS = ["input/checkpoint", "input/tokenizer", "input/texts", "base/tables"]
# The files that read; the others of these rooms write, lock and publish.
READERS = {
    "base/io": ["byte_reader.h", "checksum.cpp", "csv_rows.cpp", "json.cpp", "mapped_file.cpp"],
    "capture/format": ["buckets.cpp", "captures.cpp", "head_reader.cpp", "journal.cpp", "manifest.cpp", "segment.cpp"],
}
BRANCH = re.compile(r"Branch \((\d+):(\d+)\): \[True: (\S+), False: (\S+)\]")


def is_reader(path):
    room = str(path.parent.relative_to(SOURCE)) if path.is_relative_to(SOURCE) else None
    return room in ROOMS or path.name in READERS.get(room, [])


def ask(command, profile, programs, *options):
    objects = [word for program in programs[1:] for word in ("-object", program)]
    return subprocess.run(["llvm-cov", command, f"-instr-profile={profile}", programs[0], *objects, *options],
                          check=True, capture_output=True, text=True).stdout


def branches_of(shown):
    """Returns {(line, column, side): taken} of one file in the text of `llvm-cov show`."""
    taken = defaultdict(bool)
    for line, column, *counts in BRANCH.findall(shown):
        for side, count in zip(("true", "false"), counts):
            taken[int(line), int(column), side] |= count != "0"
    return taken


def main():
    split = sys.argv.index("--")
    profile, *programs = sys.argv[1:split]
    asked = [pathlib.Path(name).resolve() for name in sys.argv[split + 1:]]
    summaries = json.loads(ask("export", profile, programs, "-summary-only"))["data"][0]["files"]
    lines = {path: file["summary"]["lines"] for file in summaries
             if (path := pathlib.Path(file["filename"]).resolve()) in asked or (not asked and is_reader(path))}
    # All files but those of others: llvm-cov does not find a file by a name with "..", as ccache gives them.
    shown = ask("show", profile, programs, "-show-branches=count", "-ignore-filename-regex=/usr/|[.]venv|/tests/|/engine/")
    parts = re.findall(r"^(/\S+):\n(.*?)(?=^/\S+:\n|\Z)", shown, re.M | re.S)
    taken = {path: branches_of(text) for name, text in parts if (path := pathlib.Path(name).resolve()) in lines}
    if asked:
        for path, branches in taken.items():
            source = path.read_text().splitlines()
            for line, column, side in sorted(place for place, was_taken in branches.items() if not was_taken):
                print(f"{path.name}:{line}:{column} never {side}: {source[line - 1].strip()}")
        return
    rooms, files = defaultdict(lambda: [0, 0, 0, 0]), []
    for path, line_counts in lines.items():
        branches = taken.get(path, {}).values()
        counts = [line_counts["covered"], line_counts["count"], sum(branches), len(branches)]
        for room in (str(path.parent.relative_to(SOURCE)), "all"):
            rooms[room] = [a + b for a, b in zip(rooms[room], counts)]
        files.append((counts[3] - counts[2], counts[3], path.relative_to(SOURCE)))
    print("| room | lines | branches |\n| --- | --- | --- |")
    for room, (lines, all_lines, branches, all_branches) in sorted(rooms.items(), key=lambda item: item[0] == "all"):
        print(f"| {room} | {lines:,} of {all_lines:,} ({100 * lines / all_lines:.1f} %) | "
              f"{branches:,} of {all_branches:,} ({100 * branches / all_branches:.1f} %) |")
    print("\nFiles with most branches that were never taken:")
    for missing, count, path in sorted(files, reverse=True)[:25]:
        print(f"{missing:5} of {count:5}  {path}")


if __name__ == "__main__":
    main()
