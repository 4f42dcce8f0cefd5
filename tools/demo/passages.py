#!/usr/bin/env python3
"""Cuts passages of equal length, evenly spaced, from a long text and writes one file each.

    tools/demo/passages.py TEXT FOLDER [--count 24] [--characters 20000]

Each paragraph becomes one line; tables of box-drawing characters are left out.
"""

import argparse
from pathlib import Path


def paragraphs_of(text):
    for block in text.split("\n\n"):
        lines = [line.strip() for line in block.splitlines()]
        if not any("\u2500" <= character <= "\u257f" for character in block) and any(lines):
            yield " ".join(line for line in lines if line)


def passages(text, count, characters):
    whole = "\n\n".join(paragraphs_of(text))
    stride = len(whole) // count
    if stride < characters:
        raise SystemExit(f"error: the text has {len(whole)} characters, too few for {count} passages of {characters}")
    for number in range(count):
        begin = number * stride
        begin = whole.find("\n\n", begin) + 2 if number > 0 else 0
        yield whole[begin:begin + characters]


def main():
    parser = argparse.ArgumentParser(description="Cut a long text into passages.")
    parser.add_argument("text", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=24)
    parser.add_argument("--characters", type=int, default=20000)
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    found = passages(arguments.text.read_text(encoding="utf-8"), arguments.count, arguments.characters)
    for number, passage in enumerate(found, 1):
        (arguments.folder / f"passage-{number:02}.txt").write_text(passage, encoding="utf-8")


if __name__ == "__main__":
    main()
