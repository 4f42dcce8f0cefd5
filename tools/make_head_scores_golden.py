#!/usr/bin/env python3
"""Makes tests/golden/head_scores.json: what TransformerLens' detect_head says about checkpoints of tests/golden.

    python tools/make_head_scores_golden.py

Needs torch, transformers and transformer-lens 4.3.0 (tools/requirements-python.txt). Per checkpoint: token_ids, and scores by
name of the pattern, error measure and what is left out ("", "_nobos", "_nocur", "_nobos_nocur"), each [layer][head].
"""

import json
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformer_lens.head_detector import detect_head
from transformer_lens.model_bridge import TransformerBridge
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

GOLDEN = Path(__file__).resolve().parent.parent / "tests/golden"
CASES = ("llama_gqa", "qwen3")
PATTERNS = ("previous_token_head", "duplicate_token_head", "induction_head")
LENGTH = 100


def number_tokenizer(size):
    """Words are ids."""
    words = Tokenizer(models.WordLevel({str(i): i for i in range(size)}, unk_token="0"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=words, unk_token="0", bos_token="1", eos_token="2", pad_token="2")


def load(folder):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    tokenizer = number_tokenizer(model.get_input_embeddings().num_embeddings)
    bridge = TransformerBridge.boot_transformers(
        str(folder), hf_model=model, tokenizer=tokenizer, device="cpu", dtype=torch.float32)
    bridge.cfg.default_prepend_bos = False
    return bridge


def scores(model, text, pattern):
    found = {}
    for measure in ("mul", "abs"):
        found[measure] = {}
        for bos in (False, True):
            for current in (False, True):
                suffix = ("_nobos" if bos else "") + ("_nocur" if current else "")
                found[measure][suffix] = detect_head(
                    model, text, pattern, exclude_bos=bos, exclude_current_token=current,
                    error_measure=measure).double().tolist()
    return found


def main():
    cases = {}
    for case in CASES:
        model = load(GOLDEN / case)
        ids = torch.randint(3, 33, (LENGTH,), generator=torch.Generator().manual_seed(0)).tolist()  # many come twice
        text = " ".join(str(i) for i in ids)
        assert model.to_tokens(text)[0].tolist() == ids
        cases[case] = {"token_ids": ids, "scores": {pattern: scores(model, text, pattern) for pattern in PATTERNS}}
    (GOLDEN / "head_scores.json").write_text(json.dumps(cases) + "\n")


if __name__ == "__main__":
    main()
