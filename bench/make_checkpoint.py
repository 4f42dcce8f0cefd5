#!/usr/bin/env python3
"""Writes a checkpoint with random weights in the shape of a known model, for benchmarks.

    python bench/make_checkpoint.py FOLDER [--shape smollm3-3b] [--dtype bfloat16] [--layers N] [--tokenizer PATH]

Needs numpy only. The folder gets config.json and model.safetensors, and the tokenizer's files with --tokenizer; the
same options give the same bytes. To write a large model in seconds, one block of normal values is drawn once: every
tensor is a cyclic copy of this block from its own offset, scaled to its width.
"""

import argparse
import copy
import json
import lzma
import shutil
import sys
from pathlib import Path

import numpy as np

BLOCK = 30_000_001  # odd, so that no width divides it and the rows of a tensor differ

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_act": "silu",
    "attention_bias": False,
    "mlp_bias": False,
    "tie_word_embeddings": True,
    "rms_norm_eps": 1e-05,
    "rope_scaling": None,
}
SMOLLM3 = LLAMA | {
    "architectures": ["SmolLM3ForCausalLM"],
    "model_type": "smollm3",
    "rms_norm_eps": 1e-06,
    "sliding_window": None,
    "use_sliding_window": False,
    "pad_token_id": None,
}
QWEN3 = LLAMA | {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "rms_norm_eps": 1e-06,
    "tie_word_embeddings": False,
    "sliding_window": None,
    "use_sliding_window": False,
    "rope_theta": 1000000.0,
    # With YaRN, as in the captures at 131,072 tokens.
    "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768},
    "max_position_embeddings": 131072,
    "vocab_size": 151936,
}


QWEN2 = LLAMA | {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "rms_norm_eps": 1e-06,
    "sliding_window": None,
    "use_sliding_window": False,
    "rope_theta": 1000000.0,
    "max_position_embeddings": 32768,
    "vocab_size": 151936,
}


QWEN3_5 = LLAMA | {
    "architectures": ["Qwen3_5ForCausalLM"],
    "model_type": "qwen3_5_text",
    "rms_norm_eps": 1e-06,
    "vocab_size": 248320,
    "max_position_embeddings": 262144,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000000.0, "partial_rotary_factor": 0.25},
    "linear_conv_kernel_dim": 4,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
}
del QWEN3_5["rope_scaling"]


def sizes(layers, hidden, mlp, heads, key_heads, head_dim):
    return {"num_hidden_layers": layers, "hidden_size": hidden, "intermediate_size": mlp, "num_attention_heads": heads,
            "num_key_value_heads": key_heads, "head_dim": head_dim}


