"""Figures of statistics: a sweep of statistics over two demo checkpoints is drawn, and every CSV is computed again with pandas.

    python compare_attention.py PATH_TO_QKSCOPE"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

QKSCOPE = sys.argv[1]
DEMO = Path(__file__).resolve().parents[3] / "share" / "demo"
RUNS = ["S1-40", "S3-4720"]
failures = []


def check(name, found, expected):
    found, expected = np.asarray(found, dtype=float), np.asarray(expected, dtype=float)
    if found.shape != expected.shape or not np.allclose(found, expected, rtol=1e-12, atol=0, equal_nan=True):
        failures.append(f"{name}: {found}, expected {expected}")


def make_sweep(folder):
    path = folder / "sweep.yaml"
    path.write_text(json.dumps({
        "name": "exact",
        "capture": False,
        "stats": {"groups": ["A", "C"]},
        "base": {
            "dataset": {"path": str(DEMO / "corpus.jsonl"), "id_column": "id", "max_samples": 3},
            "model": {"dtype": "float32", "device_map": "cpu"},
            "tokenizer": {"max_length": 128},
        },
        "runs": [{"label": run, "overrides": {"model.name": str(DEMO / "checkpoints" / run)}} for run in RUNS],
    }))
    subprocess.run([QKSCOPE, "sweep", path, "--out", folder, "--no-figures", "--quiet"], check=True)
    return folder / "exact"


def draw(results, out):
    subprocess.run([QKSCOPE, "figures", results, "--out", out, "--format", "svg", "--quiet"], check=True)


def check_onset(sweep, out):
    attention, taxonomy = (pd.read_parquet(sweep / f"{name}.parquet") for name in ("attention", "taxonomy"))
    drawn = pd.read_csv(out / "attention_onset.csv")
    by_run = attention.groupby("order")
    check("induction", drawn.induction_largest, by_run.induction_head.max())
    check("sinks", drawn.sink_rate, by_run.sink_rate_64.mean())
    classes = taxonomy[taxonomy["class"] != ""]
    check("classes", drawn.position_dominated,
          classes.groupby("order")["class"].apply(lambda c: (c == "position_dominated").mean()))


def check_maps(results, out):
    attention = pd.read_parquet(results / "attention.parquet").sort_values(["layer", "head"])
    for figure, column in (("sink", "sink_0"), ("previous", "previous_token_head"), ("induction", "induction_head"),
                           ("duplicate", "duplicate_token_head"),
                           ("entropy", "entropy"), ("distance", "distance_mean"), ("effective_keys", "perplexity")):
        drawn = pd.read_csv(out / f"head_map_{figure}.csv").sort_values(["layer", "head"])
        check(figure, drawn[column], attention[column])


def check_distances(results, out):
    distance, taxonomy = (pd.read_parquet(results / f"{name}.parquet") for name in ("distance", "taxonomy"))
    joined = distance.merge(taxonomy[["layer", "head", "class"]], on=["layer", "head"])
    expected = joined.groupby(["width", "class"]).mass.mean().unstack()
    drawn = pd.read_csv(out / "distance_by_class.csv").set_index("width")
    for name in [column for column in drawn.columns if column != "distance_low"]:
        check(f"distance {name}", drawn[name], expected.loc[drawn.index, name])
    if not np.allclose(expected.sum(), 1, atol=1e-6):
        failures.append(f"masses over all distances are {expected.sum().to_dict()}, expected 1")


def check_channels(results, out):
    channels = pd.read_parquet(results / "key_channels.parquet")
    middle = channels.groupby(["stage", "layer", "head"]).absmax.transform("median")
    channels["ratio"] = channels.absmax / middle
    channels["post"] = (channels.stage == "post").astype(int)
    order = ["post", "layer", "head", "channel"]
    drawn = pd.read_csv(out / "key_channel_map.csv").sort_values(order)
    check("channels", drawn.ratio, channels.sort_values(order).ratio)


with tempfile.TemporaryDirectory() as temporary:
    temporary = Path(temporary)
    sweep = make_sweep(temporary)
    draw(sweep, temporary / "over-runs")
    check_onset(sweep, temporary / "over-runs")
    run = sweep / "runs" / RUNS[-1]
    draw(run, temporary / "one")
    check_maps(run, temporary / "one")
    check_distances(run, temporary / "one")
    check_channels(run, temporary / "one")
    if "induction_head" not in (temporary / "one" / "report.html").read_text():
        failures.append("the report has no column of induction scores")

for failure in failures:
    print(failure)
sys.exit(1 if failures else 0)
