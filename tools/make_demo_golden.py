#!/usr/bin/env python3
"""Writes the results of transformers for the demo's checkpoints: tests/golden/demo/LABEL.safetensors.

    python tools/make_demo_golden.py

Each checkpoint runs over the first text of the demo, truncated to its context, in float32. The file holds the token ids
and, at a few positions, queries and keys as they enter the dot product and the logits. Needs torch and transformers.
"""

import json
import pathlib

import torch
from golden.recorder import Recorder
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

ROOT = pathlib.Path(__file__).resolve().parent.parent
DEMO = ROOT / "share" / "demo"
OUT = ROOT / "tests" / "golden" / "demo"
LAYERS = (0, 3, 6, 7)  # layers 3 and 7 have no RoPE
POSITIONS = 4


def golden(folder, text):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    context = model.config.max_position_embeddings
    ids = torch.tensor(AutoTokenizer.from_pretrained(folder)(text)["input_ids"][:context])
    tensors = Recorder(model.eval()).run(ids)
    rows = torch.linspace(0, context - 1, POSITIONS).long()
    names = [f"blocks.{layer}.attn.hook_rot_{kind}" for layer in LAYERS for kind in "qk"] + ["logits"]
    kept = {name: tensors[name][rows].float().contiguous() for name in names}
    return kept | {"token_ids": ids, "rows": rows, "pattern_rows": rows[:0]}


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    with open(DEMO / "corpus.jsonl", encoding="utf-8") as file:
        text = json.loads(file.readline())["text"]
    for folder in sorted((DEMO / "checkpoints").iterdir()):
        save_file(golden(folder, text), OUT / f"{folder.name}.safetensors")
        print(folder.name)


if __name__ == "__main__":
    main()
