#!/usr/bin/env python3
"""Prints the slowest steps of a build from ninja's log.

    tools/slowest_units.py [BUILD_FOLDER] [-n COUNT]

Times are wall-clock seconds of each step as measured by ninja; on a busy machine they exceed the CPU time. The last run
of a repeated step counts.
"""
import argparse
import collections
import pathlib
import sys


def steps(log: pathlib.Path) -> dict[str, float]:
    """Returns the seconds of the last run of each step, by the name of its first output."""
    commands = {}
    for line in log.read_text().splitlines():
        if line.startswith("#"):
            continue
        begin, end, _, output, command = line.split("\t")
        # A step with several outputs has one line for each, with the same times and command.
        commands[command, begin, end] = (output, (int(end) - int(begin)) / 1000)
    seconds = {}
    for output, time in commands.values():
        seconds[output] = time
    return seconds


def kind_of(output: str) -> str:
    if not output.endswith(".o"):
        return "linking and other steps"
    folders = output.split("/CMakeFiles/")[0].split("/")
    return "/".join(folders[:2])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", nargs="?", default="build", help="a build folder (build)")
    parser.add_argument("-n", "--count", type=int, default=25, help="how many units to print (25)")
    options = parser.parse_args()
    log = pathlib.Path(options.build) / ".ninja_log"
    if not log.exists():
        print(f"error: {log}: no such file; expected a folder that ninja has built in", file=sys.stderr)
        return 2
    seconds = steps(log)
    for output, time in sorted(seconds.items(), key=lambda item: -item[1])[: options.count]:
        print(f"{time:8.1f} s  {output.replace('CMakeFiles/', '')}")
    folders = collections.Counter()
    for output, time in seconds.items():
        folders[kind_of(output)] += time
    print(f"\n{sum(seconds.values()):8.1f} s  {len(seconds)} steps in all, by folder:")
    for folder, time in folders.most_common():
        print(f"{time:8.1f} s  {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
