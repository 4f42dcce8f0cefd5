#!/usr/bin/env python3
"""Compares the speed of qkscope's tokenizer and the Hugging Face library in one run, and prints a table.

Each text is one document of about 128K tokens: English (local texts if present, else generated), made-up words of many
scripts, and source code (the project's own).
Usage: bench/tokenizer_bench.py TOKENIZER.json[.xz] ... [--seconds S] [--build FOLDER]
"""

import argparse
import json
import lzma
import os
import pathlib
import random
import subprocess
import tempfile
import time

import tokenizers

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOCUMENT = 620_000  # bytes
CUT = 4096  # ids


def zipf_text(alphabets, size):
    """Draws words from a vocabulary of 20,000 by Zipf's law."""
    draw = random.Random(1)
    words = []
    for _ in range(20000):
        low, high = draw.choice(alphabets)
        words.append("".join(chr(draw.randint(low, high)) for _ in range(draw.randint(1, 9))))
    weights = [1 / (rank + 3) for rank in range(len(words))]
    out, held = [], 0
    while held < size:
        block = draw.choices(words, weights, k=2000)
        for word in block:
            out.append(word)
            out.append(draw.choice([" ", " ", " ", " ", ", ", ". ", "\n"]))
            held += len(word.encode()) + 1
    return "".join(out)


def english():
    files = sorted((ROOT.parent / "shared" / "texts").glob("*.txt"))
    if files:
        return files[0].read_text(encoding="utf-8")
    return zipf_text([(0x61, 0x7A)], DOCUMENT)


def code():
    files = subprocess.run(["git", "ls-files", "*.cpp", "*.h", "*.py", "*.sh", "*.cmake"], cwd=ROOT,
                           capture_output=True, text=True, check=True).stdout.split()
    text = "".join((ROOT / name).read_text(encoding="utf-8") for name in files)
    return text * (1 + DOCUMENT // len(text))


def mixed():
    return zipf_text([(0x61, 0x7A), (0xE0, 0xFC), (0x3B1, 0x3C9), (0x430, 0x44F), (0x5D0, 0x5EA), (0x627, 0x64A),
                      (0x905, 0x939), (0xE01, 0xE2E), (0x3041, 0x3096), (0x4E00, 0x6FFF), (0xAC00, 0xB000)], DOCUMENT)


def documents(folder):
    """Returns name -> file with one document."""
    files = {}
    for name, text in (("English", english()), ("mixed scripts", mixed()), ("code", code())):
        files[name] = pathlib.Path(folder, name.replace(" ", "-") + ".txt")
        files[name].write_bytes(text.encode()[:DOCUMENT].decode(errors="ignore").encode())
    return files


def best(seconds, call):
    """Returns the fastest of the calls that fit into the time, at least two."""
    start, fastest, calls = time.perf_counter(), 1e9, 0
    while calls < 2 or time.perf_counter() - start < seconds:
        begin = time.perf_counter()
        call()
        fastest = min(fastest, time.perf_counter() - begin)
        calls += 1
    return fastest


def measure_peer(path, text, seconds):
    cores = os.cpu_count()
    load = best(seconds, lambda: tokenizers.Tokenizer.from_file(path))
    peer = tokenizers.Tokenizer.from_file(path)
    ids = len(peer.encode(text).ids)
    whole = best(seconds, lambda: peer.encode(text))
    batch = best(seconds, lambda: peer.encode_batch([text] * cores)) / cores
    peer.enable_truncation(CUT)
    cut = best(seconds, lambda: peer.encode(text))
    return {"load_s": load, "ids": ids, "whole_s": whole, "all_s": batch, "cut_s": cut}


def measure_own(program, path, file, seconds):
    def run(threads):
        command = [program, "--tokenizer", path, "--text", file, "--cut", CUT, "--threads", threads, "--seconds", seconds]
        return json.loads(subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True).stdout)
    one, every = run(1), run(0)
    return {**one, "all_s": every["whole_s"]}


def report(name, kind, own, peer):
    assert own["ids"] == peer["ids"], f"{name}: {own['ids']} ids, the library gives {peer['ids']}"
    rate = lambda seconds: own["bytes"] / seconds / 1e6  # noqa: E731
    print(f"| {name} | {kind} | {own['ids']:,} | {rate(own['whole_s']):.1f} | {rate(peer['whole_s']):.2f} "
          f"| {peer['whole_s'] / own['whole_s']:.0f}x | {rate(own['all_s']):.1f} | {rate(peer['all_s']):.2f} "
          f"| {1 / own['cut_s']:,.0f} | {1 / peer['cut_s']:.1f} | {own['load_s']:.3f} | {peer['load_s']:.2f} |", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tokenizers", nargs="+")
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--build", default=str(ROOT / "build"))
    options = parser.parse_args()
    program = pathlib.Path(options.build, "bench", "tokenizer_bench")
    print(f"One document of {DOCUMENT:,} bytes; {os.cpu_count()} cores; tokenizers {tokenizers.__version__}.")
    print("| tokenizer | text | ids | MB/s, one core | library | ratio | MB/s, all cores | library "
          f"| documents/s cut to {CUT} | library | load s | library |")
    print("|" + " --- |" * 12)
    with tempfile.TemporaryDirectory() as folder:
        files = documents(folder)
        for given in options.tokenizers:
            path = pathlib.Path(given)
            if path.suffix == ".xz":
                path = pathlib.Path(folder, path.stem)
                path.write_bytes(lzma.open(given).read())
            for kind, file in files.items():
                own = measure_own(program, path, file, options.seconds)
                peer = measure_peer(str(path), file.read_text(encoding="utf-8"), options.seconds)
                report(path.stem, kind, own, peer)


if __name__ == "__main__":
    main()
