"""Activation caches: keys, batches, decompositions of the residual stream."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import GOLDEN, some_ids, typed_calls

import qkscope
from qkscope import Array, Model

# Float32 sums in a different order; residual streams of these checkpoints are about 10.
TOLERANCE = 2e-4


@pytest.fixture(params=["gemma2", "glm4", "olmo2", "granite", "gpt2", "gpt_neox", "mllama_text", "llama_bias", "qwen3"])
def family(request: pytest.FixtureRequest) -> Model:
    """Families with post-norms, residual factors, learned positions, parallel blocks, skipped layers."""
    return qkscope.load(GOLDEN / request.param, device="cpu")


def capped(model: Model, logits: Array) -> Any:
    """Gemma 2 applies a soft cap to the summed logits."""
    cap = model.cfg.output_logits_soft_cap
    return cap * np.tanh(logits / cap) if cap else logits


@pytest.mark.parametrize(("short", "name"), [
    (("resid_post", 3), "blocks.3.hook_resid_post"),
    (("q", 0), "blocks.0.attn.hook_q"),
    (("pattern", 2, "attn"), "blocks.2.attn.hook_pattern"),
    (("attn", 2), "blocks.2.attn.hook_pattern"),
    (("attn_scores", -1), "blocks.7.attn.hook_attn_scores"),
    (("normalized", 1, "ln2"), "blocks.1.ln2.hook_normalized"),
    (("post", 4), "blocks.4.mlp.hook_post"),
    (("mlp_out", np.int64(4)), "blocks.4.hook_mlp_out"),
    ("embed", "hook_embed"),
    ("normalized", "ln_final.hook_normalized"),
    ("k6", "blocks.6.attn.hook_k"),
    ("normalized4ln1", "blocks.4.ln1.hook_normalized"),
    ("resid_pre5", "blocks.5.hook_resid_pre"),
    ("logits", "logits"),
])
def test_short_keys_name_hook_points(demo: Model, short: Any, name: str) -> None:
    cache = demo.cache([1, 2, 3])
    assert cache[short] is cache[name] and short in cache


def test_a_cache_is_a_mapping(demo: Model) -> None:
    cache = demo.cache([1, 2], "blocks.1.*")
    assert list(cache) == [name for name in demo.hook_names() if name.startswith("blocks.1.")]
    assert len(cache) == len(list(cache.values())) and dict(cache).keys() == cache.keys()
    assert cache.get("blocks.2.hook_resid_pre") is None
    key: object = ("q", 2)  # a key of another type than the names that the mapping lists
    assert key not in cache
    with pytest.raises(qkscope.InputError, match="blocks.2.attn.hook_q is not in this cache"):
        _ = cache["q", 2]
    with pytest.raises(KeyError, match="did you mean"):
        _ = cache["resid_pos", 1]


def test_batch_dimension_can_be_sliced_and_removed(demo: Model) -> None:
    ids = np.stack([some_ids(demo, 5), some_ids(demo, 5, 1), some_ids(demo, 5, 2)])
    cache = demo.cache(ids)
    alone = demo.cache(ids[1])
    assert cache.has_batch_dim and not alone.has_batch_dim
    for one in (cache.apply_slice_to_batch_dim(1), cache.apply_slice_to_batch_dim((1, 2)).remove_batch_dim(),
                demo.cache(ids[1:2], remove_batch_dim=True)):
        assert not one.has_batch_dim
        for name, array in alone.items():
            np.testing.assert_array_equal(one[name], array)
    np.testing.assert_array_equal(cache.decompose_resid(apply_ln=True)[:, 1], alone.decompose_resid(apply_ln=True))
    np.testing.assert_array_equal(cache.stack_head_results()[:, 1], alone.stack_head_results())
    stack = cache.accumulated_resid()
    by_sequence = cache.logit_attrs(stack, [3, 4, 5])
    np.testing.assert_allclose(by_sequence[:, 1], alone.logit_attrs(alone.accumulated_resid(), 4), rtol=1e-4, atol=1e-5)
    both = cache.logit_attrs(stack, ids)
    np.testing.assert_allclose(both[:, 1], alone.logit_attrs(alone.accumulated_resid(), ids[1]), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(cache.logit_attrs(stack, 4, batch_slice=1), cache.logit_attrs(stack, 4)[:, 1])
    with pytest.raises(qkscope.InputError, match="3 sequences, expected one"):
        cache.remove_batch_dim()


def test_caches_convert_to_numpy_and_back(demo: Model) -> None:
    cache = demo.cache([1, 2, 3], "blocks.0.*")
    np.testing.assert_array_equal(cache.numpy()["q", 0], cache["q", 0])
    assert cache.to("numpy") is cache


def test_contributions_sum_to_the_residual_stream(family: Model) -> None:
    """Includes families with a norm after attention and MLP."""
    ids = some_ids(family, 6)
    cache = family.cache(ids)
    layers = [i for i in range(family.cfg.n_layers) if f"blocks.{i}.hook_resid_post" in cache]
    final, first = cache["resid_post", layers[-1]], cache["resid_pre", layers[1]]
    np.testing.assert_allclose(cache.decompose_resid().sum(0), final, atol=TOLERANCE)
    np.testing.assert_allclose(cache.decompose_resid(layers[1]).sum(0), first, atol=TOLERANCE)
    for expand in (True, False):
        stack, labels = cache.get_full_resid_decomposition(expand_neurons=expand, return_labels=True)
        assert len(stack) == len(labels) == len(set(labels))
        np.testing.assert_allclose(stack.sum(0), final, atol=TOLERANCE)
    heads = cache.stack_head_results(incl_remainder=True)
    np.testing.assert_allclose(heads.sum(0), final, atol=TOLERANCE)
    neurons = cache.stack_neuron_results(-1, incl_remainder=True, pos_slice=[0, -1])
    np.testing.assert_allclose(neurons.sum(0), final[[0, -1]], atol=TOLERANCE)
    if not family.cfg.parallel_attn_mlp:
        part = cache.decompose_resid(layers[1], mlp_input=True).sum(0)
        np.testing.assert_allclose(part, cache["resid_mid", layers[1]], atol=TOLERANCE)


def test_attributions_sum_to_the_logits(family: Model) -> None:
    ids = some_ids(family, 6)
    logits, cache = family.run_with_cache(ids)
    attrs = cache.logit_attrs(cache.get_full_resid_decomposition(expand_neurons=False), ids)
    norm = family.ln_final
    added = 0.0 if norm.b is None else (norm.b @ family.W_U)[ids] * family.cfg.logit_scale
    total = capped(family, attrs.sum(0) + added)
    np.testing.assert_allclose(total, logits[np.arange(6), ids], atol=TOLERANCE)


def test_recomputed_final_norm_equals_the_logit_lens(family: Model) -> None:
    ids = some_ids(family, 6)
    logits, cache = family.run_with_cache(ids)
    lens = cache.accumulated_resid(apply_ln=True) @ family.W_U * family.cfg.logit_scale
    np.testing.assert_allclose(capped(family, lens[-1]), logits, atol=TOLERANCE)


def test_projected_neuron_results_equal_full_products(family: Model) -> None:
    """Covers apply_ln on and off, one direction and several."""
    cache = family.cache(some_ids(family, 5))
    rng = np.random.default_rng(0)
    for direction in (rng.normal(size=family.cfg.d_model), rng.normal(size=(family.cfg.d_model, 3))):
        direction = direction.astype(np.float32)
        for apply_ln in (False, True):
            whole = cache.stack_neuron_results(-1, incl_remainder=True, apply_ln=apply_ln) @ direction
            onto = cache.stack_neuron_results(-1, incl_remainder=True, project_output_onto=direction, apply_ln=apply_ln)
            np.testing.assert_allclose(onto, whole, atol=TOLERANCE)
            whole = cache.get_full_resid_decomposition(apply_ln=apply_ln) @ direction
            onto = cache.get_full_resid_decomposition(project_output_onto=direction, apply_ln=apply_ln)
            np.testing.assert_allclose(onto, whole, atol=TOLERANCE)


@pytest.mark.parametrize(
    ("call", "message"),
    typed_calls([
        (lambda c: c.decompose_resid(mode="mlps"), "expected 'all', 'attn' or 'mlp'"),
        (lambda c: c.decompose_resid(9), "layer: found 9, expected 0 to 8"),
        (lambda c: c.decompose_resid(pos_slice=7), "pos_slice: found 7, expected numbers below 3"),
        (lambda c: c.stack_neuron_results(1, neuron_slice=[500]), "neuron_slice"),
        (lambda c: c.logit_attrs(c.decompose_resid(), 4000), "expected 0 to 1023"),
        (lambda c: c.logit_attrs(c.decompose_resid(), 4, incorrect_tokens=[1, 2]), "expected the same shape"),
        (lambda c: c.logit_attrs(c.decompose_resid(), [1, 2]), r"found tokens \[2\]"),
        (lambda c: c.logit_attrs(np.zeros((3, 3)), 4), r"residual_stack: found shape \[3, 3\], expected .* 128"),
        (lambda c: c.apply_ln_to_stack(np.zeros((2, 9, 128))), r"found shape \[2, 9, 128\], expected .* \[3\] between"),
        (lambda c: c.stack_neuron_results(1, project_output_onto=np.zeros(5)), r"found shape \[5\], expected \[128\]"),
        (lambda c: c.apply_slice_to_batch_dim(0), "no batch dimension"),
        (lambda c: c.stack_neuron_results(1, project_output_onto=np.zeros((1, 2, 3))), r"expected \[128\]"),
        (lambda c: c[1, 2], "expected a name or"),
        (lambda c: c.decompose_resid(np.zeros(2)), "expected 0 to 8, or -1 or None"),
        (lambda c: c.decompose_resid(depth=3), "decompose_resid: no argument 'depth'"),
        (lambda c: c.logit_attrs(), "logit_attrs: missing a required argument"),
        (lambda c: c["q", "1"], "expected a number"),
        (lambda c: c.accumulated_resid(8, mlp_input=True), "the unembedding, expected one below it"),
    ]),
)
def test_wrong_arguments_raise_input_errors(demo: Model, call: Callable[[Any], object], message: str) -> None:
    with pytest.raises(qkscope.InputError, match=message):
        call(demo.cache([1, 2, 3]))


def test_stacks_above_the_memory_limit_are_refused(demo: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qkscope._contributions.LARGEST", 1 << 20)
    cache = demo.cache(some_ids(demo, 8))
    with pytest.raises(qkscope.InputError, match="GiB.*pos_slice"):
        cache.stack_neuron_results(-1)
    assert cache.stack_neuron_results(-1, pos_slice=-1).shape == (8 * 224, 128)


def test_missing_norms_are_refused() -> None:
    model = qkscope.load(GOLDEN / "olmo2", device="cpu")
    cache = model.cache(some_ids(model, 4))
    with pytest.raises(qkscope.InputError, match="no norm before its attention"):
        cache.decompose_resid(1, apply_ln=True)
