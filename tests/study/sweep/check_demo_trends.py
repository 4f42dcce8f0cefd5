"""check_demo_trends.py QKSCOPE: the claims of docs/start/demo.md about the ten shipped checkpoints.

Runs the demo's sweep over a third of its texts and looks at overview.csv. The bounds stand well off the numbers that
docs/start/demo.md reports for all texts, so that fewer rows do not decide a claim.
"""

import csv
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
PRETRAINED = ["S1-1200", "S1-2400", "S1-3440", "S2-4200", "S3-4720"]
EXTENDED = ["LC1-240", "LC1-1200", "LC2-240", "LC2-1200"]


def run_sweep(program, folder):
    subprocess.run(
        [program, "sweep", ROOT / "configs/demo/sweep.yaml", "--out", folder, "--set", "dataset.max_samples=32",
         "--no-figures", "--quiet"],
        check=True,
    )
    with open(folder / "demo/overview.csv", newline="", encoding="utf-8") as file:
        return {(row["model"], row["layers"]): row for row in csv.DictReader(file)}


def main():
    with tempfile.TemporaryDirectory() as folder:
        rows = run_sweep(sys.argv[1], pathlib.Path(folder))

    def value(label, layers, column):
        return float(rows[label, layers][column])

    def mean(labels, layers, column):
        return sum(value(label, layers, column) for label in labels) / len(labels)

    failed = []

    def claim(text, holds):
        print(("holds  " if holds else "FAILS  ") + text)
        if not holds:
            failed.append(text)

    claim("at step 40 position is nowhere", value("S1-40", "all", "r_q") < 0.15)
    claim("at step 40 every head is about content", value("S1-40", "all", "content_focused") > 0.95)
    for label in PRETRAINED + EXTENDED:
        claim(f"{label}: queries of RoPE layers drift", value(label, "rope", "r_q") > 0.45)
        claim(f"{label}: those of NoPE layers do not", value(label, "nope", "r_q") < 0.2)
        claim(f"{label}: at most half of the heads are about content", value(label, "all", "content_focused") < 0.5)
        claim(f"{label}: no NoPE head is dominated by position", value(label, "nope", "position_dominated") == 0)
    for column in ("r_q", "abs_r_k", "position_dominated", "pc0_variance", "ap_drop"):
        claim(f"extension raises {column} on RoPE layers",
              mean(EXTENDED, "rope", column) > mean(PRETRAINED, "rope", column))
    claim("extension lowers plasticity",
          mean(EXTENDED, "rope", "ap_profile_overall") < mean(PRETRAINED, "rope", "ap_profile_overall"))
    claim("the bias grows more than tenfold in pre-training",
          mean(PRETRAINED, "rope", "bias_strength") > 10 * value("S1-40", "rope", "bias_strength"))
    claim("the first extension halves it",
          mean(EXTENDED[:2], "rope", "bias_strength") < 0.5 * value("S3-4720", "rope", "bias_strength"))
    claim("the second lowers it again",
          mean(EXTENDED[2:], "rope", "bias_strength") < 0.85 * mean(EXTENDED[:2], "rope", "bias_strength"))
    sys.exit(f"{len(failed)} claims fail" if failed else 0)


if __name__ == "__main__":
    main()
