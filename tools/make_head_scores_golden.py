#!/usr/bin/env python3
"""Makes tests/golden/head_scores.json: what TransformerLens' detect_head says about checkpoints of tests/golden.

    python tools/make_head_scores_golden.py

Needs torch, transformers and transformer-lens 4.3.0 (tools/requirements-python.txt). The attention patterns are those of
transformers, in float32. Per checkpoint: token_ids, and scores by name of the pattern, error measure and what is left out ("",
"_nobos", "_nocur", "_nobos_nocur"), each [layer][head].
"""

import json
from pathlib import Path
from types import SimpleNamespace

import torch
from transformer_lens.head_detector import detect_head
from transformers import AutoModelForCausalLM

GOLDEN = Path(__file__).resolve().parent.parent / "tests/golden"
CASES = ("llama_gqa", "qwen3")
PATTERNS = ("previous_token_head", "duplicate_token_head", "induction_head")
LENGTH = 100


class Patterns(dict):
    """The part of TransformerLens' cache that detect_head reads: cache["pattern", layer, "attn"]."""

    def __getitem__(self, key):
        return super().__getitem__(key[1])


def run(folder, ids):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    with torch.no_grad():
        attentions = model(torch.tensor([ids]), output_attentions=True).attentions
    config = SimpleNamespace(device="cpu", dtype=torch.float32, n_ctx=1024, n_layers=len(attentions),
                             n_heads=attentions[0].shape[1])
    named = SimpleNamespace(cfg=config, to_tokens=lambda text: torch.tensor([ids]))
    return named, Patterns({layer: pattern[0] for layer, pattern in enumerate(attentions)})


def scores(model, cache, pattern):
    found = {}
    for measure in ("mul", "abs"):
        found[measure] = {}
        for bos in (False, True):
            for current in (False, True):
                suffix = ("_nobos" if bos else "") + ("_nocur" if current else "")
                found[measure][suffix] = detect_head(
                    model, "text", pattern, cache=cache, exclude_bos=bos, exclude_current_token=current,
                    error_measure=measure).double().tolist()
    return found


def main():
    cases = {}
    ids = torch.randint(3, 33, (LENGTH,), generator=torch.Generator().manual_seed(0)).tolist()  # many come twice
    for case in CASES:
        model, cache = run(GOLDEN / case, ids)
        cases[case] = {"token_ids": ids, "scores": {name: scores(model, cache, name) for name in PATTERNS}}
    (GOLDEN / "head_scores.json").write_text(json.dumps(cases) + "\n")


if __name__ == "__main__":
    main()
