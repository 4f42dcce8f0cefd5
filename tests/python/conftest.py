"""Fixtures of the tests. PYTHONPATH points to the package in the build tree."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import qkscope
from qkscope import HookPoint, Model

ROOT = Path(__file__).resolve().parent.parent.parent
DEMO = ROOT / "share/demo/checkpoints/S3-4720"
GOLDEN = ROOT / "tests/golden"
FAMILIES = ("llama_gqa", "llama_bias", "mistral_window", "ministral3", "qwen2", "qwen3", "smollm3_list", "mllama_text",
            "gemma3_text", "glm", "glm4", "mistral3_fp8")


@pytest.fixture(scope="session")
def demo() -> Model:
    return qkscope.load(DEMO, device="cpu")


@pytest.fixture(params=FAMILIES)
def tiny(request: pytest.FixtureRequest) -> Model:
    """One tiny model per family."""
    return qkscope.load(GOLDEN / request.param, device="cpu")


def some_ids(model: Model, length: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, model.cfg.d_vocab, length)


FwdHook = tuple[str, Callable[[Any], Any] | Callable[[Any, HookPoint], Any]]
untyped: Any = qkscope  # for calls with wrong arguments, which type checkers would refuse


def typed_calls(cases: list[tuple[Callable[[Any], object], str]]) -> list[tuple[Callable[[Any], object], str]]:
    """Gives the parameters of lambda functions in a table of cases a type."""
    return cases


def typed_functions(functions: list[Callable[[Any], object]]) -> list[Callable[[Any], object]]:
    return functions
