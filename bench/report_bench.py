"""Measures the size of the report of a big sweep, and how fast it is written and opened.

    report_bench.py QKSCOPE [--runs 10] [--layers 36] [--heads 16] [--keep FOLDER]

Writes random results in the shape of a real sweep (tables, points, profiles of every head), draws
figures and report, and opens the page in headless Chromium several times.
"""

import argparse
import json
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "tests" / "figures"))
from browser import Browser  # noqa: E402

BUCKETS = 16
CONTEXT = 65536
BINS = 16
DIM = 128
SCATTER = 96
CLASSES = ["position_dominated", "q_positional", "k_positional", "content_focused", "mixed"]


def per_head(heads, repeat, head_name="head"):
    """Returns the columns that identify the head of a row, each head repeated `repeat` times."""
    columns = {name: np.repeat(values, repeat) for name, values in heads.items()}
    columns[head_name] = columns.pop("head_index")
    return columns


def write(folder, name, columns):
    pq.write_table(pa.table(columns), folder / f"{name}.parquet")


def make_results(folder, options):
    random = np.random.default_rng(0)
    per_run = options.layers * options.heads
    count = options.runs * per_run
    run = np.repeat(np.arange(options.runs), per_run)
    layer = np.tile(np.repeat(np.arange(options.layers), options.heads), options.runs)
    heads = {
        "model": np.char.add("checkpoint-", run.astype(str)),
        "phase": np.char.add("phase ", (run // 3).astype(str)),
        "order": run.astype(np.int64),
        "layer": layer.astype(np.int64),
        "head_index": np.tile(np.arange(options.heads), options.runs * options.layers),
        "k_head": np.tile(np.arange(options.heads) // 4, options.runs * options.layers),
        "rope": np.where(layer % 4 == 3, "nope", "rope"),
        "n_q": np.full(count, 8000), "n_k": np.full(count, 8000)}
    real = lambda rows, low=0.0, high=1.0: random.uniform(low, high, rows)
    rows = count * 10
    write(folder, "qk", per_head(heads, 10) | {"pc": np.tile(np.arange(10), count)} | {
        name: real(rows) for name in ["explained_variance", "r_q", "r_k", "fisher",
                                      "positional_variance_q", "positional_variance_k"]})
    write(folder, "taxonomy", per_head(heads, 1) | {"class": random.choice(CLASSES, count)})
    write(folder, "rotated", per_head(heads, 1) | {name: real(count) for name in [
        "position_r", "r_q_a", "r_k_a", "alpha_q", "alpha_k", "mu_q_a", "mu_k_a", "bias_strength",
        "separation_strength", "var_frac_a", "var_frac_b", "plane_var_fraction", "omega",
        "omega_r_squared"]})
    write(folder, "head_metrics", per_head(heads, 1, "q_head") | {name: real(count) for name in [
        "q_R2_pos", "q_beta_norm", "ap_overall", "ap_profile_overall", "ap_first20", "ap_last20",
        "ap_drop"]})
    write(folder, "head_profile", per_head(heads, BUCKETS) | {
        "q_bucket": np.tile(np.arange(BUCKETS), count),
        "position": np.tile((np.arange(BUCKETS) + 0.5) * CONTEXT / BUCKETS, count),
        "ap": real(count * BUCKETS)})
    key, query = np.meshgrid(np.arange(BINS), np.arange(BINS))
    keep = key.ravel() / 2 <= query.ravel()
    cells = int(keep.sum())
    edges = lambda bins, step: np.tile((bins.ravel()[keep] + step) * CONTEXT / BINS, count)
    write(folder, "pair_heatmap", per_head(heads, cells) | {
        "key_distance_low": edges(key, 0), "key_distance_high": edges(key, 1),
        "query_distance_low": edges(query, 0), "query_distance_high": edges(query, 1),
        "ap": real(count * cells), "n_pairs": random.integers(1, 1000, count * cells)})
    write(folder, "head_component_weights", per_head(heads, DIM, "q_head") | {
        "component": np.tile(np.arange(DIM), count), "component_weight": real(count * DIM)})
    rows = count * 2 * SCATTER
    write(folder, "head_scatter", per_head(heads, 2 * SCATTER) | {
        "side": np.tile(np.repeat(["q", "k"], SCATTER), count),
        "position": random.integers(0, CONTEXT, rows)} | {
        name: random.normal(0, 3, rows) for name in ["pc0", "pc1", "a", "b", "c0", "c1"]})
    runs = [{"label": f"checkpoint-{i}", "phase": f"phase {i // 3}", "order": i, "state": "done",
             "results": f"runs/{i}", "config": {}} for i in range(options.runs)]
    (folder / "runs.json").write_text(json.dumps({"name": "a big sweep", "runs": runs}))


def measure(qkscope, folder, options):
    out = folder / "figures"
    start, before = time.time(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([qkscope, "figures", str(folder), "--out", str(out), "--quiet"], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"figures and report drawn in {time.time() - start:.1f} s ({cpu:.1f} s of CPU)")
    page = out / "report.html"
    print(f"report.html: {page.stat().st_size / 1e6:.1f} MB, "
          f"{options.runs * options.layers * options.heads} heads")
    with Browser() as browser:
        browser.open(page)  # the first page of a fresh browser also starts its processes
        loads = [browser.open(page) for _ in range(options.repeat)]
        print(f"opened in {statistics.median(loads):.2f} s (median of {options.repeat}, "
              f"{min(loads):.2f} to {max(loads):.2f})")
        sort = browser.run("""(() => {
          const start = performance.now();
          document.querySelectorAll("#head-header button")[8].click();
          return performance.now() - start;
        })()""")
        print(f"sorted in {sort:.0f} ms")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("qkscope")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--layers", type=int, default=36)
    parser.add_argument("--heads", type=int, default=16)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--keep", type=pathlib.Path, help="folder for the results, which stay")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="qkscope-report-") as temporary:
        folder = options.keep or pathlib.Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        make_results(folder, options)
        measure(options.qkscope, folder, options)


if __name__ == "__main__":
    main()
