"""The cases of tests/golden: one per family, RoPE type and peculiarity of published files."""

import re
import zlib
from dataclasses import dataclass, field
from typing import Any, Callable

import torch

from . import checkpoint
from . import spelling as sp
from .gguf_file import as_gguf


@dataclass
class Case:
    name: str
    model_type: str
    config: dict[str, Any]
    tokens: int = 37
    dtype: str = "bfloat16"
    rows: int = 10
    pattern_rows: int = 4
    stages: str = "all"  # or "rope": only stages that depend on RoPE
    published: Callable | None = None  # spelling of config.json if it differs from the saved one
    spellings: dict[str, Callable] = field(default_factory=dict)
    finish: Callable | None = None  # edits the written folder
    shard_size: str | None = None
    published_names: bool = True  # False: names of transformers' own modules
    draw: int = 0  # added to the seed
    read_by_transformers: bool = False  # transformers reads the GGUF file as the same model

    @property
    def seed(self):
        return zlib.crc32(self.name.encode()) + self.draw

    def text_values(self):
        return self.config.get("text_config", self.config)


SMALL = {
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 1024,
    "pad_token_id": None,
    "bos_token_id": 1,
    "eos_token_id": 2,
}

OLD = {"old": sp.old_rope()}
OLDEST = {"oldest": sp.old_rope("type")}


def default_rope(theta):
    return {"rope_parameters": {"rope_type": "default", "rope_theta": theta}}


LLAMA = [
    Case("llama_mha", "llama", SMALL | {"num_key_value_heads": 4} | default_rope(10000.0), dtype="float32",
         tokens=13, rows=13, pattern_rows=13, spellings=OLD),
    Case("llama_gqa", "llama", SMALL | default_rope(500000.0), spellings={"no_head_dim": sp.without("head_dim")}),
    Case("llama_bias", "llama", SMALL | {"attention_bias": True, "mlp_bias": True}, dtype="float16"),
    Case("llama_head_dim", "llama", SMALL | {"head_dim": 12, "num_key_value_heads": 1}, dtype="float16"),
    Case("llama_tied", "llama", SMALL | {"tie_word_embeddings": True}),
    Case("llama_tied_redundant_head", "llama", SMALL | {"tie_word_embeddings": True}, tokens=5,
         finish=checkpoint.add_redundant_head),
    Case("llama_tied_alias", "llama", SMALL | {"tie_word_embeddings": True}, tokens=5, finish=checkpoint.alias_head),
    Case("llama_one_token", "llama", SMALL, tokens=1),
    Case("llama_sharded", "llama", SMALL | {"num_hidden_layers": 3}, tokens=9, shard_size="20KB"),
    Case("llama_torch", "llama", SMALL, tokens=9, rows=4, finish=checkpoint.as_torch_files(1)),
    Case("llama_torch_shards", "llama", SMALL, tokens=9, rows=4, dtype="float16",
         finish=checkpoint.as_torch_files(2)),
    Case("llama_long", "llama", SMALL | {"intermediate_size": 32}, tokens=700, rows=8, pattern_rows=3),
]

# ---- RoPE types, on a Llama of two heads with eight frequencies each

ROPE = SMALL | {
    "vocab_size": 48,
    "intermediate_size": 32,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "tie_word_embeddings": True,
}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 64}
LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "original_max_position_embeddings": 64,
    "short_factor": [1.0, 1.05, 1.1, 1.25, 1.4, 1.6, 1.9, 2.3],
    "long_factor": [1.0, 1.3, 2.1, 3.7, 6.5, 11.2, 19.8, 33.3],
}


def rope_case(name, tokens, rope, limit=256, dtype="bfloat16"):
    config = ROPE | {"max_position_embeddings": limit, "rope_parameters": rope}
    return Case(f"rope_{name}", "llama", config, tokens=tokens, dtype=dtype, rows=6, pattern_rows=3, stages="rope",
                spellings=OLD | OLDEST)


ROPE_TYPES = [
    rope_case("linear", 41, {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}),
    rope_case("dynamic_short", 41, {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}, limit=64),
    rope_case("dynamic_long", 151, {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}, limit=64),
    rope_case("yarn", 300, YARN),
    rope_case("yarn_mscale", 90, YARN | {"mscale": 0.707, "mscale_all_dim": 1.2, "beta_fast": 16.0, "beta_slow": 2.0},
              dtype="float16"),
    rope_case("yarn_attention_factor", 90, YARN | {"attention_factor": 1.3, "beta_fast": 1.5, "beta_slow": 0.25}),
    rope_case("yarn_no_truncate", 90, YARN | {"truncate": False, "beta_fast": 1.5, "beta_slow": 0.25}),
    rope_case("yarn_no_original", 90, {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0}),
    rope_case("llama3", 300, {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0,
                              "high_freq_factor": 4.0, "original_max_position_embeddings": 256}, limit=2048),
    rope_case("longrope_short", 64, LONGROPE | {"factor": 4.0}),
    rope_case("longrope_long", 65, LONGROPE | {"factor": 4.0}),
    rope_case("longrope_no_factor", 150, LONGROPE),
    rope_case("longrope_attention_factor", 150, LONGROPE | {"factor": 4.0, "attention_factor": 1.25}, dtype="float16"),
]

# ---- Mistral and Ministral 3

MISTRAL = [
    Case("mistral_window", "mistral", SMALL | {"sliding_window": 16}, rows=8, spellings=OLD),
    Case("mistral_window_long", "mistral", ROPE | {"sliding_window": 100}, tokens=300, rows=6, pattern_rows=3),
    Case("mistral_wide_window", "mistral", ROPE | {"sliding_window": 64}, rows=6),
    Case("mistral_no_window", "mistral", ROPE | {"sliding_window": None, "head_dim": 24}, rows=6, dtype="float16"),
]

MINISTRAL_TEXT = ROPE | {
    "head_dim": 24,  # q_proj is not square
    "max_position_embeddings": 256,
    "rope_parameters": YARN | {
        "type": "yarn", "rope_theta": 1000000.0, "factor": 16.0, "original_max_position_embeddings": 16,
        "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1,
    },
}
PIXTRAL = {"model_type": "pixtral", "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1,
           "num_attention_heads": 2, "head_dim": 8, "image_size": 28, "patch_size": 14}


def mistral3(text, **values):
    text = {"model_type": "ministral3"} | text
    return {"text_config": text, "vision_config": PIXTRAL, "image_token_index": 10, "spatial_merge_size": 2} | values


def quantize(folder):
    checkpoint.rename_tensors(sp.published_name)(folder)
    checkpoint.quantize_fp8(folder)


UNTIED = {"tie_word_embeddings": False}

MINISTRAL = [
    Case("ministral_layers", "ministral", ROPE | {"num_hidden_layers": 4, "sliding_window": 12, "head_dim": 24,
         "layer_types": ["full_attention", "sliding_attention", "sliding_attention", "full_attention"]}, tokens=50,
         rows=6),
    Case("ministral_all_slide", "ministral", ROPE | {"sliding_window": 16, "head_dim": 16}, rows=6,
         published=sp.without("layer_types")),
    Case("ministral3", "ministral3", MINISTRAL_TEXT | UNTIED, tokens=71),
    Case("mistral3_published_names", "mistral3", mistral3(MINISTRAL_TEXT | UNTIED, **UNTIED), tokens=71, rows=6,
         finish=checkpoint.rename_tensors(sp.published_name)),
    Case("mistral3_newer_names", "mistral3", mistral3(MINISTRAL_TEXT, tie_word_embeddings=True), tokens=50, rows=6,
         published=sp.without_top("tie_word_embeddings"), finish=checkpoint.rename_tensors(sp.newer_name)),
    Case("mistral3_fp8", "mistral3", mistral3(MINISTRAL_TEXT | UNTIED, **UNTIED), tokens=50, rows=6, finish=quantize),
]

# ---- Qwen

