#!/usr/bin/env python3
"""Times generation in `qkscope generate` and its peers, alternating on the same cores, and prints a table.

    python bench/generate_table.py FOLDER | FILE.gguf [--threads N] [--rounds 3] [--prompt 32] [--new 128]
                                   [--peer-python PYTHON]

bench/make_checkpoint.py writes FOLDER (the shape of SmolLM2-135M, bfloat16) if it does not exist; its peer is
transformers. The peer of a GGUF file is llama.cpp, which reads the same file (bench/make_gguf.py converts it to another
type). Greedy, one text; the best of all rounds counts for each, in wall time and in processor time, which a busy machine
does not change. qkscope reads weights in their stored type and computes in float32; transformers computes in the type it
loads, so both types are listed. llama.cpp multiplies quantised weights as 8-bit integers.
"""

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def run(command):
    """Returns the output of the command and its processor seconds."""
    before = os.times()
    done = subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True)
    after = os.times()
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    return done.stdout + done.stderr, spent


def ours(options):
    """Returns tokens/s and processor milliseconds per token, from the difference of two runs of different length."""
    ids = ",".join(str(10 + i) for i in range(options.prompt))
    command = [ROOT / "build/bin/qkscope", "generate", "--model", options.model, "--device", "cpu", "--ignore-end", "--ids",
               "--threads", options.threads, "--token-ids", ids, "--max-new-tokens"]
    _, short = run([*command, 1])
    output, whole = run([*command, options.new + 1])
    rate = float(re.search(r"([\d.]+) tokens/s", output).group(1))
    return rate, (whole - short) / options.new * 1e3


def theirs(options, program, *arguments):
    command = [options.peer_python, ROOT / "bench" / program, options.model, *arguments, "--threads", options.threads,
               "--prompt", options.prompt, "--new", options.new, "--runs", 2]
    line = json.loads(next(line for line in run(command)[0].splitlines() if line.startswith("{")))
    return line["tokens_per_s"], line["processor_ms"]


def peers(options):
    """Returns name -> function that measures this peer."""
    if options.model.suffix == ".gguf":
        return {"llama.cpp": lambda: theirs(options, "llama_cpp_peer.py")}
    return {f"transformers, {dtype}": lambda dtype=dtype: theirs(options, "generate_peer.py", "--dtype", dtype)
            for dtype in ("float32", "bfloat16")}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--prompt", type=int, default=32)
    parser.add_argument("--new", type=int, default=128)
    parser.add_argument("--peer-python", default=sys.executable)
    options = parser.parse_args()
    if not options.model.exists() and options.model.suffix != ".gguf":
        make = [options.peer_python, ROOT / "bench/make_checkpoint.py", options.model, "--dtype", "bfloat16"]
        subprocess.run(make, check=True)

    best = {}
    for _ in range(options.rounds):
        for name, measure in {"qkscope": lambda: ours(options), **peers(options)}.items():
            rate, processor = measure()
            before = best.get(name, (0.0, float("inf")))
            best[name] = max(before[0], rate), min(before[1], processor)
    print(f"{options.model.name}, {options.threads} threads, prompt of {options.prompt}, best of {options.rounds} rounds")
    print(f"{'':24} {'tokens/s':>9} {'ratio':>6} {'processor ms':>13} {'ratio':>6}")
    mine = best["qkscope"]
    for name, (rate, processor) in best.items():
        print(f"{name:24} {rate:>9.1f} {mine[0] / rate:>6.2f} {processor:>13.1f} {processor / mine[1]:>6.2f}")


if __name__ == "__main__":
    main()
