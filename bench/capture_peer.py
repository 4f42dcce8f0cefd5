#!/usr/bin/env python3
"""Captures with a plain loop over transformers: the peer of bench/capture_table.py.

    python bench/capture_peer.py CONFIG [--device cuda]

CONFIG is the configuration of a capture (as JSON, uniform sampler). Per document: encode the whole text with the Hugging
Face library and truncate it, run the backbone in bfloat16, sample positions by the capture protocol, copy the selected
heads' rows after RoPE to the host, buffer them, and write Parquet with pyarrow, one file per head. Documents run one at a
time without overlap. Prints one JSON line with the seconds of each part.
"""

import argparse
import json
import random
import sys
import time
from collections import defaultdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
import transformers

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))
from make_sampling_golden import mask, sampling_seed  # noqa: E402


def chosen_heads(model, sampling):
    """Returns (layer, kind) → heads: the sampled query heads, and the key heads they read."""
    heads = [(layer, head) for layer in range(model.num_hidden_layers) for head in range(model.num_attention_heads)]
    if sampling["count"] < len(heads):
        heads = random.Random(sampling["seed"]).sample(heads, sampling["count"])
    group = model.num_attention_heads // model.num_key_value_heads
    chosen = defaultdict(set)
    for layer, head in heads:
        chosen[layer, "q"].add(head)
        chosen[layer, "k"].add(head // group)
    return {key: sorted(of_layer) for key, of_layer in chosen.items()}


class HeadFiles:
    """Buffers rows per head and writes them to one Parquet file per head in row groups."""

    def __init__(self, root, rows_per_group):
        self.root, self.rows_per_group = Path(root), rows_per_group
        self.buffers = defaultdict(list)  # head → [(example, positions, buckets, vectors)]
        self.writers = {}

    def add(self, head, *rows):
        self.buffers[head].append(rows)
        if sum(len(positions) for _, positions, *_ in self.buffers[head]) >= self.rows_per_group:
            self._write(head)

    def _write(self, head):
        pieces = self.buffers.pop(head)
        examples = np.concatenate([np.full(len(positions), example) for example, positions, *_ in pieces])
        vectors = np.concatenate([vectors for *_, vectors in pieces])
        columns = {
            "bucket": pa.array(np.concatenate([buckets for *_, buckets, _ in pieces]), pa.int32()),
            "example_id": pa.array(examples, pa.int32()),
            "position": pa.array(np.concatenate([positions for _, positions, *_ in pieces]), pa.int32()),
            "vector": pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel(), pa.float32()), vectors.shape[1]),
            "sliding_window": pa.nulls(len(vectors), pa.int32()),
        }
        table = pa.table(columns)
        if head not in self.writers:
            folder = self.root / "l{:02}h{:02}{}".format(*head)
            folder.mkdir(parents=True)
            self.writers[head] = pq.ParquetWriter(folder / "data.parquet", table.schema, compression="zstd")
        self.writers[head].write_table(table)

    def close(self):
        for head in list(self.buffers):
            self._write(head)
        for writer in self.writers.values():
            writer.close()


class Loop:
    def __init__(self, config, device):
        self.config, self.device = config, device
        transformers.utils.logging.disable_progress_bar()
        folder = Path(config["model"]["name"])
        self.tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
        self.model = transformers.AutoModel.from_pretrained(
            folder, dtype=torch.bfloat16, attn_implementation="sdpa").eval().to(device)
        self.heads = chosen_heads(self.model.config, config["capture"]["head_sampling"])
        self.files = HeadFiles(config["output"]["data_root"], config["output"]["write_batch_size"])
        self.example = 0
        self.seconds = defaultdict(float)
        self.sdpa = transformers.AttentionInterface()["sdpa"]
        transformers.AttentionInterface.register("sdpa", self._attention)

    def _attention(self, module, query, key, value, *arguments, **options):
        for kind, states in (("q", query), ("k", key)):  # (1, heads, tokens, head_dim)
            self._keep(module.layer_idx, kind, states[0])
        return self.sdpa(module, query, key, value, *arguments, **options)

    def _keep(self, layer, kind, states):
        heads, size = self.heads.get((layer, kind), []), self.config["capture"]["min_bucket_size"]
        rate = self.config["capture"]["sampler"]["base_rate"]
        rows = mask("uniform", sampling_seed(self.example, layer, kind), states.shape[1], size, rate)
        if not heads or not rows:
            return
        kept = states[heads][:, rows].float().cpu().numpy()  # (heads, rows, head_dim)
        positions = np.array(rows)
        for head, vectors in zip(heads, kept):
            self.files.add((layer, head, kind), self.example, positions, positions // size, vectors)

    def _timed(self, part, start):
        self.seconds[part] += time.perf_counter() - start

    @torch.inference_mode()
    def run(self):
        tokens, start = 0, time.perf_counter()
        with open(self.config["dataset"]["path"], encoding="utf-8") as file:
            for line in file:
                document = json.loads(line)
                self.example = document["id"]
                begin = time.perf_counter()
                ids = self.tokenizer(document["text"], truncation=True,
                                     max_length=self.config["tokenizer"]["max_length"])["input_ids"]
                self._timed("tokenize", begin)
                begin = time.perf_counter()
                self.model(input_ids=torch.tensor([ids], device=self.device), use_cache=False)
                if self.device == "cuda":
                    torch.cuda.synchronize()
                self._timed("forward", begin)
                tokens += len(ids)
        begin = time.perf_counter()
        self.files.close()
        self._timed("write", begin)
        loop = {"tokens": tokens, "loop_s": time.perf_counter() - start}
        return loop | {f"{part}_s": seconds for part, seconds in self.seconds.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=Path)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    options = parser.parse_args()
    loop = Loop(json.loads(options.config.read_text()), options.device)
    print(json.dumps(loop.run()))


if __name__ == "__main__":
    main()