WINDOWS = {"num_hidden_layers": 3, "sliding_window": 16, "max_window_layers": 1, "use_sliding_window": True}

QWEN = [
    Case("qwen2", "qwen2", SMALL | default_rope(1000000.0), dtype="float16", rows=8, spellings=OLD),
    Case("qwen2_windows", "qwen2", SMALL | WINDOWS, rows=6, published=sp.without("layer_types")),
    Case("qwen2_windows_off", "qwen2", SMALL | {"tie_word_embeddings": True}, rows=6,
         published=sp.chain(sp.with_values(sliding_window=16, max_window_layers=1), sp.without("layer_types"))),
    Case("qwen3", "qwen3", SMALL | {"head_dim": 16} | default_rope(1000000), tokens=129, spellings=OLD),
    Case("qwen3_windows", "qwen3", ROPE | WINDOWS | {"head_dim": 24}, tokens=50, rows=6,
         published=sp.without("layer_types")),
    Case("qwen3_yarn", "qwen3", ROPE | {"head_dim": 24, "rope_parameters": YARN | {"rope_theta": 1000000.0}},
         tokens=150, rows=6, pattern_rows=3, dtype="float32", spellings=OLD | OLDEST),
    Case("qwen3_fp8_blocks", "qwen3", ROPE | {"head_dim": 24}, rows=5, finish=checkpoint.quantize_fp8_blocks(20, 12)),
    Case("qwen3_fp8_published_blocks", "qwen3", ROPE | {"head_dim": 80}, rows=4, pattern_rows=3,
         finish=checkpoint.quantize_fp8_blocks(128, 128)),
]

# ---- SmolLM3

SMOLLM3 = [
    Case("smollm3_list", "smollm3", SMALL | {"num_hidden_layers": 4, "no_rope_layers": [1, 0, 0, 1]}
         | default_rope(5000000.0), rows=6, published=sp.chain(sp.old_rope(), sp.without("tie_word_embeddings"))),
    Case("smollm3_interval", "smollm3", SMALL | {"num_hidden_layers": 4, "no_rope_layer_interval": 2}
         | default_rope(2000000.0), rows=6, published=sp.with_values(no_rope_layers=None)),
    Case("smollm3_windows", "smollm3", SMALL | {"num_hidden_layers": 4, "no_rope_layer_interval": 2,
         "use_sliding_window": True, "sliding_window": 16} | default_rope(2000000.0), tokens=50, rows=6,
         published=sp.without("layer_types"), spellings={"interval": sp.without("layer_types", "no_rope_layers")}),
    Case("smollm3_window_unused", "smollm3", SMALL | {"num_hidden_layers": 2, "no_rope_layer_interval": 2,
         "use_sliding_window": False, "sliding_window": 8} | default_rope(2000000.0), rows=5,
         published=sp.without("layer_types")),
]

# ---- Llama 3.2 Vision: text layers 0, 2 and 4 run, cross-attention layers 1 and 3 do not

MLLAMA_TEXT = {key: value for key, value in ROPE.items() if key != "pad_token_id"} | UNTIED | {
    "pad_token_id": 0,
    "num_hidden_layers": 5,
    "cross_attention_layers": [1, 3],
    "rope_parameters": {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
                        "high_freq_factor": 4.0, "original_max_position_embeddings": 128},
}
MLLAMA_VISION = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_global_layers": 1,
                 "attention_heads": 2, "vision_output_dim": 32, "image_size": 28, "patch_size": 14,
                 "intermediate_layers_indices": [0], "max_num_tiles": 4}
MLLAMA = {"text_config": MLLAMA_TEXT, "vision_config": MLLAMA_VISION, "image_token_index": 48}

VISION_LLAMA = [
    Case("mllama_text", "mllama_text_model", MLLAMA_TEXT, rows=6),
    Case("mllama_published_names", "mllama", MLLAMA, rows=6, published=sp.old_rope(),
         finish=checkpoint.rename_tensors(sp.published_name)),
    Case("mllama_newer_names", "mllama", MLLAMA, tokens=150, rows=5, pattern_rows=3,
         finish=checkpoint.rename_tensors(sp.newer_name)),
]

# ---- Gemma 3

GEMMA_TEXT = ROPE | {"pad_token_id": 0, "num_hidden_layers": 3, "head_dim": 16, "query_pre_attn_scalar": 24,
                     "sliding_window": 16}
GEMMA_ROPE = {
    "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
    "full_attention": {"rope_type": "linear", "rope_theta": 1000000.0, "factor": 8.0},
}
GEMMA_LAYERS = {
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
    "rope_parameters": GEMMA_ROPE,
}
SIGLIP = {"model_type": "siglip_vision_model", "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1,
          "num_attention_heads": 2, "image_size": 28, "patch_size": 14}
SPARSE_KEYS = ["model_type", "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
               "num_attention_heads", "num_key_value_heads", "head_dim", "sliding_window"]
GEMMA_SPARSE = {key: value for key, value in GEMMA_TEXT.items() if key in SPARSE_KEYS} | {
    "num_hidden_layers": 6,
    "rope_parameters": GEMMA_ROPE,
}

GEMMA = [
    Case("gemma3_text", "gemma3_text", GEMMA_TEXT | GEMMA_LAYERS, tokens=43, rows=8, published=sp.old_gemma()),
    Case("gemma3_text_pattern", "gemma3_text", GEMMA_TEXT | {"rope_parameters": GEMMA_ROPE}
         | {"layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}, tokens=43, rows=5,
         published=sp.old_gemma(pattern=2), dtype="float16"),
    Case("gemma3_final_softcap", "gemma3_text", GEMMA_TEXT | GEMMA_LAYERS | {"final_logit_softcapping": 5.0}, rows=5),
    # transformers reads attn_logit_softcapping of Gemma 3 but does not apply it.
    Case("gemma3_softcaps", "gemma3_text", GEMMA_TEXT | GEMMA_LAYERS
         | {"final_logit_softcapping": 5.0, "attn_logit_softcapping": 2.0}, rows=5),
    Case("gemma3_sparse", "gemma3", {"text_config": GEMMA_SPARSE, "vision_config": SIGLIP, "mm_tokens_per_image": 1},
         tokens=43, rows=5, published=sp.sparse_gemma(SPARSE_KEYS),
         spellings={"pattern": sp.without("layer_types")},  # keeps _sliding_window_pattern
         finish=checkpoint.rename_tensors(sp.published_name)),
]

# ---- Gemma 4

GEMMA4_TEXT = {key: value for key, value in GEMMA_TEXT.items() if key != "query_pre_attn_scalar"} | {
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "global_head_dim": 16, "num_hidden_layers": 6,
    "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 48,
}
GEMMA4_SHARED = {"num_global_key_value_heads": 1, "attention_k_eq_v": True, "num_kv_shared_layers": 2,
                 "use_double_wide_mlp": True, "layer_types": 3 * ["sliding_attention", "full_attention"]}
GEMMA4_VISION = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
                 "num_key_value_heads": 2, "head_dim": 8, "position_embedding_size": 16, "patch_size": 4}
GEMMA4_KEYS = [*SPARSE_KEYS, "global_head_dim", "hidden_size_per_layer_input", "vocab_size_per_layer_input"]

GEMMA4 = [
    Case("gemma4_text", "gemma4_text", GEMMA4_TEXT | GEMMA4_SHARED, tokens=43, rows=8, published=sp.published_gemma4(16, 1),
         finish=checkpoint.add_shared_keys(4, 5)),
    # All heads are equal; the last layer is full, whatever its type is.
    Case("gemma4_equal_heads", "gemma4_text", GEMMA4_TEXT | {
        "global_head_dim": 8, "hidden_size_per_layer_input": 0, "num_hidden_layers": 3, "attention_bias": True,
        "final_logit_softcapping": 5.0, "layer_types": ["full_attention", "sliding_attention", "sliding_attention"],
        "rope_parameters": {"sliding_attention": GEMMA_ROPE["sliding_attention"], "full_attention": {
            "rope_type": "proportional", "rope_theta": 1000000.0, "partial_rotary_factor": 0.5, "factor": 8.0}}},
         rows=5, dtype="float16", published=sp.published_gemma4(8)),
    Case("gemma4_sparse", "gemma4", {"text_config": {"model_type": "gemma4_text"} | GEMMA4_TEXT, "vision_config": GEMMA4_VISION},
         tokens=43, rows=5, draw=1, published=sp.chain(sp.published_gemma4(16), sp.only(GEMMA4_KEYS))),
]

