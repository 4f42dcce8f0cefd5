#!/usr/bin/env python3
"""Draws the plasticity profile of one head under the four query models and the model-free estimate.

    python tools/demo/query_models_figure.py QKSCOPE CAPTURE LAYER.HEAD OUT.svg

Needs numpy, pyarrow and matplotlib."""
import subprocess
import sys
import tempfile

import matplotlib

matplotlib.use("agg" if sys.argv[-1].endswith(".png") else "svg")
import matplotlib.pyplot as plt

from profile_steps import profiles


def main():
    qkscope, capture, head, out = sys.argv[1:]
    key = tuple(int(number) for number in head.split("."))
    plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "query_models", "font.size": 9})
    figure, axes = plt.subplots(2, 2, figsize=(8, 5), sharex=True, sharey=True, layout="constrained")
    for axis, model in zip(axes.flat, ("local", "bin", "bucket", "linear")):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([qkscope, "analyze", capture, "--out", folder, "--only", "plasticity", "--heads", head,
                            "--query-model", model, "--no-errors", "--quiet"], check=True)
            rows = profiles(folder)[key]
        centre = (rows["bin_low"] + rows["bin_high"]) / 2
        axis.plot(centre, rows["ap_free"], color="0.75", linewidth=0.8, label="ap_free")
        axis.plot(centre, rows["ap"], color="tab:red", linewidth=1.2, label="ap")
        axis.set_title(model, loc="left")
    axes[0, 0].legend(frameon=False, loc="upper right", ncols=2)
    for axis in axes[1]:
        axis.set_xlabel("query position (tokens)")
    for axis in axes[:, 0]:
        axis.set_ylabel("plasticity")
    figure.savefig(out, metadata={"Date": None})


if __name__ == "__main__":
    main()
