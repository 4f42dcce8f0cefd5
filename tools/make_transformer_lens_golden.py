#!/usr/bin/env python3
"""Writes tests/python/transformer_lens: results of TransformerLens for checkpoints of tests/golden.

    python tools/make_transformer_lens_golden.py [CASE ...]

Needs torch, transformers and transformer-lens (tools/requirements-python.txt). One safetensors file per case:

    token_ids, other_ids   [pos]
    HOOK NAME              value of the hook point for token_ids, without the batch dimension
    logits                 [pos, vocabulary]
    ablated                logits with z of the second head of the second layer set to zero
    patched                logits with resid_pre of the second layer at position 3 taken from other_ids
    frozen                 logits with the pattern of the first layer taken from other_ids

A hook point that TransformerLens does not have for a family is not in the file. In TransformerLens hook_normalized is the
value before the norm's weights, as in qkscope with folded norms.
"""

import argparse
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models
from transformer_lens.model_bridge import TransformerBridge
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "tests/python/transformer_lens"

# One case per family that TransformerLens can run.
CASES = ("llama_gqa", "llama_bias", "mistral_window", "ministral3", "qwen2", "qwen3", "smollm3_list", "gemma3_text",
         "glm", "glm4")
STAGES = ("hook_resid_pre", "ln1.hook_normalized", "attn.hook_q", "attn.hook_k", "attn.hook_v", "attn.hook_rot_q",
          "attn.hook_rot_k", "attn.hook_attn_scores", "attn.hook_pattern", "attn.hook_z", "hook_attn_out",
          "hook_resid_mid", "ln2.hook_normalized", "mlp.hook_pre", "mlp.hook_pre_linear", "mlp.hook_post",
          "hook_mlp_out", "hook_resid_post")
LENGTH = 14  # longer than the window of mistral_window


def word_tokenizer(size):
    """Returns a placeholder tokenizer, which the bridge requires; the tests pass ids directly."""
    words = models.WordLevel({str(i): i for i in range(size)}, unk_token="0")
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(words), unk_token="0", eos_token="2", pad_token="2")


def load(folder):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    tokenizer = word_tokenizer(model.get_input_embeddings().num_embeddings)
    return TransformerBridge.boot_transformers(
        str(folder), hf_model=model, tokenizer=tokenizer, device="cpu", dtype=torch.float32)


def hook_names(layers):
    inside = [f"blocks.{layer}.{stage}" for layer in range(layers) for stage in STAGES]
    return ["hook_embed", *inside, "ln_final.hook_normalized"]


def record(model, ids, other):
    logits, cache = model.run_with_cache(ids[None])
    _, others = model.run_with_cache(other[None])

    def ablate(z, hook):
        z = z.clone()
        z.view(1, LENGTH, model.cfg.n_heads, -1)[:, :, 1] = 0.0
        return z

    def patch(residual, hook):
        residual = residual.clone()
        residual[:, 3] = others["blocks.1.hook_resid_pre"][:, 3]
        return residual

    def freeze(pattern, hook):
        return others["blocks.0.attn.hook_pattern"]

    def edited(name, function):
        return model.run_with_hooks(ids[None], fwd_hooks=[(name, function)])[0]

    stored = {name: cache[name][0] for name in hook_names(model.cfg.n_layers) if name in cache}
    stored["logits"] = logits[0]
    stored["ablated"] = edited("blocks.1.attn.hook_z", ablate)
    stored["patched"] = edited("blocks.1.hook_resid_pre", patch)
    stored["frozen"] = edited("blocks.0.attn.hook_pattern", freeze)
    return {name: tensor.detach().float().contiguous().clone() for name, tensor in stored.items()}


def make(case):
    model = load(ROOT / "tests/golden" / case)
    generator = torch.Generator().manual_seed(1)
    ids, other = torch.randint(3, model.cfg.d_vocab, (2, LENGTH), generator=generator)
    with torch.no_grad():
        tensors = record(model, ids, other)
    tensors |= {"token_ids": ids.contiguous().clone(), "other_ids": other.contiguous().clone()}
    OUT.mkdir(parents=True, exist_ok=True)
    save_file(tensors, OUT / f"{case}.safetensors")
    print(f"{case}: {len(tensors)} tensors")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("cases", nargs="*", default=CASES)
    for case in parser.parse_args().cases:
        make(case)


if __name__ == "__main__":
    main()
