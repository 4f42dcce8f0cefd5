"""Writes golden checkpoints as GGUF files in the layout of llama.cpp's converter, with the `gguf` package."""

import json
from pathlib import Path

import gguf
import numpy as np
import torch
from safetensors.torch import load_file, save_file

FILE = "model.gguf"
ARCHITECTURES = {"gemma3_text": "gemma3"}
BLOCK_TYPES = ("Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1")
# Tensors of a layer: name in the checkpoint -> name in the GGUF file.
PARTS = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "self_attn.qkv_proj": "attn_qkv",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up", "mlp.gate_up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    "post_attention_layernorm": "ffn_norm",
}
GEMMA_PARTS = PARTS | {"post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
                       "post_feedforward_layernorm": "post_ffw_norm"}
WHOLE = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
         "lm_head.weight": "output.weight"}


def stored_name(name, gemma):
    if name in WHOLE:
        return WHOLE[name]
    _, _, layer, rest = name.split(".", 3)
    part, kind = rest.rsplit(".", 1)
    return f"blk.{layer}.{(GEMMA_PARTS if gemma else PARTS)[part]}.{kind}"


def in_pairs(values, heads):
    """Reorders rows of a head as (0, d/2), (1, d/2 + 1), ..., because llama.cpp rotates neighbouring rows."""
    shape = values.shape
    return values.reshape(heads, 2, shape[0] // heads // 2, *shape[1:]).swapaxes(1, 2).reshape(shape)


def as_halves(values, heads):
    shape = values.shape
    return values.reshape(heads, shape[0] // heads // 2, 2, *shape[1:]).swapaxes(1, 2).reshape(shape)


def write_settings(writer, config, rope):
    heads, d_model = config["num_attention_heads"], config["hidden_size"]
    d_head = config.get("head_dim") or d_model // heads
    writer.add_vocab_size(config["vocab_size"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(d_model)
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(d_head)
    writer.add_value_length(d_head)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_rope_dimension_count(int(d_head * rope.get("partial_rotary_factor", 1.0)))
    if config.get("sliding_window"):
        writer.add_sliding_window(config["sliding_window"])
    if config.get("attn_logit_softcapping"):
        writer.add_attn_logit_softcapping(config["attn_logit_softcapping"])
    if config.get("final_logit_softcapping"):
        writer.add_final_logit_softcapping(config["final_logit_softcapping"])


def write_tokenizer(writer, count):
    """Writes <s>, printable ASCII characters but the last, and "th" as tokens, if their number equals `count`."""
    characters = ["\u0120" if code == 0x20 else chr(code) for code in range(0x20, 0x7e)] + ["th"]
    if count != len(characters) + 1:
        return
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(["<s>", *characters])
    writer.add_token_types([gguf.TokenType.CONTROL] + [gguf.TokenType.NORMAL] * len(characters))
    writer.add_token_merges(["t h"])
    writer.add_bos_token_id(0)
    writer.add_add_bos_token(True)


def write_rope(writer, config, rope):
    kind = rope.get("rope_type", "default")
    if kind in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(kind))
        writer.add_rope_scaling_factor(rope["factor"])
    if kind == "yarn":
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    if kind == "llama3":
        writer.add_tensor("rope_freqs.weight", llama3_factors(config, rope))
    if kind == "longrope":
        original = rope["original_max_position_embeddings"]
        scale = config["max_position_embeddings"] / original
        writer.add_rope_scaling_orig_ctx_len(original)
        writer.add_rope_scaling_attn_factors(float(np.sqrt(1 + np.log(scale) / np.log(original))))
        for which in ("long", "short"):
            writer.add_tensor(f"rope_factors_{which}.weight", np.array(rope[f"{which}_factor"], np.float32))


def llama3_factors(config, rope):
    """Returns the divisor of each frequency, as in convert_hf_to_gguf.py."""
    d = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    frequencies = 1.0 / rope["rope_theta"] ** (np.arange(0, d, 2, dtype=np.float32) / d)
    factor, low, high = rope["factor"], rope["low_freq_factor"], rope["high_freq_factor"]
    original = rope["original_max_position_embeddings"]
    factors = []
    for frequency in frequencies:
        length = 2 * np.pi / frequency
        smooth = (original / length - low) / (high - low)
        factors.append(1 if length < original / high else factor if length > original / low
                       else 1 / ((1 - smooth) / factor + smooth))
    return np.array(factors, np.float32)


def tensor_type(wanted, index, values):
    """Returns float32 for norms and biases, float16 for rows that are no multiple of a block; "blocks" cycles through the types."""
    if values.ndim < 2:
        return gguf.GGMLQuantizationType.F32
    name = BLOCK_TYPES[index % len(BLOCK_TYPES)] if wanted == "blocks" else wanted
    kind = gguf.GGMLQuantizationType[name]
    return kind if values.shape[-1] % gguf.GGML_QUANT_SIZES[kind][0] == 0 else gguf.GGMLQuantizationType.F16


def as_gguf(wanted):
    """Converts a folder to a GGUF file of the given type; the dequantised weights stay in folder/widened until they are
    recorded."""

    def convert(folder):
        folder = Path(folder)
        config = json.loads((folder / "config.json").read_text())
        kind = config["model_type"]
        gemma, paired = kind.startswith("gemma"), kind in ("llama", "smollm3")
        rope = config["rope_parameters"]
        rope = rope.get("full_attention", rope)
        writer = gguf.GGUFWriter(folder / FILE, ARCHITECTURES.get(kind, kind))
        writer.add_name(kind)
        write_settings(writer, config, rope)
        write_rope(writer, config, rope)
        write_tokenizer(writer, config["vocab_size"])
        widened = {}
        for index, (name, tensor) in enumerate(sorted(load_file(folder / "model.safetensors").items())):
            values = tensor.float().numpy()
            heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}.get(
                name.split(".")[-2]) if paired else None
            adds_one = gemma and name.endswith("norm.weight")
            stored = values + np.float32(1) if adds_one else in_pairs(values, heads) if heads else values
            chosen = tensor_type(wanted, index, stored)
            packed = gguf.quantize(np.ascontiguousarray(stored), chosen)
            writer.add_tensor(stored_name(name, gemma), packed, raw_dtype=chosen)
            back = gguf.dequantize(packed, chosen).reshape(stored.shape)
            back = back - np.float32(1) if adds_one else as_halves(back, heads) if heads else back
            widened[name] = torch.from_numpy(np.ascontiguousarray(back))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        (folder / "widened").mkdir()
        save_file(widened, folder / "widened" / "model.safetensors", {"format": "pt"})
        (folder / "model.safetensors").unlink()
        (folder / "config.json").rename(folder / "widened" / "config.json")

    return convert