# ---- GLM

GLM_TEXT = SMALL | {"head_dim": 16, "rms_norm_eps": 1.5625e-07}


def glm_rope(factor, theta=10000.0):
    return {"rope_parameters": {"rope_type": "default", "rope_theta": theta, "partial_rotary_factor": factor}}


GLM = [
    Case("glm", "glm", GLM_TEXT | glm_rope(0.5), rows=8,
         published=sp.chain(sp.old_rope(), sp.without("partial_rotary_factor", "rope_scaling")), spellings=OLD),
    Case("glm_quarter", "glm", ROPE | UNTIED | {"head_dim": 24} | glm_rope(0.25), rows=6, dtype="float16"),
    Case("glm4", "glm4", GLM_TEXT | glm_rope(0.5), rows=8, published=sp.old_rope()),
    Case("glm4_no_bias", "glm4", ROPE | UNTIED | {"head_dim": 16, "attention_bias": False} | glm_rope(0.5), rows=6,
         tokens=129, pattern_rows=3),
]

# ---- GPT-NeoX and GPT-2


def neox_buffers(tensors):
    """Returns the buffers that the published Pythia files hold beside their weights."""
    layers = {name.split(".attention.")[0] for name in tensors if ".attention." in name}
    masks = {f"{layer}.attention.bias": torch.ones(1, 1, 4, 4).tril().bool() for layer in layers}
    fills = {f"{layer}.attention.masked_bias": torch.tensor(-1e9) for layer in layers}
    return masks | fills | {f"{layer}.attention.rotary_emb.inv_freq": torch.ones(1) for layer in layers}


def gpt2_as_published(folder):
    """Renames tensors as in the published GPT-2 (no prefix) and adds the causal mask of every layer."""
    checkpoint.rename_tensors(lambda name: name.removeprefix("transformer."))(folder)
    layers = range(checkpoint.read_config(folder)["n_layer"])
    checkpoint.add_buffers(lambda _: {f"h.{i}.attn.bias": torch.ones(1, 1, 4, 4).tril() for i in layers})(folder)


NEOX = {key: value for key, value in SMALL.items() if key != "num_key_value_heads"}
GPT2 = {"vocab_size": 96, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "bos_token_id": 1,
        "eos_token_id": 2}

GPT = [
    Case("gpt_neox", "gpt_neox", NEOX | glm_rope(0.25), rows=8, dtype="float16", spellings={"old": sp.old_neox},
         finish=checkpoint.add_buffers(neox_buffers)),
    Case("gpt_neox_one_after_another", "gpt_neox",
         NEOX | {"use_parallel_residual": False, "hidden_act": "gelu_fast", "attention_bias": False} | glm_rope(1.0),
         tokens=129, rows=6, pattern_rows=3, published=sp.old_neox),
    Case("gpt2", "gpt2", GPT2, rows=8, dtype="float32", finish=gpt2_as_published),
    Case("gpt2_scaled_by_layer", "gpt2", GPT2 | {"n_inner": 48, "n_positions": 512, "scale_attn_by_inverse_layer_idx": True,
         "tie_word_embeddings": False, "activation_function": "gelu"}, tokens=64, rows=6, pattern_rows=3),
]

# ---- OLMo

OLMO_SLIDES = ROPE | UNTIED | {
    "num_hidden_layers": 4, "sliding_window": 12,
    "rope_parameters": {
        "sliding_attention": {"rope_type": "default", "rope_theta": 500000.0},
        "full_attention": YARN | {"rope_theta": 500000.0, "attention_factor": 1.2},
    },
}

OLMO = [
    Case("olmo", "olmo", SMALL | {"clip_qkv": 1.1} | default_rope(10000.0), rows=8, spellings=OLD),
    Case("olmo_tied", "olmo", ROPE | {"attention_bias": True}, rows=6, dtype="float16"),
    Case("olmo2", "olmo2", SMALL | default_rope(500000.0), rows=8, spellings=OLD),
    Case("olmo3", "olmo3", OLMO_SLIDES, tokens=90, rows=6, pattern_rows=3, published=sp.old_olmo3,
         spellings={"no_layer_types": sp.without("layer_types")}),
]

# ---- Phi-3, Granite, StarCoder2, Gemma 2, Apertus

PHI_LONG = ROPE | {
    "num_attention_heads": 2, "original_max_position_embeddings": 64, "max_position_embeddings": 256,
    "rope_parameters": {
        "rope_type": "longrope", "rope_theta": 10000.0, "partial_rotary_factor": 0.75,
        "short_factor": LONGROPE["short_factor"][:6], "long_factor": LONGROPE["long_factor"][:6],
    },
}
LLAMA3 = {"rope_type": "llama3", "rope_theta": 12000000.0, "factor": 8.0, "low_freq_factor": 1.0,
          "high_freq_factor": 4.0, "original_max_position_embeddings": 256}
GRANITE = {"embedding_multiplier": 6.0, "attention_multiplier": 0.5, "residual_multiplier": 0.22, "logits_scaling": 3.0}
GEMMA2 = ROPE | {"pad_token_id": 0, "num_hidden_layers": 3, "head_dim": 16, "query_pre_attn_scalar": 24,
                 "sliding_window": 16, "attn_logit_softcapping": 2.0, "final_logit_softcapping": 5.0}

OTHERS = [
    Case("phi3", "phi3", SMALL | {"sliding_window": 20} | default_rope(10000.0), rows=8, spellings=OLD),
    Case("phi3_longrope_short", "phi3", PHI_LONG, tokens=41, rows=6, pattern_rows=3, spellings=OLD),
    Case("phi3_longrope_long", "phi3", PHI_LONG, tokens=90, rows=6, pattern_rows=3,
         published=sp.old_rope("type"), spellings={"su": sp.renamed_rope("su"), "yarn": sp.renamed_rope("yarn")}),
    Case("granite", "granite", SMALL | GRANITE | default_rope(10000.0), rows=8, spellings=OLD),
    Case("granite_bias", "granite", ROPE | GRANITE | {"attention_bias": True, "mlp_bias": True}, rows=6,
         dtype="float16"),
    Case("starcoder2", "starcoder2", SMALL | {"sliding_window": 16} | default_rope(999999.4), rows=8, spellings=OLD),
    Case("starcoder2_no_bias", "starcoder2", ROPE | {"use_bias": False}, rows=6, dtype="float16"),
    Case("gemma2", "gemma2", GEMMA2, tokens=43, rows=8, published=sp.without("layer_types")),
    Case("gemma2_no_caps", "gemma2", GEMMA2 | {"attn_logit_softcapping": None, "final_logit_softcapping": None},
         tokens=300, rows=5, pattern_rows=3),
    Case("apertus", "apertus", SMALL | UNTIED | {"rope_parameters": LLAMA3}, rows=8, spellings=OLD),
]

# ---- gpt-oss and mixtures of experts

GPT_OSS = SMALL | {
    "head_dim": 16, "num_local_experts": 6, "num_experts_per_tok": 3, "sliding_window": 8, "swiglu_limit": 1.5,
    "max_position_embeddings": 256, "rope_parameters": YARN | {"rope_theta": 150000.0, "truncate": False},
}

QWEN_EXPERTS = SMALL | {"head_dim": 16, "moe_intermediate_size": 24, "num_experts": 8, "num_experts_per_tok": 3}

