#!/usr/bin/env python3
"""Prints the tables of docs/scaling.md from the terms that were measured.

    python3 tools/scaling_model.py                            # the tables
    python3 tools/scaling_model.py --check docs/scaling.md    # whether the document has them as they are
    python3 tools/scaling_model.py --storage 40e9 --cores 64  # another cluster

Everything in the tables is computed; MEASURED is what was measured, each with the place that says how. ASSUMED depends on
the cluster and is an option.
"""

import argparse
import heapq
import math
import sys
from dataclasses import dataclass
from pathlib import Path

CARDS = (1, 8, 64, 512)

MEASURED = {
    # docs/performance.md: whole models at 131,072 tokens ran at 599, 600 and 696 TFLOP/s on one H200; the least of them.
    "flops_131k": 599e12,
    # docs/performance.md: a whole capture of 200 x 4,096 tokens of a 3B model, without its start and assembly.
    "tokens_per_s_3b_4k": 200 * 4096 / 8.36,
    # docs/performance.md: from the start of the program until the weights are there, 3B, from the page cache.
    "start_s": 0.98,
    # docs/reproducing.md: rows of a model of the study, by --dry-run over 500 texts.
    "rows_per_model": 3_487_235,
    "head_files": 436,
    # docs/benchmarks-analysis.md: all analyses of 300 heads, CPU seconds.
    "analysis_cpu_s": 35,
    # docs/scaling.md, rehearsal: 64 shards, 3,456,000 rows.
    "merge_rows_per_cpu_s": 0.0,
    "merge_memory": 0,
    "part_bytes_per_row": 0.0,
    "file_bytes_per_row": 0.0,
    "worker_metadata": 0,
    "segment_metadata": 0,
    "merge_metadata_per_shard": 0,
    "merge_metadata_per_head": 0,
    "metadata_per_s": 0,
}

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
        """Two per weight; scores and values of a causal mask that is half full."""
        return 2 * self.weights() + 2 * self.tokens * self.heads * self.head_dim * self.layers

    def bytes(self):
        return 2 * self.weights()  # bfloat16, without embeddings


# Shapes as the published configurations have them.
STUDY = [
    Model("Llama-3.2-1B", 16, 2048, 8192, 32, 8, 64),
    Model("Llama-3.2-3B", 28, 3072, 8192, 24, 8, 128),
    Model("Llama-3.2-11B-Vision", 32, 4096, 14336, 32, 8, 128),  # its layers for text alone run
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
    """Longest tasks first, each to the card that is free first."""
    free = [0.0] * cards
    for seconds in sorted(tasks, reverse=True):
        heapq.heappush(free, heapq.heappop(free) + seconds)
    return max(free)


def study_shards(model, cards):
    """Two tasks for a card where all models together need that many, and never more than texts."""
    total = sum(other.flop_per_token() * other.tokens for other in STUDY)
    share = model.flop_per_token() * model.tokens / total
    return max(1, min(STUDY_TEXTS, math.ceil(2 * cards * share))) if cards > 1 else 1


def study(cards, assumed):
    tasks, weights, shards = [], 0, 0
    for model in STUDY:
        count = study_shards(model, cards)
        texts = math.ceil(STUDY_TEXTS / count)
        forward = texts * model.tokens * model.flop_per_token() / MEASURED["flops_131k"]
        tasks += [MEASURED["start_s"] + forward] * count
        weights += count * model.bytes()
        shards += count
    return row(cards, makespan(tasks, cards), weights / assumed["storage"], len(STUDY), shards, 1.0, assumed)


def atlas(cards, assumed):
    seconds = MEASURED["start_s"] + ATLAS_TEXTS * ATLAS_MODEL.tokens / MEASURED["tokens_per_s_3b_4k"]
    compute = makespan([seconds] * ATLAS_CHECKPOINTS, cards)
    weights = ATLAS_CHECKPOINTS * ATLAS_MODEL.bytes() / assumed["download"]
    return row(cards, compute, weights, ATLAS_CHECKPOINTS, ATLAS_CHECKPOINTS, ATLAS_TEXTS / STUDY_TEXTS, assumed)


def row(cards, compute, weights, captures, shards, share_of_rows, assumed):
    """All terms of one line: `captures` with this share of a study model's rows, in so many shards."""
    rows = MEASURED["rows_per_model"] * share_of_rows * captures
    merge = rows / MEASURED["merge_rows_per_cpu_s"] / assumed["cores"]
    analysis = captures * MEASURED["analysis_cpu_s"] * share_of_rows / assumed["cores"]
    metadata = (
        shards * (MEASURED["worker_metadata"] + MEASURED["merge_metadata_per_shard"])
        + captures * MEASURED["head_files"] * MEASURED["merge_metadata_per_head"]
    )
    terms = {
        "cards": compute,
        "weights": weights,
        "merge": merge,
        "analysis": analysis,
        "metadata": metadata / assumed["metadata"],
    }
    return {
        "cards": cards,
        "shards": shards,
        "terms": terms,
        "first": max(terms, key=terms.get),
        "files": shards * 3 + captures * (MEASURED["head_files"] + 3),
        "operations": metadata,
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
    "weights": "reading weights",
    "merge": "merging",
    "analysis": "analyses",
    "metadata": "metadata",
}


def table(rows):
    lines = [
        "| cards | tasks | forward passes | reading weights | merging | analyses | metadata operations | first limit |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for line in rows:
        terms = [shown(line["terms"][name]) for name in ("cards", "weights", "merge", "analysis")]
        operations = f"{round(line['operations'], -2):,.0f}, {shown(line['terms']['metadata'])}"
        lines.append(
            f"| {line['cards']} | {line['shards']:,} | {' | '.join(terms)} | {operations} | {WORDS[line['first']]} |"
        )
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
