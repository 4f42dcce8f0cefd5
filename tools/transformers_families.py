#!/usr/bin/env python3
"""Captures every causal model class of the installed transformers with a tiny random model and writes the table of
docs/reference/transformers-families.md:

    PYTHONPATH=build/python build/venv-torch/bin/python tools/transformers_families.py [--out FILE] [--only FAMILY ...]

Run it before a release. Rows are compared with q and k that a plain patch of the attention function keeps. Tests use
tiny_model() for the families that they cover.
"""
from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import tempfile
import unittest.mock
import warnings
from pathlib import Path
from typing import Any

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import transformers
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

transformers.utils.logging.set_verbosity(transformers.utils.logging.CRITICAL)

# Sizes of a tiny model, by the name of the setting. A setting that the configuration does not have is left alone.
SIZES: dict[str, Any] = {
    "vocab_size": 96, "hidden_size": 32, "n_embd": 32, "d_model": 32, "embedding_size": 32, "dim": 32, "n_embed": 32,
    "intermediate_size": 48, "ffn_dim": 48, "n_inner": 48, "ffn_hidden_size": 48, "d_ff": 48, "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 16,
    "moe_shared_expert_intermediate_size": 16, "intermediate_size_mlp": 48, "shared_intermediate_size": 16,
    "num_hidden_layers": 4, "n_layer": 4, "n_layers": 4, "num_layers": 4, "decoder_layers": 4, "encoder_layers": 2,
    "num_attention_heads": 4, "n_head": 4, "n_heads": 4, "num_heads": 4, "decoder_attention_heads": 4,
    "encoder_attention_heads": 4, "num_key_value_heads": 2, "num_kv_heads": 2, "head_dim": 8, "attention_head_dim": 8,
    "global_head_dim": 8, "swa_head_dim": 8, "v_head_dim": 8, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "qk_head_dim": 12,
    "q_lora_rank": 12, "kv_lora_rank": 8, "max_position_embeddings": 128, "n_positions": 128, "n_ctx": 128,
    "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4, "moe_num_experts": 4, "num_experts_per_tok": 2,
    "num_experts_per_token": 2, "moe_topk": 2, "moe_k": 2, "top_k_experts": 2, "n_group": 1, "topk_group": 1, "n_shared_experts": 1,
    "sliding_window": 8, "attention_window_size": 8, "local_attention_window_size": 8, "attention_chunk_size": 8,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
    "linear_key_head_dim": 8, "linear_value_head_dim": 8, "mamba_n_heads": 4, "mamba_d_head": 16, "mamba_num_heads": 4,
    "mamba_head_dim": 16, "mamba_d_state": 8, "ssm_state_size": 8, "state_size": 8, "mamba_d_ssm": 64, "time_step_rank": 4,
    "lru_width": 32, "vocab_size_per_layer_input": 96, "hidden_size_per_layer_input": 8, "num_kv_shared_layers": 0,
    "laurel_rank": 4, "altup_num_inputs": 2, "block_auto_adjust_ff_dim": False, "conv_dim": 32, "rotary_dim": 4,
    "n_mamba_heads": 2, "ffn_hidden_dim": 48, "chunk_size": 8, "mamba_chunk_size": 8, "index_topk": 64, "index_n_heads": 2,
    "index_head_dim": 8,
}
KINDS = ["layer_types", "layers_block_type", "block_types", "mlp_layer_types"]  # lists with one entry per layer

# Settings of families for which the above is not enough.
HYBRID = ["linear_attention", "full_attention", "linear_attention", "full_attention"]
SPECIAL: dict[str, dict[str, Any]] = {
    "bamba": {"attn_layer_indices": [1, 3]},
    "bert": {"is_decoder": True},
    "deepseek_v2": {"num_experts_per_tok": 2, "topk_method": "greedy"},
    "gemma3n_text": {"intermediate_size": 48},
    "granitemoehybrid": {"layer_types": HYBRID},
    "hunyuan_v1_dense": {"head_dim": 8},
    "hunyuan_v1_moe": {"head_dim": 8},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "lfm2": {"layer_types": ["conv", "full_attention", "conv", "full_attention"]},
    "lfm2_moe": {"layer_types": ["conv", "full_attention", "conv", "full_attention"]},
    "llama4_text": {"no_rope_layer_interval": 2},
    "ministral": {"head_dim": 8},
    "nemotron": {"num_key_value_heads": 2},
    "nemotron_h": {"layers_block_type": ["linear_attention", "full_attention", "mlp", "full_attention"], "n_groups": 2},
}


