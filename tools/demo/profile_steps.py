#!/usr/bin/env python3
"""Compares steps of the plasticity profile at bucket borders with steps elsewhere, and the profile with the rows.

    python tools/demo/profile_steps.py RESULTS [--capture CAPTURE] [--bucket TOKENS]

The step of a bin is |ap - ap of the bin before|, averaged over heads and bins. With --capture, ap and ap_free of every
head and bin are compared with a plain estimate from the rows: 4 n / (n - 1) p (1 - p), p the fraction of the bin's n
queries that prefer the first key, over all pairs of keys of one text before the bin. Needs numpy and pyarrow."""
import argparse
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq


def profiles(results):
    """Returns (layer, head) -> columns of its rows of head_profile."""
    table = pq.read_table(Path(results) / "head_profile.parquet").to_pydict()
    columns = {name: np.array([np.nan if x is None else x for x in table[name]]) for name in table
               if name not in ("model", "rope")}
    heads = {}
    for layer, head in dict.fromkeys(zip(columns["layer"], columns["head"])):
        mine = (columns["layer"] == layer) & (columns["head"] == head)
        heads[int(layer), int(head)] = {name: x[mine] for name, x in columns.items()}
    return heads


def steps(heads, bucket, column):
    """Returns the mean |step| at bucket borders and elsewhere."""
    at_border, elsewhere = [], []
    for rows in heads.values():
        step = abs(np.diff(rows[column]))
        border = np.mod(rows["bin_low"][1:], bucket) == 0
        at_border += list(step[border & ~np.isnan(step)])
        elsewhere += list(step[~border & ~np.isnan(step)])
    return np.mean(at_border), np.mean(elsewhere)


def read(folder, layer, head, side):
    table = pq.read_table(Path(folder) / f"l{layer:02}h{head:02}{side}" / "data.parquet")
    vectors = np.stack(table["vector"].to_numpy(zero_copy_only=False)).astype(np.float64)
    return vectors, table["position"].to_numpy(), table["example_id"].to_numpy()


def from_rows(capture, layer, head, rows):
    """Returns the plain estimate of every bin; NaN if a bin has fewer than two queries or no pair."""
    q, q_position, _ = read(capture, layer, head, "q")
    k, k_position, text = read(capture, layer, int(rows["k_head"][0]), "k")
    result = []
    for low, high in zip(rows["bin_low"], rows["bin_high"]):
        queries = q[(q_position >= low) & (q_position < high)]
        n, total, pairs = len(queries), 0.0, 0
        if n < 2:
            result.append(np.nan)
            continue
        for t in np.unique(text):
            scores = queries @ k[(text == t) & (k_position < low)].T  # (queries, keys)
            i, j = np.triu_indices(scores.shape[1], 1)
            prefer = (scores[:, i] > scores[:, j]).sum(0)
            total += (4 * prefer * (n - prefer) / (n * (n - 1))).sum()
            pairs += len(i)
        result.append(total / pairs if pairs else np.nan)
    return np.array(result)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results")
    parser.add_argument("--capture")
    parser.add_argument("--bucket", type=int, default=64)
    options = parser.parse_args()
    heads = profiles(options.results)
    columns = [name for name in ("ap", "ap_free") if name in next(iter(heads.values()))]
    for column in columns:
        at_border, elsewhere = steps(heads, options.bucket, column)
        print(f"{column}: steps at bucket borders {at_border:.4f}, elsewhere {elsewhere:.4f}, "
              f"ratio {at_border / elsewhere:.2f}")
    if options.capture:
        expected = {head: from_rows(options.capture, *head, rows) for head, rows in heads.items()}
        for column in columns:
            off = np.concatenate([rows[column] - expected[head] for head, rows in heads.items()])
            off = off[~np.isnan(off)]
            print(f"{column} against the rows: {off.mean():+.4f} on average, {np.sqrt((off**2).mean()):.4f} rms per bin")


if __name__ == "__main__":
    main()
