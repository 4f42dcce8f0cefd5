#!/usr/bin/env python3
"""Times the forward pass in PyTorch with transformers, on the CPU in float32: the peer of bench/forward_bench.

    python bench/forward_peer.py FOLDER [--tokens 512 2048] [--threads N] [--runs 5]

Runs the backbone and the output embedding for every position, without a KV cache. The faster of both attention
implementations counts. Prints one JSON line per token count:

    {"peer": "pytorch", "tokens": 512, "threads": 2, "seconds": …, "tokens_per_s": …, "attention": "sdpa", …}

where `seconds` is the best run after a warm-up and `seconds_by_attention` has the best of each implementation.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path

import torch
import transformers

ATTENTION = ["sdpa", "eager"]


def load(folder, attention):
    model_class = transformers.AutoModelForCausalLM
    return model_class.from_pretrained(folder, dtype=torch.float32, attn_implementation=attention).eval()


def best_time(model, token_ids, runs):
    """Returns the seconds of the fastest of `runs` passes after a warm-up."""

    def once():
        start = time.perf_counter()
        model(input_ids=token_ids, use_cache=False).logits
        return time.perf_counter() - start

    with torch.inference_mode():
        once()
        return min(once() for _ in range(runs))


def available_cores():
    return len(os.sched_getaffinity(0))


def main():
    parser = argparse.ArgumentParser(description="Time the forward pass of a checkpoint in PyTorch on the CPU.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tokens", type=int, nargs="+", default=[512, 2048])
    parser.add_argument("--threads", type=int, default=available_cores())
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    if not (arguments.folder / "config.json").exists():
        sys.exit(f"error: {arguments.folder} has no config.json; bench/make_checkpoint.py writes a checkpoint")

    torch.set_num_threads(arguments.threads)
    transformers.utils.logging.disable_progress_bar()
    seconds = {count: {} for count in arguments.tokens}
    for attention in ATTENTION:
        model = load(arguments.folder, attention)
        for count in arguments.tokens:
            generator = torch.Generator().manual_seed(count)
            token_ids = torch.randint(0, model.config.vocab_size, (1, count), generator=generator)
            seconds[count][attention] = best_time(model, token_ids, arguments.runs)
        del model

    for count, by_attention in seconds.items():
        attention = min(by_attention, key=by_attention.get)
        best = by_attention[attention]
        print(json.dumps({
            "peer": "pytorch", "tokens": count, "threads": arguments.threads, "seconds": best,
            "tokens_per_s": count / best, "attention": attention, "seconds_by_attention": by_attention,
            "torch": torch.__version__, "transformers": transformers.__version__,
        }), flush=True)


if __name__ == "__main__":
    main()
