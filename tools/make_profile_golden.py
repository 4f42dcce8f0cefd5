#!/usr/bin/env python3
"""Known answers for the plasticity profile: a plain loop over bins, texts and pairs of keys in float64.

Needs numpy and scipy. Writes rows and profiles; run again only when a case is added:

    python tools/make_profile_golden.py tests/analysis/methods/profile_golden.json
"""
import json
import sys

import numpy as np
from scipy.special import ndtr

DIM, TEXTS, CONTEXT, BUCKET = 5, 6, 256, 32
CASES = [
    {"bins": 8, "linear": False, "window": None},
    {"bins": 37, "linear": False, "window": None},
    {"bins": 64, "linear": True, "window": None},
    {"bins": 50, "linear": False, "window": 70},
    {"bins": 1, "linear": False, "window": None},
]


def rows(seed, drift):
    """Sixteen rows per text; values are multiples of 2^-12, exact in float32."""
    random = np.random.default_rng(seed)
    position = np.concatenate([np.sort(random.choice(CONTEXT, 16, replace=False)) for _ in range(TEXTS)])
    noise = random.standard_normal((len(position), DIM))
    noise[:, 0] += drift * position
    noise[:, 1] += 0.5 * drift * position
    return {"position": position, "example": np.repeat(np.arange(TEXTS), 16),
            "vectors": np.round(noise * 4096) / 4096}


def rotated(q, k):
    """Queries and keys in the coordinates in which the queries' drift is the first axis, and the lines."""
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
    q_bin, k_bin = q["position"] * case["bins"] // CONTEXT, k["position"] * case["bins"] // CONTEXT
    q_bucket = q["position"] // BUCKET
    points = []
    for number in np.unique(q_bin):
        mine = q_bin == number
        t = q["position"][mine].mean()
        mean, spread = start + slope * t, variance.copy()
        if not case["linear"]:
            buckets, sizes = np.unique(q_bucket[mine], return_counts=True)
            own = q_bucket == buckets[np.argmax(sizes)]
            mean[1:], spread[1:] = qx[own].mean(0)[1:], qx[own].var(0, ddof=1)[1:]
        total, pairs = 0.0, 0
        for i in range(len(kx)):
            for j in range(i):
                if k["example"][i] != k["example"][j] or max(k_bin[i], k_bin[j]) >= number:
                    continue
                if case["window"] and min(k["position"][i], k["position"][j]) <= t - case["window"]:
                    continue
                delta = kx[i] - kx[j]
                p = ndtr(mean @ delta / np.sqrt(spread @ delta**2))
                total += 4 * p * (1 - p)
                pairs += 1
        points.append({"bin": int(number), "queries": int(mine.sum()), "pairs": pairs,
                       "ap": total / pairs if pairs else None})
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
