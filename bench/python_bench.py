#!/usr/bin/env python3
"""Times caching all q and k of a sequence from Python in qkscope, TransformerLens and plain transformers hooks.

    PYTHONPATH=build/python python bench/python_bench.py FOLDER [--tokens 4096] [--runs 2] [--peer-python PYTHON]
    PYTHONPATH=build/python python bench/python_bench.py FOLDER --device cuda --dtype bfloat16 [--runs 5]

Each side runs in its own process and keeps the q and k vectors of every layer as arrays; the hooks of transformers sit on
the projections, before RoPE, which is less work. On CUDA qkscope keeps float32 tensors on the GPU, the peers keep tensors
of the run's type there. Prints seconds of the fastest run and the peak memory of the process, on CUDA of the GPU beyond
the memory in use before. A peer that is not installed is reported and skipped. The peers need
tools/requirements-python.txt, in the environment of --peer-python.
"""

import argparse
import importlib.util
import json
import os
import resource
import subprocess
import sys
import threading
import time


def engine(options):
    import qkscope

    qkscope.set_threads(options.threads)
    model = qkscope.load(options.folder, device=options.device, dtype=options.dtype)
    return lambda ids: model.cache(ids, ["blocks.*.attn.hook_rot_q", "blocks.*.attn.hook_rot_k"])


def load_torch(options, attention):
    import torch
    from transformers import AutoModelForCausalLM, logging

    logging.disable_progress_bar()
    torch.set_num_threads(options.threads)
    torch.set_grad_enabled(False)
    dtype = getattr(torch, options.dtype)
    model = AutoModelForCausalLM.from_pretrained(options.folder, dtype=dtype, attn_implementation=attention)
    return model.to(options.device)


def transformers(options):
    import torch

    model = load_torch(options, "sdpa")
    cache = {}
    for index, layer in enumerate(model.model.layers):
        for kind in ("q", "k"):
            def keep(module, args, output, name=f"{index}.{kind}"):
                cache[name] = output

            getattr(layer.self_attn, f"{kind}_proj").register_forward_hook(keep)

    def run(ids):
        cache.clear()
        model.model(input_ids=torch.tensor([ids], device=options.device), use_cache=False)
        return cache

    return run


def transformer_lens(options):
    import torch
    from transformer_lens.model_bridge import TransformerBridge
    from transformers import AutoTokenizer

    model = load_torch(options, "eager")
    tokenizer = AutoTokenizer.from_pretrained(options.folder)
    bridge = TransformerBridge.boot_transformers(
        str(options.folder), hf_model=model, tokenizer=tokenizer, device=options.device,
        dtype=getattr(torch, options.dtype))

    def run(ids):
        wanted = lambda name: name.endswith(("hook_rot_q", "hook_rot_k"))  # noqa: E731
        return bridge.run_with_cache(torch.tensor([ids], device=options.device), names_filter=wanted)[1]

    return run


SIDES = {"qkscope": engine, "transformers": transformers, "transformer_lens": transformer_lens}


class ProcessMemory:
    def wait(self):
        pass

    def peak_mib_of(self, run):
        run()
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


class CardMemory:
    """Samples the used memory of the GPU, of all processes, every few milliseconds."""

    def __init__(self, device):
        import torch

        self._torch, self._device = torch, device
        self._before = self._free()

    def _free(self):
        return self._torch.cuda.mem_get_info(self._device)[0]

    def wait(self):
        self._torch.cuda.synchronize(self._device)

    def peak_mib_of(self, run):
        free, done = [], threading.Event()

        def watch():
            while not done.wait(0.002):
                free.append(self._free())

        watcher = threading.Thread(target=watch)
        watcher.start()
        kept = run()
        self.wait()
        free.append(self._free())
        done.set()
        watcher.join()
        del kept
        return (self._before - min(free)) / 2**20


def measure(side, options):
    memory = ProcessMemory() if options.device == "cpu" else CardMemory(options.device)
    run = SIDES[side](options)
    ids = [i * 31 % 200 for i in range(options.tokens)]
    seconds, cache = [], None
    for _ in range(options.runs):
        start = time.perf_counter()
        cache = None  # the time includes freeing the previous cache
        cache = run(ids)
        memory.wait()
        seconds.append(time.perf_counter() - start)
    kept, cache = len(cache), None
    peak = memory.peak_mib_of(lambda: run(ids))
    print(json.dumps({"side": side, "seconds": min(seconds), "peak_mib": peak, "kept": kept}))


def is_there(side, python):
    if python == sys.executable:
        return importlib.util.find_spec(side) is not None
    return subprocess.run([python, "-c", f"import {side}"], capture_output=True, check=False).returncode == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N")
    parser.add_argument("--dtype", default="float32", help="float32, bfloat16 or float16; the CPU takes float32")
    parser.add_argument("--peer-python", default=sys.executable)
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        return measure(options.side, options)
    print(f"{options.tokens} tokens, {options.threads} threads, {options.device}, {options.dtype}")
    print(f"{'':<18} {'seconds':>8} {'peak MiB':>9} {'tensors':>8}")
    for side in SIDES:
        python = sys.executable if side == "qkscope" else options.peer_python
        if not is_there(side, python):
            print(f"{side:<18} is not installed", flush=True)
            continue
        arguments = [f"--{name}={getattr(options, name)}" for name in ("tokens", "runs", "threads", "device", "dtype")]
        output = subprocess.run([python, __file__, options.folder, *arguments, f"--side={side}"],
                                check=True, capture_output=True, text=True).stdout
        line = json.loads(output.splitlines()[-1])
        print(f"{side:<18} {line['seconds']:>8.3f} {line['peak_mib']:>9.0f} {line['kept']:>8}", flush=True)


if __name__ == "__main__":
    main()