EXPERTS = [
    Case("qwen3_moe", "qwen3_moe", QWEN_EXPERTS | {"num_hidden_layers": 3, "mlp_only_layers": [1],
         "norm_topk_prob": True} | default_rope(1000000.0), tokens=21, rows=6,
         published=sp.renamed_key("num_local_experts", "num_experts"),
         spellings=OLD, draw=1142),
    Case("qwen3_moe_one_tensor", "qwen3_moe", QWEN_EXPERTS | {"num_hidden_layers": 4, "decoder_sparse_step": 2,
         "use_sliding_window": True, "sliding_window": 8}, tokens=21, rows=6, dtype="float16", published_names=False,
         draw=3202),
    Case("mixtral", "mixtral", SMALL | {"num_local_experts": 4}, tokens=21, rows=6, spellings=OLD, draw=600),
    Case("mixtral_one_tensor", "mixtral", SMALL | {"num_local_experts": 4, "sliding_window": 16}, tokens=21, rows=6,
         dtype="float32", published_names=False, draw=2436),
    Case("gpt_oss", "gpt_oss", GPT_OSS, tokens=21, rows=6, spellings=OLD, draw=3611),
    Case("gpt_oss_mxfp4", "gpt_oss", GPT_OSS | {"intermediate_size": 64}, tokens=21, rows=6,
         finish=checkpoint.quantize_mxfp4, draw=5300),
]

# ---- Layers that alternate attention with a gated delta net

LINEAR = {"linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 12,
          "linear_conv_kernel_dim": 4}
QWEN_HYBRID = SMALL | LINEAR | {"head_dim": 16, "num_hidden_layers": 4,
                                "rope_parameters": {"rope_type": "default", "rope_theta": 10000000.0,
                                                    "partial_rotary_factor": 0.25}}
NO_EXPERTS = {"mlp_only_layers": [0, 1, 2, 3]}
NEXT_EXPERTS = {"num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 24,
                "shared_expert_intermediate_size": 20}
HYBRID_LAYERS = {"layer_types": ["linear_attention", "full_attention", "linear_attention"], "num_hidden_layers": 3}
QWEN_VISION = {"depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2, "out_hidden_size": 32,
               "num_position_embeddings": 4, "patch_size": 14}
OLMO_HYBRID = SMALL | {"num_hidden_layers": 4}
NULL_THETA = {"rope_parameters": {"rope_theta": None, "rope_type": "default"}}


def olmo_hybrid_as_published(folder):
    """Renames the norms of layers without attention, and splits their convolutions into those of q, k and v."""

    def edit(tensors, _):
        linear = {name.split(".linear_attn.")[0] for name in tensors if ".linear_attn." in name}
        renamed = {"input_layernorm": "attention_layer_norm", "post_attention_layernorm": "feedforward_layer_norm"}
        result = {}
        for name, tensor in tensors.items():
            layer, _, rest = name.partition("layers.")[2].partition(".")
            prefix = f"model.layers.{layer}"
            module = rest.split(".")[0]
            if rest == "linear_attn.conv1d.weight":
                keys = tensors[f"{prefix}.linear_attn.q_proj.weight"].shape[0]
                for part, rows in zip("qkv", tensor.split([keys, keys, len(tensor) - 2 * keys]), strict=True):
                    result[f"{prefix}.linear_attn.{part}_conv1d.weight"] = rows.clone()
            elif prefix in linear and module in renamed:
                result[f"{prefix}.{renamed[module]}.weight"] = tensor
            else:
                result[name] = tensor
        return result

    checkpoint.edit_tensors(folder, edit)


INTERVAL = {"interval": sp.without("layer_types")}  # the default: every fourth layer has attention

HYBRID = [
    Case("qwen3_next", "qwen3_next", QWEN_HYBRID | NEXT_EXPERTS | {"mlp_only_layers": [0, 2]}, tokens=13, rows=6,
         spellings=OLD | INTERVAL, draw=224),
    Case("qwen3_next_one_tensor", "qwen3_next", QWEN_HYBRID | NEXT_EXPERTS | HYBRID_LAYERS
         | {"mlp_only_layers": [1], "attention_bias": True, "norm_topk_prob": False}, tokens=13, rows=6, dtype="float16",
         published_names=False, draw=143),
    Case("qwen3_next_long", "qwen3_next", QWEN_HYBRID | NEXT_EXPERTS | NO_EXPERTS, tokens=150, rows=8, pattern_rows=3,
         spellings=INTERVAL),
    Case("qwen3_5_text", "qwen3_5_text", QWEN_HYBRID | {"linear_num_key_heads": 4, "linear_conv_kernel_dim": 3},
         tokens=150, rows=8, pattern_rows=3, spellings=OLD | INTERVAL),
    Case("qwen3_5", "qwen3_5", {"text_config": QWEN_HYBRID | HYBRID_LAYERS, "vision_config": QWEN_VISION,
         "image_token_id": 90, "video_token_id": 91, "vision_start_token_id": 92, "vision_end_token_id": 93}, rows=6,
         dtype="float32"),
    Case("olmo_hybrid", "olmo_hybrid", OLMO_HYBRID | LINEAR | NULL_THETA, tokens=150, rows=8, pattern_rows=3,
         spellings=INTERVAL, published_names=False, finish=olmo_hybrid_as_published),
    Case("olmo_hybrid_rope", "olmo_hybrid", OLMO_HYBRID | HYBRID_LAYERS
         | {"attention_bias": True, "linear_allow_neg_eigval": False} | default_rope(500000.0), tokens=70, rows=6,
         dtype="float16", published_names=False, spellings=OLD),
    # Names as transformers writes them; keys whose defaults depend on other keys are absent.
    Case("olmo_hybrid_sparse", "olmo_hybrid", OLMO_HYBRID | {"num_key_value_heads": 4}, rows=6, dtype="float32",
         published=sp.without("layer_types", "num_key_value_heads", "linear_num_key_heads", "linear_num_value_heads",
                              "linear_key_head_dim", "linear_value_head_dim", "linear_allow_neg_eigval",
                              "linear_conv_kernel_dim", "rope_parameters", "rms_norm_eps")),
]

# ---- Short convolutions

LFM2 = SMALL | {"num_hidden_layers": 4, "layer_types": ["conv", "full_attention", "conv", "conv"], "block_multiple_of": 16,
                "intermediate_size": 64, "conv_L_cache": 3} | default_rope(1000000.0)


def old_lfm2(attention, *absent):
    """LFM2 as first published: numbers of the layers with attention, block_ff_dim and tie_embedding."""
    return sp.chain(sp.old_rope(), sp.without("layer_types", *absent), sp.renamed_key("intermediate_size", "block_ff_dim"),
                    sp.renamed_key("tie_word_embeddings", "tie_embedding"), sp.with_values(full_attn_idxs=attention))


CONVOLUTIONS = [
    Case("lfm2", "lfm2", LFM2, tokens=70, rows=8, pattern_rows=3, spellings={"old": old_lfm2([1])}),
    Case("lfm2_bias", "lfm2", LFM2 | UNTIED | {"conv_bias": True, "conv_L_cache": 4, "block_ffn_dim_multiplier": 1.5,
         "layer_types": ["full_attention", "conv"], "num_hidden_layers": 2, "head_dim": 12}, rows=6, dtype="float16"),
    # Keys with defaults are absent.
    Case("lfm2_sparse", "lfm2", SMALL | {"num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 8,
         "block_auto_adjust_ff_dim": False, "full_attn_idxs": [1]} | default_rope(1000000.0), rows=6, dtype="float32",
         published=old_lfm2([1], "conv_bias", "conv_L_cache", "rope_theta", "num_key_value_heads", "norm_eps",
                            "block_multiple_of", "block_ffn_dim_multiplier", "max_position_embeddings")),
]

# ---- Mamba 2

MAMBA2 = {"mamba_n_heads": 6, "mamba_d_head": 8, "mamba_n_groups": 2, "mamba_d_state": 12, "mamba_d_conv": 4,
          "mamba_chunk_size": 32}
