#!/usr/bin/env python3
"""Times whole captures on a GPU, from the start of the program to finished Parquet files, and prints a table.

    python bench/capture_table.py FOLDER [--cases short,long,cut] [--work DIR] [--out table.json]

FOLDER is a checkpoint with a tokenizer (bench/make_checkpoint.py --tokenizer); the program is build/bin/qkscope.
`short`: 200 documents of 4,096 tokens; `long`: 10 of 131,072; `cut`: documents of more than 131,072 tokens truncated to
4,096, as in the early stages of a training run, against bench/capture_peer.py, a plain loop over transformers that needs
torch, transformers and pyarrow. The other cases need only Python. The script generates the texts. The fraction of the
forward pass is relative to the time after the start (until the first pass can begin), as each side reports it; the GPU
load comes from nvidia-smi and includes the start.
"""

import argparse
import datetime
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools" / "demo"))
from corpus import book  # noqa: E402

CHARACTERS = 3.2  # characters per token; texts have about 2.9, so every document is slightly too long
COLUMNS = ["run", "wall s", "start s", "loop s", "assembly s", "tokens/s", "rows", "forward share", "GPU load",
           "over the loop"]


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--cases", default="short,long,cut")
    parser.add_argument("--short-documents", type=int, default=200)
    parser.add_argument("--long-documents", type=int, default=10)
    parser.add_argument("--cut-documents", type=int, default=100)
    parser.add_argument("--short-tokens", type=int, default=4096)
    parser.add_argument("--long-tokens", type=int, default=131072)
    parser.add_argument("--batch-size", type=int, default=8, help="short documents that may run together")
    parser.add_argument("--work", type=Path, help="where to put texts and captures (default: the system's place)")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--qkscope", type=Path, default=ROOT / "build/bin/qkscope", help="the program")
    parser.add_argument("--out", type=Path, help="write everything as JSON")
    return parser.parse_args()


def make_text(number, characters):
    return book(0, number, characters)


class Texts:
    """Generates books, long enough for the long runs; short documents are pieces of them."""

    def __init__(self, options, cases):
        self.short = int(CHARACTERS * options.short_tokens)
        self.long = int(CHARACTERS * options.long_tokens) if {"long", "cut"} & set(cases) else 16 * self.short
        with ProcessPoolExecutor() as pool:
            numbers = range(max(options.long_documents, min(options.cut_documents, 20)))
            self.books = list(pool.map(make_text, numbers, [self.long] * len(numbers)))

    def short_ones(self, count):
        per_book = self.long // self.short
        for i in range(count):
            start = i // len(self.books) % per_book * self.short
            yield self.books[i % len(self.books)][start:start + self.short]

    def long_ones(self, count):
        """Returns `count` long documents. A book that is used again starts at another offset."""
        for i in range(count):
            text, turn = self.books[i % len(self.books)], i // len(self.books)
            start = turn * self.short % len(text)
            yield text[start:] + text[:start]


