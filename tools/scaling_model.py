#!/usr/bin/env python3
"""Prints the tables of docs/reference/scaling.md from measured cost terms.

    python3 tools/scaling_model.py                            # the tables
    python3 tools/scaling_model.py --check docs/reference/scaling.md    # fails if the page has other tables
    python3 tools/scaling_model.py --storage 40e9 --cores 64  # another cluster

All numbers in the tables are computed; MEASURED has the measured terms with their sources. ASSUMED depends on the cluster
and can be set by options.
"""

import argparse
import heapq
import math
import sys
from dataclasses import dataclass
from pathlib import Path

CARDS = (1, 8, 64, 512)

MEASURED = {
    # docs/reference/performance.md: whole models at 131,072 tokens ran at 599, 600 and 696 TFLOP/s on one H200; the lowest is used.
    "flops_131k": 599e12,
    # docs/reference/performance.md: a capture of 200 x 4,096 tokens of a 3B model, without start and assembly.
    "tokens_per_s_3b_4k": 200 * 4096 / 8.36,
    # docs/reference/performance.md: start of the program until the weights are loaded, 3B, from the page cache.
    "start_s": 0.98,
    # docs/how-to/reproducing.md: rows of a model of the study, by --dry-run over 500 texts.
    "rows_per_model": 3_487_235,
    "head_files": 436,
    # docs/reference/benchmarks-analysis.md: all analyses of 300 heads, CPU seconds.
    "analysis_cpu_s": 35,
    # docs/reference/scaling.md, the rehearsal: 64 shards, 500 segments, 3,456,000 rows.
    "merge_rows_per_cpu_s": 3_456_000 / 11.6,
    "part_bytes_per_row": 1_793_916_790 / 3_456_000,
    "file_bytes_per_row": 1_499_199_447 / 3_456_000,
    # The same rehearsal, system calls counted by strace (bench/rehearse_merge.py --trace).
    "task_metadata": 266,
    "segment_metadata": 11.0,
    "merge_metadata_per_task": 41.2,
    "merge_metadata_per_segment": 8.3,
    "merge_metadata_per_head": 24.9,
}

# Requests to an object store, counted by bench/rehearse_merge.py --store: a worker makes 2 for a segment and 6 for itself, a
# merge 4 for a segment (stat, get, delete of segment and line), 4 for a task, 1 for a head file; 29 more in all.
REQUESTS = {"segment": 2 + 4, "task": 6 + 4, "capture": 436 + 29}

ASSUMED = {
    "storage": (10e9, "bytes per second that all machines together read from the file system or store"),
    "download": (1e9, "bytes per second from the Hub"),
    "cores": (32, "of the machine that merges and analyses"),
    "metadata": (10e3, "operations per second that the file system's metadata server bears"),
}


@dataclass
class Model:
    name: str
    layers: int
    hidden: int
    mlp: int
    heads: int
    key_heads: int
    head_dim: int
    tokens: int = 131072

    def weights(self):
        attention = self.hidden * self.head_dim * (2 * self.heads + 2 * self.key_heads)
        return self.layers * (attention + 3 * self.hidden * self.mlp)

    def flop_per_token(self):
        """Two FLOP per weight, plus scores and values under a causal mask, which is half full."""
        return 2 * self.weights() + 2 * self.tokens * self.heads * self.head_dim * self.layers

    def bytes(self):
        return 2 * self.weights()  # bfloat16, without embeddings


# Shapes of the published configurations.
STUDY = [
    Model("Llama-3.2-1B", 16, 2048, 8192, 32, 8, 64),
    Model("Llama-3.2-3B", 28, 3072, 8192, 24, 8, 128),
    Model("Llama-3.2-11B-Vision", 32, 4096, 14336, 32, 8, 128),  # only its text layers run
    Model("Llama-3.1-8B", 32, 4096, 14336, 32, 8, 128),
    Model("Qwen3-0.6B", 28, 1024, 3072, 16, 8, 128),
    Model("Qwen3-1.7B", 28, 2048, 6144, 16, 8, 128),
    Model("Qwen3-4B", 36, 2560, 9728, 32, 8, 128),
    Model("Qwen3-8B", 36, 4096, 12288, 32, 8, 128),
    Model("Qwen3-14B", 40, 5120, 17408, 40, 8, 128),
    Model("Ministral-3-3B", 26, 3072, 9216, 32, 8, 128),
    Model("Ministral-3-8B", 34, 4096, 14336, 32, 8, 128),
    Model("Ministral-3-14B", 40, 5120, 16384, 32, 8, 128),
    Model("Mistral-7B-v0.2", 32, 4096, 14336, 32, 8, 128, tokens=32768),
]
STUDY_TEXTS = 500

# 500 checkpoints of a 3B model as configs/sweeps/atlas captures them: 100 texts of 4,096 tokens.
ATLAS_CHECKPOINTS = 500
ATLAS_TEXTS = 100
ATLAS_MODEL = Model("SmolLM3-3B", 36, 2048, 11008, 16, 4, 128, tokens=4096)


def makespan(tasks, cards):
    """Assigns the longest tasks first, each to the first free GPU; returns the total seconds."""
    free = [0.0] * cards
    for seconds in sorted(tasks, reverse=True):
        heapq.heappush(free, heapq.heappop(free) + seconds)
    return max(free)


def study_shards(model, cards):
    """Distributes about one task per GPU over the models by their work, at most one per text."""
    total = sum(other.flop_per_token() * other.tokens for other in STUDY)
    share = model.flop_per_token() * model.tokens / total
    return max(1, min(STUDY_TEXTS, round(cards * share)))


