#!/usr/bin/env python3
"""All q and k of a sequence, cached from Python: qkscope, TransformerLens and plain transformers hooks.

    PYTHONPATH=build/python python bench/python_bench.py FOLDER [--tokens 4096] [--runs 2] [--peer-python PYTHON]

Each side is a process of its own, float32 on the CPU, and keeps what enters the dot product of every layer as arrays;
the hooks of transformers sit on the projections, before RoPE, which is less work. Prints seconds of the fastest run and
the peak memory of the process. The peers need tools/requirements-python.txt, in the environment of --peer-python.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time


def engine(folder, threads):
    import qkscope

    qkscope.set_threads(threads)
    model = qkscope.load(folder)
    return lambda ids: model.run_with_cache(ids, ["blocks.*.attn.hook_rot_q", "blocks.*.attn.hook_rot_k"])


def load_torch(folder, threads, attention):
    import torch
    from transformers import AutoModelForCausalLM, logging

    logging.disable_progress_bar()
    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation=attention)


def transformers(folder, threads):
    import torch

    model = load_torch(folder, threads, "sdpa")
    cache = {}
    for index, layer in enumerate(model.model.layers):
        for kind in ("q", "k"):
            def keep(module, args, output, name=f"{index}.{kind}"):
                cache[name] = output

            getattr(layer.self_attn, f"{kind}_proj").register_forward_hook(keep)

    def run(ids):
        cache.clear()
        model.model(input_ids=torch.tensor([ids]), use_cache=False)
        return cache

    return run


def transformer_lens(folder, threads):
    import torch
    from transformer_lens.model_bridge import TransformerBridge
    from transformers import AutoTokenizer

    model = load_torch(folder, threads, "eager")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    bridge = TransformerBridge.boot_transformers(
        str(folder), hf_model=model, tokenizer=tokenizer, device="cpu", dtype=torch.float32)

    def run(ids):
        wanted = lambda name: name.endswith(("hook_rot_q", "hook_rot_k"))  # noqa: E731
        return bridge.run_with_cache(torch.tensor([ids]), names_filter=wanted)[1]

    return run


SIDES = {"qkscope": engine, "transformers": transformers, "transformer_lens": transformer_lens}


def measure(side, options):
    run = SIDES[side](options.folder, options.threads)
    ids = [i * 31 % 200 for i in range(options.tokens)]
    seconds = []
    for _ in range(options.runs):
        start = time.perf_counter()
        kept = len(run(ids))
        seconds.append(time.perf_counter() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"side": side, "seconds": min(seconds), "peak_mib": peak, "kept": kept}))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--peer-python", default=sys.executable)
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        return measure(options.side, options)
    print(f"{options.tokens} tokens, {options.threads} threads, float32")
    print(f"{'':<18} {'seconds':>8} {'peak MiB':>9} {'tensors':>8}")
    for side in SIDES:
        python = sys.executable if side == "qkscope" else options.peer_python
        arguments = [f"--{name}={getattr(options, name)}" for name in ("tokens", "runs", "threads")]
        output = subprocess.run([python, __file__, options.folder, *arguments, f"--side={side}"],
                                check=True, capture_output=True, text=True).stdout
        line = json.loads(output.splitlines()[-1])
        print(f"{side:<18} {line['seconds']:>8.2f} {line['peak_mib']:>9.0f} {line['kept']:>8}", flush=True)


if __name__ == "__main__":
    main()
