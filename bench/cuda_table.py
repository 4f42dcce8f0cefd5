#!/usr/bin/env python3
"""Compares the forward pass with capture on a GPU in transformers and qkscope with the hardware ceiling.

    python bench/cuda_table.py FOLDER... [--batches 8x4096,1x32768] [--rounds 2] [--seconds 4] [--out table.json]

FOLDER is a bfloat16 checkpoint; bench/make_checkpoint.py writes one. For each batch (documents x tokens) the two
engines alternate, so that both run on an equally warm GPU, and the median of all runs counts. transformers runs at its
best batch size, with sdpa and with our attention kernel. The ceiling is the time of the same work, pruned as in a
capture, at the sustained rates of torch.mm and of the fastest attention, measured afterwards. TFLOP/s is that of qkscope
and counts the whole network: 2 x parameters of the layers x tokens + causal attention. Memory excludes the weights.
"""

import argparse
import datetime
import json
import statistics
import subprocess
import sys
from pathlib import Path

import torch
import transformers

from gpu_ceiling import Ceiling, Shape
from transformers_peer import Peer

ROOT = Path(__file__).resolve().parent.parent
COLUMNS = ["model", "batch", "transformers tok/s", "its batch", "the same with our attention", "qkscope tok/s", "ratio",
           "ratio with our attention", "TFLOP/s", "of the ceiling", "GiB transformers", "GiB qkscope", "capture cost"]


def parse_batch(text):
    documents, length = text.split("x")
    return int(documents), int(length)


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("--batches", default="8x4096,1x32768,1x65536,1x131072")
    parser.add_argument("--rounds", type=int, default=2, help="turns of each engine per batch")
    parser.add_argument("--seconds", type=float, default=4, help="of one turn; one pass at least")
    parser.add_argument("--ceiling-seconds", type=float, default=1.5, help="of load per product")
    parser.add_argument("--mlp-chunk", type=int, default=16384, help="rows of the MLP's products")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--engine", type=Path, default=ROOT / "build/bench/forward_bench")
    parser.add_argument("--out", type=Path, help="write everything as JSON")
    options = parser.parse_args()
    options.batches = [parse_batch(text) for text in options.batches.split(",")]
    return options


def best_size(peer, documents, length):
    """Returns the number of documents per batch at which transformers is fastest."""
    sizes = [size for size in (1, 2, 4, 8, 16, 32) if documents % size == 0]
    if len(sizes) == 1:
        return sizes[0]
    seconds = {size: min(peer.measure(documents, length, size, 0)[0]) for size in sizes}
    return min(seconds, key=seconds.get)


def run_engine(options, model, documents, length, repeats, capture="both"):
    """Returns the output lines of one child process: by default one with capture and one without."""
    command = [options.engine, "--model", model, "--device", options.device, "--dtype", "bfloat16",
               "--batch", f"{documents}x{length}", "--capture", capture, "--repeats", str(repeats)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{options.engine.name} ended with {done.returncode}: {done.stderr.strip()[-500:]}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def start_seconds(options, model):
    """Returns the seconds from the start of qkscope to the end of a first pass over a few tokens."""
    line, = run_engine(options, model, 1, 128, 1, capture="off")
    return line["start_seconds"] + line["first_seconds"]


def measure(options, peer, ceiling, model, batch):
    """Returns all measurements of one batch."""
    documents, length = batch
    size = best_size(peer, documents, length)
    runs, peak, lines = {kernel: [] for kernel in peer.kernels()}, 0, []
    for _ in range(options.rounds):
        for kernel in runs:
            more, more_peak = peer.measure(documents, length, size, options.seconds, kernel)
            runs[kernel] += more
            peak = max(peak, more_peak)
        repeats = min(20, max(1, int(options.seconds / 2 / more[-1])))
        lines += run_engine(options, model, documents, length, repeats)
    shape = Shape(json.loads((model / "config.json").read_text()))
    seconds, pruned, rates = ceiling.composite(shape, documents, length)
    return {"model": model.name, "documents": documents, "length": length, "flop": shape.flop(documents, length),
            "transformers": {"size": size, "runs": runs, "peak_bytes": peak, "weight_bytes": peer.weight_bytes},
            "qkscope": lines,
            "ceiling": {"seconds": seconds, "flop": pruned, "tflops": {n: r / 1e12 for n, r in rates.items()}}}


def median_seconds(lines, capture):
    return statistics.median(run for line in lines if line["capture"] == capture for run in line["runs"])


def row(result):
    tokens = result["documents"] * result["length"]
    theirs, with_ours = (statistics.median(result["transformers"]["runs"].get(kernel, [float("nan")]))
                         for kernel in ("sdpa", "ours"))
    ours, without = (median_seconds(result["qkscope"], capture) for capture in ("on", "off"))
    peak = max(line["peak_bytes"] for line in result["qkscope"])
    gib = [f"{bytes_ / 2**30:.2f}" for bytes_ in (result["transformers"]["peak_bytes"], peak)]
    return [result["model"], f"{result['documents']} x {result['length']:,}", f"{tokens / theirs:,.0f}",
            str(result["transformers"]["size"]), f"{tokens / with_ours:,.0f}", f"{tokens / ours:,.0f}",
            f"{theirs / ours:.2f}", f"{with_ours / ours:.2f}",
            f"{result['flop'] / ours / 1e12:.3g}", f"{result['ceiling']['seconds'] / ours:.3f}", *gib,
            f"{100 * (ours / without - 1):+.1f} %"]


def machine(device):
    name = torch.cuda.get_device_name() if device == "cuda" else "CPU"
    return {"device": name, "torch": f"PyTorch {torch.__version__}",
            "transformers": f"transformers {transformers.__version__}", "date": datetime.date.today().isoformat()}


def attempt(record, name, action):
    """Returns the result of `action`, or None if it fails, so that other measurements continue."""
    try:
        return action()
    except (RuntimeError, OSError) as error:
        record["failures"].append(f"{name}: {error}")
        print(f"{name}: FAILED: {error}", file=sys.stderr, flush=True)


def measure_model(options, record, ceiling, model):
    """Fills the record, batch by batch."""
    start = attempt(record, f"{model.name} start", lambda: start_seconds(options, model))
    record["start_seconds"][model.name] = start
    peer = Peer(model, options.device)
    for batch in options.batches:
        name = f"{model.name} {batch[0]}x{batch[1]}"
        if result := attempt(record, name, lambda: measure(options, peer, ceiling, model, batch)):
            record["results"].append(result)
            print(f"{name}: {' '.join(row(result)[2:])}", file=sys.stderr, flush=True)
        if options.out:
            options.out.write_text(json.dumps(record, indent=1) + "\n")
    peer.close()


def main():
    options = parse_options()
    record = machine(options.device) | {"start_seconds": {}, "results": [], "failures": []}
    ceiling = Ceiling(options.device, options.ceiling_seconds, options.mlp_chunk)
    for model in options.models:
        measure_model(options, record, ceiling, model)
    for cells in (COLUMNS, ["---"] * len(COLUMNS), *map(row, record["results"])):
        print(f"| {' | '.join(cells)} |")
    print(", ".join(record[key] for key in ("device", "torch", "transformers", "date")))
    print("from the start of qkscope to the end of a first pass, s:", record["start_seconds"])
    sys.exit(1 if record["failures"] else 0)


if __name__ == "__main__":
    main()
