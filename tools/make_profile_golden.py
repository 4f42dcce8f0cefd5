#!/usr/bin/env python3
"""Writes known answers for the plasticity profile: a plain loop over bins, texts and pairs of keys in float64.

Needs numpy and scipy. Writes rows and profiles; run again only when a case is added:

    python tools/make_profile_golden.py tests/analysis/methods/profile_golden.json
"""
import json
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests/analysis/results"))
import query_models

DIM, TEXTS, CONTEXT, BUCKET = 5, 6, 256, 32
CASES = [
    {"bins": 8, "model": "local", "window": None},
    {"bins": 64, "model": "local", "window": None},
    {"bins": 50, "model": "local", "window": 70},
    {"bins": 8, "model": "local", "window": None, "covariance": "full"},
    {"bins": 1, "model": "local", "window": None},
    {"bins": 8, "model": "bin", "window": None},
    {"bins": 37, "model": "bin", "window": None, "covariance": "full"},
    {"bins": 8, "model": "bucket", "window": None},
    {"bins": 37, "model": "bucket", "window": None},
    {"bins": 50, "model": "bucket", "window": 70},
    {"bins": 8, "model": "bucket", "window": None, "covariance": "full"},
    {"bins": 64, "model": "linear", "window": None},
    {"bins": 8, "model": "linear", "window": None, "covariance": "full"},
]


def rows(seed, drift):
    """Returns sixteen rows per text; values are multiples of 2^-12, exact in float32."""
    random = np.random.default_rng(seed)
    position = np.concatenate([np.sort(random.choice(CONTEXT, 16, replace=False)) for _ in range(TEXTS)])
    noise = random.standard_normal((len(position), DIM))
    noise[:, 0] += drift * position
    noise[:, 1] += 0.5 * drift * position
    return {"position": position, "example": np.repeat(np.arange(TEXTS), 16),
            "vectors": np.round(noise * 4096) / 4096}


def rotated(q, k):
    """Returns queries and keys in coordinates whose first axis is the queries' drift, and the regression lines."""
    bucket = k["position"] // BUCKET
    sign = np.sign(np.mean([k["vectors"][bucket == b].mean(0) for b in np.unique(bucket)], axis=0))
    sign[sign == 0] = 1
    t = q["position"] - q["position"].mean()
    beta = t @ (q["vectors"] * sign) / (t @ t)
    w = np.eye(DIM)[0] - beta / np.linalg.norm(beta)
    w /= np.linalg.norm(w)
    turn = np.eye(DIM) - 2 * np.outer(w, w)
    qx, kx = q["vectors"] * sign @ turn, k["vectors"] * sign @ turn
    slope = t @ qx / (t @ t)
    start = qx.mean(0) - slope * q["position"].mean()
    variance = (qx - start - np.outer(q["position"], slope)).var(0, ddof=1)
    return qx, kx, start, slope, variance


def profile(q, k, case):
    qx, kx, start, slope, variance = rotated(q, k)
    t = q["position"].astype(float)
    q_bin, k_bin = q["position"] * case["bins"] // CONTEXT, k["position"] * case["bins"] // CONTEXT
    width = CONTEXT / case["bins"]
    bins = [{"low": b * width, "high": (b + 1) * width, "rows": np.flatnonzero(q_bin == b)} for b in np.unique(q_bin)]
    z = query_models.z_of_bins(case["model"], qx, t, q["position"] // BUCKET, bins, BUCKET, (start, slope, variance),
                               case.get("covariance") == "full")
    moved = query_models.moved_queries(qx, t, bins, BUCKET)
    points = []
    for b, number, z_of, queries in zip(bins, np.unique(q_bin), z, moved):
        values, free = [], []
        for i in range(len(kx)):
            for j in range(i):
                if k["example"][i] != k["example"][j] or max(k_bin[i], k_bin[j]) >= number:
                    continue
                if case["window"] and min(k["position"][i], k["position"][j]) <= t[b["rows"]].mean() - case["window"]:
                    continue
                delta = kx[i] - kx[j]
                values.append(query_models.plasticity(z_of(delta)) if z_of else np.nan)
                if len(b["rows"]) > 1:
                    free.append(query_models.free_plasticity(queries, delta))
        points.append({"bin": int(number), "queries": len(b["rows"]), "pairs": len(values) if z_of else 0,
                       "ap": float(np.mean(values)) if values and z_of else None,
                       "ap_free": float(np.mean(free)) if free else None})
    return points


def main():
    q, k = rows(1, 0.02), rows(2, 0.01)
    written = lambda r: {"position": r["position"].tolist(), "example": r["example"].tolist(),
                         "vectors": r["vectors"].ravel().tolist()}
    golden = {"dim": DIM, "bucket": BUCKET, "context": CONTEXT, "q": written(q), "k": written(k),
              "cases": [case | {"profile": profile(q, k, case)} for case in CASES]}
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        file.write(json.dumps(golden).replace('"k":', '\n"k":').replace('{"bins"', '\n{"bins"') + "\n")


if __name__ == "__main__":
    main()