def study(cards, assumed):
    tasks, weights, shards = [], 0, 0
    for model in STUDY:
        count = study_shards(model, cards)
        texts = math.ceil(STUDY_TEXTS / count)
        forward = texts * model.tokens * model.flop_per_token() / MEASURED["flops_131k"]
        tasks += [MEASURED["start_s"] + forward] * count
        weights += count * model.bytes()
        shards += count
    work = Work(len(STUDY), shards, STUDY_TEXTS, 1.0, "reading weights")
    return row(cards, makespan(tasks, cards), weights / assumed["storage"], work, assumed)


def atlas(cards, assumed):
    seconds = MEASURED["start_s"] + ATLAS_TEXTS * ATLAS_MODEL.tokens / MEASURED["tokens_per_s_3b_4k"]
    compute = makespan([seconds] * ATLAS_CHECKPOINTS, cards)
    weights = ATLAS_CHECKPOINTS * ATLAS_MODEL.bytes() / assumed["download"]
    # With short texts a segment is closed after two seconds.
    segments = math.ceil((seconds - MEASURED["start_s"]) / 2)
    share = ATLAS_TEXTS / STUDY_TEXTS
    work = Work(ATLAS_CHECKPOINTS, ATLAS_CHECKPOINTS, segments, share, "downloading weights")
    return row(cards, compute, weights, work, assumed)


@dataclass
class Work:
    captures: int
    tasks: int  # over all captures
    segments: int  # per capture
    share_of_rows: float  # rows relative to one model of the study
    weights: str  # label of the step that loads them


def row(cards, compute, weights, work, assumed):
    """Returns all terms of one table row."""
    rows = MEASURED["rows_per_model"] * work.share_of_rows * work.captures
    segments = work.captures * work.segments
    metadata = (
        work.tasks * (MEASURED["task_metadata"] + MEASURED["merge_metadata_per_task"])
        + segments * (MEASURED["segment_metadata"] + MEASURED["merge_metadata_per_segment"])
        + work.captures * MEASURED["head_files"] * MEASURED["merge_metadata_per_head"]
    )
    requests = segments * REQUESTS["segment"] + work.tasks * REQUESTS["task"] + work.captures * REQUESTS["capture"]
    terms = {
        "cards": compute,
        "weights": weights,
        "merge": rows / MEASURED["merge_rows_per_cpu_s"] / assumed["cores"],
        "analysis": work.captures * MEASURED["analysis_cpu_s"] * work.share_of_rows / assumed["cores"],
        "metadata": metadata / assumed["metadata"],
    }
    return {
        "cards": cards,
        "tasks": work.tasks,
        "terms": terms,
        "first": (WORDS | {"weights": work.weights})[max(terms, key=terms.get)],
        "metadata": metadata,
        "requests": requests,
        "part_bytes": rows * MEASURED["part_bytes_per_row"],
        "bytes": rows * MEASURED["file_bytes_per_row"],
    }


def shown(seconds):
    if seconds >= 5400:
        return f"{seconds / 3600:.1f} h"
    if seconds >= 90:
        return f"{seconds / 60:.1f} min"
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"


WORDS = {
    "cards": "the cards",
    "merge": "merging",
    "analysis": "analyses",
    "metadata": "metadata",
}


def counted(number):
    return f"{number:,.0f}" if number < 1e4 else f"{number / 1e3:,.0f} K"


def table(rows):
    lines = [
        "| cards | tasks | forward passes | weights | merging | analyses | metadata operations | requests | first |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for line in rows:
        terms = [shown(line["terms"][name]) for name in ("cards", "weights", "merge", "analysis")]
        cells = [line["cards"], f"{line['tasks']:,}", *terms]
        cells += [f"{counted(line['metadata'])}, {shown(line['terms']['metadata'])}", counted(line["requests"])]
        lines.append(f"| {' | '.join(map(str, cells))} | {line['first']} |")
    return lines


def totals(name, line, tokens):
    return (
        f"{name}: {tokens:,} tokens, {line['part_bytes'] / 1e9:.0f} GB in parts, {line['bytes'] / 1e9:.0f} GB in final files."
    )


def report(assumed):
    study_rows = [study(cards, assumed) for cards in CARDS]
    atlas_rows = [atlas(cards, assumed) for cards in CARDS]
    study_tokens = sum(STUDY_TEXTS * model.tokens for model in STUDY)
    atlas_tokens = ATLAS_CHECKPOINTS * ATLAS_TEXTS * ATLAS_MODEL.tokens
    return "\n".join(
        [
            totals("The full study", study_rows[0], study_tokens),
            "",
            *table(study_rows),
            "",
            totals("500 checkpoints", atlas_rows[0], atlas_tokens),
            "",
            *table(atlas_rows),
        ]
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, (value, words) in ASSUMED.items():
        parser.add_argument(f"--{name}", type=float, default=value, help=f"{words} (default {value:g})")
    parser.add_argument("--check", type=Path, help="a document that must have these tables")
    arguments = parser.parse_args()
    text = report({name: getattr(arguments, name) for name in ASSUMED})
    if arguments.check is None:
        print(text)
        return
    missing = [line for line in text.splitlines() if line not in arguments.check.read_text().splitlines()]
    if missing:
        sys.exit(f"{arguments.check}: lacks what tools/scaling_model.py prints:\n" + "\n".join(missing))


if __name__ == "__main__":
    main()