def tiny_settings(config: Any, special: dict[str, Any]) -> dict[str, Any]:
    """Returns the settings that make a configuration tiny, those of its parts included."""
    settings = {name: value for name, value in SIZES.items() if getattr(config, name, None) is not None}
    if hasattr(config, "kv_lora_rank"):  # latent attention: every head has its key, RoPE has a part of its own
        settings["num_key_value_heads"] = SIZES["num_attention_heads"]
        settings["head_dim"] = SIZES["qk_rope_head_dim"]
    for name in KINDS:
        kinds = getattr(config, name, None)
        if isinstance(kinds, list) and kinds:
            distinct = list(dict.fromkeys(kinds))
            settings[name] = (distinct * SIZES["num_hidden_layers"])[: SIZES["num_hidden_layers"]]
    settings.update(special)
    for name in getattr(config, "sub_configs", {}):
        if getattr(config, name, None) is not None:
            settings[name] = tiny_settings(getattr(config, name), {})
    return settings


def tiny_config(family: str, **settings: Any) -> Any:
    special = {**SPECIAL.get(family, {}), **settings}
    default = transformers.AutoConfig.for_model(family)
    chosen = tiny_settings(default, special)
    try:
        return transformers.AutoConfig.for_model(family, **chosen)
    except Exception:  # noqa: BLE001  a setting that is derived from others: set one by one what can be set
        for name, value in chosen.items():
            if not isinstance(value, dict):
                with contextlib.suppress(AttributeError, NotImplementedError, TypeError, ValueError):
                    setattr(default, name, value)
        return default


def tiny_model(family: str, seed: int = 0, **settings: Any) -> Any:
    """Returns a tiny random model of a family in evaluation mode."""
    torch.manual_seed(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        config = tiny_config(family, **settings)
        model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation=settings.get("attention"))
    return model.float().eval()


def plain_rows(model: Any, ids: list[int]) -> dict[int, tuple[Any, Any]]:
    """q and k by layer, kept by a plain patch of the attention functions: (positions, heads, width)."""
    import qkscope
    from qkscope._attention_calls import is_cross_attention
    from transformers.modeling_utils import AttentionInterface

    kept: dict[int, tuple[Any, Any]] = {}

    def keep(module: Any, query: Any, key: Any) -> None:
        if not is_cross_attention(module):
            kept[module.layer_idx] = query[0].transpose(0, 1).clone(), key[0].transpose(0, 1).clone()

    def patched(function: Any) -> Any:
        def call(module: Any, query: Any, key: Any, *args: Any, **options: Any) -> Any:
            keep(module, query, key)
            return function(module, query, key, *args, **options)

        return call

    with contextlib.ExitStack() as patches:
        patches.enter_context(unittest.mock.patch.dict(
            AttentionInterface._global_mapping, sdpa=patched(AttentionInterface._global_mapping["sdpa"])))
        for module in {sys.modules[type(module).__module__] for module in model.modules()}:  # each family has its own eager function
            if hasattr(module, "eager_attention_forward"):
                patches.enter_context(unittest.mock.patch.object(
                    module, "eager_attention_forward", patched(module.eager_attention_forward)))
        with torch.no_grad():
            model(input_ids=torch.tensor([ids]), use_cache=False)
    if kept:
        return kept
    engine = qkscope.TransformersEngine(model)  # a family that does not use the interface
    with torch.no_grad(), engine._door(model, lambda module, query, key, *_: keep(module, query, key)):
        model(input_ids=torch.tensor([ids]), use_cache=False)
    return kept


