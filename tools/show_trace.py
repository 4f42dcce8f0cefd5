"""Shows where the traced token of each layer looks: the strongest keys of every head.

    python tools/show_trace.py TRACE.safetensors
"""

import sys

import numpy as np
from safetensors.numpy import load_file


def main():
    tensors = load_file(sys.argv[1])
    layer = 0
    while (pattern := tensors.get(f"blocks.{layer}.attn.hook_pattern")) is not None:
        for head, weights in enumerate(pattern[:, -1]):
            top = np.argsort(weights)[::-1][:3]
            looks = ", ".join(f"position {key} ({weights[key]:.2f})" for key in top)
            print(f"layer {layer} head {head}: {looks}")
        layer += 1


if __name__ == "__main__":
    main()
