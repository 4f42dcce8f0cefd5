#!/usr/bin/env python3
"""Writes a tiny SmolLM3 checkpoint with random weights, and a tokenizer whose tokens are the bytes.

The checkpoint has every part of a real one (grouped heads, layers without RoPE, tied embeddings, bfloat16) and is written
in a moment, for demonstrations and tests. The same options give the same bytes on every machine. Needs only Python.
"""
import argparse
import json
import math
import os
import pathlib
import random
import struct
import sys


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0],
                                     formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--out", required=True, type=pathlib.Path, help="folder to write")
    parser.add_argument("--force", action="store_true", help="write into a folder that is not empty")
    parser.add_argument("--seed", type=int, default=0, help="of the random weights")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--hidden", type=int, default=64, help="size of the residual stream")
    parser.add_argument("--heads", type=int, default=4, help="query heads")
    parser.add_argument("--key-heads", type=int, default=2, help="key and value heads")
    parser.add_argument("--mlp", type=int, default=128, help="inner size of the MLP")
    parser.add_argument("--vocab", type=int, default=256, help="rows of the embedding, at least 256")
    parser.add_argument("--nope-interval", type=int, default=4, help="every n-th layer has no RoPE")
    options = parser.parse_args()
    for name in ("layers", "hidden", "heads", "key_heads", "mlp", "nope_interval"):
        if getattr(options, name) < 1:
            parser.error(f"--{name.replace('_', '-')}: found {getattr(options, name)}, expected 1 or more")
    if options.vocab < 256:
        parser.error(f"--vocab: found {options.vocab}, expected 256 or more: one token per byte")
    if options.hidden % (2 * options.heads):
        parser.error(f"--hidden: found {options.hidden}, expected a multiple of twice --heads ({options.heads})")
    if options.heads % options.key_heads:
        parser.error(f"--heads: found {options.heads}, expected a multiple of --key-heads ({options.key_heads})")
    if options.out.exists() and not options.out.is_dir():
        parser.error(f"--out: {options.out} is a file, expected a folder")
    if options.out.is_dir() and any(options.out.iterdir()) and not options.force:
        parser.error(f"--out: {options.out} is not empty; choose another folder or add --force")
    return options


def config(options):
    return {
        "architectures": ["SmolLM3ForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": None,
        "eos_token_id": None,
        "hidden_act": "silu",
        "hidden_size": options.hidden,
        "initializer_range": 0.02,
        "intermediate_size": options.mlp,
        "layer_types": ["full_attention"] * options.layers,
        "max_position_embeddings": 8192,
        "mlp_bias": False,
        "model_type": "smollm3",
        "no_rope_layer_interval": options.nope_interval,
        "no_rope_layers": [int((i + 1) % options.nope_interval != 0) for i in range(options.layers)],
        "num_attention_heads": options.heads,
        "num_hidden_layers": options.layers,
        "num_key_value_heads": options.key_heads,
        "pad_token_id": None,
        "rms_norm_eps": 1e-06,
        "rope_scaling": None,
        "rope_theta": 10000.0,
        "sliding_window": None,
        "torch_dtype": "bfloat16",
        "use_cache": False,
        "use_sliding_window": False,
        "vocab_size": options.vocab,
    }


def tensor_shapes(options):
    """Returns name -> shape, in file order."""
    hidden, mlp = options.hidden, options.mlp
    keys = hidden // options.heads * options.key_heads
    shapes = {"model.embed_tokens.weight": [options.vocab, hidden]}
    for i in range(options.layers):
        layer = f"model.layers.{i}."
        shapes[layer + "input_layernorm.weight"] = [hidden]
        shapes[layer + "self_attn.q_proj.weight"] = [hidden, hidden]
        shapes[layer + "self_attn.k_proj.weight"] = [keys, hidden]
        shapes[layer + "self_attn.v_proj.weight"] = [keys, hidden]
        shapes[layer + "self_attn.o_proj.weight"] = [hidden, hidden]
        shapes[layer + "post_attention_layernorm.weight"] = [hidden]
        shapes[layer + "mlp.gate_proj.weight"] = [mlp, hidden]
        shapes[layer + "mlp.up_proj.weight"] = [mlp, hidden]
        shapes[layer + "mlp.down_proj.weight"] = [hidden, mlp]
    shapes["model.norm.weight"] = [hidden]
    return shapes


def bell(generator):
    """Returns a nearly normal number with mean 0 and variance 1. Sums only, because the last bit of other functions
    depends on the machine."""
    return (sum(generator.random() for _ in range(4)) - 2.0) * 1.7320508075688772


def bfloat16(value):
    """Returns the bits of a bfloat16, rounded to nearest even."""
    bits = struct.unpack("<I", struct.pack("<f", value))[0]
    return (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16


def weights(shape, generator):
    """Returns norm weights near 1, or a matrix scaled so that outputs are as large as inputs."""
    if len(shape) == 1:
        values = [1.0 + 0.1 * bell(generator) for _ in range(shape[0])]
    else:
        scale = 1.0 / math.sqrt(shape[1])
        values = [scale * bell(generator) for _ in range(shape[0] * shape[1])]
    return struct.pack(f"<{len(values)}H", *map(bfloat16, values))


def safetensors(shapes, seed):
    generator = random.Random(seed)
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, shape in shapes.items():
        content = weights(shape, generator)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % 64)  # the data section starts at a multiple of 64 bytes
    return struct.pack("<Q", len(text)) + text + data


def byte_characters():
    """Returns the character for each byte in byte-level BPE: the byte itself if printable, else the next free
    character from U+0100."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return [chr(byte) if byte in printable else chr(0x100 + others.index(byte)) for byte in range(256)]


def tokenizer():
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {character: byte for byte, character in enumerate(byte_characters())},
            "merges": [],
        },
    }


def write(path, content):
    """Writes the file under a temporary name and renames it when complete."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_bytes(content)
    os.replace(temporary, path)


def main():
    options = parse_options()
    shapes = tensor_shapes(options)
    options.out.mkdir(parents=True, exist_ok=True)
    write(options.out / "model.safetensors", safetensors(shapes, options.seed))
    write(options.out / "tokenizer.json", json.dumps(tokenizer(), ensure_ascii=False, indent=1).encode())
    write(options.out / "tokenizer_config.json",
          json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}, indent=2).encode())
    write(options.out / "config.json", json.dumps(config(options), indent=2).encode())
    parameters = sum(math.prod(shape) for shape in shapes.values())
    print(f"{options.out}: SmolLM3 with {options.layers} layers, {parameters:,} parameters", file=sys.stderr)


if __name__ == "__main__":
    try:
        main()
    except OSError as error:
        sys.exit(f"error: {error}")
