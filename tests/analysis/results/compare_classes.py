"""Checks the cross-fitted axis columns of taxonomy.csv against NumPy on planted captures.

usage: compare_classes.py PATH_TO_QKSCOPE"""
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

QKSCOPE = sys.argv[1]
failures = []


def rows_of(root, layer, head, kind):
    table = pq.read_table(root / f"l{layer:02}h{head:02}{kind}" / "data.parquet")
    x = np.stack(table["vector"].to_numpy(zero_copy_only=False)).astype(np.float64)
    return x, table["position"].to_numpy().astype(np.float64), table["example_id"].to_numpy()


def text_groups(root):
    """Text i of n is in group i G // n, with at most 20 groups."""
    examples = [pq.read_table(path, columns=["example_id"])["example_id"].to_numpy()
                for path in root.glob("l*/data.parquet")]
    texts = np.unique(np.concatenate(examples))
    groups = min(20, len(texts))
    return dict(zip(texts, np.arange(len(texts)) * groups // len(texts))), groups


def axis_correlations(q, k, group_of, groups):
    """Each group of texts is projected on the drift axis of the other groups."""
    sides = [(x - x.mean(0), t, np.array([group_of[e] for e in example])) for x, t, example in (q, k)]
    raw = [(q[0], q[1], sides[0][2]), (k[0], k[1], sides[1][2])]
    projections = [np.empty(len(side[1])) for side in sides]
    for g in range(groups):
        x = np.vstack([x[own != g] for x, _, own in raw])
        t = np.concatenate([t[own != g] for _, t, own in raw])
        axis = (x - x.mean(0)).T @ (t - t.mean())
        axis /= np.linalg.norm(axis)
        for projection, (centred, _, own) in zip(projections, sides):
            projection[own == g] = centred[own == g] @ axis
    return [np.corrcoef(projection, side[1])[0, 1] for projection, side in zip(projections, sides)]


def class_of(r_q, r_k):
    return ("position_dominated" if r_q > 0.7 and r_k > 0.7 else
            "q_positional" if r_q > 0.7 and r_k < 0.3 else
            "k_positional" if r_q < 0.3 and r_k > 0.7 else
            "content_focused" if r_q < 0.3 and r_k < 0.3 else "mixed")


def compare(name, synth):
    with tempfile.TemporaryDirectory() as folder:
        root, out = Path(folder) / "capture", Path(folder) / "results"
        subprocess.run([QKSCOPE, "synth", str(root), "--layers", "2", "--head-counts", "4,2", "--dim", "12",
                        "--planes", "2", "--context", "512", "--buckets", "8", "--quiet", *synth], check=True)
        subprocess.run([QKSCOPE, "analyze", str(root), "--only", "pca", "--out", str(out), "--quiet"], check=True)
        taxonomy, qk = pd.read_csv(out / "taxonomy.csv"), pd.read_csv(out / "qk.csv")
        group_of, groups = text_groups(root)
        for row in taxonomy.itertuples():
            q, k = rows_of(root, row.layer, row.head, "q"), rows_of(root, row.layer, row.k_head, "k")
            r_q, r_k = axis_correlations(q, k, group_of, groups)
            if not np.allclose([row.r_q_axis, row.r_k_axis], [r_q, r_k], rtol=1e-9, atol=1e-12):
                failures.append(f"{name}: axis {row.r_q_axis}, {row.r_k_axis}; expected {r_q}, {r_k}")
            if row.class_axis != class_of(abs(r_q), abs(r_k)):
                failures.append(f"{name}: class_axis {row.class_axis}, expected {class_of(abs(r_q), abs(r_k))}")
            components = qk[(qk.layer == row.layer) & (qk["head"] == row.head)].set_index("pc")
            best = np.minimum(components.r_q.abs(), components.r_k.abs()).idxmax()
            if row.pc_position != best or row.pc_position_variance != components.explained_variance[best]:
                failures.append(f"{name}: pc_position {row.pc_position}, expected {best}")
        counts = pd.read_csv(out / "taxonomy_counts.csv")
        everything = counts[counts.layers == "all"].set_index("class")
        for column, heads in (("class", "heads"), ("class_axis", "heads_axis")):
            expected = taxonomy[column].value_counts().reindex(everything.index, fill_value=0)
            if not (everything[heads] == expected).all():
                failures.append(f"{name}: {heads} differ from the classes of the heads")
        print(f"{name}: {len(taxonomy)} heads, {sorted(taxonomy.class_axis.unique())}")


compare("drift", ["--examples", "50", "--set", "drift_q=0.004", "--set", "drift_k=0.003", "--seed", "1"])
compare("offset on PC0", ["--examples", "30", "--set", "drift_q=0.02", "--set", "drift_k=0.02", "--set", "distance=30", "--seed", "2"])
compare("seven texts, queries only", ["--examples", "7", "--set", "drift_q=0.02", "--set", "drift_k=0", "--seed", "3"])
compare("noise", ["--examples", "40", "--set", "drift_q=0", "--set", "drift_k=0", "--seed", "4"])
if failures:
    sys.exit("\n".join(failures[:20]) + f"\n{len(failures)} differences")
