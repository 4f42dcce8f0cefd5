"""Times `qkscope analyze` against NumPy, SciPy and scikit-learn, vectorised and as a plain script, on the same
machine in the same run, and measures how the cost grows with heads and rows.

usage: analysis_bench.py PATH_TO_QKSCOPE [--heads 300] [--peer-heads 2] [--quick]"""
import os

os.environ.update(OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1")  # the peer is timed on one core

import argparse
import json
import resource
import subprocess
import tempfile
import time
from pathlib import Path

import analysis_peer
import analysis_script_peer

parser = argparse.ArgumentParser()
parser.add_argument("qkscope")
parser.add_argument("--heads", type=int, default=300)
parser.add_argument("--peer-heads", type=int, default=2)
parser.add_argument("--examples", type=int, default=500)
parser.add_argument("--quick", action="store_true", help="a tenth of everything")
options = parser.parse_args()
if options.quick:
    options.heads, options.examples, options.peer_heads = 30, 50, 1


def synth(root, heads, examples, context):
    subprocess.run([options.qkscope, "synth", root, "--layers", "36", "--head-counts", "16,4",
                    "--heads", str(heads), "--examples", str(examples), "--context", str(context), "--set", "bf16=true",
                    "--quiet"], check=True)


def analyse(root, out, *more):
    """Returns wall seconds, CPU seconds and timings.json of one run."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    subprocess.run([options.qkscope, "analyze", root, "--out", out, "--overwrite", "--quiet", *more], check=True)
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall, cpu, json.loads((Path(out) / "timings.json").read_text())


def peer_seconds(peer, root):
    """Returns CPU seconds per head, the minimum over heads, because the machine may be busy."""
    seconds = []
    for query in sorted(Path(root).glob("*q"))[:options.peer_heads]:
        layer, head = query.name[:3], int(query.name[4:6])
        start = time.process_time()
        peer.analyse(query / "data.parquet", Path(root) / f"{layer}h{head // 4:02}k" / "data.parquet")
        seconds.append(time.process_time() - start)
    return min(seconds)


with tempfile.TemporaryDirectory() as folder:
    out = folder + "/results"
    for context in (131072, 4096):
        root = f"{folder}/capture-{context}"
        synth(root, options.heads, options.examples, context)
        wall, cpu, timings = min((analyse(root, out) for _ in range(2)), key=lambda run: run[1])
        rows = options.examples * 16
        print(f"\n{options.heads} heads x (about {rows} q + {rows} k rows) x 128, context {context}, "
              f"{timings['threads']} threads: {wall:.2f} s wall, {cpu:.2f} s CPU, "
              f"{1000 * cpu / options.heads:.1f} ms CPU per head")
        parts = timings["thread_seconds"]
        print("  " + ", ".join(f"{name} {1000 * t / options.heads:.1f} ms" for name, t in parts.items()))
        for name, peer in (("arrays", analysis_peer), ("plain script", analysis_script_peer)):
            seconds = peer_seconds(peer, root)
            print(f"  NumPy/SciPy/scikit-learn, {name}: {seconds:.2f} s CPU per head; qkscope is "
                  f"{seconds / (cpu / options.heads):.1f} times faster per core")
        subprocess.run(["rm", "-rf", root], check=True)

    print("\n| heads | rows per file | CPU s | CPU ms per head and 1,000 rows |\n| --- | --- | --- | --- |")
    for heads, examples in ((10, 500), (20, 500), (40, 500), (20, 125), (20, 250), (20, 1000)):
        if options.quick:
            examples //= 5
        root = f"{folder}/curve"
        synth(root, heads, examples, 4096)
        _, cpu, _ = analyse(root, out)
        rows = 16 * examples
        print(f"| {heads} | {rows} | {cpu:.2f} | {1e6 * cpu / heads / rows:.2f} |")
        subprocess.run(["rm", "-rf", root], check=True)
