#!/usr/bin/env python3
"""Writes tests/python/transformer_lens_api: results of TransformerLens functions for checkpoints of tests/golden.

    python tools/make_transformer_lens_api_golden.py [CASE ...]

Needs torch, transformers and transformer-lens (tools/requirements-python.txt). One safetensors file per case:

    token_ids, other_ids        [pos]
    plain.NAME                  of the unprocessed model
    folded.NAME                 after enable_compatibility_mode with fold_ln only
    processed.NAME              after it with its defaults: fold_ln, center_writing_weights, center_unembed,
                                fold_value_biases
    asked.HOOK NAME             values of hook points that fire on request only
    asked.moved_attn_in         logits after an edit of blocks.1.hook_attn_in

without the batch dimension. Labels of stacks are in the metadata, as JSON. NAME is the name of a function with its
arguments; tests/python/test_transformer_lens_api.py makes the same calls. The case "demo" is the demo's checkpoint
with its tokenizer; its metadata has the results of the text functions.
"""

import argparse
import json
import warnings

import torch
from make_transformer_lens_golden import ROOT, load
from safetensors.torch import save_file
from transformer_lens import SVDInterpreter
from transformer_lens.model_bridge import TransformerBridge
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

OUT = ROOT / "tests/python/transformer_lens_api"
DEMO = ROOT / "share/demo/checkpoints/S3-4720"

# Families in which folding in TransformerLens keeps the logits and its contributions add up.
CASES = ("llama_bias", "mistral_window", "qwen2", "qwen3", "smollm3_list", "phi3", "granite", "gpt2", "gpt_neox",
         "starcoder2", "demo")
LENGTH = 8
TEXTS = ("The sea was calm.", "Entry 1, day 5: the old man sat by the fire.", "the")
NOTHING = {"center_writing_weights": False, "center_unembed": False, "fold_value_biases": False}


def calls(model, ids):
    """Yields logits, losses and residual streams."""
    logits, loss = model(ids, return_type="both")
    middle = model(ids, stop_at_layer=1)
    yield "logits", logits
    yield "loss", loss
    yield "loss_per_token", model(ids, return_type="loss", loss_per_token=True)
    yield "stop_at_layer", middle
    yield "start_at_layer", model(middle, start_at_layer=1)


def stacks(cache, other, direction):
    """Yields (name, array or (array, labels)); other: a token that is not the first; direction: [d_model]."""
    last = {"pos_slice": -1, "return_labels": True}
    has_mid = "blocks.0.hook_resid_mid" in cache.keys()
    yield "accumulated_resid", cache.accumulated_resid(incl_mid=has_mid, return_labels=True)
    yield "accumulated_resid_ln", cache.accumulated_resid(apply_ln=True, return_labels=True)
    yield "accumulated_resid_1", cache.accumulated_resid(layer=1, apply_ln=True, return_labels=True)
    decomposed, labels = cache.decompose_resid(return_labels=True)
    yield "decompose_resid", (decomposed, labels)
    yield "decompose_resid_ln", cache.decompose_resid(apply_ln=True, return_labels=True)
    yield "decompose_resid_attn", cache.decompose_resid(layer=1, mode="attn", return_labels=True)
    yield "decompose_resid_mlp", cache.decompose_resid(
        mode="mlp", incl_embeds=False, pos_slice=(2, 5), return_labels=True)
    yield "stack_head_results", cache.stack_head_results(return_labels=True)
    yield "stack_head_results_rest", cache.stack_head_results(1, incl_remainder=True, apply_ln=True, return_labels=True)
    yield "stack_neuron_results", cache.stack_neuron_results(-1, **last)
    yield "stack_neuron_results_ln", cache.stack_neuron_results(
        1, neuron_slice=(3, 9), apply_ln=True, incl_remainder=True, **last)
    yield "stack_neuron_results_onto", cache.stack_neuron_results(-1, project_output_onto=direction, **last)
    yield "get_neuron_results", cache.get_neuron_results(1, neuron_slice=[1, 4], pos_slice=2)
    yield "get_full_resid_decomposition", cache.get_full_resid_decomposition(**last)
    yield "get_full_resid_decomposition_ln", cache.get_full_resid_decomposition(
        apply_ln=True, expand_neurons=False, **last)
    yield "get_full_resid_decomposition_onto", cache.get_full_resid_decomposition(
        apply_ln=True, project_output_onto=direction, **last)
    yield "apply_ln_to_stack", cache.apply_ln_to_stack(decomposed, layer=1)
    yield "logit_attrs", cache.logit_attrs(decomposed, 5)
    yield "logit_attrs_difference", cache.logit_attrs(decomposed, 5, incorrect_tokens=other)
    yield "stack_activation", cache.stack_activation("z")


def asked_hooks(model, ids):
    """Yields the hook points on request of the unprocessed model."""
    for option in ("set_use_attn_result", "set_use_split_qkv_input", "set_use_hook_mlp_in"):
        getattr(model, option)(True)
    _, cache = model.run_with_cache(ids)
    inside = ("ln1.hook_scale", "ln2.hook_scale", "attn.hook_result", "hook_q_input", "hook_k_input", "hook_v_input",
              "hook_mlp_in")
    for name in ("ln_final.hook_scale", *[f"blocks.1.{name}" for name in inside]):
        yield f"asked.{name}", cache[name][0].contiguous().clone()
    model.set_use_split_qkv_input(False)  # TransformerLens allows only one of the two options at a time
    model.set_use_attn_in(True)
    _, cache = model.run_with_cache(ids)
    yield "asked.blocks.1.hook_attn_in", cache["blocks.1.hook_attn_in"][0].contiguous().clone()

    def move(x, hook):  # [batch, pos, head, d_model]
        x[:, 5, 0] = x[:, 4, 0]
        x[:, 6, -1] = 0
        return x

    yield "asked.moved_attn_in", model.run_with_hooks(ids, fwd_hooks=[("blocks.1.hook_attn_in", move)])[0].clone()


