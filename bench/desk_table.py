#!/usr/bin/env python3
"""What researchers do around hooks, beside TransformerLens and nnsight: time and peak memory.

    python3 bench/make_checkpoint.py shape --dtype float32 --tokenizer share/demo/checkpoints/S3-4720
    PYTHONPATH=build/python python bench/desk_table.py shape [--peer-python PYTHON] [--task cache patch heads] [--runs 2]

cache: all queries and keys after RoPE of one text of --tokens (nnsight: before it). patch: the output of every head,
one after another, patched into another text of --patch-tokens, with the difference of two logits at its end. heads: the
three scores of TransformerLens' detector for every head over --texts texts of --text-tokens. Each side and task is a
process of its own; seconds by the clock and of the processor (all threads; a busy machine leaves them as they are) are
those of the fastest run after one that warms up, memory is the peak of the process. A peer that is not installed is
named and left out; peers run in the environment of --peer-python (tools/requirements-torch.txt).
"""

import argparse
import importlib.util
import json
import os
import resource
import subprocess
import sys
import time

import numpy as np

PATTERNS = ("previous_token_head", "duplicate_token_head", "induction_head")


def ids_of(length, seed):
    return np.random.default_rng(seed).integers(0, 256, length)


def repeated(options):
    """Texts whose second half repeats the first."""
    halves = [ids_of(options.text_tokens // 2, seed) for seed in range(options.texts)]
    return [np.concatenate([half, half]) for half in halves]


def difference(logits):
    return logits[..., -1, 3] - logits[..., -1, 7]


class Qkscope:
    def __init__(self, options):
        import qkscope

        qkscope.set_threads(options.threads)
        self.qkscope = qkscope
        self.model = qkscope.load(options.folder, device="cpu")
        self.options = options

    def cache(self):
        names = ["blocks.*.attn.hook_rot_q", "blocks.*.attn.hook_rot_k"]
        return len(self.model.run_with_cache(ids_of(self.options.tokens, 0), names))

    def patch(self):
        clean, corrupted = (ids_of(self.options.patch_tokens, seed) for seed in (0, 1))
        sweep = self.qkscope.patching.get_act_patch_attn_head_out_all_pos
        return float(sweep(self.model, corrupted, clean, difference, positions=-1).sum())

    def heads(self):
        table = self.qkscope.heads(self.model, repeated(self.options), all_keys=False)
        return float(np.asarray(table["induction_head"]).sum())


class TransformerLens:
    def __init__(self, options):
        import torch
        from transformer_lens.model_bridge import TransformerBridge
        from transformers import AutoModelForCausalLM, AutoTokenizer, logging

        logging.disable_progress_bar()
        torch.set_num_threads(options.threads)
        torch.set_grad_enabled(False)
        model = AutoModelForCausalLM.from_pretrained(options.folder, dtype=torch.float32, attn_implementation="eager")
        tokenizer = AutoTokenizer.from_pretrained(options.folder)
        self.model = TransformerBridge.boot_transformers(
            options.folder, hf_model=model, tokenizer=tokenizer, device="cpu", dtype=torch.float32)
        self.model.eval()
        self.torch = torch
        self.options = options

    def _tokens(self, ids):
        return self.torch.tensor(np.asarray(ids))[None]

    def cache(self):
        wanted = lambda name: name.endswith(("hook_rot_q", "hook_rot_k"))  # noqa: E731
        return len(self.model.run_with_cache(self._tokens(ids_of(self.options.tokens, 0)), names_filter=wanted)[1])

    def patch(self):
        from transformer_lens import patching

        clean, corrupted = (self._tokens(ids_of(self.options.patch_tokens, seed)) for seed in (0, 1))
        cache = self.model.run_with_cache(clean, names_filter=lambda name: name.endswith("hook_z"))[1]
        metric = lambda logits: difference(logits)[0]  # noqa: E731
        return float(patching.get_act_patch_attn_head_out_all_pos(self.model, corrupted, cache, metric).sum())

    def heads(self):
        from transformer_lens import head_detector

        total = 0.0
        for ids in repeated(self.options):
            tokens = self._tokens(ids)
            wanted = lambda name: name.endswith("hook_pattern")  # noqa: E731
            cache = self.model.run_with_cache(tokens, names_filter=wanted, remove_batch_dim=True)[1]
            self.model.to_tokens = lambda text, tokens=tokens: tokens
            scores = {name: head_detector.detect_head(self.model, "", name, cache=cache) for name in PATTERNS}
            total += float(scores["induction_head"].sum())
        return total / self.options.texts


class Nnsight:
    def __init__(self, options):
        import torch
        from nnsight import LanguageModel

        torch.set_num_threads(options.threads)
        torch.set_grad_enabled(False)
        self.model = LanguageModel(options.folder, dispatch=True, dtype=torch.float32, device_map="cpu")
        self.torch = torch
        self.options = options

    def _tokens(self, ids):
        return self.torch.tensor(np.asarray(ids))[None]

    def cache(self):
        kept = []
        with self.model.trace(self._tokens(ids_of(self.options.tokens, 0))):
            for layer in self.model.model.layers:
                kept.append(layer.self_attn.q_proj.output.save())
                kept.append(layer.self_attn.k_proj.output.save())
        return len(kept)

    def patch(self):
        clean, corrupted = (self._tokens(ids_of(self.options.patch_tokens, seed)) for seed in (0, 1))
        layers = self.model.model.layers
        size = self.model.config.hidden_size // self.model.config.num_attention_heads
        kept = []
        with self.model.trace(clean):
            for layer in layers:
                kept.append(layer.self_attn.o_proj.input.save())
        total = 0.0
        for number, z in enumerate(kept):
            for head in range(self.model.config.num_attention_heads):
                part = slice(head * size, (head + 1) * size)
                with self.model.trace(corrupted):
                    layers[number].self_attn.o_proj.input[:, :, part] = z[:, :, part]
                    logits = self.model.lm_head.output[:, -1].save()
                total += float(logits[0, 3] - logits[0, 7])
        return total

    heads = None  # it has no detector


SIDES = {"qkscope": Qkscope, "transformer_lens": TransformerLens, "nnsight": Nnsight}


def measure(options):
    side = SIDES[options.side](options)
    run = getattr(side, options.task[0])
    if run is None:
        return print(json.dumps(None))
    seconds, processor, result = [], [], None
    for _ in range(options.runs + 1):
        start, spent = time.perf_counter(), time.process_time()
        result = run()
        seconds.append(time.perf_counter() - start)
        processor.append(time.process_time() - spent)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": min(seconds[1:]), "processor": min(processor[1:]), "peak_mib": peak, "result": result}))


def is_there(side, python):
    if python == sys.executable:
        return importlib.util.find_spec(side) is not None
    return subprocess.run([python, "-c", f"import {side}"], capture_output=True, check=False).returncode == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--task", nargs="+", choices=("cache", "patch", "heads"), default=["cache", "patch", "heads"])
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--patch-tokens", type=int, default=32)
    parser.add_argument("--texts", type=int, default=100)
    parser.add_argument("--text-tokens", type=int, default=128)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--peer-python", default=sys.executable)
    parser.add_argument("--side", choices=SIDES, help="only this one; prints JSON")
    options = parser.parse_args()
    if options.side:
        return measure(options)
    print(f"{'':<8} {'':<18} {'seconds':>8} {'processor s':>11} {'peak MiB':>9} {'result':>12}")
    for task in options.task:
        for side in SIDES:
            python = sys.executable if side == "qkscope" else options.peer_python
            if not is_there(side, python):
                print(f"{task:<8} {side:<18} is not installed", flush=True)
                continue
            names = ("tokens", "patch_tokens", "texts", "text_tokens", "runs", "threads")
            arguments = [f"--{name.replace('_', '-')}={getattr(options, name)}" for name in names]
            done = subprocess.run([python, __file__, options.folder, *arguments, "--task", task, "--side", side],
                                  check=True, capture_output=True, text=True)
            line = json.loads(done.stdout.splitlines()[-1])
            if line:
                print(f"{task:<8} {side:<18} {line['seconds']:>8.2f} {line['processor']:>11.2f} "
                      f"{line['peak_mib']:>9.0f} {line['result']:>12.6g}", flush=True)


if __name__ == "__main__":
    main()
