"""Writes inverse frequencies of transformers, bit for bit, for every RoPE type and for the parameters of real models.

rope_frequencies.json is a list of entries:

    name               description of the entry
    head_dim           dimensions of one head, of which partial_rotary_factor (in rope_parameters, 1 if absent) rotates
    max_position_embeddings
    sequence_length    tokens of the pass; selects the frequency set of dynamic and longrope
    rope_parameters    in the newer spelling
    attention_factor   the factor on cos and sin, a double as a C hexadecimal literal
    inv_freq           float32 as bit patterns, eight hexadecimal digits each
    vectorised         number of leading entries that torch computed with its vector function

torch computes powers with a vector function in blocks (of eight on aarch64, of sixteen or more on x86-64) and the
remainder with the C library, so the last bit of the entries after `vectorised` depends on the processor.
"""

import copy
import json
import struct

import torch
from transformers import GlmConfig, LlamaConfig
from transformers.models.glm.modeling_glm import GlmRotaryEmbedding
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from .cases import ROPE_TYPES

BLOCK = 8  # two vectors of four floats: aarch64


def default(theta, **values):
    return {"rope_type": "default", "rope_theta": theta, **values}


def llama3(factor):
    return {"rope_type": "llama3", "rope_theta": 500000.0, "factor": factor, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}


def yarn(theta, factor, original, **values):
    return {"rope_type": "yarn", "rope_theta": theta, "factor": factor, "original_max_position_embeddings": original,
            **values}


MSCALE = {"beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0}

# name, head_dim, max_position_embeddings, rope_parameters
REAL = [
    ("SmolLM2", 64, 8192, default(100000)),
    ("SmolLM3, first stage", 128, 4096, default(50000.0)),
    ("SmolLM3, second stage", 128, 32768, default(2000000.0)),
    ("SmolLM3", 128, 65536, default(5000000.0)),
    ("Llama 2", 128, 4096, default(10000.0)),
    ("Llama 3.1 8B, Llama 3.2 11B Vision", 128, 131072, llama3(8.0)),
    ("Llama 3.2 1B", 64, 131072, llama3(32.0)),
    ("Llama 3.2 3B", 128, 131072, llama3(32.0)),
    ("Mistral 7B v0.2, Qwen2.5 7B, Qwen3", 128, 40960, default(1000000)),
    ("Qwen2.5 0.5B", 64, 32768, default(1000000.0)),
    ("Qwen3, YaRN 4x", 128, 131072, yarn(1000000, 4.0, 32768)),
    ("Ministral 3", 128, 262144, yarn(1000000.0, 16.0, 16384, **MSCALE)),
    ("Devstral Small 2", 128, 393216, yarn(100000000.0, 48.0, 8192, **MSCALE)),
    ("Gemma 3 4B, sliding layers", 256, 131072, default(10000.0)),
    ("Gemma 3 1B, full layers", 256, 32768, default(1000000)),
    ("Gemma 3 4B, full layers", 256, 131072, {"rope_type": "linear", "rope_theta": 1000000.0, "factor": 8.0}),
    ("Gemma 3 27B, full layers", 128, 131072, {"rope_type": "linear", "rope_theta": 1000000.0, "factor": 8.0}),
    ("GLM-4 9B", 128, 131072, default(10000.0, partial_rotary_factor=0.5)),
]


def rotary(head_dim, limit, parameters):
    partial = "partial_rotary_factor" in parameters
    config_class, rotary_class = (GlmConfig, GlmRotaryEmbedding) if partial else (LlamaConfig, LlamaRotaryEmbedding)
    config = config_class(head_dim=head_dim, max_position_embeddings=limit, rope_parameters=copy.deepcopy(parameters))
    return rotary_class(config=config)


def entry(name, head_dim, limit, parameters, length):
    module = rotary(head_dim, limit, parameters)
    module(torch.zeros(1), torch.arange(length)[None])  # selects the frequencies of dynamic and longrope by length
    frequencies = module.inv_freq.float().tolist()
    return {
        "name": name,
        "head_dim": head_dim,
        "max_position_embeddings": limit,
        "sequence_length": length,
        "rope_parameters": parameters,
        "attention_factor": float(module.attention_scaling).hex(),
        "vectorised": len(frequencies) // BLOCK * BLOCK,
        "inv_freq": [struct.pack(">f", value).hex() for value in frequencies],
    }


def tiny_entries():
    for case in ROPE_TYPES:
        config = case.config
        head_dim = config["hidden_size"] // config["num_attention_heads"]
        yield entry(case.name, head_dim, config["max_position_embeddings"], config["rope_parameters"], case.tokens)


def write(path):
    entries = [entry(*parameters, 512) for parameters in REAL]
    for length in (64, 4097, 32768):
        dynamic = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0}
        entries.append(entry(f"dynamic, {length} tokens", 128, 4096, dynamic, length))
    entries += tiny_entries()
    lines = ",\n".join(json.dumps(item) for item in entries)
    path.write_text(f"[\n{lines}\n]\n")
    print(f"{path.name}: {len(entries)} entries, {path.stat().st_size / 1024:.1f} KiB")
