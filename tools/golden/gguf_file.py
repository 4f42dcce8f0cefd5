"""Writes golden checkpoints as GGUF files in the layout of llama.cpp's converter, with the `gguf` package."""

import json
import re
from pathlib import Path

import gguf
import numpy as np
import torch
from safetensors.torch import load_file, save_file

FILE = "model.gguf"
ARCHITECTURES = {"gemma3_text": "gemma3", "qwen3_moe": "qwen3moe", "ernie4_5_moe": "ernie4_5-moe", "gpt_oss": "gpt-oss",
                 "llama4_text": "llama4", "hunyuan_v1_dense": "hunyuan-dense", "olmo3": "olmo2",
                 "deepseek_v2": "deepseek2", "deepseek_v3": "deepseek2", "glm4_moe": "glm4moe",
                 "minimax_m2": "minimax-m2", "falcon_h1": "falcon-h1", "granitemoehybrid": "granitehybrid",
                 "qwen3_next": "qwen3next", "qwen3_5_text": "qwen35", "kimi_linear": "kimi-linear", "gemma4_text": "gemma4"}
SIGMOID_ROUTERS = ("deepseek_v3", "glm4_moe", "minimax_m2", "afmoe", "kimi_linear")
PAIRED = ("llama", "smollm3", "granite", "granitemoehybrid", "nemotron_h")  # families with permuted rows of q and k
BLOCK_TYPES = ("Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1")
ADDS_ONE = ("gemma2", "gemma3_text", "qwen3_next", "qwen3_5_text")  # families whose norms are stored as 1 + weight
EXPERT = re.compile(r"(.*\.experts)\.(\d+)\.(\w+)\.weight")
DEEPSEEK = {"n_routed_experts": "add_expert_count", "n_shared_experts": "add_expert_shared_count",
            "n_group": "add_expert_group_count", "topk_group": "add_expert_group_used_count",
            "first_k_dense_replace": "add_leading_dense_block_count", "routed_scaling_factor": "add_expert_weights_scale",
            "q_lora_rank": "add_q_lora_rank", "kv_lora_rank": "add_kv_lora_rank"}
GLM_MOE = {key: method for key, method in DEEPSEEK.items() if not key.endswith("rank")}
GRANITE = {"attention_multiplier": "add_attention_scale", "embedding_multiplier": "add_embedding_scale",
           "residual_multiplier": "add_residual_scale", "logits_scaling": "add_logit_scale"}
DELTA = {"linear_conv_kernel_dim": "add_ssm_conv_kernel", "linear_key_head_dim": "add_ssm_state_size",
         "linear_num_key_heads": "add_ssm_group_count", "linear_num_value_heads": "add_ssm_time_step_rank"}
# Settings of one family: key of config.json -> method of GGUFWriter.
OWN_SETTINGS = {
    "cohere2": {"logit_scale": "add_logit_scale"},
    "granite": GRANITE,
    "granitemoehybrid": GRANITE | {"shared_intermediate_size": "add_expert_shared_feed_forward_length"},
    "nemotron_h": {"n_routed_experts": "add_expert_count", "n_shared_experts": "add_expert_shared_count",
                   "moe_shared_expert_intermediate_size": "add_expert_shared_feed_forward_length",
                   "norm_topk_prob": "add_expert_weights_norm", "routed_scaling_factor": "add_expert_weights_scale",
                   "n_group": "add_expert_group_count", "topk_group": "add_expert_group_used_count"},
    "ernie4_5_moe": {"moe_num_experts": "add_expert_count", "moe_k": "add_expert_used_count",
                     "moe_layer_interval": "add_interleave_moe_layer_step",
                     "moe_layer_start_index": "add_leading_dense_block_count",
                     "moe_num_shared_experts": "add_expert_shared_count"},
    "minimax_m2": {"intermediate_size": "add_expert_feed_forward_length"},
    "afmoe": {"num_shared_experts": "add_expert_shared_count", "num_dense_layers": "add_leading_dense_block_count",
              "route_scale": "add_expert_weights_scale"},
    "lfm2": {"conv_L_cache": "add_shortconv_l_cache"},
    "gpt_oss": {"intermediate_size": "add_expert_feed_forward_length"},
    "llama4_text": {"interleave_moe_layer_step": "add_interleave_moe_layer_step",
                    "intermediate_size": "add_expert_feed_forward_length"},
    "deepseek_v2": DEEPSEEK, "deepseek_v3": DEEPSEEK | {"norm_topk_prob": "add_expert_weights_norm"},
    "qwen3_next": DELTA | {"shared_expert_intermediate_size": "add_expert_shared_feed_forward_length"}, "qwen3_5_text": DELTA,
    "kimi_linear": {"kv_lora_rank": "add_kv_lora_rank", "num_shared_experts": "add_expert_shared_count",
                    "routed_scaling_factor": "add_expert_weights_scale",
                    "num_experts_per_token": "add_expert_used_count", "topk_group": "add_expert_group_used_count",
                    "linear_head_dim": "add_kda_head_dim", "linear_conv_kernel_dim": "add_ssm_conv_kernel"},
    "gemma4_text": {"num_kv_shared_layers": "add_shared_kv_layers",
                    "hidden_size_per_layer_input": "add_embedding_length_per_layer_input"},
    "glm4_moe": GLM_MOE | {"norm_topk_prob": "add_expert_weights_norm", "num_nextn_predict_layers": "add_nextn_predict_layers"},
}
EPSILONS = {"rms_norm_eps": "add_layer_norm_rms_eps", "norm_eps": "add_layer_norm_rms_eps", "layer_norm_eps": "add_layer_norm_eps",
            "norm_epsilon": "add_layer_norm_eps", "layer_norm_epsilon": "add_layer_norm_eps"}
