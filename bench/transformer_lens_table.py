#!/usr/bin/env python3
"""Compares caching, patching and head scores with TransformerLens and nnsight: time and peak memory.

    python3 bench/make_checkpoint.py shape --dtype float32 --tokenizer share/demo/checkpoints/S3-4720
    PYTHONPATH=build/python python bench/transformer_lens_table.py shape [--peer-python PYTHON]
                                                                   [--task cache patch heads] [--runs 2]
    PYTHONPATH=build/python python bench/transformer_lens_table.py shape --task resid path compose --patch-tokens 14
    PYTHONPATH=build/python python bench/transformer_lens_table.py shape --device cuda --dtype bfloat16 [--runs 2]

cache: all queries and keys after RoPE of one text of --tokens (nnsight: before RoPE). patch: the output of every head,
one after another, patched into another text of --patch-tokens; the metric is the difference of two logits at its end.
heads: the three scores of TransformerLens' detector for every head over --texts texts of --text-tokens. resid: the residual
stream before every layer at every position, patched likewise. path: paths from every head to the queries of two heads of
the last two layers; TransformerLens runs two passes with hooks for each sender. compose: all Q-composition scores. Peers
compute no gradients and cache only the requested activations. --peer-logits last: TransformerLens passes on an option of
transformers that skips the KV cache and the logits of all positions but the last, for tasks that do not need them.

Each side and task runs in its own process. Wall and processor seconds (all threads; independent of other load) are those
of the fastest run after a warm-up (--runs 0: of the first run), on CUDA until the GPU is idle. Memory is the peak of the process; on CUDA, for a peer
the peak of torch's tensors ("taken": the memory reserved by torch), for qkscope all memory in use on the GPU during the
run. The check is a number that both sides computed: the root mean square of the cached arrays, the sum of the metric, the
sum of the induction or composition scores. A peer that is not installed is reported and skipped; peers run in the environment of
--peer-python (tools/requirements-torch.txt).
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time

import numpy as np
from python_bench import CardMemory

PATTERNS = ("previous_token_head", "duplicate_token_head", "induction_head")


def ids_of(length, seed):
    return np.random.default_rng(seed).integers(0, 256, length)


def repeated(options):
    """Returns texts whose second half repeats the first."""
    halves = [ids_of(options.text_tokens // 2, seed) for seed in range(options.texts)]
    return [np.concatenate([half, half]) for half in halves]


def receivers_of(n_layers):
    return [(n_layers - 2, 3), (n_layers - 1, 0)]


def difference(logits):
    return logits[..., -1, 3] - logits[..., -1, 7]


def root_mean_square(arrays):
    """Root mean square of all elements; invariant under rotations such as RoPE."""
    def mean_square(array):
        values = np.ravel(array.cpu().float().numpy() if hasattr(array, "cpu") else array)
        return float(values @ values) / values.size

    return float(np.sqrt(np.mean([mean_square(array) for array in arrays])))


class Qkscope:
    def __init__(self, options):
        import qkscope

        qkscope.set_threads(options.threads)
        self.qkscope = qkscope
        self.model = qkscope.load(options.folder, device=options.device, dtype=options.dtype)
        self.options = options

    def cache(self):
        names = ["blocks.*.attn.hook_rot_q", "blocks.*.attn.hook_rot_k"]
        return self.model.cache(ids_of(self.options.tokens, 0), names)

    def patch(self):
        clean, corrupted = (ids_of(self.options.patch_tokens, seed) for seed in (0, 1))
        sweep = self.qkscope.patching.get_act_patch_attn_head_out_all_pos
        return float(sweep(self.model, corrupted, clean, difference, positions=-1).sum())

    def resid(self):
        clean, corrupted = (ids_of(self.options.patch_tokens, seed) for seed in (0, 1))
        return float(self.qkscope.patching.get_act_patch_resid_pre(self.model, corrupted, clean, difference).sum())

    def path(self):
        source, base = (ids_of(self.options.patch_tokens, seed) for seed in (0, 1))
        receivers = receivers_of(self.model.cfg.n_layers)
        return float(np.nansum(self.qkscope.path_patch(self.model, base, source, difference, receivers, "q")))

    def compose(self):
        return float(np.asarray(self.model.all_composition_scores("Q"), np.float64).sum())

    def heads(self):
        table = self.qkscope.heads(self.model, repeated(self.options), all_keys=False)
        return float(np.asarray(table["induction_head"]).sum())


class Peer:
    """A torch model with the three tasks."""

    def __init__(self, options):
        import torch

        torch.set_num_threads(options.threads)
        torch.set_grad_enabled(False)
        self.torch = torch
        self.dtype = getattr(torch, options.dtype)
        self.options = options

    def tokens(self, ids):
        return self.torch.tensor(np.asarray(ids), device=self.options.device)[None]


class TransformerLens(Peer):
    def __init__(self, options):
        super().__init__(options)
        from transformer_lens.model_bridge import TransformerBridge
        from transformers import AutoModelForCausalLM, AutoTokenizer, logging

        logging.disable_progress_bar()
        model = AutoModelForCausalLM.from_pretrained(options.folder, dtype=self.dtype, attn_implementation="eager")
        tokenizer = AutoTokenizer.from_pretrained(options.folder)
        self.model = TransformerBridge.boot_transformers(
            options.folder, hf_model=model.to(options.device), tokenizer=tokenizer, device=options.device,
            dtype=self.dtype)
        self.model.eval()
        self.left_out = {"logits_to_keep": 1, "use_cache": False} if options.peer_logits == "last" else {}

    def kept(self, ids, endings, **options):
        wanted = lambda name: name.endswith(endings)  # noqa: E731
        return self.model.run_with_cache(self.tokens(ids), names_filter=wanted, **self.left_out, **options)[1]

    def cache(self):
        return self.kept(ids_of(self.options.tokens, 0), ("hook_rot_q", "hook_rot_k"))

    def patch(self):
        from transformer_lens import patching

        clean, corrupted = (ids_of(self.options.patch_tokens, seed) for seed in (0, 1))
        sweep = patching.get_act_patch_attn_head_out_all_pos
        metric = lambda logits: difference(logits)[0]  # noqa: E731
        return float(sweep(self.model, self.tokens(corrupted), self.kept(clean, "hook_z"), metric).sum())

    def resid(self):
        from transformer_lens import patching

        clean, corrupted = (ids_of(self.options.patch_tokens, seed) for seed in (0, 1))
        metric = lambda logits: difference(logits)[0]  # noqa: E731
        cache = self.kept(clean, "hook_resid_pre")
        return float(patching.get_act_patch_resid_pre(self.model, self.tokens(corrupted), cache, metric).sum())

    def path(self):
        source, base = (ids_of(self.options.patch_tokens, seed) for seed in (0, 1))
        theirs, ours = (self.kept(ids, "hook_z") for ids in (source, base))
        n_layers = self.model.cfg.n_layers
        senders = [(layer, head) for layer in range(n_layers - 1) for head in range(self.model.cfg.n_heads)]
        return sum(self.path_from(self.tokens(base), theirs, ours, sender, receivers_of(n_layers)) for sender in senders)

    def path_from(self, tokens, theirs, ours, sender, receivers):
        """Returns the metric after patching the paths from one sender to the receivers."""
        reached = {}

        def freeze(z, hook):
            name = f"blocks.{hook.layer()}.attn.hook_z"  # hook.name is an alias
            z = ours[name].clone()
            if hook.layer() == sender[0]:
                z[:, :, sender[1]] = theirs[name][:, :, sender[1]]
            return z

        def keep(q, hook):
            reached[hook.layer()] = q.clone()

        def put(q, hook):
            for layer, head in receivers:
                if hook.layer() == layer:
                    q[:, :, head] = reached[hook.layer()][:, :, head]
            return q

        queries = [f"blocks.{layer}.attn.hook_q" for layer in sorted({layer for layer, _ in receivers})]
        last = max(layer for layer, _ in receivers)
        frozen = [(f"blocks.{layer}.attn.hook_z", freeze) for layer in range(last)]
        self.model.run_with_hooks(tokens, fwd_hooks=[*frozen, *((name, keep) for name in queries)], **self.left_out)
        hooks = [(name, put) for name in queries]
        return float(difference(self.model.run_with_hooks(tokens, fwd_hooks=hooks, **self.left_out))[0])

    def compose(self):
        scores = self.model.all_composition_scores("Q")
        return float((scores.scores if hasattr(scores, "scores") else scores).double().sum())

    def heads(self):
        from transformer_lens import head_detector

        total = 0.0
        for ids in repeated(self.options):
            cache = self.kept(ids, "hook_pattern", remove_batch_dim=True)
            self.model.to_tokens = lambda text, ids=ids: self.tokens(ids)
            scores = {name: head_detector.detect_head(self.model, "", name, cache=cache) for name in PATTERNS}
            total += float(scores["induction_head"].double().sum())
        return total / self.options.texts


class Nnsight(Peer):
    def __init__(self, options):
        super().__init__(options)
        from nnsight import LanguageModel

        self.model = LanguageModel(options.folder, dispatch=True, dtype=self.dtype, device_map=options.device)

    def cache(self):
        kept = {}
        with self.model.trace(self.tokens(ids_of(self.options.tokens, 0))):
            for number, layer in enumerate(self.model.model.layers):
                kept[f"{number}.q"] = layer.self_attn.q_proj.output.save()
                kept[f"{number}.k"] = layer.self_attn.k_proj.output.save()
        return kept

    def patch(self):
        clean, corrupted = (self.tokens(ids_of(self.options.patch_tokens, seed)) for seed in (0, 1))
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

    heads = resid = path = compose = None  # nnsight has no head detector; the rest is not compared


SIDES = {"qkscope": Qkscope, "transformer_lens": TransformerLens, "nnsight": Nnsight}


class ProcessPeak:
    def wait(self):
        pass

    def mib(self, run):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        return peak, peak


class TensorsPeak:
    """Peak memory of torch tensors on the GPU."""

    def __init__(self, device):
        import torch

        self._cuda, self._device = torch.cuda, device

    def wait(self):
        self._cuda.synchronize(self._device)

    def mib(self, run):
        return self._cuda.max_memory_allocated(self._device) / 2**20, self._cuda.max_memory_reserved(self._device) / 2**20


class CardPeak(CardMemory):
    def mib(self, run):
        peak = self.peak_mib_of(run)
        return peak, peak


def peak_of(options):
    if options.device == "cpu":
        return ProcessPeak()
    return CardPeak(options.device) if options.side == "qkscope" else TensorsPeak(options.device)


def measure(options):
    peak = peak_of(options)
    side = SIDES[options.side](options)
    run = getattr(side, options.task[0])
    if run is None:
        return print(json.dumps(None))
    seconds, processor, kept = [], [], None
    for _ in range(options.runs + 1):
        peak.wait()
        start, spent = time.perf_counter(), time.process_time()
        kept = None  # the time includes freeing the previous result
        kept = run()
        peak.wait()
        seconds.append(time.perf_counter() - start)
        processor.append(time.process_time() - spent)
    check = kept if isinstance(kept, float) else root_mean_square(list(kept.values()))
    kept = None
    mib, taken = peak.mib(run)
    print(json.dumps({"seconds": min(seconds[1:] or seconds), "processor": min(processor[1:] or processor), "peak_mib": mib,
                      "taken_mib": taken, "check": check}))


def is_there(side, python):
    found = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({side!r}) is None)"
    return subprocess.run([python, "-c", found], check=False).returncode == 0


def print_line(task, side, options):
    """Runs one side and prints its line; returns False and prints the last line of output if the process fails."""
    python = sys.executable if side == "qkscope" else options.peer_python
    if not is_there(side, python):
        print(f"{task:<8} {side:<18} is not installed", flush=True)
        return True
    names = ("tokens", "patch_tokens", "texts", "text_tokens", "runs", "threads", "device", "dtype", "peer_logits")
    arguments = [f"--{name.replace('_', '-')}={getattr(options, name)}" for name in names]
    done = subprocess.run([python, __file__, options.folder, *arguments, "--task", task, "--side", side],
                          check=False, capture_output=True, text=True)
    if done.returncode != 0:
        print(f"{task:<8} {side:<18} failed: {done.stderr.strip()[-2000:]}", flush=True)
        return False
    line = json.loads(done.stdout.splitlines()[-1])
    if line:
        print(f"{task:<8} {side:<18} {line['seconds']:>8.3f} {line['processor']:>11.2f} "
              f"{line['peak_mib']:>9.0f} {line['taken_mib']:>9.0f} {line['check']:>12.6g}", flush=True)
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--task", nargs="+",
                        choices=("cache", "patch", "heads", "resid", "path", "compose"), default=["cache", "patch", "heads"])
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--patch-tokens", type=int, default=32)
    parser.add_argument("--texts", type=int, default=100)
    parser.add_argument("--text-tokens", type=int, default=128)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N")
    parser.add_argument("--dtype", default="float32", help="float32, bfloat16 or float16; the CPU takes float32")
    parser.add_argument("--peer-logits", choices=("all", "last"), default="all")
    parser.add_argument("--peer-python", default=sys.executable)
    parser.add_argument("--side", choices=SIDES, help="only this one; prints JSON")
    options = parser.parse_args()
    if options.side:
        return measure(options)
    print(f"{options.device}, {options.dtype}, {options.threads} threads")
    print(f"{'':<8} {'':<18} {'seconds':>8} {'processor s':>11} {'peak MiB':>9} {'taken MiB':>9} {'check':>12}")
    failed = [(task, side) for task in options.task for side in SIDES if not print_line(task, side, options)]
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
