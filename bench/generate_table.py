#!/usr/bin/env python3
"""Generates with `qkscope generate` and with transformers, in turns on the same cores, and prints one table.

    python bench/generate_table.py FOLDER [--threads N] [--rounds 3] [--prompt 32] [--new 128]

FOLDER is made by bench/make_checkpoint.py (the shape of SmolLM2-135M, bfloat16) when it is not there. Greedy, one text; the best of all
rounds counts for each. qkscope reads weights as they are stored and computes in float32; transformers computes in the type it
loads, so both of its types stand beside each stored one.
"""

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def ours(options, folder):
    ids = ",".join(str(10 + i) for i in range(options.prompt))
    command = [ROOT / "build/bin/qkscope", "generate", "--model", folder, "--device", "cpu", "--threads", options.threads,
               "--token-ids", ids, "--max-tokens", options.new + 1, "--ignore-end", "--ids"]
    output = subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True).stderr
    return float(re.search(r"([\d.]+) tokens/s", output).group(1))


def theirs(options, folder, dtype):
    command = [sys.executable, ROOT / "bench/generate_peer.py", folder, "--dtype", dtype, "--threads", options.threads,
               "--prompt", options.prompt, "--new", options.new, "--runs", 2]
    output = subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True).stdout
    return json.loads(output.splitlines()[-1])["tokens_per_s"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--prompt", type=int, default=32)
    parser.add_argument("--new", type=int, default=128)
    options = parser.parse_args()
    if not options.folder.exists():
        make = [sys.executable, ROOT / "bench/make_checkpoint.py", options.folder, "--dtype", "bfloat16"]
        subprocess.run(make, check=True)

    best = {}
    for _ in range(options.rounds):
        for name, rate in (("qkscope", ours(options, options.folder)),
                           ("float32", theirs(options, options.folder, "float32")),
                           ("bfloat16", theirs(options, options.folder, "bfloat16"))):
            best[name] = max(best.get(name, 0.0), rate)
    stored = json.loads((options.folder / "config.json").read_text()).get("torch_dtype", "?")
    print(f"weights stored as {stored}, {options.threads} threads, prompt of {options.prompt}, best of {options.rounds} rounds")
    print(f"{'':24} {'tokens/s':>9} {'ratio':>6}")
    for name, label in (("qkscope", "qkscope"), ("float32", "transformers, float32"), ("bfloat16", "transformers, bfloat16")):
        print(f"{label:24} {best[name]:>9.1f} {best['qkscope'] / best[name]:>6.2f}")


if __name__ == "__main__":
    main()
