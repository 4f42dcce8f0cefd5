#!/usr/bin/env python3
"""Writes tests/golden/gguf_blocks.safetensors: random blocks of every supported GGUF type, and their float32 values
from the `gguf` package.

    python tools/make_gguf_golden.py [--out tests/golden/gguf_blocks.safetensors]

Needs gguf (tools/requirements-bench.txt). For each type, `Q4_K.blocks` (uint8, [block, bytes]) and `Q4_K.values`
(float32, [block, element]). Scales are float16 numbers of all magnitudes and signs, subnormals and zero included;
those of MXFP4 are random exponents.
"""

import argparse
from pathlib import Path

import gguf
import numpy as np
from safetensors.numpy import save_file

# Byte offsets of the float16 scales in a block.
SCALES = {"Q8_0": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q2_K": [80, 82], "Q3_K": [108],
          "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "MXFP4": []}
BLOCKS = 4


def random_blocks(name, generator):
    kind = gguf.GGMLQuantizationType[name]
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = generator.integers(0, 256, (BLOCKS, size), dtype=np.uint8)
    for at in SCALES[name]:
        scales = (generator.standard_normal(BLOCKS) * 10.0 ** generator.integers(-7, 3, BLOCKS)).astype(np.float16)
        scales[0] = 0
        blocks[:, at:at + 2] = scales.view(np.uint8).reshape(BLOCKS, 2)
    return blocks, gguf.dequantize(blocks, kind).reshape(BLOCKS, elements)


def plain_numbers(name, generator):
    dtype = {"F32": np.float32, "F16": np.float16, "BF16": np.uint16}[name]
    values = (generator.standard_normal(64) * 10.0 ** generator.integers(-7, 4, 64)).astype(np.float32)
    bits = (values.view(np.uint32) >> 16).astype(np.uint16) if name == "BF16" else values.astype(dtype)
    stored = bits.view(np.uint8).reshape(64, -1)
    return stored, np.asarray(gguf.dequantize(stored, gguf.GGMLQuantizationType[name]), np.float32).reshape(64, 1)


def main():
    parser = argparse.ArgumentParser(description="Make the golden blocks of GGUF files.")
    default = Path(__file__).parent.parent / "tests" / "golden" / "gguf_blocks.safetensors"
    parser.add_argument("--out", type=Path, default=default)
    arguments = parser.parse_args()
    generator = np.random.default_rng(22)
    tensors = {}
    for name in ("F32", "F16", "BF16", *SCALES):
        make = random_blocks if name in SCALES else plain_numbers
        tensors[f"{name}.blocks"], tensors[f"{name}.values"] = make(name, generator)
    save_file({name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}, arguments.out)
    print(f"{arguments.out}: {len(tensors) // 2} types, {arguments.out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
