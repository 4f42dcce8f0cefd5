"""Tests that need torch and TransformerLens: `./run.sh test-torch`."""

import sys
from pathlib import Path

import numpy as np
import torch
from qkscope import Model

ROOT = Path(__file__).resolve().parents[3]
DEMO = ROOT / "share/demo/checkpoints/S3-4720"
GOLDEN = ROOT / "tests/golden"

sys.path.append(str(ROOT / "tests/python"))  # documentation.py

torch.set_num_threads(1)  # tiny models: more threads would only slow down a busy machine


def some_ids(model: Model, length: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, model.cfg.d_vocab, length)
