#!/usr/bin/env python3
"""Writes tests/golden/head_scores.json: scores of TransformerLens' detect_head for checkpoints of tests/golden.

    python tools/make_head_scores_golden.py

Needs torch, transformers and transformer-lens 4.3.0 from PyPI, in a separate environment. TransformerLens loads each
checkpoint, runs it in float32 and scores its heads; the words of the text map to token ids. Per checkpoint: token_ids, and
scores by name of the pattern, error measure and excluded keys ("", "_nobos", "_nocur", "_nobos_nocur"), each [layer][head].
"""

import json
import os
import tempfile
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"  # checkpoints are local folders

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformer_lens.head_detector import detect_head
from transformer_lens.model_bridge import TransformerBridge
from transformers import PreTrainedTokenizerFast

GOLDEN = Path(__file__).resolve().parent.parent / "tests/golden"
CASES = ("llama_gqa", "qwen3")
PATTERNS = ("previous_token_head", "duplicate_token_head", "induction_head")
LENGTH = 100
TOKENS = 33


def words_tokenizer(folder):
    """Writes a tokenizer in which word wN is token N; TransformerLens loads it from its folder."""
    words = {"<unk>": 0, "<bos>": 1, "<eos>": 2} | {f"w{i}": i for i in range(3, TOKENS)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", bos_token="<bos>", eos_token="<eos>",
                            pad_token="<eos>").save_pretrained(folder)
    return PreTrainedTokenizerFast.from_pretrained(folder)


def load(folder, tokenizer, ids, text):
    model = TransformerBridge.boot_transformers(str(folder), device="cpu", dtype=torch.float32, tokenizer=tokenizer)
    model.cfg.default_prepend_bos = False
    found = model.to_tokens(text)[0].tolist()
    assert found == ids, f"{folder}: TransformerLens reads {found}, expected {ids}"
    return model


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
    ids = torch.randint(3, TOKENS, (LENGTH,), generator=torch.Generator().manual_seed(0)).tolist()  # many ids repeat
    text = " ".join(f"w{i}" for i in ids)
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = words_tokenizer(folder)
        loaded = {case: load(GOLDEN / case, tokenizer, ids, text) for case in CASES}
    for case, model in loaded.items():
        cases[case] = {"token_ids": ids, "scores": {name: scores(model, text, name) for name in PATTERNS}}
    (GOLDEN / "head_scores.json").write_text(json.dumps(cases) + "\n")


if __name__ == "__main__":
    main()
