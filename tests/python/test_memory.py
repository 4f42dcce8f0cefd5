"""Peak memory of runs. Each measurement uses its own process."""

import os
import subprocess
import sys

from conftest import DEMO
from qkscope import Model

PEAK = """
import resource
import numpy as np
import qkscope
model = qkscope.load({folder!r}, device="cpu")
ids = np.arange({length}) % model.cfg.d_vocab
{run}
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""

# Slack for pages of the allocator and the interpreter.
SLACK = 3 << 20


def peak(length: int, run: str) -> int:
    script = PEAK.format(folder=str(DEMO), length=length, run=run)
    return int(subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout)


def test_caching_one_layer_at_32k_tokens_costs_one_tensor() -> None:
    """Compared with a pass that keeps a single row."""
    name, length = "blocks.0.attn.hook_rot_q", 32768
    tensor = length * 8 * 16 * 4
    one_row = peak(length, f"model.cache(ids, [{name!r}, 'blocks.0.attn.hook_pattern'], positions=0)")
    whole = peak(length, f"model.cache(ids, {name!r})")
    print(f"32768 tokens: {(whole - one_row) / 2**20:.1f} MiB for a tensor of {tensor / 2**20:.1f} MiB")
    assert whole - one_row < tensor + SLACK


def test_an_editing_hook_costs_one_tensor() -> None:
    name, length = "blocks.1.mlp.hook_pre", 2048  # wide: [pos, d_mlp]
    tensor = length * 224 * 4
    looked = peak(length, f"model.cache(ids, [{name!r}, 'logits'])")  # both runs keep all logits
    edited = peak(length, f"model.run_with_hooks(ids, [({name!r}, lambda a: None)])")
    print(f"2048 tokens: {(edited - looked) / 2**20:.1f} MiB more than looking at {tensor / 2**20:.1f} MiB")
    assert edited - looked < tensor + SLACK


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def test_a_hundred_caches_leak_no_memory(demo: Model) -> None:
    ids = list(range(200))

    def run() -> int:
        cache = demo.cache(ids)
        demo.run_with_hooks(ids, [("blocks.*.attn.hook_pattern", lambda a: a)])
        return sum(array.nbytes for array in cache.values())

    size = max(run() for _ in range(5))
    before = resident()
    for _ in range(100):
        run()
    grown = resident() - before
    print(f"100 caches of {size / 2**20:.1f} MiB: {grown / 2**20:+.1f} MiB")
    assert grown < size  # a leak would be a hundred times larger
