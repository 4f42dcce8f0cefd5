"""Statistics over every token against a capture of every token: what follows from the sums is equal, the rest is empty.

    python compare_statistics.py PATH_TO_QKSCOPE

Demo checkpoints on the CPU: a capture with `sampler: all` and statistics of the same texts are analysed, and every column is
compared. Then the statistics with keys of that capture, whose plasticity must be that of the capture."""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

QKSCOPE = sys.argv[1]
DEMO = Path(__file__).resolve().parents[3] / "share" / "demo"
CHECKPOINTS = ["S1-1200", "LC1-1200"]
LENGTH = {"S1-1200": 256, "LC1-1200": 512}
DOCUMENTS = 4
BOUND = 1e-9  # of a column's own scale: only the order of additions differs
failures = []
worst = {}

NEEDS_ROWS = {
    "qk": {"qk_accuracy"},
    "rotated": {"omega", "omega_r_squared", "active_planes", "position_r_null", "r_q_a_null", "r_k_a_null", "position_r_p",
                "r_q_a_p", "r_k_a_p"},
    "complement": {"angle_r", "omega", "nearest_inv_freq", "active"},
    "head_metrics": {"q_mae_proj", "q_mae_ratio", "q_resid0_skew", "q_resid0_kurt", "q_resid0_ks_p", "q_noise_med_abs_skew",
                     "q_noise_med_abs_kurt", "q_noise_med_ks_p", "q_noise_frac_ks_p_lt_alpha", "ap_overall",
                     "ap_profile_overall", "ap_first20", "ap_last20", "ap_drop", "ap_free_overall", "ap_free_first20",
                     "ap_free_last20", "ap_free_drop"},
    # Errors leave out the queries of texts, too, also where keys are there.
    "head_profile": {"se", "ap_free", "se_free"},
    "profile_bins": {"se"},
}
COMPARED = ["qk", "taxonomy", "taxonomy_counts", "correlations", "rotated", "complement", "head_metrics",
            "head_component_weights"]
PAIRS = ["head_bucket_plasticity", "head_profile", "profile_bins", "pair_heatmap"]
# few_rows also looks at the shuffles; gaussian and n_pairs_free belong to ap_free. All take rows.
IGNORED = {"few_rows", "gaussian", "n_pairs_free"}


def fail(message):
    failures.append(message)


def qkscope(*arguments):
    subprocess.run([QKSCOPE, *map(str, arguments)], check=True, stdout=subprocess.DEVNULL)


def configuration(folder, checkpoint):
    size = LENGTH[checkpoint] // 16
    path = folder / "run.yaml"
    path.write_text(json.dumps({
        "dataset": {"path": str(DEMO / "corpus.jsonl"), "id_column": "id", "max_samples": DOCUMENTS},
        "model": {"name": str(DEMO / "checkpoints" / checkpoint), "dtype": "float32", "device_map": "cpu"},
        "tokenizer": {"max_length": LENGTH[checkpoint]},
        "inference": {"batch_size": 2},
        "capture": {"sampler": {"type": "all"}, "min_bucket_size": size},
        "stats": {"groups": ["A"], "bucket_size": size, "bucket_covariance": ["q"]},
    }))
    return path


def compare_column(name, found, expected):
    if found.dtype == object or expected.dtype == object or str(found.dtype).startswith(("str", "bool")):
        if not found.fillna("").equals(expected.fillna("")):
            fail(f"{name}: texts differ")
        return
    a, b = found.to_numpy(dtype=float), expected.to_numpy(dtype=float)
    if not np.array_equal(np.isnan(a), np.isnan(b)):
        fail(f"{name}: {np.isnan(a).sum()} empty fields, expected {np.isnan(b).sum()}")
        return
    known = ~np.isnan(b)
    if not known.any():
        return
    # p values and the self-check, which is rounding error itself, are held to the bound as they are.
    column = name.split(".")[1]
    scale = 1.0 if column.startswith("p_") or column == "residual_pos_r" else np.abs(b[known]).max()
    error = np.abs(a[known] - b[known]) / (scale if scale > 0 else 1.0)
    worst[name] = max(worst.get(name, 0.0), error.max())
    if not (error <= BOUND).all():
        fail(f"{name}: off by {error.max():.3g} of its scale; expected at most {BOUND}")


def compare(table, exact, sampled, keys):
    a, b = pd.read_parquet(exact / f"{table}.parquet"), pd.read_parquet(sampled / f"{table}.parquet")
    if list(a.columns) != list(b.columns):
        fail(f"{table}: columns {list(a.columns)}, expected {list(b.columns)}")
        return
    if len(a) != len(b):
        fail(f"{table}: {len(a)} rows, expected {len(b)}")
        return
    needs_rows = {c for c in NEEDS_ROWS.get(table, set()) if not (keys and c.startswith("ap_") and not c.startswith("ap_free"))}
    for column in a.columns:
        if column in IGNORED:
            continue
        if column in needs_rows:
            if a[column].notna().any():
                fail(f"{table}.{column}: needs rows, but is not empty")
        else:
            compare_column(f"{table}.{column}", a[column], b[column])


def check_reasons(summary, table, rows):
    undefined = summary["undefined"].get(f"{table}.csv", {})
    for column in NEEDS_ROWS.get(table, set()):
        found = undefined.get(column, {})
        if table == "qk":
            expected = found.get("needs_rows", 0) == rows
        else:
            expected = list(found) == ["needs_rows"] and found["needs_rows"] == rows
        if not expected:
            fail(f"summary: {table}.{column} says {found}, expected needs_rows {rows} times")


with tempfile.TemporaryDirectory() as temporary:
    for checkpoint in CHECKPOINTS:
        folder = Path(temporary) / checkpoint
        folder.mkdir()
        config = configuration(folder, checkpoint)
        qkscope("capture", "--config", config, "--set", f"output.data_root={folder}/capture", "--quiet")
        qkscope("stats", "--config", config, "--set", f"output.data_root={folder}/stats", "--quiet")
        sampled, exact, with_keys = folder / "sampled", folder / "exact", folder / "keys"
        # The local model takes rows, and interpolates between buckets without them: not the same numbers.
        same = ["--label", "x", "--query-model", "bucket", "--quiet"]
        qkscope("analyze", folder / "capture", "--out", sampled, *same)
        qkscope("analyze", folder / "stats", "--out", exact, "--label", "x", "--quiet")
        qkscope("analyze", folder / "stats", "--out", with_keys, "--keys", folder / "capture", *same)
        summary = json.loads((exact / "summary.json").read_text())
        for table in COMPARED:
            compare(table, exact, sampled, keys=False)
            check_reasons(summary, table, len(pd.read_parquet(exact / f"{table}.parquet")))
        for table in PAIRS:
            if len(pd.read_parquet(exact / f"{table}.parquet")):
                fail(f"{table}: has rows, but needs pairs of keys")
            if "needs_rows" not in str(summary["undefined"].get(f"{table}.csv")):
                fail(f"{table}: the summary does not say needs_rows")
            compare(table, with_keys, sampled, keys=True)
        compare("head_metrics", with_keys, sampled, keys=True)
        if (exact / "errors.csv").exists() or (exact / "head_scatter.parquet").exists():
            fail("errors and points for pictures take rows, but are there")

for name, error in sorted(worst.items(), key=lambda item: -item[1])[:5]:
    print(f"{name}: at most {error:.2g} of its scale")
for failure in failures[:40]:
    print(failure)
sys.exit(1 if failures else 0)