def write_case(options, work, name, texts, max_length, batch_size):
    """Writes dataset and configuration of one run; returns the configuration's path. JSON is valid YAML."""
    dataset = work / f"{name}.jsonl"
    with dataset.open("w", encoding="utf-8") as file:
        for number, text in enumerate(texts):
            file.write(json.dumps({"id": number, "text": text}) + "\n")
    config = {
        "dataset": {"path": str(dataset), "text_column": "text", "id_column": "id"},
        "model": {"name": str(options.model.resolve()), "dtype": "bfloat16"},
        "tokenizer": {"max_length": max_length},
        "inference": {"batch_size": batch_size, "autocast_dtype": "bfloat16"},
        "capture": {"head_sampling": {"count": 300, "seed": 0}, "full_attention_only": True,
                    "sampler": {"type": "uniform", "base_rate": 1.0}, "min_bucket_size": max(1, max_length // 16)},
        "output": {"data_root": str(work / name), "write_batch_size": 4096},
    }
    path = work / f"{name}.yaml"
    path.write_text(json.dumps(config, indent=1))
    return path


class GpuLoad:
    """Mean GPU utilisation in percent during the block, sampled by nvidia-smi; None without nvidia-smi."""

    def __enter__(self):
        self.mean = None
        self.samples = []
        self.child = None
        if shutil.which("nvidia-smi"):
            command = ["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits", "-lms", "20"]
            self.child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            self.thread = threading.Thread(target=self._read)
            self.thread.start()
        return self

    def _read(self):
        for line in self.child.stdout:
            if line.strip().isdigit():
                self.samples.append(int(line))

    def __exit__(self, *_):
        if self.child:
            self.child.terminate()
            self.thread.join()
            self.child.wait()
        if self.samples:
            self.mean = statistics.mean(self.samples)


def last_object(output):
    """Returns the JSON object at the end of the output."""
    begin = output.rfind("\n{") + 1
    return json.loads(output[begin:]) if output[begin:].startswith("{") else {}


def run_timed(command):
    with GpuLoad() as load:
        start = time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True)
        wall = time.perf_counter() - start
    if done.returncode != 0:
        line = " ".join(map(str, command))
        raise RuntimeError(f"{line} ended with {done.returncode}:\n{done.stderr.strip()[-1500:]}")
    return {"wall_s": wall, "gpu_load": load.mean, **last_object(done.stdout)}


def run_ours(options, config):
    result = run_timed([options.qkscope, "capture", "--config", config, "--device", options.device, "--json"])
    names = {"seconds": "loop_s", "load_seconds": "start_s", "forward_seconds": "forward_s",
             "assembly_seconds": "assembly_s"}
    return result | {ours: result[theirs] for theirs, ours in names.items() if theirs in result}


def run_peer(options, config):
    """Runs the peer with the same configuration into a separate folder."""
    settings = json.loads(config.read_text())
    settings["output"]["data_root"] += "-peer"
    peer_config = config.with_name(f"{config.stem}-peer.yaml")
    peer_config.write_text(json.dumps(settings))
    shutil.rmtree(settings["output"]["data_root"], ignore_errors=True)
    return run_timed([sys.executable, ROOT / "bench/capture_peer.py", peer_config, "--device", options.device])


def compare(ours, theirs):
    """Checks that both captures have the same rows of the same heads; returns the relative difference of the vectors
    and the rows of the peer."""
    import numpy as np
    import pyarrow.parquet as pq

    heads = sorted(path.parent.name for path in theirs.glob("*/data.parquet"))
    if heads != sorted(path.parent.name for path in ours.glob("*/data.parquet")):
        raise RuntimeError(f"{ours} and {theirs} have different heads")
    difference, size, rows = 0.0, 0.0, 0
    for head in heads:
        a, b = (pq.read_table(root / head / "data.parquet") for root in (ours, theirs))
        rows += len(b)
        if not all(a[name].equals(b[name]) for name in ("bucket", "example_id", "position")):
            raise RuntimeError(f"{head}: the captures have different rows")
        a, b = (t["vector"].combine_chunks().flatten().to_numpy().astype(np.float64) for t in (a, b))
        difference += np.sum((a - b) ** 2)
        size += np.sum(b ** 2)
    return float((difference / size) ** 0.5), rows


def row(name, result, ratio=""):
    share = result["forward_s"] / (result["loop_s"] - result.get("start_s", 0)) if "forward_s" in result else None
    percent = ["" if value is None else f"{value:.1f} %" for value in (share and 100 * share, result["gpu_load"])]
    parts = ("wall_s", "start_s", "loop_s", "assembly_s")
    seconds = [f"{result[part]:.2f}" if part in result else "" for part in parts]
    return [name, *seconds, f"{result['tokens'] / result['wall_s']:,.0f}", f"{result['rows']:,}", *percent, ratio]


def measure(options, work, texts, case):
    """Returns the table rows of one case, and its results by name."""
    short, long = options.short_tokens, options.long_tokens
    documents, tokens, batch_size = {
        "short": (list(texts.short_ones(options.short_documents)), short, options.batch_size),
        "long": (list(texts.long_ones(options.long_documents)), long, 1),
        "cut": (list(texts.long_ones(options.cut_documents)), short, options.batch_size),
    }[case]
    config = write_case(options, work, case, documents, tokens, batch_size)
    name = f"{len(documents)} x {tokens:,}" + (f", cut from {long:,}+" if case == "cut" else "")
    ours = run_ours(options, config)
    results = {case: ours}
    if case != "cut":
        return [row(name, ours)], results
    peer = {"tokens": len(documents) * tokens} | run_peer(options, config)
    peer["relative_difference"], peer["rows"] = compare(work / "cut", work / "cut-peer")
    # The ratio excludes the peer's imports and its loading of the model.
    ratio = f"{peer['loop_s'] / ours['wall_s']:.2f} (from start to start {peer['wall_s'] / ours['wall_s']:.2f})"
    return [row(name, ours, ratio), row(f"{name}, loop over transformers", peer)], results | {"cut-peer": peer}


def check(options, cases):
    if not (options.model / "tokenizer.json").exists():
        sys.exit(f"error: {options.model} has no tokenizer.json; bench/make_checkpoint.py --tokenizer puts one there")
    if not options.qkscope.exists():
        sys.exit(f"error: {options.qkscope} does not exist; cmake --build build --target qkscope makes it")
    if unknown := set(cases) - {"short", "long", "cut"}:
        sys.exit(f"error: --cases: found {', '.join(sorted(unknown))}, expected some of short, long, cut")


def main():
    options = parse_options()
    cases = options.cases.split(",")
    check(options, cases)
    if options.work:
        options.work.mkdir(parents=True, exist_ok=True)
    record = {"model": options.model.name, "date": datetime.date.today().isoformat(), "results": {}, "failures": []}
    rows = []
    with tempfile.TemporaryDirectory(dir=options.work) as folder:
        texts = Texts(options, cases)
        for case in cases:
            try:
                more, results = measure(options, Path(folder), texts, case)
            except (RuntimeError, OSError) as error:  # a failing case does not stop the others
                record["failures"].append(f"{case}: {error}")
                print(f"{case}: FAILED: {error}", file=sys.stderr, flush=True)
            else:
                rows += more
                record["results"] |= results
            if options.out:
                options.out.write_text(json.dumps(record, indent=1) + "\n")
    for cells in (COLUMNS, ["---"] * len(COLUMNS), *rows):
        print(f"| {' | '.join(cells)} |")
    sys.exit(1 if record["failures"] else 0)


if __name__ == "__main__":
    main()