def circuits(model):
    yield "QK.norm", model.QK.norm()
    yield "OV.norm", model.OV.norm()
    yield "QK.S", model.QK.S
    yield "OV.eigenvalues", model.OV.eigenvalues.abs().sort(dim=-1, descending=True).values
    yield "OV.corner", model.OV.get_corner(3)
    for mode in "QKV":
        yield f"all_composition_scores.{mode}", model.all_composition_scores(mode).scores
    interpreter = SVDInterpreter(model)
    # Signs of singular vectors are arbitrary.
    yield "svd.OV", interpreter.get_singular_vectors("OV", layer_index=1, head_index=1, num_vectors=3).abs()
    yield "svd.w_in", interpreter.get_singular_vectors("w_in", layer_index=0, num_vectors=3).abs()
    yield "svd.w_out", interpreter.get_singular_vectors("w_out", layer_index=1, num_vectors=3).abs()
    yield "directions", model.tokens_to_residual_directions(torch.tensor([3, 5]))


def weights(model):
    for name in ("W_E", "W_U", "W_pos", "b_U"):
        found = getattr(model, name, None)
        if found is not None:
            yield name, found
    yield "W_O", model.W_O[1]
    yield "W_out", model.W_out[1]
    yield "accumulated_bias", model.accumulated_bias(model.cfg.n_layers)


def unbatched(name, tensor, batched):
    """Removes the batch axis: stacks are [component, batch, ...], calls [batch, ...]."""
    if not batched or tensor.ndim == 0:
        return tensor
    if name in ("logits", "loss_per_token", "stop_at_layer", "start_at_layer", "get_neuron_results"):
        return tensor[0]
    return tensor[:, 0]


def record(model, ids, stored, labels, kind):
    """Stores all results of one state of the weights under its prefix."""
    def add(pairs, batched=True):
        for name, value in pairs:
            value, own = value if isinstance(value, tuple) else (value, None)
            key = f"{kind}.{name}"
            stored[key] = unbatched(name, value.detach().float(), batched).contiguous().clone()
            if own is not None:
                labels[key] = [str(label) for label in own]

    _, cache = model.run_with_cache(ids)
    add(calls(model, ids))
    if kind == "folded":
        add(stacks(cache, other=7, direction=model.W_U[:, 5] - model.W_U[:, 7]))
    add(circuits(model) if kind == "folded" else weights(model), batched=False)


def text_functions(model):
    """Returns the results of the text functions as JSON."""
    word = model.to_str_tokens(TEXTS[0])[1]
    return {
        "texts": TEXTS,
        "to_tokens": [model.to_tokens(text)[0].tolist() for text in TEXTS],
        "to_tokens_right": model.to_tokens(list(TEXTS), padding_side="right").tolist(),
        "to_tokens_left": model.to_tokens(list(TEXTS), padding_side="left").tolist(),
        "pad": model.tokenizer.pad_token_id,
        "to_str_tokens": [model.to_str_tokens(text) for text in TEXTS],
        "to_string": [model.to_string(model.to_tokens(text)[0]) for text in TEXTS],
        "word": word,
        "to_single_token": model.to_single_token(word),
        "get_token_position": [model.get_token_position(word, TEXTS[0], mode=mode) for mode in ("first", "last")],
        "loss": [float(model(text, return_type="loss")) for text in TEXTS[:2]],
    }


def load_demo():
    model = AutoModelForCausalLM.from_pretrained(DEMO, dtype=torch.float32, attn_implementation="eager")
    tokenizer = PreTrainedTokenizerFast.from_pretrained(DEMO)
    tokenizer.pad_token = tokenizer.convert_ids_to_tokens(0)
    return TransformerBridge.boot_transformers(
        str(DEMO), hf_model=model, tokenizer=tokenizer, device="cpu", dtype=torch.float32)


def make(case):
    loaded = load_demo if case == "demo" else lambda: load(ROOT / "tests/golden" / case)
    stored, labels, text = {}, {}, {}
    with torch.no_grad():
        model = loaded()
        ids = torch.randint(3, model.cfg.d_vocab, (1, LENGTH), generator=torch.Generator().manual_seed(2))
        stored["token_ids"] = ids[0].clone()
        if case == "demo":
            text = text_functions(model)
        else:
            record(model, ids, stored, labels, "plain")
            model.enable_compatibility_mode(disable_warnings=True, **NOTHING)
            record(model, ids, stored, labels, "folded")
            model = loaded()
            model.enable_compatibility_mode(disable_warnings=True)
            record(model, ids, stored, labels, "processed")
            stored |= dict(asked_hooks(loaded(), ids))
    OUT.mkdir(parents=True, exist_ok=True)
    save_file(stored, OUT / f"{case}.safetensors", {"labels": json.dumps(labels), "text": json.dumps(text)})
    print(f"{case}: {len(stored)} tensors, {sum(t.numel() for t in stored.values()) * 4:,} bytes")


def main():
    warnings.filterwarnings("ignore")
    parser = argparse.ArgumentParser()
    parser.add_argument("cases", nargs="*", default=CASES)
    for case in parser.parse_args().cases:
        make(case)


if __name__ == "__main__":
    main()
