#!/usr/bin/env python3
"""Writes known answers for head and position sampling with CPython's random and PyTorch.

Needs torch. Writes tests/capture/run/sampling_golden.json; run again only when a case is added:

    python tools/make_sampling_golden.py tests/capture/run/sampling_golden.json
"""

import hashlib
import json
import math
import random
import sys

import torch

MASK = (1 << 64) - 1


def mix(value):
    value &= MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK
    return value ^ (value >> 31)


def sampling_seed(example, layer, kind):
    seed = 0x243F6A8885A308D3
    for part in (example, layer, ord(kind)):
        seed = ((seed ^ mix(part)) * 0x9E3779B97F4A7C15) & MASK
        seed ^= seed >> 32
    return seed


def log_buckets(length, smallest):
    power = 0 if smallest == 1 else math.ceil(math.log2(smallest))
    positions = torch.arange(length, dtype=torch.int64)
    buckets = torch.log2((positions + 1).to(torch.float32)).floor()
    return torch.clamp(buckets, min=power)


def mask(kind_of_sampler, seed, length, smallest, rate):
    generator = torch.Generator(device="cpu")
    generator.manual_seed(seed)
    draws = torch.rand(length, generator=generator, dtype=torch.float32)
    if kind_of_sampler == "uniform":
        keep = torch.full((length,), min(1.0, rate / smallest), dtype=torch.float32)
    else:
        sizes = torch.pow(2.0, log_buckets(length, smallest))
        keep = torch.minimum(torch.ones(length), torch.tensor(rate, dtype=torch.float32) / sizes)
    return torch.nonzero(draws < keep).flatten().tolist()


def digest(numbers):
    """FNV-1a hash of the numbers, so that long lists need not be stored."""
    value = 0xCBF29CE484222325
    for number in numbers:
        value = ((value ^ (number & MASK)) * 0x100000001B3) & MASK
    return str(value)


def text_key(text):
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little", signed=True)


def head_cases():
    layouts = [(16, 32, 8), (28, 16, 8), (36, 16, 4), (40, 32, 8), (26, 32, 8), (2, 4, 2), (1, 1, 1)]
    cases = []
    for layers, heads, _ in layouts:
        n = layers * heads
        for count in sorted({1, 2, 5, 6, 7, 21, 64, 85, 100, 300, n // 2, n - 1} & set(range(1, n))):
            for seed in (0, 1, 42, -7, 2**31, 2**32 - 1, 2**32, 2**40 + 3, 2**63 - 1):
                drawn = random.Random(seed).sample(range(n), count)
                cases.append({"n": n, "count": count, "seed": seed, "first": drawn[:4],
                              "digest": digest(drawn)})
    return cases


def position_cases():
    examples = [0, 1, 7, -1, -123456789, 2**31, 2**31 + 5, 2**40, 2**63 - 1, -(2**63),
                text_key("a"), text_key("doc-00017"), text_key("Größe 東京")]
    cases = []
    for number, example in enumerate(examples):
        for sampler, smallest, rate, length in (
                ("uniform", 8192, 1.0, 131072), ("uniform", 256, 1.0, 4096), ("uniform", 128, 10.0, 1000),
                ("uniform", 3, 0.7, 257), ("uniform", 1, 1.0, 20), ("uniform", 4, 9.0, 33),
                ("log_uniform", 128, 1.0, 5000), ("log_uniform", 1, 1.0, 4097), ("log_uniform", 100, 3.3, 70000),
                ("log_uniform", 2, 0.35, 1025), ("log_uniform", 64, 25.0, 600)):
            for layer, kind in (((number * 5) % 40, "q"), (number % 3, "k")):
                seed = sampling_seed(example, layer, kind)
                kept = mask(sampler, seed, length, smallest, rate)
                cases.append({"example": str(example), "layer": layer, "kind": kind, "seed": str(seed),
                              "sampler": sampler, "min_bucket_size": smallest, "base_rate": rate,
                              "length": length, "count": len(kept), "first": kept[:4],
                              "digest": digest(kept)})
    return cases


def bucket_cases():
    """floor(log2(position + 1)) in float32 around every power of two up to 2^24."""
    positions = sorted({max(0, (1 << power) + offset) for power in range(25) for offset in range(-5, 4)})
    values = torch.log2((torch.tensor(positions) + 1).to(torch.float32)).floor().to(torch.int64)
    lasting = torch.log2(torch.arange(1, (1 << 22) + 1).to(torch.float32)).floor().to(torch.int64)
    steps = [0] + (torch.nonzero(lasting[1:] != lasting[:-1]).flatten() + 1).tolist()
    return {"positions": positions, "buckets": values.tolist(), "first_of_each": steps}


def main():
    golden = {"heads": head_cases(), "positions": position_cases(), "log_buckets": bucket_cases()}
    lines = [f'"{name}": [\n' + ",\n".join(json.dumps(case) for case in golden[name]) + "\n]"
             for name in ("heads", "positions")]
    lines.append('"log_buckets": ' + json.dumps(golden["log_buckets"]))
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        file.write("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
