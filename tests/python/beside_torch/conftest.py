"""What needs torch and TransformerLens: `./run.sh test-torch`."""

from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[3]
DEMO = ROOT / "share/demo/checkpoints/S3-4720"
GOLDEN = ROOT / "tests/golden"


def some_ids(model, length, seed=0):
    return np.random.default_rng(seed).integers(0, model.cfg.d_vocab, length)
