"""Fixtures of the tests. PYTHONPATH points to the package in the build tree."""

from pathlib import Path

import numpy as np
import pytest

import qkscope

ROOT = Path(__file__).resolve().parent.parent.parent
DEMO = ROOT / "share/demo/checkpoints/S3-4720"
GOLDEN = ROOT / "tests/golden"
FAMILIES = ("llama_gqa", "llama_bias", "mistral_window", "ministral3", "qwen2", "qwen3", "smollm3_list", "mllama_text",
            "gemma3_text", "glm", "glm4", "mistral3_fp8")


@pytest.fixture(scope="session")
def demo():
    return qkscope.load(DEMO, device="cpu")


@pytest.fixture(params=FAMILIES)
def tiny(request):
    """One tiny model per family."""
    return qkscope.load(GOLDEN / request.param, device="cpu")


def some_ids(model, length, seed=0):
    return np.random.default_rng(seed).integers(0, model.cfg.d_vocab, length)