FACTORS = {"attention_in_multiplier": 1.2, "key_multiplier": 0.8, "attention_out_multiplier": 0.7,
           "mlp_multipliers": [0.9, 0.6], "ssm_in_multiplier": 1.1, "ssm_multipliers": [0.8, 1.3, 0.7, 1.2, 0.9],
           "ssm_out_multiplier": 0.75, "embedding_multiplier": 2.5, "lm_head_multiplier": 0.4}
FALCON = SMALL | MAMBA2 | FACTORS | {"mamba_d_ssm": 48} | default_rope(100000000000.0)
GRANITE_4 = SMALL | MAMBA2 | {"mamba_n_heads": 8, "mamba_expand": 2, "num_hidden_layers": 3, "shared_intermediate_size": 40,
                              "layer_types": ["linear_attention", "full_attention", "linear_attention"],
                              "embedding_multiplier": 3.0, "attention_multiplier": 0.25, "residual_multiplier": 0.5,
                              "logits_scaling": 2.0}
NEMOTRON = SMALL | {"head_dim": 16, "mamba_num_heads": 6, "mamba_head_dim": 8, "n_groups": 2, "ssm_state_size": 12,
                    "conv_kernel": 4, "chunk_size": 32}
NEMOTRON_EXPERTS = {"n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 24,
                    "moe_shared_expert_intermediate_size": 20, "routed_scaling_factor": 2.5}


def nemotron_layers(letters):
    names = {"M": "linear_attention", "*": "full_attention", "-": "mlp", "E": "moe"}
    return {"layers_block_type": [names[letter] for letter in letters]}


def old_layers(config):
    """Types of layers as published before transformers 5; bare Infinity as Python writes it."""
    old = {"linear_attention": "mamba", "full_attention": "attention"}
    return config | {"layer_types": [old[name] for name in config["layer_types"]], "time_step_limit": [0.0, float("inf")]}


def old_nemotron(letters, *absent):
    """Nemotron-H as published: a pattern of letters, and older names of keys."""
    return sp.chain(sp.without("layers_block_type", "layer_types", *absent), sp.renamed_key("n_groups", "mamba_n_groups"),
                    sp.with_values(hybrid_override_pattern=letters, time_step_limit=[0.0, float("inf")]))


MAMBA = [
    Case("falcon_h1", "falcon_h1", FALCON, tokens=150, rows=8, pattern_rows=3, spellings=OLD),
    Case("falcon_h1_norm", "falcon_h1", FALCON | {"mamba_rms_norm": True, "mamba_norm_before_gate": False,
         "mamba_proj_bias": True, "projectors_bias": True, "attention_bias": True, "mlp_bias": True,
         "time_step_limit": [0.4, 1.5]}, tokens=70, rows=6, dtype="float16"),
    # Keys with defaults are absent; mamba_d_ssm is null and mamba_d_head auto.
    Case("falcon_h1_sparse", "falcon_h1", SMALL | UNTIED | {"num_attention_heads": 8, "num_key_value_heads": 8,
         "mamba_n_heads": 4, "mamba_d_state": 16, "mamba_d_ssm": None, "mamba_rms_norm": True} | default_rope(10000.0), rows=6,
         dtype="float32", published=sp.chain(sp.without(
             "num_key_value_heads", "mamba_n_groups", "mamba_d_conv", "mamba_expand", "mamba_chunk_size", "mamba_conv_bias",
             "mamba_proj_bias", "mamba_norm_before_gate", "time_step_limit", "projectors_bias", "rope_parameters",
             "attention_bias", "mlp_bias", "rms_norm_eps", *FACTORS), sp.with_values(mamba_d_head="auto"))),
    Case("granitemoehybrid", "granitemoehybrid", GRANITE_4 | {"num_local_experts": 6, "num_experts_per_tok": 2,
         "intermediate_size": 24}, tokens=13, rows=6, published=old_layers, draw=18),
    Case("granitemoehybrid_one_tensor", "granitemoehybrid", GRANITE_4 | {"num_local_experts": 4, "num_experts_per_tok": 2,
         "layer_types": ["full_attention", "linear_attention"], "num_hidden_layers": 2, "mamba_proj_bias": True,
         "mamba_conv_bias": False, "attention_bias": True}, tokens=13, rows=6, dtype="float16", published_names=False,
         draw=3),
    Case("granitemoehybrid_dense", "granitemoehybrid", GRANITE_4 | {"num_local_experts": 0,
         "position_embedding_type": "rope", "time_step_limit": [0.4, 1.5]} | default_rope(10000.0), tokens=150, rows=8,
         pattern_rows=3, spellings=OLD),
    # Keys with defaults are absent.
    Case("granitemoehybrid_sparse", "granitemoehybrid", SMALL | {"num_local_experts": 0, "mamba_n_heads": 4,
         "mamba_d_state": 16, "shared_intermediate_size": 40, "num_key_value_heads": 4, "attention_multiplier": 0.35,
         "layer_types": ["linear_attention", "full_attention"]}, rows=6, dtype="float32",
         published=sp.chain(old_layers, sp.without(
             "num_key_value_heads", "mamba_d_head", "mamba_n_groups", "mamba_d_conv", "mamba_expand", "mamba_chunk_size",
             "mamba_conv_bias", "mamba_proj_bias", "time_step_limit", "embedding_multiplier", "residual_multiplier",
             "logits_scaling", "position_embedding_type", "rms_norm_eps", "attention_bias"))),
    Case("granitemoehybrid_attention", "granitemoehybrid", SMALL | {"num_local_experts": 0, "shared_intermediate_size": 40,
         "attention_multiplier": 0.35, "position_embedding_type": "rope", "layer_types": ["full_attention"] * 2, "mamba_n_heads": 8}
         | default_rope(10000.0), rows=6, dtype="float16", spellings=OLD),
    Case("nemotron_h", "nemotron_h", NEMOTRON | nemotron_layers("M-*-M"), tokens=150, rows=8, pattern_rows=3,
         published=old_nemotron("M-*-M", "num_hidden_layers")),
    Case("nemotron_h_bias", "nemotron_h", NEMOTRON | nemotron_layers("*-M-") | {"use_bias": True, "mlp_bias": True,
         "use_conv_bias": False, "time_step_min": 0.5, "mlp_hidden_act": "silu", "n_groups": 1}, tokens=70, rows=6,
         dtype="float16", published_names=False),
    Case("nemotron_h_experts", "nemotron_h", NEMOTRON | NEMOTRON_EXPERTS | nemotron_layers("ME*"), tokens=21, rows=6,
         published=old_nemotron("ME*"), draw=36),
    Case("nemotron_h_one_tensor", "nemotron_h", NEMOTRON | NEMOTRON_EXPERTS | nemotron_layers("*ME-")
         | {"norm_topk_prob": False, "n_group": 4, "topk_group": 2, "routed_scaling_factor": 1.0}, tokens=21, rows=6, dtype="float32",
         published_names=False, published=sp.without("layer_types", "routed_scaling_factor", "layer_norm_epsilon", "num_hidden_layers"),
         draw=215),
]

# ---- Mixed position schemes and further families

PATTERN = {"no_layer_types": sp.without("layer_types")}
COHERE = ROPE | {"num_hidden_layers": 4, "sliding_window": 12, "logit_scale": 0.25} | default_rope(50000.0)
EXAONE = ROPE | UNTIED | {"num_hidden_layers": 4, "sliding_window": 12, "sliding_window_pattern": 4} | default_rope(1000000.0)
GLM_MOE = SMALL | {"head_dim": 16, "moe_intermediate_size": 16, "n_routed_experts": 8, "num_experts_per_tok": 3, "n_group": 4,
                   "topk_group": 2, "n_shared_experts": 2, "routed_scaling_factor": 1.5, "use_qk_norm": True,
                   "attention_bias": True} | glm_rope(0.5)
