#!/usr/bin/env python3
"""Generates with transformers on the CPU: the peer of `qkscope generate`.

    python bench/generate_peer.py FOLDER [--dtype float32] [--prompt 32] [--new 128] [--threads N] [--runs 3]

Greedy, one text, with a KV cache. The faster of two methods counts: model.generate(), and a loop that calls the model and
takes the argmax, without the overhead of generate(). Prints one JSON line: seconds and processor seconds of the tokens
after the first.
"""

import argparse
import json
import os
import time
from pathlib import Path

import torch
import transformers


def now():
    return time.perf_counter(), time.process_time()


def since(start):
    return tuple(b - a for a, b in zip(start, now()))


def by_loop(model, ids, count):
    """Returns seconds and processor seconds of `count` tokens after the first."""
    cache = transformers.DynamicCache()
    logits = model(input_ids=ids, past_key_values=cache, logits_to_keep=1).logits
    token = logits[:, -1].argmax(-1, keepdim=True)
    start = now()
    for _ in range(count):
        logits = model(input_ids=token, past_key_values=cache).logits
        token = logits[:, -1].argmax(-1, keepdim=True)
    return since(start)


class Clock(transformers.StoppingCriteria):
    """Records the arrival time of each token."""

    def __init__(self):
        self.times = []

    def __call__(self, input_ids, scores, **_):
        self.times.append(now())
        return torch.zeros(input_ids.shape[0], dtype=torch.bool)


def by_generate(model, ids, count):
    clock = Clock()
    model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, min_new_tokens=count + 1,
                   max_new_tokens=count + 1, stopping_criteria=transformers.StoppingCriteriaList([clock]))
    return tuple(b - a for a, b in zip(clock.times[0], clock.times[-1]))


def main():
    parser = argparse.ArgumentParser(description="Time generation in transformers on the CPU.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--prompt", type=int, default=32)
    parser.add_argument("--new", type=int, default=128)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()

    torch.set_num_threads(arguments.threads)
    transformers.utils.logging.disable_progress_bar()
    model_class = transformers.AutoModelForCausalLM
    model = model_class.from_pretrained(arguments.folder, dtype=getattr(torch, arguments.dtype)).eval()
    ids = torch.arange(10, 10 + arguments.prompt)[None]
    seconds = {}
    with torch.inference_mode():
        for name, run in (("loop", by_loop), ("generate", by_generate)):
            run(model, ids, 4)
            seconds[name] = [run(model, ids, arguments.new) for _ in range(arguments.runs)]
    wall, processor = (min(times[i] for runs in seconds.values() for times in runs) for i in (0, 1))
    print(json.dumps({
        "peer": "transformers", "dtype": arguments.dtype, "tokens_per_s": arguments.new / wall,
        "processor_ms": processor / arguments.new * 1e3, "seconds": seconds,
        "torch": torch.__version__, "transformers": transformers.__version__,
    }))


if __name__ == "__main__":
    main()
