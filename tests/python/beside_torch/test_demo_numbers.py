"""The calls of TransformerLens' demos give the values that TransformerLens computes for the demo model."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import transformer_lens
from conftest import DEMO
from documentation import python_blocks, run_block
from test_demo_calls import PAGE, UNCHANGED, variables
from transformer_lens import head_detector, utilities
from transformer_lens import patching as lens_patching
from transformer_lens.model_bridge import TransformerBridge

import qkscope

CALLS = [call for call in UNCHANGED if "patching.get_act" not in call]  # compared in test_transformer_lens.py
TOLERANCE = 1e-3  # float32; the compared residual streams reach 249


def after_the_calls(names: dict[str, Any]) -> dict[str, Any]:
    """Runs the calls with tensors as arguments and returns all variables."""
    for name, value in names.items():
        if type(value) is np.ndarray:
            names[name] = torch.tensor(value, dtype=torch.float32 if value.dtype.kind == "f" else torch.int64)
    for call in CALLS:
        run_block(PAGE, call, names)
    return names


@pytest.fixture(scope="module")
def both() -> Any:
    ours = variables()
    run_block(PAGE, python_blocks(PAGE)[0], ours)
    lens = TransformerBridge.boot_transformers(str(DEMO), dtype=torch.float32, device="cpu")
    lens.enable_compatibility_mode()
    assert lens.cfg.default_prepend_bos == qkscope.TransformerBridge.boot_transformers(DEMO).default_prepend_bos
    lens.cfg.default_prepend_bos = True  # as HookedTransformer of TransformerLens 2 and 3
    theirs = variables()

    def ignore(activation: object, hook: object) -> None:
        pass

    def pretrained(*names: object, **options: object) -> TransformerBridge:
        return lens

    theirs.update({
        "utils": utilities, "patching": lens_patching, "detect_head": head_detector.detect_head,
        "FactoredMatrix": transformer_lens.FactoredMatrix, "keep_shape_hook": ignore,
        "HookedTransformer": SimpleNamespace(from_pretrained=pretrained),
    })
    with torch.no_grad():
        return after_the_calls(ours), after_the_calls(theirs)


def comparable(value: Any) -> np.ndarray:
    """Returns a NumPy array; eigenvalues, whose order is arbitrary, as sorted absolute values."""
    value = np.asarray(value.AB if hasattr(value, "AB") else value)
    return np.sort(np.abs(value), -1) if np.iscomplexobj(value) else value


def test_values_are_those_of_transformer_lens(both: Any) -> None:
    ours, theirs = both
    names = [name for name, value in theirs.items() if hasattr(value, "shape") and name != "head_scores"]
    assert len(names) > 35
    for name in names:
        found, expected = comparable(ours[name]), comparable(theirs[name])
        assert found.shape == expected.shape, name
        np.testing.assert_allclose(found, expected, atol=TOLERANCE, err_msg=name)


def test_head_scores_are_those_of_transformer_lens(both: Any) -> None:
    """TransformerLens rounds the scores of several texts to three digits."""
    np.testing.assert_allclose(both[0]["head_scores"], both[1]["head_scores"], atol=1.5e-3)


def test_texts_are_those_of_transformer_lens(both: Any) -> None:
    ours, theirs = both
    for name in ("str_tokens", "token_labels", "token_text", "whole_text", "labels", "layer_labels", "head_labels"):
        assert ours[name] == theirs[name], name
    assert ours["num_tokens"] == theirs["num_tokens"] and ours["correct_index"] == theirs["correct_index"]
