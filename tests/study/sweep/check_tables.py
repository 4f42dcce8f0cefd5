"""Recomputes the tables of a sweep from its runs. Argument: the sweep's folder."""
import json
import pathlib
import sys

import numpy as np
import pandas as pd

root = pathlib.Path(sys.argv[1])
runs = json.loads((root / "runs.json").read_text())["runs"]
assert [run["state"] for run in runs] == ["done"] * 3, runs
names = {path.stem for path in (root / runs[0]["results"]).glob("*.parquet")}
assert {"errors", "correlations", "qk", "taxonomy", "taxonomy_counts", "rotated", "complement", "head_metrics", "head_profile",
        "head_bucket_plasticity", "pair_heatmap", "head_component_weights"} <= names, names
assert {path.stem for path in root.glob("*.parquet")} == names | {"overview"}


def expected(name, read, ending):
    parts = []
    for run in runs:
        part = read(root / run["results"] / (name + ending)).drop(columns="model")
        part.insert(0, "order", run["order"])
        part.insert(0, "phase", run["phase"])
        part.insert(0, "model", run["label"])
        parts.append(part)
    return pd.concat(parts, ignore_index=True)


for name in sorted(names):
    pd.testing.assert_frame_equal(pd.read_parquet(root / f"{name}.parquet"),
                                  expected(name, pd.read_parquet, ".parquet"), check_exact=True)
    if not (root / runs[0]["results"] / f"{name}.csv").exists():
        assert not (root / f"{name}.csv").exists(), name
        continue
    pd.testing.assert_frame_equal(pd.read_csv(root / f"{name}.csv"), expected(name, pd.read_csv, ".csv"),
                                  check_exact=True)


# Recompute the overview from the head tables. The tolerance allows another summation order.
def means(frame, column, layers):
    some = frame if layers == "all" else frame[frame.rope == layers]
    return some.groupby("model", sort=False)[column].mean()


overview = pd.read_csv(root / "overview.csv")
qk = pd.read_csv(root / "qk.csv").query("pc == 0")
qk = qk.assign(abs_r_k=qk.r_k.abs(), pc0_variance=qk.explained_variance)
rotated = pd.read_csv(root / "rotated.csv")
rotated = rotated.assign(abs_r_k_a=rotated.r_k_a.abs())
metrics = pd.read_csv(root / "head_metrics.csv")
taxonomy = pd.read_csv(root / "taxonomy.csv")
for layers in ("all", "rope", "nope"):
    rows = overview[overview.layers == layers].set_index("model")
    assert list(rows.index) == [run["label"] for run in runs], rows
    for frame, columns in ((qk, ["r_q", "r_k", "abs_r_k", "pc0_variance"]),
                           (rotated, ["bias_strength", "alpha_k", "abs_r_k_a", "separation_strength",
                                      "plane_var_fraction"]),
                           (metrics, ["ap_profile_overall", "ap_first20", "ap_last20", "ap_drop", "ap_free_overall", "ap_free_drop"])):
        for column in columns:
            np.testing.assert_allclose(rows[column], means(frame, column, layers), rtol=1e-12,
                                       atol=1e-15, err_msg=f"{layers} {column}")
    for name in ("position_dominated", "q_positional", "k_positional", "content_focused", "mixed"):
        share = means(taxonomy.assign(of=taxonomy["class"] == name), "of", layers)
        np.testing.assert_allclose(rows[name], share, rtol=1e-12, atol=1e-15)
    errors = pd.read_csv(root / "errors.csv").query("heads == @layers")
    for column in [column for column in overview if column.endswith("_se")]:
        of = errors[errors.quantity == column.removesuffix("_se")].set_index("model").se
        expected = [of.get(run["label"], np.nan) for run in runs]
        np.testing.assert_array_equal(rows[column], expected, err_msg=f"{layers} {column}")
    known = ["r_q_se", "pc0_variance_se", "mixed_se", "abs_alpha_k_se", "slope_ratio_median_se",
             "ap_profile_overall_se", "ap_drop_se"]
    assert rows[known].notna().all(axis=None), rows[known]
print(f"{len(names)} tables of {len(runs)} runs agree")
