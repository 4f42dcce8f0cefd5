#!/usr/bin/env python3
"""Measures what a capture through transformers costs beside transformers' own forward passes over the same documents:

    PYTHONPATH=build/python build/venv-torch/bin/python bench/transformers_cost.py MODEL [--device cuda] [--length 4096]

MODEL: a checkpoint folder, or "random:LAYERS,WIDTH,HEADS,KEY_HEADS" for a Llama with random weights. A repeat is a loop of plain
forward passes and a whole qkscope.capture() of the same documents: reading, tokenizing, sampling, parts, final files. The order
alternates, so that a slow moment of the machine meets both. The plain loop has its token ids on the device and waits only for the
last pass.
"""
from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import qkscope
import torch
import transformers


def load(name: str, device: str, dtype: str) -> Any:
    if not name.startswith("random:"):
        return transformers.AutoModelForCausalLM.from_pretrained(name, dtype=getattr(torch, dtype)).to(device).eval()
    layers, width, heads, key_heads = (int(part) for part in name.removeprefix("random:").split(","))
    config = transformers.LlamaConfig(
        num_hidden_layers=layers, hidden_size=width, intermediate_size=width * 3, num_attention_heads=heads,
        num_key_value_heads=key_heads, vocab_size=32000, max_position_embeddings=1 << 17)
    with torch.device(device):
        return transformers.AutoModelForCausalLM.from_config(config, dtype=getattr(torch, dtype)).eval()


def read_numbers(text: str) -> dict[str, list[int]]:
    """A tokenizer of texts that are token ids."""
    return {"input_ids": [int(word) for word in text.split()]}


def seconds_of(call: Callable[[], Any], device: str) -> tuple[float, Any]:
    start = time.perf_counter()
    result = call()
    if device != "cpu":
        torch.cuda.synchronize()
    return time.perf_counter() - start, result


class Comparison:
    def __init__(self, options: argparse.Namespace, folder: Path):
        self.options = options
        self.folder = folder
        self.engine = qkscope.TransformersEngine(load(options.model, options.device, options.dtype), read_numbers)
        self.documents = [np.random.default_rng(i).integers(3, self.engine.vocabulary, options.length) for i in range(options.documents)]
        self.on_device = [torch.from_numpy(ids)[None].to(options.device) for ids in self.documents]
        self.captures = 0

    def forward(self, count: int) -> None:
        with torch.no_grad():
            for ids in self.on_device[:count]:
                self.engine.model.base_model(input_ids=ids, use_cache=False)

    def capture(self, count: int) -> Any:
        self.captures += 1
        texts = self.folder / f"{count}.jsonl"
        if not texts.exists():
            texts.write_text("".join(json.dumps({"text": " ".join(map(str, ids))}) + "\n" for ids in self.documents[:count]))
        config = {
            "model": {"name": str(self.folder)},
            "dataset": {"path": texts},
            "tokenizer": {"max_length": self.options.length},
            "capture": {"sampler": {"type": "uniform"}, "min_bucket_size": max(1, round(1 / self.options.rate)),
                        "head_sampling": {"count": self.options.heads}},
            "output": {"data_root": self.folder / f"capture-{self.captures}"},
        }
        return qkscope.capture(config, model=self.engine)

    def run(self) -> None:
        self.forward(1)
        self.capture(min(2, len(self.documents)))
        count, device = len(self.documents), self.options.device
        forward, captured, passes = [], [], []
        for repeat in range(self.options.repeats):
            def plain() -> None:
                forward.append(seconds_of(lambda: self.forward(count), device)[0])

            def whole() -> None:
                seconds, result = seconds_of(lambda: self.capture(count), device)
                captured.append(seconds)
                passes.append(seconds - result.assembly_seconds)
                shutil.rmtree(self.folder / f"capture-{self.captures}")

            for call in (plain, whole) if repeat % 2 == 0 else (whole, plain):
                call()
            print(f"repeat {repeat + 1}: forward {forward[-1]:.3f} s, capture {captured[-1]:.3f} s, without its final files {passes[-1]:.3f} s")
        base = statistics.median(forward)
        whole_cost, pass_cost = (100 * (statistics.median(values) / base - 1) for values in (captured, passes))
        print(f"{count} documents of {self.options.length} tokens on {device}, torch {torch.__version__}, transformers "
              f"{transformers.__version__}, median of {self.options.repeats}: forward {base:.3f} s, capture {whole_cost:+.2f} %, without its "
              f"final files {pass_cost:+.2f} %")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--length", type=int, default=4096, help="tokens of a document")
    parser.add_argument("--documents", type=int, default=0, help="default: 1,048,576 tokens")
    parser.add_argument("--heads", type=int, default=300)
    parser.add_argument("--rate", type=float, default=1 / 128, help="share of the positions that is kept")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    options.documents = options.documents or max(1, (1 << 20) // options.length)
    with tempfile.TemporaryDirectory() as folder:
        Comparison(options, Path(folder)).run()


if __name__ == "__main__":
    main()