SHAPES = {
    "smollm2-135m": LLAMA | sizes(30, 576, 1536, 9, 3, 64) | {
        "vocab_size": 49152, "max_position_embeddings": 8192, "rope_theta": 100000.0},
    "smollm3-3b": SMOLLM3 | sizes(36, 2048, 11008, 16, 4, 128) | {
        "vocab_size": 128256, "max_position_embeddings": 131072, "rope_theta": 5000000.0,
        "no_rope_layers": [1, 1, 1, 0] * 9, "layer_types": ["full_attention"] * 36},
    "llama-3.2-1b": LLAMA | sizes(16, 2048, 8192, 32, 8, 64) | {
        "vocab_size": 128256, "max_position_embeddings": 131072, "rope_theta": 500000.0,
        "rope_scaling": {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                         "original_max_position_embeddings": 8192}},
    "llama-3.1-70b": LLAMA | sizes(80, 8192, 28672, 64, 8, 128) | {
        "vocab_size": 128256, "max_position_embeddings": 131072, "rope_theta": 500000.0, "tie_word_embeddings": False,
        "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                         "original_max_position_embeddings": 8192}},
    "qwen2.5-0.5b": QWEN2 | sizes(24, 896, 4864, 14, 2, 64),
    "qwen3-8b": QWEN3 | sizes(36, 4096, 12288, 32, 8, 128),
    "qwen3-14b": QWEN3 | sizes(40, 5120, 17408, 40, 8, 128),
    "qwen3-30b-a3b": QWEN3 | sizes(48, 2048, 6144, 32, 4, 128) | {
        "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "num_experts": 128, "num_experts_per_tok": 8,
        "moe_intermediate_size": 768, "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": []},
    "qwen3.5-4b": QWEN3_5 | sizes(32, 2560, 9216, 16, 4, 256) | {
        "layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 8},
}


def make_config(shape, dtype, layers):
    config = copy.deepcopy(SHAPES[shape])
    config["torch_dtype"] = dtype
    if layers:
        config["num_hidden_layers"] = layers
        for name in ("no_rope_layers", "layer_types"):
            if name in config:
                config[name] = [config[name][i % len(config[name])] for i in range(layers)]
    return config


def mlp_shapes(config, prefix):
    hidden, mlp, blocks = config["hidden_size"], config["intermediate_size"], [prefix]
    if "num_experts" in config:
        mlp, blocks = config["moe_intermediate_size"], [f"{prefix}experts.{i}." for i in range(config["num_experts"])]
        yield prefix + "gate.weight", (config["num_experts"], hidden)
    for block in blocks:
        yield block + "gate_proj.weight", (mlp, hidden)
        yield block + "up_proj.weight", (mlp, hidden)
        yield block + "down_proj.weight", (hidden, mlp)


def gated_delta_shapes(config, prefix):
    hidden, heads, d_value = (config[n] for n in ("hidden_size", "linear_num_value_heads", "linear_value_head_dim"))
    channels = 2 * config["linear_num_key_heads"] * config["linear_key_head_dim"] + heads * d_value
    yield prefix + "in_proj_qkv.weight", (channels, hidden)
    yield prefix + "in_proj_z.weight", (heads * d_value, hidden)
    yield prefix + "in_proj_b.weight", (heads, hidden)
    yield prefix + "in_proj_a.weight", (heads, hidden)
    yield prefix + "conv1d.weight", (channels, 1, config["linear_conv_kernel_dim"])
    yield prefix + "A_log", (heads,)
    yield prefix + "dt_bias", (heads,)
    yield prefix + "norm.weight", (d_value,)
    yield prefix + "out_proj.weight", (hidden, heads * d_value)


def tensor_shapes(config):
    """Returns name and shape of every tensor, in file order."""
    hidden, head_dim = config["hidden_size"], config["head_dim"]
    queries, keys = config["num_attention_heads"] * head_dim, config["num_key_value_heads"] * head_dim
    yield "model.embed_tokens.weight", (config["vocab_size"], hidden)
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        yield prefix + "input_layernorm.weight", (hidden,)
        if config.get("layer_types", [""] * (layer + 1))[layer] == "linear_attention":
            yield from gated_delta_shapes(config, prefix + "linear_attn.")
            yield prefix + "post_attention_layernorm.weight", (hidden,)
            yield from mlp_shapes(config, prefix + "mlp.")
            continue
        gated = config["model_type"] == "qwen3_5_text"  # rows of the gate alternate with rows of q
        yield prefix + "self_attn.q_proj.weight", (2 * queries if gated else queries, hidden)
        yield prefix + "self_attn.k_proj.weight", (keys, hidden)
        yield prefix + "self_attn.v_proj.weight", (keys, hidden)
        if config["model_type"] == "qwen2":
            yield prefix + "self_attn.q_proj.bias", (queries,)
            yield prefix + "self_attn.k_proj.bias", (keys,)
            yield prefix + "self_attn.v_proj.bias", (keys,)
        if config["model_type"].startswith("qwen3"):
            yield prefix + "self_attn.q_norm.weight", (head_dim,)
            yield prefix + "self_attn.k_norm.weight", (head_dim,)
        yield prefix + "self_attn.o_proj.weight", (hidden, queries)
        yield prefix + "post_attention_layernorm.weight", (hidden,)
        yield from mlp_shapes(config, prefix + "mlp.")
    yield "model.norm.weight", (hidden,)
    if not config["tie_word_embeddings"]:
        yield "lm_head.weight", (config["vocab_size"], hidden)


def safetensors_header(shapes, dtype):
    """Returns the header: eight bytes of length, then JSON; the data starts at a multiple of 64 bytes."""
    code, width = {"float32": ("F32", 4), "bfloat16": ("BF16", 2)}[dtype]
    entries, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, shape in shapes:
        end = offset + width * int(np.prod(shape))
        entries[name] = {"dtype": code, "shape": list(shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(entries).encode()
    text += b" " * (-(8 + len(text)) % 64)
    return len(text).to_bytes(8, "little") + text


def as_dtype(values, dtype):
    """Converts the values to the stored type; bfloat16 as its bits, rounded to nearest even."""
    if dtype == "float32":
        return values.astype("<f4", copy=False)
    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")


class Weights:
    """Random tensors of any size, all cut from one block of normal values."""

    def __init__(self, seed, dtype):
        self.generator = np.random.default_rng(seed)
        self.block = self.generator.standard_normal(BLOCK, dtype=np.float32)
        self.dtype = dtype
        self.scaled = {}  # input width → the block for matrices of that width

    def write(self, file, name, shape):
        start = int(self.generator.integers(BLOCK))
        if "norm" in name:
            file.write(as_dtype(1 + 0.1 * np.take(self.block, range(start, start + shape[0]), mode="wrap"), self.dtype))
            return
        width, left = shape[-1], int(np.prod(shape))
        if width not in self.scaled:
            self.scaled[width] = as_dtype(self.block * np.float32(width ** -0.5), self.dtype)
        while left > 0:
            piece = self.scaled[width][start:start + left]
            file.write(piece)
            left, start = left - len(piece), 0


def copy_tokenizer(source, folder):
    """`source` is a folder with the tokenizer's files, or a tokenizer.json, also compressed with xz."""
    if source.suffix == ".xz":
        (folder / "tokenizer.json").write_bytes(lzma.decompress(source.read_bytes()))
    elif source.is_file():
        shutil.copyfile(source, folder / "tokenizer.json")
    else:
        shutil.copyfile(source / "tokenizer.json", folder / "tokenizer.json")
        if (source / "tokenizer_config.json").exists():
            shutil.copyfile(source / "tokenizer_config.json", folder / "tokenizer_config.json")


def main():
    parser = argparse.ArgumentParser(description="Write a random checkpoint of the shape of a known model.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--shape", choices=SHAPES, default="smollm2-135m")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--layers", type=int, help="write only this many layers")
    parser.add_argument("--tokenizer", type=Path, help="folder with tokenizer.json, or the file, also as .json.xz")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    weights = arguments.folder / "model.safetensors"
    if weights.exists():
        sys.exit(f"error: {weights} exists already; remove it or name another folder")

    arguments.folder.mkdir(parents=True, exist_ok=True)
    if arguments.tokenizer:
        copy_tokenizer(arguments.tokenizer, arguments.folder)
    config = make_config(arguments.shape, arguments.dtype, arguments.layers)
    shapes = list(tensor_shapes(config))
    tensors = Weights(arguments.seed, arguments.dtype)
    partial = weights.with_suffix(".partial")
    with partial.open("wb") as file:
        file.write(safetensors_header(shapes, arguments.dtype))
        for name, shape in shapes:
            tensors.write(file, name, shape)
    (arguments.folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    partial.rename(weights)
    print(f"{weights}: {weights.stat().st_size / 1e6:.0f} MB, {len(shapes)} tensors")


if __name__ == "__main__":
    main()
