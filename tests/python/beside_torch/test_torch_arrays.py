"""load(arrays="torch"): calls, hooks, caches and circuits return tensors that share memory."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from conftest import DEMO, some_ids

import qkscope

TEXTS = ["The sea was calm.", "Entry 1, day 5: the old man sat by the fire.", "the"]


def test_torch_tensors_show_the_same_memory() -> None:
    model: Any = qkscope.load(DEMO, device="cpu", arrays="torch")  # results are torch tensors, not only Array
    plain = qkscope.load(DEMO, device="cpu")
    ids = some_ids(model, 6)
    logits, cache = model.run_with_cache(torch.tensor(ids))
    assert isinstance(logits, torch.Tensor) and logits.dtype == torch.float32
    np.testing.assert_array_equal(logits.numpy(), plain(ids))
    assert isinstance(model(ids, "loss"), torch.Tensor) and model(ids, "loss").ndim == 0
    assert torch.allclose(cache["ln_final.hook_normalized"] @ model.W_U, logits, atol=1e-4)
    theirs = plain.cache(ids)
    for ours, expected in (
        (cache.decompose_resid(apply_ln=True), theirs.decompose_resid(apply_ln=True)),
        (cache.stack_head_results(pos_slice=-1), theirs.stack_head_results(pos_slice=-1)),
        (cache.logit_attrs(cache.accumulated_resid(), 5), theirs.logit_attrs(theirs.accumulated_resid(), 5)),
        (model.OV.norm(), plain.OV.norm()),
        (model.all_composition_scores("K"), plain.all_composition_scores("K")),
    ):
        assert isinstance(ours, torch.Tensor)
        np.testing.assert_allclose(ours.numpy(), expected, atol=1e-4, rtol=1e-4)
    hooks: list[tuple[str, Callable[[Any], Any]]] = [("blocks.0.attn.hook_z", lambda z: z * 0)]
    np.testing.assert_array_equal(model.run_with_hooks(TEXTS, hooks).numpy(), plain.run_with_hooks(TEXTS, hooks))
    model.W_E[0] = 0  # a copy
    np.testing.assert_array_equal(model(ids).numpy(), plain(ids))


def test_caches_move() -> None:
    model = qkscope.load(DEMO, device="cpu")
    cache = model.cache([1, 2, 3], "blocks.0.*")
    before = np.array(cache["q", 0])
    for kind, expected in (("cpu", torch.Tensor), ("numpy", np.ndarray)):
        assert cache.to(kind) is cache and isinstance(cache["q", 0], expected)
        np.testing.assert_array_equal(np.asarray(cache["q", 0]), before)
