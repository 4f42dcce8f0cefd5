"""Times the forward pass of one checkpoint in qkscope and in PyTorch, alternating, and prints a table.

    python bench/forward_table.py FOLDER [--threads N] [--rounds 3] [--tokens 512 2048]

bench/make_checkpoint.py writes FOLDER if it does not exist. Both sides compute logits in float32 with the same
weights on the same cores; the best of all rounds counts for each.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def lines(command):
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, nargs="+", default=[512, 2048])
    options = parser.parse_args()
    if not options.folder.exists():
        subprocess.run([sys.executable, ROOT / "bench/make_checkpoint.py", options.folder], check=True)

    tokens = [str(count) for count in options.tokens]
    ours = [ROOT / "build/bench/forward_bench", "--model", options.folder, "--threads", str(options.threads),
            "--repeats", "2", "--tokens", ",".join(tokens)]
    peer = [sys.executable, ROOT / "bench/forward_peer.py", options.folder, "--threads", str(options.threads),
            "--runs", "2", "--tokens", *tokens]
    best = {}
    for _ in range(options.rounds):
        for name, command in (("qkscope", ours), ("pytorch", peer)):
            for line in lines(command):
                key = (name, line["tokens"])
                best[key] = min(best.get(key, float("inf")), line["seconds"])

    print(f"float32, {options.threads} threads, best of {options.rounds} rounds")
    print(f"{'tokens':>8} {'qkscope tok/s':>14} {'PyTorch tok/s':>14} {'ratio':>6}")
    for count in options.tokens:
        mine, theirs = best["qkscope", count], best["pytorch", count]
        print(f"{count:>8} {count / mine:>14.0f} {count / theirs:>14.0f} {theirs / mine:>6.2f}")


if __name__ == "__main__":
    main()