MINIMAX = SMALL | {"head_dim": 16, "intermediate_size": 16, "num_local_experts": 6, "num_experts_per_tok": 2} | glm_rope(0.5, 5e6)
AFMOE = SMALL | {"num_hidden_layers": 3, "head_dim": 16, "moe_intermediate_size": 16, "num_experts": 6, "num_experts_per_tok": 2,
                 "num_shared_experts": 1, "route_scale": 1.7, "mup_enabled": True, "sliding_window": 8,
                 "global_attn_every_n_layers": 3} | default_rope(10000.0)

FURTHER = [
    Case("cohere2", "cohere2", COHERE, tokens=43, rows=8,
         published=sp.chain(sp.old_rope(), sp.without("layer_types", "head_dim"), sp.with_values(sliding_window_pattern=4)),
         spellings=PATTERN),
    Case("cohere2_bias", "cohere2", COHERE | UNTIED | {"num_hidden_layers": 2, "attention_bias": True, "layer_types":
         ["full_attention", "sliding_attention"]}, rows=5, dtype="float16"),
    Case("exaone4", "exaone4", EXAONE, tokens=43, rows=8, published=sp.old_rope(), spellings=PATTERN),
    Case("exaone4_no_window", "exaone4", SMALL | {"sliding_window": None, "layer_types": ["full_attention"] * 2,
         "rope_parameters": LLAMA3}, rows=5, dtype="float16", spellings=OLD),
    Case("olmoe", "olmoe", SMALL | {"intermediate_size": 24, "num_experts": 8, "num_experts_per_tok": 3}
         | default_rope(10000.0), tokens=21, rows=6, spellings=OLD, draw=295),
    Case("seed_oss", "seed_oss", SMALL | {"head_dim": 16} | default_rope(10000000.0), rows=8,
         published=sp.without("attention_bias", "attention_out_bias", "mlp_bias"), spellings=OLD),
    Case("seed_oss_biases", "seed_oss", ROPE | {"head_dim": None, "attention_bias": False, "attention_out_bias": True,
         "mlp_bias": True}, rows=5, dtype="float16"),
    Case("ernie4_5", "ernie4_5", SMALL | {"head_dim": 16} | default_rope(500000.0), rows=8,
         published=sp.chain(sp.old_rope(), sp.without("rope_theta", "tie_word_embeddings", "use_bias")), spellings=OLD),
    Case("ernie4_5_bias", "ernie4_5", ROPE | UNTIED | {"head_dim": 24, "use_bias": True}, rows=5, dtype="float16"),
    Case("glm4_moe", "glm4_moe", GLM_MOE, tokens=21, rows=6,
         published=sp.chain(sp.old_rope(), sp.without("partial_rotary_factor", "rope_scaling")), spellings=OLD, draw=54),
    Case("glm4_moe_one_tensor", "glm4_moe", SMALL | {"moe_intermediate_size": 16, "n_routed_experts": 6,
         "num_experts_per_tok": 2, "first_k_dense_replace": 0, "norm_topk_prob": False}, tokens=21, rows=5,
         dtype="float32", published_names=False, draw=316),
    Case("hunyuan_v1_dense", "hunyuan_v1_dense", ROPE | {"head_dim": 24, "rope_parameters": {"rope_type": "dynamic",
         "rope_theta": 10000.0, "factor": 1.0, "alpha": 50.0}}, rows=8, tokens=90, spellings=OLD | OLDEST),
    Case("hunyuan_v1_dense_plain", "hunyuan_v1_dense", SMALL | {"attention_bias": True, "head_dim": 8}, rows=5,
         dtype="float16"),
    Case("nanochat", "nanochat", SMALL | UNTIED | {"final_logit_softcapping": 4.0} | default_rope(10000.0), rows=8,
         spellings=OLD),
    Case("nanochat_no_cap", "nanochat", ROPE | UNTIED | {"final_logit_softcapping": None, "attention_bias": True},
         rows=5, dtype="float16"),
    Case("ernie4_5_moe", "ernie4_5_moe", SMALL | {"num_hidden_layers": 3, "moe_intermediate_size": 16,
         "moe_num_experts": 6, "moe_k": 2, "moe_num_shared_experts": 1} | default_rope(500000.0), tokens=21, rows=6,
         published=sp.chain(sp.old_rope(), sp.without("rope_theta", "moe_layer_end_index")), spellings=OLD, draw=1725),
    Case("ernie4_5_moe_one_tensor", "ernie4_5_moe", SMALL | UNTIED | {"num_hidden_layers": 3,
         "moe_intermediate_size": 16, "moe_num_experts": 6, "moe_k": 2, "moe_num_shared_experts": 0,
         "moe_layer_start_index": 0, "moe_layer_end_index": 1, "moe_layer_interval": 2}, tokens=21, rows=5,
         dtype="float32", published_names=False, draw=57),
    Case("minimax_m2", "minimax_m2", MINIMAX, tokens=21, rows=6,
         published=sp.chain(sp.old_rope(), sp.without("partial_rotary_factor", "rope_scaling", "rope_theta"),
                            sp.with_values(rotary_dim=8)), spellings=OLD, draw=1511),
    Case("minimax_m2_one_tensor", "minimax_m2", SMALL | {"head_dim": 8, "intermediate_size": 16,
         "num_local_experts": 6, "num_experts_per_tok": 2}, tokens=11, rows=5, dtype="float32", published_names=False, draw=44),
    Case("afmoe", "afmoe", AFMOE, tokens=11, rows=6,
         published=sp.without("layer_types"), spellings=OLD, draw=262),
    Case("afmoe_one_tensor", "afmoe", SMALL | {"head_dim": 8, "moe_intermediate_size": 16, "num_experts": 6,
         "num_experts_per_tok": 2, "num_dense_layers": 0, "attention_bias": True,
         "layer_types": ["full_attention", "sliding_attention"], "sliding_window": 8}, tokens=11, rows=5,
         dtype="float32", published_names=False, draw=9),
]

# ---- Latent attention

LATENT = SMALL | {
    "num_key_value_heads": 4, "kv_lora_rank": 12, "q_lora_rank": 20, "qk_nope_head_dim": 10, "qk_rope_head_dim": 6, "v_head_dim": 8,
    "moe_intermediate_size": 16, "n_routed_experts": 8, "num_experts_per_tok": 3,
}
LATENT_YARN = {"rope_parameters": YARN | {"mscale": 0.707, "mscale_all_dim": 1.1}, "max_position_embeddings": 256}
V3 = LATENT | {"n_group": 4, "topk_group": 2, "first_k_dense_replace": 1, "num_mtp_layers": 0}
V2 = LATENT | {"topk_method": "group_limited_greedy", "n_group": 4, "topk_group": 2, "routed_scaling_factor": 1.6,
               "n_shared_experts": 1}

LATENTS = [
    Case("deepseek_v3", "deepseek_v3", V3 | LATENT_YARN, tokens=21, rows=6,
         published=sp.chain(sp.old_rope("type"), sp.without("head_dim", "qk_head_dim", "num_mtp_layers"),
                            sp.with_values(scoring_func="sigmoid", topk_method="noaux_tc")),
         spellings=OLD | {"sparse": sp.without("head_dim", "qk_head_dim", "rope_interleave", "routed_scaling_factor",
                                               "n_shared_experts", "norm_topk_prob")}, draw=46),
    Case("deepseek_v3_no_q_latent", "deepseek_v3", V3 | {"q_lora_rank": None, "rope_interleave": False, "v_head_dim": 20,
         "num_attention_heads": 3, "num_key_value_heads": 3, "hidden_size": 30, "first_k_dense_replace": 0, "norm_topk_prob": False,
         "attention_bias": True, "n_shared_experts": 2, "rms_norm_eps": 1e-4, "num_hidden_layers": 1}
         | default_rope(10000.0), tokens=21, rows=5, dtype="float32", published_names=False, draw=46),
    Case("deepseek_v3_fp8_blocks", "deepseek_v3", V3 | {"num_hidden_layers": 1, "first_k_dense_replace": 0}, tokens=13,
         rows=4, pattern_rows=3, finish=checkpoint.quantize_fp8_blocks(20, 12), draw=13),
    Case("deepseek_v2", "deepseek_v2", V2 | LATENT_YARN | {"first_k_dense_replace": 1}, tokens=21, rows=6,
         spellings=OLD | OLDEST, draw=8),
    Case("deepseek_v2_greedy", "deepseek_v2", LATENT | {"q_lora_rank": None, "num_hidden_layers": 1} | default_rope(10000.0),
         tokens=21, rows=5, dtype="float16", published=sp.without("topk_method", "n_shared_experts", "first_k_dense_replace"),
         published_names=False, draw=35),
]

