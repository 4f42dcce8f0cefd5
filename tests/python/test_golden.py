"""Activations compared with stored values of transformers and TransformerLens."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import GOLDEN, ROOT
from safetensors.numpy import load_file

import qkscope
from qkscope import Array, HookPoint

TRANSFORMERS = sorted(path.parent.name for path in GOLDEN.glob("*/golden.safetensors"))
LENS = sorted((ROOT / "tests/python/transformer_lens").glob("*.safetensors"))


def assert_close(ours: Any, theirs: Any, tolerance: float, name: str) -> None:
    """Compares arrays; masked scores are -inf here, and -inf or a huge negative number in the reference."""
    hidden = theirs < -1e30
    np.testing.assert_array_equal(np.equal(ours, -np.inf), hidden, err_msg=name)
    np.testing.assert_allclose(ours[~hidden], theirs[~hidden], atol=tolerance, rtol=0, err_msg=name)


@pytest.mark.parametrize("case", TRANSFORMERS)
def test_activations_match_transformers(case: str) -> None:
    golden = load_file(GOLDEN / case / "golden.safetensors")
    rows, pattern_rows = golden.pop("rows"), golden.pop("pattern_rows")
    ids = golden.pop("token_ids")
    squares = [name for name in golden if name.endswith(("pattern", "scores"))]
    states = [name for name in golden if name.endswith("mixer.hook_state")]  # after the last position
    others = [name for name in golden if name not in squares + states]
    model = qkscope.load(GOLDEN / case, device="cpu")
    for names, positions in ((others, rows), (squares, pattern_rows), (states, [len(ids) - 1])):
        if names:
            for name, array in model.cache(ids, names, positions=positions).items():
                assert_close(array, golden[name], 2e-4, name)  # docs/explanation/numerics.md


@pytest.mark.parametrize("path", LENS, ids=lambda path: path.stem)
def test_activations_match_transformer_lens(path: Path) -> None:
    """Names and shapes are equal, values agree within 1e-4."""
    golden = load_file(path)
    model = qkscope.load(GOLDEN / path.stem, device="cpu")
    ours = model.cache(golden["token_ids"])
    # hook_normalized of TransformerLens excludes the weights of the norm, as in a model with folded norms.
    folded = qkscope.load(GOLDEN / path.stem, device="cpu", fold_ln=True).cache(golden["token_ids"])
    names = [name for name in golden if "hook_" in name or name == "logits"]
    assert len(names) > 30
    for name in names:
        array = folded[name] if name.endswith("hook_normalized") else ours[name]
        assert array.shape == golden[name].shape, name
        assert_close(array, golden[name], 1e-4, name)


@pytest.mark.parametrize("path", LENS, ids=lambda path: path.stem)
def test_edits_match_transformer_lens(path: Path) -> None:
    golden = load_file(path)
    model = qkscope.load(GOLDEN / path.stem, device="cpu")
    ids = golden["token_ids"]
    other = model.cache(golden["other_ids"])

    def ablate(z: Array, hook: HookPoint) -> None:
        z[:, 1] = 0

    def patch(residual: Array, hook: HookPoint) -> None:
        residual[3] = other[hook.name][3]

    def freeze(pattern: Array, hook: HookPoint) -> Array:
        return other[hook.name]

    plain = model(ids)
    for kind, name, function in (
        ("ablated", "blocks.1.attn.hook_z", ablate),
        ("patched", "blocks.1.hook_resid_pre", patch),
        ("frozen", "blocks.0.attn.hook_pattern", freeze),
    ):
        logits = model.run_with_hooks(ids, [(name, function)])
        assert np.abs(logits - plain).max() > 1e-3, kind
        assert_close(logits, golden[kind], 1e-4, kind)


def test_layers_with_different_heads_have_their_own_weights() -> None:
    """Gemma 4: widths and key heads differ by layer, layer 5 uses the keys of layer 3, and sums over components are refused."""
    model = qkscope.load(GOLDEN / "gemma4_text", device="cpu")
    cache = model.cache([1, 2, 3, 4])
    assert cache["blocks.0.attn.hook_rot_k"].shape == (4, 2, 8) and cache["blocks.5.attn.hook_rot_k"].shape == (4, 1, 16)
    np.testing.assert_array_equal(cache["blocks.5.attn.hook_rot_k"], cache["blocks.3.attn.hook_rot_k"])
    assert "blocks.5.attn.hook_k" not in cache and "blocks.5.hook_per_layer_out" in cache
    attn = model.blocks[1].attn
    assert attn.W_Q.shape == (4, 32, 16) and attn.W_K.shape == (1, 32, 16) and attn.W_O.shape == (4, 16, 32)
    assert attn.expanded("W_K").shape == (4, 32, 16)  # type: ignore[union-attr]
    np.testing.assert_array_equal(attn.W_K, attn.W_V)
    q = np.einsum("pm,hmd->phd", cache["blocks.1.ln1.hook_normalized"], attn.W_Q)
    np.testing.assert_allclose(cache["blocks.1.attn.hook_q"], q, atol=1e-5)
    assert "W_K of an earlier layer" in repr(model.blocks[5].attn)
    with pytest.raises(qkscope.InputError, match="uses the keys and values of an earlier layer"):
        model.blocks[5].attn.W_K
    for call in (cache.decompose_resid, cache.stack_head_results):
        with pytest.raises(qkscope.InputError, match="gemma4_text adds per-layer inputs"):
            call()
    with pytest.raises(qkscope.InputError, match="start with tokens"):
        model(cache["blocks.2.hook_resid_pre"], start_at_layer=2)


def test_layers_without_attention_have_states_and_refuse_what_needs_heads() -> None:
    """States have one row per sequence unless positions are chosen; calls that need attention name the model."""
    model = qkscope.load(GOLDEN / "olmo_hybrid", device="cpu")
    name, shape = "blocks.0.mixer.hook_state", (4, 8, 12)
    ragged = model.cache([[1, 2, 3, 4], [5, 6, 7]], name)[name]
    assert ragged.shape == (2, 1, *shape)
    chosen = model.cache([[1, 2, 3, 4], [5, 6, 7, 8]], name, positions=[1, 3])[name]
    assert chosen.shape == (2, 2, *shape)
    np.testing.assert_array_equal(ragged[0, 0], chosen[0, 1])
    cache = model.cache([1, 2, 3, 4])
    for call in (cache.decompose_resid, cache.stack_head_results, cache.get_full_resid_decomposition):
        with pytest.raises(qkscope.InputError, match="olmo_hybrid has layers without attention"):
            call()
    with pytest.raises(qkscope.InputError, match="layer 0 has no attention"):
        model.blocks[0]
