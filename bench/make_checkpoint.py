#!/usr/bin/env python3
"""Writes a random checkpoint of the shape of SmolLM2-135M: a benchmark needs its sizes, not its knowledge.

    python bench/make_checkpoint.py FOLDER

Needs numpy only. The folder gets config.json and model.safetensors (float32, about 540 MB); the same seed gives the
same bytes.
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 49152,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "hidden_act": "silu",
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-05,
    "rope_theta": 100000.0,
    "rope_scaling": None,
    "attention_bias": False,
    "mlp_bias": False,
    "tie_word_embeddings": True,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "torch_dtype": "float32",
}


def tensor_shapes(config):
    """Name and shape of every tensor, in file order; the output embedding is tied."""
    hidden, mlp = config["hidden_size"], config["intermediate_size"]
    head_dim = hidden // config["num_attention_heads"]
    keys = config["num_key_value_heads"] * head_dim
    yield "model.embed_tokens.weight", (config["vocab_size"], hidden)
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        yield prefix + "input_layernorm.weight", (hidden,)
        yield prefix + "self_attn.q_proj.weight", (hidden, hidden)
        yield prefix + "self_attn.k_proj.weight", (keys, hidden)
        yield prefix + "self_attn.v_proj.weight", (keys, hidden)
        yield prefix + "self_attn.o_proj.weight", (hidden, hidden)
        yield prefix + "post_attention_layernorm.weight", (hidden,)
        yield prefix + "mlp.gate_proj.weight", (mlp, hidden)
        yield prefix + "mlp.up_proj.weight", (mlp, hidden)
        yield prefix + "mlp.down_proj.weight", (hidden, mlp)
    yield "model.norm.weight", (hidden,)


def safetensors_header(shapes):
    """The file's beginning: eight bytes of length, then JSON, padded with spaces to a multiple of eight bytes."""
    entries, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, shape in shapes:
        end = offset + 4 * int(np.prod(shape))
        entries[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def random_tensor(name, shape, generator):
    if "norm" in name:
        return 1 + 0.1 * generator.standard_normal(shape, dtype=np.float32)
    return generator.standard_normal(shape, dtype=np.float32) / np.float32(shape[-1] ** 0.5)


def main():
    parser = argparse.ArgumentParser(description="Write a random checkpoint of the shape of SmolLM2-135M.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    weights = arguments.folder / "model.safetensors"
    if weights.exists():
        sys.exit(f"error: {weights} exists already; remove it or name another folder")

    arguments.folder.mkdir(parents=True, exist_ok=True)
    shapes = list(tensor_shapes(CONFIG))
    generator = np.random.default_rng(arguments.seed)
    partial = weights.with_suffix(".partial")
    with partial.open("wb") as file:
        file.write(safetensors_header(shapes))
        for name, shape in shapes:
            file.write(random_tensor(name, shape, generator).astype("<f4").tobytes())
    (arguments.folder / "config.json").write_text(json.dumps(CONFIG, indent=2) + "\n")
    partial.rename(weights)
    print(f"{weights}: {weights.stat().st_size / 1e6:.0f} MB, {len(shapes)} tensors")


if __name__ == "__main__":
    main()