# ---- Latent attention without RoPE, and Kimi Delta Attention

KIMI = SMALL | {
    "num_hidden_layers": 4, "num_key_value_heads": 4, "kv_lora_rank": 12, "qk_nope_head_dim": 10, "qk_rope_head_dim": 6, "v_head_dim": 8,
    "linear_num_heads": 3, "linear_head_dim": 12, "moe_intermediate_size": 16, "num_local_experts": 6, "num_experts_per_tok": 2,
    "layer_types": ["linear_attention", "linear_attention", "full_attention", "linear_attention"],
}
KIMI_ATTRIBUTES = {"model_max_length": "max_position_embeddings", "moe_renormalize": "norm_topk_prob", "num_expert_group": "n_group",
                   "num_experts": "num_local_experts", "num_experts_per_token": "num_experts_per_tok",
                   "num_shared_experts": "n_shared_experts"}
DENSE_KIMI = {"mlp_layer_types": ["dense"] * 4}


def published_kimi(config):
    """Writes the sizes and layers of Kimi Delta Attention as a section, and the unused keys of published files."""
    types = config.pop("layer_types")
    mlps = config.pop("mlp_layer_types")
    config["linear_attn_config"] = {
        "head_dim": config.pop("linear_head_dim"), "num_heads": config.pop("linear_num_heads"),
        "short_conv_kernel_size": config.pop("linear_conv_kernel_dim"),
        "full_attn_layers": [i + 1 for i, kind in enumerate(types) if kind == "full_attention"],
        "kda_layers": [i + 1 for i, kind in enumerate(types) if kind == "linear_attention"]}
    config.update(first_k_dense_replace=mlps.count("dense"), head_dim=8, mla_use_nope=True, moe_layer_freq=1,
                  moe_router_activation_func="sigmoid", num_nextn_predict_layers=0, rope_scaling=None, rope_theta=10000.0,
                  use_grouped_topk=True)


def kimi_as_published(folder):
    """Names the MLPs of layers without experts as in published files; transformers writes them as block_sparse_moe."""
    return checkpoint.rename_tensors(lambda name: re.sub(r"block_sparse_moe\.(gate|up|down)_proj", r"mlp.\1_proj", name))(folder)


KIMI_LINEAR = [
    Case("kimi_linear", "kimi_linear", KIMI | {"mlp_layer_types": ["dense", "dense", "sparse", "sparse"]}, tokens=11, rows=6,
         published=sp.edit_text(published_kimi), finish=kimi_as_published, draw=40),
    Case("kimi_linear_long", "kimi_linear", KIMI | DENSE_KIMI, tokens=150, rows=8, pattern_rows=3, dtype="float16"),
    Case("kimi_linear_one_tensor", "kimi_linear", KIMI | {"num_hidden_layers": 2, "layer_types": ["full_attention", "linear_attention"],
         "mlp_layer_types": ["sparse", "dense"], "q_lora_rank": 20, "attention_bias": True, "n_group": 3,
         "topk_group": 2, "norm_topk_prob": False, "n_shared_experts": 2, "linear_conv_kernel_dim": 3,
         "linear_head_dim": 70, "linear_num_heads": 1, "rms_norm_eps": 1e-4}, tokens=11, rows=5, dtype="float32",
         published_names=False, spellings={"attributes": sp.chain(*(sp.renamed_key(old, new) for old, new in KIMI_ATTRIBUTES.items()))},
         draw=16),
    # Keys with defaults are absent: the fifth layer has attention.
    Case("kimi_linear_sparse", "kimi_linear", SMALL | {"num_hidden_layers": 5, "num_key_value_heads": 4, "kv_lora_rank": 12,
         "qk_nope_head_dim": 10, "qk_rope_head_dim": 6, "v_head_dim": 8, "linear_num_heads": 2, "linear_head_dim": 8,
         "mlp_layer_types": ["dense"] * 5}, rows=6, published=sp.chain(sp.without(
             "layer_types", "mlp_layer_types", "q_lora_rank", "moe_intermediate_size", "num_experts",
             "num_experts_per_token", "num_expert_group", "topk_group", "moe_renormalize", "num_shared_experts",
             "routed_scaling_factor", "rms_norm_eps", "attention_bias", "linear_conv_kernel_dim", "model_max_length", "head_dim",
             "qk_head_dim", "tie_word_embeddings", "hidden_act"), sp.with_values(first_k_dense_replace=5, num_key_value_heads=None))),
]

# ---- Llama 4

LLAMA4_TEXT = SMALL | {
    "num_hidden_layers": 4, "head_dim": 8, "intermediate_size": 16, "intermediate_size_mlp": 24, "num_local_experts": 4,
    "interleave_moe_layer_step": 2, "attention_chunk_size": 8, "floor_scale": 4, "attn_scale": 0.4,
} | default_rope(500000.0)

LLAMA4 = [
    Case("llama4_text", "llama4_text", LLAMA4_TEXT, tokens=21, rows=8,
         published=sp.chain(sp.old_rope(), sp.without("layer_types", "moe_layers"), sp.with_values(no_rope_layers=[])),
         spellings=OLD | {"no_lists": sp.without("layer_types", "moe_layers", "no_rope_layers")}, draw=25),
    Case("llama4_text_two_experts", "llama4_text", LLAMA4_TEXT | {"num_hidden_layers": 2, "num_experts_per_tok": 2,
         "interleave_moe_layer_step": 1, "use_qk_norm": False, "attn_temperature_tuning": False, "attention_bias": True,
         "no_rope_layers": [0, 1], "layer_types": ["full_attention", "chunked_attention"], "rope_parameters": LLAMA3},
         tokens=21, rows=5, dtype="float32", draw=15),
    Case("llama4_published_names", "llama4", {"text_config": LLAMA4_TEXT | {"num_hidden_layers": 2}, "vision_config":
         {"hidden_size": 16, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 28,
          "patch_size": 14, "vision_output_dim": 16, "projector_input_dim": 16, "projector_output_dim": 16}}, tokens=11,
         rows=5, finish=checkpoint.rename_tensors(sp.published_name)),
]

# ---- GGUF files

EVEN = {"intermediate_size": 64}  # so that rows are a multiple of the block size 32
EXAONE_KIND = ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"]
# llama.cpp knows the chunks and the scaling of queries of Llama 4; GGUF files do not hold them.
GGUF_LLAMA4 = {"num_hidden_layers": 4, "intermediate_size": 32, "attention_chunk_size": 8192, "floor_scale": 8192,
               "attn_scale": 0.1, "rope_parameters": LLAMA3}
# GGUF files do not hold mscale, which equals mscale_all_dim in published models.
GGUF_LATENT = {"kv_lora_rank": 32, "moe_intermediate_size": 32, "max_position_embeddings": 256,
               "rope_parameters": YARN | {"mscale": 0.707, "mscale_all_dim": 0.707}}
GEMMA_KIND = ["sliding_attention"] * 5 + ["full_attention"]


def gguf_case(name, model_type, config, kind, **values):
    return Case(f"gguf_{name}", model_type, config, rows=5, pattern_rows=3, dtype="float32", finish=as_gguf(kind),
                **values)


