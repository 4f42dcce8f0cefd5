"""Heads and patching compared with TransformerLens on the demo model."""

from typing import Any

import numpy as np
import pytest
import torch
from conftest import DEMO, some_ids
from transformer_lens import head_detector
from transformer_lens import patching as lens_patching
from transformer_lens.model_bridge import TransformerBridge

import qkscope
from qkscope import Model, patching
from qkscope.path_patching import get_act_patch_direct_path

TOLERANCE = 2e-4  # float32 logits of both


@pytest.fixture(scope="module")
def both() -> tuple[Model, Any]:
    lens = TransformerBridge.boot_transformers(str(DEMO), dtype=torch.float32, device="cpu")
    lens.eval()
    return qkscope.load(DEMO, device="cpu"), lens


@pytest.fixture(scope="module")
def runs(both: tuple[Model, Any]) -> Any:
    """Clean and corrupted tokens, a metric for each library, and the cache of TransformerLens."""
    model, lens = both
    clean = some_ids(model, 6)
    corrupted = clean.copy()
    corrupted[[1, 4]] = (corrupted[[1, 4]] + 9) % model.cfg.d_vocab
    _, cache = lens.run_with_cache(torch.tensor(clean)[None])
    return clean, corrupted, cache


def metric(logits: Any) -> Any:
    return logits[0, -1, 3] - logits[0, -1, 7]


SWEEPS = ("resid_pre", "resid_mid", "attn_out", "mlp_out", "attn_head_out_by_pos", "attn_head_q_by_pos",
          "attn_head_k_by_pos", "attn_head_v_by_pos", "attn_head_pattern_by_pos", "attn_head_out_all_pos",
          "attn_head_q_all_pos", "attn_head_k_all_pos", "attn_head_v_all_pos", "attn_head_pattern_all_pos")


@pytest.mark.parametrize("name", SWEEPS)
def test_sweeps(both: tuple[Model, Any], runs: Any, name: str) -> None:
    model, lens = both
    clean, corrupted, cache = runs
    with torch.no_grad():
        expected = getattr(lens_patching, f"get_act_patch_{name}")(lens, torch.tensor(corrupted)[None], cache, metric)
    found = getattr(patching, f"get_act_patch_{name}")(model, corrupted[None], clean[None], metric)
    np.testing.assert_allclose(found, expected.numpy(), atol=TOLERANCE)


def test_direct_paths(both: tuple[Model, Any], runs: Any) -> None:
    model, lens = both
    clean, corrupted, cache = runs
    _, ours = lens.run_with_cache(torch.tensor(corrupted)[None])
    with torch.no_grad():
        expected = lens_patching.get_act_patch_direct_path(
            lens, torch.tensor(corrupted)[None], cache, ours, metric, 4, 3, verbose=False).numpy()
    found = get_act_patch_direct_path(model, corrupted[None], clean[None], None, metric, 4, 3)
    np.testing.assert_allclose(found[5:], expected[5:], atol=TOLERANCE)


@pytest.mark.parametrize("pattern", head_detector.HEAD_NAMES)
@pytest.mark.parametrize("measure", ["mul", "abs"])
def test_head_detector(both: tuple[Model, Any], pattern: Any, measure: str) -> None:
    model, lens = both
    detect: Any = head_detector.detect_head
    once = some_ids(model, 20)
    ids = np.concatenate([once, once])
    _, cache = lens.run_with_cache(torch.tensor(ids)[None], remove_batch_dim=True)

    def to_tokens(text: str) -> torch.Tensor:
        return torch.tensor(ids)[None]

    lens.to_tokens = to_tokens
    expected = detect(lens, "text", pattern, cache=cache, error_measure=measure)
    found = qkscope.detect_head(model, ids, pattern, error_measure=measure)
    np.testing.assert_allclose(found, expected.numpy(), atol=1e-5 if measure == "mul" else 1.001e-3)
