#!/usr/bin/env python3
"""Measures the error of bfloat16 runs of transformers and qkscope on a GPU against a float32 run of transformers, on the
same tokens at a real model's size. Prints a table.

    python bench/precision_table.py MODEL [--tokens 4096] [--layers 0,1,17,34,35] [--qkscope build/bin/qkscope]

Compares q and k as they enter the dot product, at every 64th position and the last one.
"""

import argparse
import subprocess
import tempfile
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file


def relative(found, expected):
    return ((found.double() - expected.double()).norm() / expected.double().norm()).item()


def run_transformers(folder, ids, dtype, layers, rows):
    sdpa, kept = transformers.AttentionInterface()["sdpa"], {}

    def recorded(module, query, key, *arguments, **options):  # (batch, heads, tokens, head_dim)
        if module.layer_idx in layers:
            for kind, states in (("q", query), ("k", key)):
                kept[f"blocks.{module.layer_idx}.attn.hook_rot_{kind}"] = states[0, :, rows].transpose(0, 1).float().cpu()
        return sdpa(module, query, key, *arguments, **options)

    model = transformers.AutoModel.from_pretrained(folder, dtype=dtype, attn_implementation="sdpa").to("cuda").eval()
    transformers.AttentionInterface.register("sdpa", recorded)
    try:
        with torch.inference_mode():
            model(input_ids=ids[None].to("cuda"), use_cache=False)
    finally:
        transformers.AttentionInterface.register("sdpa", sdpa)
    del model
    torch.cuda.empty_cache()
    return kept


def run_qkscope(program, folder, ids, layers, rows, dtype):
    names = ",".join(f"blocks.{layer}.attn.hook_rot_{kind}" for layer in layers for kind in "qk")
    with tempfile.TemporaryDirectory() as scratch:
        tokens, out = Path(scratch) / "tokens.json", Path(scratch) / "trace.safetensors"
        tokens.write_text(str(ids.tolist()))
        subprocess.run([program, "trace", "--model", folder, "--token-ids", tokens, "--hooks", names, "--device", "cuda",
                        "--dtype", dtype, "--positions", ",".join(map(str, rows)), "--out", out, "--quiet"], check=True)
        return load_file(out)


def main():
    parser = argparse.ArgumentParser(description="Compare bfloat16 runs with a float32 run.")
    parser.add_argument("model")
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--layers", default="0,1,17,34,35")
    parser.add_argument("--qkscope", default="build/bin/qkscope")
    options = parser.parse_args()
    layers = [int(layer) for layer in options.layers.split(",")]
    rows = sorted({*range(0, options.tokens, 64), options.tokens - 1})
    ids = torch.randint(0, 100000, (options.tokens,), generator=torch.Generator().manual_seed(0))
    torch.backends.cuda.matmul.allow_tf32 = False
    exact = run_transformers(options.model, ids, torch.float32, layers, rows)
    theirs = run_transformers(options.model, ids, torch.bfloat16, layers, rows)
    ours = run_qkscope(options.qkscope, options.model, ids, layers, rows, "bfloat16")
    ours_exact = run_qkscope(options.qkscope, options.model, ids, layers, rows, "float32")
    print("| layer | | transformers bfloat16 | qkscope bfloat16 | qkscope float32 |")
    print("| --- | --- | --- | --- | --- |")
    for layer in layers:
        for kind in "qk":
            name = f"blocks.{layer}.attn.hook_rot_{kind}"
            errors = [relative(run[name], exact[name]) for run in (theirs, ours, ours_exact)]
            print(f"| {layer} | {kind} | " + " | ".join(f"{error:.2e}" for error in errors) + " |")


if __name__ == "__main__":
    main()