GGUF = [
    gguf_case("llama", "llama", SMALL | EVEN | default_rope(100000.0), "blocks", read_by_transformers=True),
    gguf_case("llama_factors", "llama", ROPE | {"rope_parameters": {
        "rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 256}}, "F16", tokens=90),
    gguf_case("qwen2", "qwen2", SMALL | EVEN | default_rope(1000000.0), "Q8_0", read_by_transformers=True),
    gguf_case("qwen3", "qwen3", ROPE | {"head_dim": 24, "rope_parameters": YARN | {"rope_theta": 1000000.0}}, "BF16",
              tokens=90),
    gguf_case("smollm3", "smollm3", ROPE | {"num_hidden_layers": 4} | default_rope(2000000.0), "F16"),
    gguf_case("gemma2", "gemma2", GEMMA2 | {"query_pre_attn_scalar": 16}, "F16", tokens=43),
    gguf_case("gemma3", "gemma3_text", GEMMA_TEXT | {"num_hidden_layers": 6, "query_pre_attn_scalar": 16,
              "layer_types": GEMMA_KIND, "rope_parameters": GEMMA_ROPE}, "Q8_0", tokens=43),
    gguf_case("phi3", "phi3", SMALL | EVEN | {"sliding_window": 20} | default_rope(10000.0), "Q4_1"),
    gguf_case("phi3_longrope", "phi3", PHI_LONG, "F32", tokens=90),
    gguf_case("qwen3moe", "qwen3_moe", QWEN_EXPERTS | {"moe_intermediate_size": 32, "norm_topk_prob": True}, "Q8_0", tokens=11,
              draw=203),
    gguf_case("olmoe", "olmoe", SMALL | {"intermediate_size": 32, "num_experts": 8, "num_experts_per_tok": 3}, "Q4_0", tokens=11,
              draw=137),
    gguf_case("exaone4", "exaone4", EXAONE | {"layer_types": EXAONE_KIND}, "F16", tokens=43),
    gguf_case("exaone4_no_window", "exaone4", ROPE | {"sliding_window": None, "layer_types": ["full_attention"] * 2,
              "rope_parameters": LLAMA3}, "Q8_0"),
    gguf_case("cohere2", "cohere2", COHERE, "Q8_0", tokens=43),
    gguf_case("seed_oss", "seed_oss", ROPE | {"head_dim": 24} | default_rope(10000000.0), "Q8_0"),
    gguf_case("ernie4_5", "ernie4_5", ROPE | {"head_dim": 24} | default_rope(500000.0), "Q8_0"),
    gguf_case("ernie4_5_moe", "ernie4_5_moe", SMALL | {"num_hidden_layers": 3, "moe_intermediate_size": 32,
              "moe_num_experts": 6, "moe_k": 2, "moe_num_shared_experts": 1} | default_rope(500000.0), "Q8_0", tokens=11,
              draw=92),
    gguf_case("hunyuan_dense", "hunyuan_v1_dense", ROPE | {"head_dim": 24, "rope_parameters": {"rope_type": "dynamic",
              "rope_theta": 10000.0, "factor": 1.0, "alpha": 50.0}}, "Q8_0", tokens=90),
    gguf_case("olmo2", "olmo2", ROPE | UNTIED | default_rope(500000.0), "Q8_0"),
    gguf_case("olmo3", "olmo3", OLMO_SLIDES, "Q8_0", tokens=90),
    gguf_case("granite", "granite", ROPE | GRANITE | default_rope(10000.0), "Q8_0"),
    gguf_case("glm4", "glm4", ROPE | UNTIED | {"head_dim": 16} | glm_rope(0.5), "Q8_0"),
    gguf_case("starcoder2", "starcoder2", ROPE | {"sliding_window": None} | default_rope(999999.4), "Q8_0"),
    gguf_case("gpt_oss", "gpt_oss", GPT_OSS | {"intermediate_size": 32, "swiglu_limit": 7.0}, "MXFP4", tokens=11),
    gguf_case("llama4", "llama4_text", LLAMA4_TEXT | GGUF_LLAMA4, "Q8_0", tokens=11, draw=2),
    gguf_case("deepseek_v3", "deepseek_v3", V3 | GGUF_LATENT, "Q8_0", tokens=11, draw=45),
    gguf_case("deepseek_v2", "deepseek_v2", V2 | GGUF_LATENT | {"q_lora_rank": None, "first_k_dense_replace": 1}, "Q8_0",
              tokens=11, draw=3),
    gguf_case("glm4_moe", "glm4_moe", GLM_MOE | {"moe_intermediate_size": 32}, "Q8_0", tokens=11, draw=7),
    gguf_case("minimax_m2", "minimax_m2", MINIMAX | {"intermediate_size": 32}, "Q8_0", tokens=11, draw=60),
    gguf_case("afmoe", "afmoe", AFMOE | {"num_hidden_layers": 4, "global_attn_every_n_layers": 4, "moe_intermediate_size": 32},
              "Q8_0", tokens=11, draw=530),
    gguf_case("lfm2", "lfm2", LFM2, "Q8_0", tokens=43),
    gguf_case("falcon_h1", "falcon_h1", SMALL | MAMBA2 | {"mamba_n_heads": 8, "mamba_d_ssm": 64, "mamba_rms_norm": True,
              "mamba_norm_before_gate": False} | default_rope(100000000000.0), "Q8_0", tokens=43),
    gguf_case("granitehybrid", "granitemoehybrid", GRANITE_4 | EVEN | {"num_local_experts": 0, "num_experts_per_tok": 0,
              "shared_intermediate_size": 64, "position_embedding_type": "rope"} | default_rope(10000.0), "Q8_0", tokens=43),
    gguf_case("granitehybrid_moe", "granitemoehybrid", GRANITE_4 | {"num_local_experts": 4, "num_experts_per_tok": 2,
              "intermediate_size": 32, "num_hidden_layers": 2, "layer_types": ["linear_attention", "full_attention"]}, "Q8_0",
              tokens=11, draw=3),
    gguf_case("nemotron_h", "nemotron_h", NEMOTRON | nemotron_layers("M-*-"), "Q8_0", tokens=43),
    gguf_case("nemotron_h_moe", "nemotron_h", NEMOTRON | NEMOTRON_EXPERTS | nemotron_layers("ME*"), "Q8_0", tokens=11),
    gguf_case("qwen3next", "qwen3_next", QWEN_HYBRID | {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16,
              "shared_expert_intermediate_size": 32, "num_hidden_layers": 2, "layer_types": ["linear_attention", "full_attention"]},
              "Q8_0", tokens=13, draw=3),
    gguf_case("qwen35", "qwen3_5_text", QWEN_HYBRID | {"linear_value_head_dim": 16, "num_hidden_layers": 2,
              "layer_types": ["linear_attention", "full_attention"]}, "blocks", tokens=43),
    gguf_case("kimi_linear", "kimi_linear", KIMI | {"linear_num_heads": 4, "num_hidden_layers": 2, "mlp_layer_types": ["dense", "sparse"],
              "num_local_experts": 4, "layer_types": ["linear_attention", "full_attention"]}, "Q8_0", tokens=11, draw=3),
    gguf_case("gemma4", "gemma4_text", GEMMA4_TEXT | GEMMA4_SHARED | {"num_hidden_layers": 4, "layer_types": [
              "sliding_attention", "full_attention"] * 2}, "Q8_0", tokens=43),
    gguf_case("gemma4_equal_mlps", "gemma4_text", GEMMA4_TEXT | {"num_hidden_layers": 2, "hidden_size_per_layer_input": 0, "layer_types": [
              "sliding_attention", "full_attention"], "final_logit_softcapping": 5.0}, "BF16"),
]

CASES = (GGUF + LLAMA + ROPE_TYPES + MISTRAL + MINISTRAL + QWEN + SMOLLM3 + VISION_LLAMA + GEMMA + GEMMA4 + GLM + GPT + OLMO
         + OTHERS + EXPERTS + FURTHER + LATENTS + KIMI_LINEAR + LLAMA4 + HYBRID + CONVOLUTIONS + MAMBA)
