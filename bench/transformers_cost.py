#!/usr/bin/env python3
"""Measures what a capture through transformers costs beside transformers' own forward pass of the same batches:

    PYTHONPATH=build/python build/venv-torch/bin/python bench/transformers_cost.py MODEL [--device cuda] [--length 4096]

MODEL: a checkpoint folder, or "random:LAYERS,WIDTH,HEADS,KEY_HEADS" for a Llama with random weights. Passes with and without
the capture alternate, so that a slow moment of the machine meets both. --rows-only leaves the files out: rows are gathered and
copied to the host, for a machine without the package.
"""
from __future__ import annotations

import argparse
import sys
import tempfile
import time
import types
from typing import Any

import numpy as np
import torch


def without_package() -> None:
    """Stands in for the compiled part of qkscope, to load qkscope/_transformers.py alone."""
    import importlib.util
    from pathlib import Path

    package, engine = types.ModuleType("qkscope"), types.ModuleType("qkscope._engine")
    package.__path__ = []
    engine.InputError = type("InputError", (Exception,), {})
    engine.PassRequest = object
    engine.ExternalEngine = lambda *_: None
    package._engine = engine
    sys.modules.update({"qkscope": package, "qkscope._engine": engine})
    path = Path(__file__).parents[1] / "python/qkscope/_transformers.py"
    spec = importlib.util.spec_from_file_location("qkscope._transformers", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["qkscope._transformers"] = module
    spec.loader.exec_module(module)
    package.TransformersEngine = module.TransformersEngine


class Request:
    """A request with sampled rows of all heads drawn by seed, as a capture makes them."""

    def __init__(self, engine: Any, ids: np.ndarray, heads: int, rate: float):
        random = np.random.default_rng(0)
        layers = [i for i, layer in enumerate(engine._layers) if layer.call is not None]
        query_heads, key_heads, _ = engine._layers[layers[0]].call.heads
        pairs = [(layer, head) for layer in layers for head in range(query_heads)]
        chosen = [pairs[i] for i in random.choice(len(pairs), min(heads, len(pairs)), replace=False)]
        self.sequences = [ids]
        self.wanted = []
        for layer in sorted({layer for layer, _ in chosen}):
            own = np.array(sorted(head for where, head in chosen if where == layer))
            for kind, some in (("q", own), ("k", np.unique(own * key_heads // query_heads))):
                rows = np.flatnonzero(random.random(len(ids)) < rate)
                if len(rows):
                    self.wanted.append((layer, kind, rows, some))
        self.bytes = 0

    def put(self, layer: int, kind: str, vectors: np.ndarray) -> None:
        self.bytes += vectors.nbytes


def load(name: str, device: str, dtype: str) -> Any:
    import transformers

    if not name.startswith("random:"):
        return transformers.AutoModelForCausalLM.from_pretrained(name, dtype=getattr(torch, dtype)).to(device).eval()
    layers, width, heads, key_heads = (int(part) for part in name.removeprefix("random:").split(","))
    config = transformers.LlamaConfig(
        num_hidden_layers=layers, hidden_size=width, intermediate_size=width * 3, num_attention_heads=heads,
        num_key_value_heads=key_heads, vocab_size=32000, max_position_embeddings=1 << 17)
    with torch.device(device):
        return transformers.AutoModelForCausalLM.from_config(config, dtype=getattr(torch, dtype)).eval()


def timed(device: str, call: Any) -> float:
    if device != "cpu":
        torch.cuda.synchronize()
    start = time.perf_counter()
    call()
    if device != "cpu":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--length", type=int, default=4096, help="tokens of a document")
    parser.add_argument("--heads", type=int, default=300)
    parser.add_argument("--rate", type=float, default=1 / 128, help="share of the positions that is kept")
    parser.add_argument("--passes", type=int, default=8)
    parser.add_argument("--rows-only", action="store_true")
    options = parser.parse_args()
    if options.rows_only:
        without_package()
    import qkscope

    model = load(options.model, options.device, options.dtype)
    engine = qkscope.TransformersEngine(model)
    documents = [np.random.default_rng(i).integers(3, engine.vocabulary, options.length) for i in range(options.passes)]

    def plain(ids: np.ndarray) -> None:
        with torch.no_grad():
            model.base_model(input_ids=torch.from_numpy(ids)[None].to(options.device), use_cache=False)

    with tempfile.TemporaryDirectory() as folder:
        if options.rows_only:
            def captured(ids: np.ndarray) -> None:
                engine.run(Request(engine, ids, options.heads, options.rate))
        else:
            bucket = max(1, round(1 / options.rate))
            config = {"capture": {"sampler": {"type": "uniform"}, "min_bucket_size": bucket, "head_sampling": {"count": options.heads}},
                      "tokenizer": {"max_length": options.length}, "output": {"data_root": folder}}
            writer = qkscope.CaptureWriter(config, model=engine)

            def captured(ids: np.ndarray) -> None:
                writer.add(ids, run=engine.run)

        plain(documents[0])
        if options.rows_only:
            captured(documents[0])
        times: dict[str, list[float]] = {"plain": [], "captured": []}
        for number, ids in enumerate(documents):
            order = (("plain", plain), ("captured", captured))
            for name, call in order if number % 2 else reversed(order):
                times[name].append(timed(options.device, lambda: call(ids)))
        if not options.rows_only:
            times["captured"].append(timed(options.device, writer.finish))
    totals = {name: sum(values) for name, values in times.items()}
    paired = [b / a - 1 for a, b in zip(times["plain"], times["captured"])]
    print(f"{options.passes} documents of {options.length} tokens on {options.device}: forward {totals['plain']:.3f} s, "
          f"captured {totals['captured']:.3f} s, {100 * (totals['captured'] / totals['plain'] - 1):+.2f} % "
          f"(pass by pass, median: {100 * float(np.median(paired)):+.2f} %)")


if __name__ == "__main__":
    main()