# Settings of all families that have them.
SETTINGS = {
    "sliding_window": "add_sliding_window", "attn_logit_softcapping": "add_attn_logit_softcapping",
    "final_logit_softcapping": "add_final_logit_softcapping", "num_local_experts": "add_expert_count",
    "num_experts": "add_expert_count", "num_experts_per_tok": "add_expert_used_count",
    "moe_intermediate_size": "add_expert_feed_forward_length",
}
WITH_PATTERN = ("exaone4", "olmo3", "gemma4_text")  # families whose layer_types are stored; llama.cpp knows those of the others


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
    may_lack_rope = config["model_type"] in ("granitemoehybrid", "nemotron_h")
    has_rope = not may_lack_rope or config.get("position_embedding_type") == "rope"
    longest = config.get("model_max_length") or config["max_position_embeddings"]
    writer.add_context_length(longest if has_rope else 2**20)
    writer.add_embedding_length(d_model)
    further = config.get("num_nextn_predict_layers", 0) if config["model_type"] == "glm4_moe" else 0  # transformers drops them
    writer.add_block_count(layer_count(config) + further)
    writer.add_feed_forward_length(feed_forward_length(config))
    writer.add_head_count(heads)
    write_head_sizes(writer, config, d_head)
    for key, method in EPSILONS.items():
        if key in config:
            getattr(writer, method)(config[key])
    if rope:
        writer.add_rope_freq_base(rope_base(rope, d_head))
    if config["model_type"] == "gemma4_text":
        d_head = full_width(config)
        writer.add_rope_dimension_count(d_head)
        writer.add_rope_dimension_count_swa(config["head_dim"])
    elif config["model_type"] == "kimi_linear":
        writer.add_leading_dense_block_count(config["mlp_layer_types"].count("dense"))
        writer.add_rope_dimension_count(config["qk_rope_head_dim"])
    else:
        writer.add_rope_dimension_count(int(d_head * rope.get("partial_rotary_factor", 1.0)) if rope else d_model // heads)
    if "linear_num_value_heads" in config:
        write_delta_net(writer, config)
    if may_lack_rope:
        writer.add_rope_scaling_finetuned(has_rope)
    if "ssm_state_size" in config or "mamba_d_state" in config:
        write_mamba(writer, config)
    own = OWN_SETTINGS.get(config["model_type"], {})
    has_experts = config["model_type"] != "nemotron_h" or "moe" in config["layers_block_type"]
    for key, method in (SETTINGS | own).items() if has_experts else ():
        if config.get(key) is not None and (key != "sliding_window" or config["model_type"] != "starcoder2"):
            getattr(writer, method)(config[key])
    if config["model_type"] in WITH_PATTERN and config.get("sliding_window"):
        writer.add_sliding_window_pattern([kind == "sliding_attention" for kind in config["layer_types"]])
    if config["model_type"] in ("olmo3", "gemma4_text"):
        writer.add_rope_freq_base_swa(config["rope_parameters"]["sliding_attention"]["rope_theta"])


def write_delta_net(writer, config):
    """Writes Qwen3-Next in the layout of older converters, Qwen3.5 in that of newer ones, which list the layers."""
    writer.add_ssm_inner_size(config["linear_num_value_heads"] * config["linear_value_head_dim"])
    writer.add_full_attention_interval(config["layer_types"].index("full_attention") + 1)
    if config["model_type"] == "qwen3_5_text":
        writer.add_rope_dimension_sections([11, 11, 10, 0])
        writer.add_array("qwen35.attention.recurrent_layers", [kind == "linear_attention" for kind in config["layer_types"]])


def layers_differ(config, key):
    """Returns a size of Gemma 4 that layers with full attention may set in per_layer_config, and that of the other layers."""
    own = [layer[key] for layer in (config.get("per_layer_config") or {}).values() if key in layer]
    return (own or [config[key]])[0], config[key]


def full_width(config):
    return layers_differ(config, "head_dim")[0]


def write_mamba(writer, config):
    """Writes the sizes of Mamba 2, whose keys differ between families."""
    heads, d_head = (config[key] for key in ("mamba_n_heads", "mamba_num_heads", "mamba_d_head", "mamba_head_dim") if key in config)
    writer.add_ssm_time_step_rank(heads)
    writer.add_ssm_inner_size(heads * d_head)
    writer.add_ssm_group_count(groups(config))
    writer.add_ssm_state_size(config.get("mamba_d_state") or config["ssm_state_size"])
    writer.add_ssm_conv_kernel(config.get("mamba_d_conv") or config["conv_kernel"])


def groups(config):
    return config.get("mamba_n_groups") or config["n_groups"]


def layer_count(config):
    return config.get("num_hidden_layers") or len(config["layers_block_type"])


def feed_forward_length(config):
    """Returns the width of an MLP, for each layer of Nemotron-H; that of LFM2 may be derived from intermediate_size."""
    if config["model_type"] == "nemotron_h":
        widths = {"mlp": config["intermediate_size"], "moe": config["moe_intermediate_size"]}
        return [widths.get(layer, 0) for layer in config["layers_block_type"]]
    if config.get("use_double_wide_mlp"):
        kept = config["num_hidden_layers"] - config["num_kv_shared_layers"]
        return [config["intermediate_size"] * (1 if layer < kept else 2) for layer in range(config["num_hidden_layers"])]
    width = config.get("intermediate_size_mlp", config["intermediate_size"])
    if not config.get("block_auto_adjust_ff_dim"):
        return width
    unit = config["block_multiple_of"]
    return -(-int(config["block_ffn_dim_multiplier"] * int(2 * width / 3)) // unit) * unit


def write_head_sizes(writer, config, d_head):
    """Writes DeepSeek-V2 in the layout of older converters, DeepSeek-V3 in that of newer ones, which split kv_b_proj."""
    kind = config["model_type"]
    keys, values = d_head, d_head
    if kind == "gemma4_text":
        writer.add_key_length_swa(d_head)
        writer.add_value_length_swa(d_head)
        keys = values = full_width(config)
    if kind.startswith(("deepseek", "kimi")):
        keys, values = config["qk_nope_head_dim"] + config["qk_rope_head_dim"], config["v_head_dim"]
    if kind in SIGMOID_ROUTERS:
        writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    if kind == "afmoe":
        writer.add_expert_weights_norm(True)
    if kind in ("deepseek_v3", "kimi_linear"):
        writer.add_key_length_mla(keys)
        writer.add_value_length_mla(values)
        keys, values = config["kv_lora_rank"] + config["qk_rope_head_dim"], config["kv_lora_rank"]
    kv_heads = 1 if kind in ("deepseek_v3", "kimi_linear") else config["num_key_value_heads"]
    if kind == "gemma4_text":
        heads = dict(zip(("full_attention", "sliding_attention"), layers_differ(config, "num_key_value_heads"), strict=True))
        kv_heads = [heads[layer] for layer in config["layer_types"]]
    if kind in ("lfm2", "granitemoehybrid", "nemotron_h", "kimi_linear"):
        types = config.get("layer_types") or config["layers_block_type"]
        kv_heads = [kv_heads if layer == "full_attention" else 0 for layer in types]
    writer.add_head_count_kv(kv_heads)
    if kind not in ("lfm2", "granitemoehybrid"):
        writer.add_key_length(keys)
        if kind != "kimi_linear":
            writer.add_value_length(values)


def rope_base(rope, d):
    """Returns the base of the frequencies; Hunyuan's RoPE of type dynamic has a fixed one."""
    return rope["rope_theta"] * rope.get("alpha", 1.0) ** (d / (d - 2))


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
        if rope.get("mscale_all_dim") is not None:
            writer.add_rope_scaling_yarn_log_mul(0.1 * rope["mscale_all_dim"])
        for key, name in (("beta_fast", "beta_fast"), ("beta_slow", "beta_slow"), ("attention_factor", "attn_factor")):
            if rope.get(key) is not None:
                getattr(writer, f"add_rope_scaling_yarn_{name}")(rope[key])
    if kind == "llama3":
        writer.add_tensor("rope_freqs.weight", llama3_factors(config, rope))
    if kind == "proportional":
        pairs = full_width(config) // 2
        rotated = int(full_width(config) * rope["partial_rotary_factor"] / 2)
        writer.add_tensor("rope_freqs.weight", np.array([1.0] * rotated + [1e30] * (pairs - rotated), np.float32))
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


def tensor_type(wanted, index, name, values):
    """Returns float32 for norms and biases, float16 for rows that are no multiple of a block; "blocks" cycles through the types."""
    if values.ndim < 2 or name.endswith(("bias", ".A_log", ".D", "norm.weight", "conv1d.weight", "expert_gate.weight")):
        return gguf.GGMLQuantizationType.F32
    name = BLOCK_TYPES[index % len(BLOCK_TYPES)] if wanted == "blocks" else wanted
    kind = gguf.GGMLQuantizationType[name]
    return kind if values.shape[-1] % gguf.GGML_QUANT_SIZES[kind][0] == 0 else gguf.GGMLQuantizationType.F16


class StoredTensor:
    """A tensor of the GGUF file: its name in the naming scheme of the checkpoint, its values, and a function that puts
    values of the file back into a dictionary of tensors of the checkpoint."""

    def __init__(self, name, values, restore):
        self.name, self.values, self.restore = name, np.ascontiguousarray(values), restore


def convert_tensor(name, values, config):
    """Yields the tensors of the GGUF file that hold one tensor of the checkpoint."""
    kind = config["model_type"]
    heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}.get(name.split(".")[-2])
    if kind in PAIRED and heads:
        yield StoredTensor(name, in_pairs(values, heads), lambda back, to: to.update({name: as_halves(back, heads)}))
    elif kind in ADDS_ONE and name.endswith("norm.weight") and not name.endswith("linear_attn.norm.weight"):
        yield StoredTensor(name, values + np.float32(1), lambda back, to: to.update({name: back - np.float32(1)}))
    elif "experts.gate_up_proj" in name:  # columns of gate and up alternate in gpt-oss
        half = values.shape[-1] // 2
        parts = [np.s_[..., 0::2], np.s_[..., 1::2]] if kind == "gpt_oss" else [np.s_[..., :half], np.s_[..., half:]]
        for columns, part in zip(parts, ("gate", "up"), strict=True):
            def restore(back, to, columns=columns):
                to.setdefault(name, np.empty_like(values))[columns] = back.swapaxes(1, -1)
            stored = re.sub("proj(_bias)?$", lambda ending: "proj.bias" if ending[1] else "proj.weight", name)
            yield StoredTensor(stored.replace("gate_up", part), values[columns].swapaxes(1, -1), restore)
    elif "linear_attn." in name:
        yield from convert_delta_net(name, values, config)
    elif kind in ("deepseek_v3", "kimi_linear") and name.endswith("kv_b_proj.weight"):
        joined = values.reshape(config["num_attention_heads"], -1, values.shape[-1])  # [head, d_key + d_value, rank]
        for rows, part in ((np.s_[:, :config["qk_nope_head_dim"]], "k"), (np.s_[:, config["qk_nope_head_dim"]:], "v")):
            def restore(back, to, rows=rows, part=part):
                to.setdefault(name, np.empty_like(values)).reshape(joined.shape)[rows] = back.swapaxes(1, 2) if part == "k" else back
            stored = joined[rows].swapaxes(1, 2) if part == "k" else joined[rows]
            yield StoredTensor(name.replace("kv_b", f"{part}_b"), stored, restore)
    elif kind == "kimi_linear" and name.endswith(".A_log"):
        yield StoredTensor(name, -np.exp(values), lambda back, to: to.update({name: logarithm(back)}))
    elif kind == "kimi_linear" and name.endswith("_conv1d.weight"):  # [1, channels, 1, taps]
        yield StoredTensor(name, values[None], lambda back, to: to.update({name: back[0]}))
    elif name.endswith(".A_log"):
        yield StoredTensor(name, -np.exp(values)[:, None],
                           lambda back, to: to.update({name: logarithm(back[:, 0])}))
    elif name.endswith((".mamba.D", ".mixer.D")):
        yield StoredTensor(name, values[:, None], lambda back, to: to.update({name: back[:, 0]}))
    elif name.endswith((".mamba.norm.weight", ".mixer.norm.weight")):
        yield StoredTensor(name, values.reshape(groups(config), -1), lambda back, to: to.update({name: back.reshape(-1)}))
    elif name.endswith(".input_linear.weight"):  # Granite 4: gate, then up
        half = values.shape[-2] // 2
        for rows, part in ((np.s_[..., :half, :], "gate"), (np.s_[..., half:, :], "up")):
            def restore(back, to, rows=rows):
                to.setdefault(name, np.empty_like(values))[rows] = back
            yield StoredTensor(granite_name(name, config).replace("input_linear", f"{part}_proj"), values[rows], restore)
    elif name.endswith(".output_linear.weight"):
        yield StoredTensor(granite_name(name, config).replace("output_linear", "down_proj"), values,
                           lambda back, to: to.update({name: back}))
    elif name.endswith(("conv.conv.weight", ".conv1d.weight")):
        yield StoredTensor(name, values.squeeze(1), lambda back, to: to.update({name: back[:, None]}))
    elif name.endswith("experts.down_proj"):
        yield StoredTensor(name + ".weight", values.swapaxes(1, 2), lambda back, to: to.update({name: back.swapaxes(1, 2)}))
    else:
        stored = name + ".weight" if name.endswith("sinks") else re.sub(r"(correction|down_proj)_bias$|(expert_bias)$", r"\1\2.bias", name)
        stored = re.sub(r"block_sparse_moe\.(gate|up|down)_proj", r"mlp.\1_proj", stored)  # Kimi Linear
        stored = re.sub("layer_scalar$", "layer_scalar.weight", stored.replace(".dt_bias", ".dt_proj.bias"))
        yield StoredTensor(stored, values, lambda back, to: to.update({name: back}))


def logarithm(stored):
    """Returns A_log of the file's -exp(A_log)."""
    return np.log(-stored.astype(np.float64)).astype(np.float32)


def convert_delta_net(name, values, config):
    """Yields the tensors of a gated delta net. Qwen3-Next: q, k, v and z of each key head become those of all heads. Qwen3.5:
    the first value head of every key head comes before the second ones."""
    keys, heads, d_key, d_value = (config[f"linear_{size}"] for size in
                                   ("num_key_heads", "num_value_heads", "key_head_dim", "value_head_dim"))
    if name.endswith("in_proj_qkvz.weight"):
        group = heads // keys * d_value
        bounds = np.cumsum([0, d_key, d_key, group, group])
        q, k, v, z = (np.s_[:, begin:end] for begin, end in zip(bounds, bounds[1:], strict=False))
        by_head = values.reshape(keys, -1, values.shape[-1])

        def join(back, to, parts):
            whole = to.setdefault(name, np.empty_like(values)).reshape(by_head.shape)
            first = 0
            for part in parts:
                rows = whole[part].shape[0] * whole[part].shape[1]
                whole[part] = back[first:first + rows].reshape(whole[part].shape)
                first += rows
        for stored, parts in (("in_proj_qkv", (q, k, v)), ("in_proj_z", (z,))):
            yield StoredTensor(name.replace("in_proj_qkvz", stored),
                               np.concatenate([by_head[part].reshape(-1, values.shape[-1]) for part in parts]),
                               lambda back, to, parts=parts: join(back, to, parts))
        return
    squeezed = values.squeeze(1) if name.endswith("conv1d.weight") else values
    order = np.arange(squeezed.shape[1 if name.endswith("out_proj.weight") else 0])
    if config["model_type"] == "qwen3_5_text" and not name.endswith("linear_attn.norm.weight"):
        first = 2 * keys * d_key if name.endswith(("in_proj_qkv.weight", "conv1d.weight")) else 0
        unit = (len(order) - first) // heads
        tiled = order[first:].reshape(keys, heads // keys, unit).swapaxes(0, 1).reshape(-1)
        order = np.concatenate([order[:first], tiled])
    axis = -1 if name.endswith("out_proj.weight") else 0
    stored = np.take(-np.exp(squeezed) if name.endswith("A_log") else squeezed, order, axis)

    def restore(back, to):
        back = np.take(back, np.argsort(order), axis)
        to[name] = (logarithm(back) if name.endswith("A_log") else back).reshape(values.shape)
    yield StoredTensor(name.replace(".dt_bias", ".dt_proj.bias"), stored, restore)


def granite_name(name, config):
    """Returns the name of a matrix of experts, of the shared expert, or of the MLP of a model without experts."""
    shared = "mlp.shared_experts" if config["num_local_experts"] else "mlp"
    return name.replace("block_sparse_moe", "mlp.experts").replace("shared_mlp", shared)


def convert_tensors(tensors, config):
    """Yields the tensors of the GGUF file, which holds each matrix of all experts of a layer in one tensor."""
    stacks = {}
    for name, tensor in sorted(tensors.items()):
        if found := EXPERT.fullmatch(name):
            module = re.sub(r"^backbone(.*)\.mixer\.", r"model\1.mlp.", found[1])  # Nemotron-H
            module = module.replace("block_sparse_moe", "mlp")  # Kimi Linear
            matrix = {"w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"}.get(found[3], found[3])
            stacks.setdefault(f"{module}.{matrix}.weight", []).append((int(found[2]), name, tensor.float().numpy()))
        else:
            yield from convert_tensor(name, tensor.float().numpy(), config)
    for stack, experts in stacks.items():
        experts.sort(key=lambda expert: expert[0])
        names = [name for _, name, _ in experts]
        yield StoredTensor(stack, np.stack([values for _, _, values in experts]),
                           lambda back, to, names=names: to.update(zip(names, back, strict=True)))


def as_gguf(wanted):
    """Converts a folder to a GGUF file of the given type; the dequantised weights stay in folder/widened until they are
    recorded."""

    def convert(folder):
        folder = Path(folder)
        config = json.loads((folder / "config.json").read_text())
        kind = config["model_type"]
        architecture = ARCHITECTURES.get(kind, kind) + ("_moe" if "moe" in config.get("layers_block_type", ()) else "")
        names = gguf.get_tensor_name_map(
            next(key for key, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture), layer_count(config))
        rope = config.get("rope_parameters", {})
        rope = rope.get("full_attention", rope)
        writer = gguf.GGUFWriter(folder / FILE, architecture)
        writer.add_name(kind)
        write_settings(writer, config, rope)
        write_rope(writer, config, rope)
        write_tokenizer(writer, config["vocab_size"])
        widened = {}
        for index, tensor in enumerate(convert_tensors(load_file(folder / "model.safetensors"), config)):
            chosen = tensor_type(wanted, index, tensor.name, tensor.values)
            packed = gguf.quantize(tensor.values, chosen)
            writer.add_tensor(names.get_name(tensor.name, (".weight", ".bias")), packed, raw_dtype=chosen)
            tensor.restore(gguf.dequantize(packed, chosen).reshape(tensor.values.shape), widened)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        (folder / "widened").mkdir()
        save_file({name: torch.from_numpy(np.ascontiguousarray(values)) for name, values in widened.items()},
                  folder / "widened" / "model.safetensors", {"format": "pt"})
        (folder / "model.safetensors").unlink()
        (folder / "config.json").rename(folder / "widened" / "config.json")

    return convert
