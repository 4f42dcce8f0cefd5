"""Prints the strongest keys of every head from traced attention patterns.

    python tools/show_trace.py TRACE.safetensors
"""

import json
import sys

import numpy as np
from safetensors import safe_open
from safetensors.numpy import load_file


def main():
    tensors = load_file(sys.argv[1])
    with safe_open(sys.argv[1], "np") as file:
        texts = json.loads((file.metadata() or {}).get("token_texts", "[]"))
    layer = 0
    while (pattern := tensors.get(f"blocks.{layer}.attn.hook_pattern")) is not None:
        for head, weights in enumerate(pattern[:, -1]):
            top = np.argsort(weights)[::-1][:3]
            names = [f"position {key}" + (f" {texts[key]!r}" if texts else "") for key in top]
            looks = ", ".join(f"{name} ({weights[key]:.2f})" for name, key in zip(names, top))
            print(f"layer {layer} head {head}: {looks}")
        layer += 1


if __name__ == "__main__":
    main()
