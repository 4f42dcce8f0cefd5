"""Makes the results of a sweep from planted captures: synth and analyze per run, tables joined.

    planted_sweep.py QKSCOPE OUT [--runs N] [--layers L] [--heads H]

The layout is that of `qkscope sweep`: the tables of all runs with model, phase and order in front,
runs.json, and every run's own results under runs/.
"""

import argparse
import json
import pathlib
import subprocess

import pyarrow as pa
import pyarrow.parquet as pq

# label, phase, drift of q and k, separation, noise: a plausible course of training.
RUNS = [
    ("S1-40K", "stage1", 0.0004, 0.0002, 1.0),
    ("S1-1.2M", "stage1", 0.0020, 0.0012, 3.0),
    ("S1-2.4M", "stage1", 0.0025, 0.0014, 3.5),
    ("S1-3.44M", "stage1", 0.0030, 0.0015, 4.0),
    ("S2-4.2M", "stage2", 0.0034, 0.0016, 4.0),
    ("S3-4.72M", "stage3", 0.0040, 0.0020, 4.5),
    ("LC1-4K", "LC 4K→32K", 0.0042, -0.0010, 5.0),
    ("LC1-20K", "LC 4K→32K", 0.0045, -0.0012, 5.0),
    ("LC2-4K", "LC 32K→64K", 0.0050, 0.0004, 5.5),
    ("LC2-20K", "LC 32K→64K", 0.0055, 0.0003, 6.0),
]


def run(*command):
    subprocess.run([str(word) for word in command], check=True)


def make_run(qkscope, out, index, options):
    label, phase, drift_q, drift_k, distance = RUNS[index]
    capture = out / "captures" / label
    results = out / "runs" / label
    run(qkscope, "synth", capture, "--layers", options.layers, "--q-heads", options.heads,
        "--k-heads", 2, "--dim", 16, "--planes", 2, "--examples", options.examples, "--context", 2048,
        "--buckets", 8, "--drift-q", drift_q, "--drift-k", drift_k, "--distance", distance,
        "--seed", index, "--quiet")
    run(qkscope, "analyze", capture, "--out", results, "--label", label, "--pairs", 5,
        "--heatmap-bins", 6, "--scatter", 48, "--planes-of", "1.0,2.3", "--quiet")
    return {"label": label, "phase": phase, "order": index, "state": "done",
            "results": f"runs/{label}", "capture": f"captures/{label}",
            "config": {"model": {"name": "planted", "dtype": "bfloat16"}}}


def join(out, runs):
    for path in sorted((out / runs[0]["results"]).glob("*.parquet")):
        tables = []
        for entry in runs:
            table = pq.read_table(out / entry["results"] / path.name)
            columns = {"model": [entry["label"]] * len(table), "phase": [entry["phase"]] * len(table),
                       "order": pa.array([entry["order"]] * len(table), pa.int64())}
            columns |= {name: table[name] for name in table.column_names if name != "model"}
            tables.append(pa.table(columns))
        pq.write_table(pa.concat_tables(tables), out / path.name)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("qkscope")
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--runs", type=int, default=len(RUNS))
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--examples", type=int, default=24)
    options = parser.parse_args()
    # With fewer runs take some from both ends, so that several phases remain.
    chosen = [round(i * (len(RUNS) - 1) / max(1, options.runs - 1)) for i in range(options.runs)]
    runs = [make_run(options.qkscope, options.out, index, options) for index in chosen]
    join(options.out, runs)
    (options.out / "runs.json").write_text(json.dumps({"name": "planted sweep", "runs": runs}))


if __name__ == "__main__":
    main()