def check_family(family: str, folder: Path) -> tuple[str, str]:
    """Captures a tiny model; returns ("captured", what) or ("refused", why)."""
    import qkscope

    try:
        model = tiny_model(family)
    except Exception as error:  # noqa: BLE001  anything may go wrong in a model of 40 settings
        return "no tiny model", f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:110]
    try:
        engine = qkscope.TransformersEngine(model)
    except qkscope.InputError as error:
        return "refused", str(error)
    except Exception as error:  # noqa: BLE001  its own pass fails
        return "no tiny model", f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:110]
    layers = engine._layers
    ids = [(7 * i) % 90 + 3 for i in range(24)]
    config = {"model": {"name": family}, "dataset": {"path": "-"}, "capture": {"sampler": {"type": "all"}},
              "output": {"data_root": str(folder / family)}}
    try:
        with qkscope.CaptureWriter(config, model=engine) as writer:
            writer.add(ids, run=engine.run)
    except Exception as error:  # noqa: BLE001
        return "failed", f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:110]
    expected = plain_rows(model, ids)
    for layer, (query, key) in expected.items():
        for kind, vectors in (("q", query), ("k", key)):
            for head in range(vectors.shape[1]):
                rows = read_vectors(folder / family / f"l{layer:02d}h{head:02d}{kind}/data.parquet")
                if rows.shape != vectors[:, head].shape or not torch.equal(rows, vectors[:, head]):
                    return "differs", f"layer {layer}, {kind} head {head}"
    attention = sum(layer.call is not None for layer in layers)
    heads = next(layer.call.heads for layer in layers if layer.call is not None)
    rope = {("NoPE" if layer.rope == "none" else "RoPE") for layer in layers if layer.call is not None}
    parts = [f"{attention} of {len(layers)} layers" if attention < len(layers) else "all layers", " and ".join(sorted(rope))]
    parts += [f"door: {engine._door.__name__.removesuffix('_door')}"] if engine._door.__name__ != "interface_door" else []
    parts += ["multi-head latent attention"] if heads[2] != next(l.call.d_value for l in layers if l.call) else []
    return "captured", ", ".join(parts)


def read_vectors(path: Path) -> Any:
    import numpy as np
    import pyarrow.parquet as pq

    column = pq.read_table(path, columns=["vector"])["vector"].combine_chunks()
    return torch.from_numpy(np.array(column.values).reshape(len(column), -1))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="write the table here (default: standard output)")
    parser.add_argument("--only", nargs="+", help="these families")
    options = parser.parse_args()
    torch.set_num_threads(1)

    def out_of_time(*_: Any) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, out_of_time)
    families = options.only or sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
    found: list[tuple[str, str, str]] = []
    with tempfile.TemporaryDirectory() as folder:
        for family in families:
            signal.alarm(60)  # a few families ignore tiny settings
            try:
                outcome, what = check_family(family, Path(folder))
            except TimeoutError:
                outcome, what = "no tiny model", "its smallest model takes more than 60 s"
            signal.alarm(0)
            found.append((family, outcome, what))
            print(f"{family:32} {outcome:14} {what}", file=sys.stderr, flush=True)
    counts = {name: sum(outcome == name for _, outcome, _ in found) for name in dict.fromkeys(o for _, o, _ in found)}
    lines = ["# Families that run through transformers", "",
             f"transformers {transformers.__version__}, {len(found)} causal model classes: "
             + ", ".join(f"{n} {name}" for name, n in counts.items()) + ".", "",
             "Made by `tools/transformers_families.py` with tiny random models: rows of a capture are compared, bit for bit, with q and k that a",
             "plain patch of the attention function keeps. *refused*: a capture ends with this message before it writes anything. *no tiny model*:",
             "the tool found no small configuration that runs, so nothing is known; [how a model is captured](../how-to/transformers-engine.md).", "",
             "| model_type | | |", "| --- | --- | --- |"]
    lines += [f"| {family} | {outcome} | {what.replace('|', '/')} |" for family, outcome, what in found]
    text = "\n".join(lines) + "\n"
    if options.out:
        options.out.write_text(text)
    else:
        print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
