#!/usr/bin/env python3
"""Compares `qkscope tokenize` with the Hugging Face tokenizers library on random texts.

Ids must be equal on all texts; offsets, ids cut on either side and decoded texts on the first ones.
Usage: differential.py QKSCOPE TOKENIZER.json[.xz] [--count N] [--detailed N] [--code-points]
"""

import argparse
import json
import lzma
import pathlib
import subprocess
import sys
import tempfile

import tokenizers

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from random_texts import RandomTexts  # noqa: E402

MAX_LENGTH = 12  # short, so that most texts are cut
BLOCK = 20000
SKIPPED = 77  # the exit status ctest reads as "skipped"


def write_lines(path, objects):
    with open(path, "w", encoding="utf-8") as file:
        for number, item in enumerate(objects):
            file.write(json.dumps(item, ensure_ascii=number % 2 == 0) + "\n")


def run(program, tokenizer, lines, *options):
    """Returns the program's responses to a list of requests, in order."""
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        write_lines(file.name, lines)
        command = [program, "tokenize", "--tokenizer", tokenizer, "--jsonl", file.name, *options]
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed: {done.stderr}")
    return [json.loads(line) for line in done.stdout.split("\n") if line]


class Check:
    def __init__(self, name):
        self.name, self.failures = name, 0

    def equal(self, what, text, found, expected):
        if found == expected:
            return
        self.failures += 1
        if self.failures <= 10:
            print(f"{self.name}: {what} of {text!r}\n  found    {found}\n  expected {expected}")


def compare_ids(program, path, texts, check):
    """Compares one batch of texts. Returns the encodings of the library."""
    hf = tokenizers.Tokenizer.from_file(path)
    hf.no_padding()
    hf.no_truncation()
    lines = [{"text": text} for text in texts]
    encoded = hf.encode_batch(texts)
    for text, mine, theirs in zip(texts, run(program, path, lines), encoded, strict=True):
        check.equal("ids", text, mine["ids"], theirs.ids)
    return hf, lines, encoded


def compare(program, path, texts, check):
    hf, lines, encoded = compare_ids(program, path, texts, check)
    with_offsets = run(program, path, lines, "--offsets")
    for text, mine, theirs in zip(texts, with_offsets, encoded, strict=True):
        check.equal("ids with offsets", text, mine["ids"], theirs.ids)
        check.equal("offsets", text, [tuple(o) for o in mine.get("offsets") or []], theirs.offsets)
    plain = hf.encode_batch(texts, add_special_tokens=False)
    for text, mine, theirs in zip(texts, run(program, path, lines, "--no-special"), plain, strict=True):
        check.equal("ids without special tokens", text, mine["ids"], theirs.ids)
    ids = [{"ids": e.ids} for e in encoded]
    for text, mine, one in zip(texts, run(program, path, ids, "--decode"), ids, strict=True):
        check.equal("decoded text", text, mine["text"], hf.decode(one["ids"], skip_special_tokens=False))
    for text, mine, one in zip(texts, run(program, path, ids, "--decode", "--no-special"), ids, strict=True):
        check.equal("decoded without special", text, mine["text"], hf.decode(one["ids"]))
    for side in ("right", "left"):
        hf.enable_truncation(MAX_LENGTH, direction=side)
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "tokenizer.json").symlink_to(path)
            pathlib.Path(folder, "tokenizer_config.json").write_text(json.dumps({"truncation_side": side}))
            found = run(program, folder, lines, "--max-tokens", str(MAX_LENGTH))
        for text, mine, theirs in zip(texts, found, hf.encode_batch(texts), strict=True):
            check.equal(f"ids cut on the {side}", text, mine["ids"], theirs.ids)


def unpacked(path, folder):
    if not path.endswith(".xz"):
        return str(pathlib.Path(path).resolve())
    out = pathlib.Path(folder, pathlib.Path(path).stem)
    out.write_bytes(lzma.open(path).read())
    return str(out)


def random_texts(path, options):
    special = [t["content"] for t in json.loads(pathlib.Path(path).read_text())["added_tokens"]]
    maker = RandomTexts(options.seed, special[:50])
    return [maker.text() for _ in range(options.count)]


def every_character():
    """Places every code point after a letter, before a letter, after a space and after an apostrophe."""
    codes = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    return ["".join(f"a{chr(c)}b {chr(c)}'{chr(c)}" for c in codes[at : at + 64]) for at in range(0, len(codes), 64)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("tokenizer")
    parser.add_argument("--count", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--detailed", type=int, default=1000, help="texts whose offsets etc. are compared")
    parser.add_argument("--code-points", action="store_true", help="every character instead of random texts")
    options = parser.parse_args()
    if not pathlib.Path(options.tokenizer).exists():
        print(f"skipped: {options.tokenizer} is not there")
        sys.exit(SKIPPED)
    with tempfile.TemporaryDirectory() as folder:
        path = unpacked(options.tokenizer, folder)
        check = Check(pathlib.Path(path).name)
        texts = every_character() if options.code_points else random_texts(path, options)
        for start in range(0, len(texts), BLOCK):
            compare_ids(options.program, path, texts[start : start + BLOCK], check)
        compare(options.program, path, texts[: options.detailed], check)
    print(f"{check.name}: {len(texts)} texts, {check.failures} differences")
    sys.exit(1 if check.failures else 0)


if __name__ == "__main__":
    main()
