#!/usr/bin/env python3
"""Prints the heads with the highest scores in the table `attention`, beside the expected heads.

    tools/demo/heads_found.py results/demo-real/tables [--expect previous_token_head=16.0 ...]

The induction score excludes the first token, which attracts most attention of induction heads without a repetition.
"""

import argparse
import csv
from pathlib import Path

KINDS = {"induction_head_nobos": "induction", "previous_token_head": "previous token", "sink_0": "first token (sink)"}


def read_heads(folder):
    with open(Path(folder) / "attention.csv", newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def best(rows, column, count=3):
    order = sorted(rows, key=lambda row: float(row[column] or "nan"), reverse=True)
    return [(f"{row['layer']}.{row['head']}", float(row[column])) for row in order[:count]]


def main():
    parser = argparse.ArgumentParser(description="The heads that attend most to one kind of token.")
    parser.add_argument("results", type=Path)
    parser.add_argument("--expect", nargs="*", default=[], metavar="COLUMN=LAYER.HEAD")
    arguments = parser.parse_args()
    expected = dict(pair.split("=", 1) for pair in arguments.expect)
    rows = read_heads(arguments.results)
    print("\nheads (layer.head) that attend most to")
    for column, name in KINDS.items():
        heads = ", ".join(f"{head} ({score:.2f})" for head, score in best(rows, column))
        reference = f"   reference: {expected[column]}" if column in expected else ""
        print(f"  {name:20} {heads}{reference}")
    sinks = sum(float(row["sink_0"]) > 0.5 for row in rows)
    print(f"  {sinks} of {len(rows)} heads pay more than half of their attention to the first token")


if __name__ == "__main__":
    main()
