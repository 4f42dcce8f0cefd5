"""Batched patching, compared with single patches by hooks."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import GOLDEN, some_ids, untyped

import qkscope
from qkscope import Array, HookPoint, Model
from qkscope import patching
from qkscope._reruns import hooks_by_layer
from qkscope.path_patching import get_act_patch_direct_path

SWEEPS = {
    "resid_pre": (patching.get_act_patch_resid_pre, "layer pos"),
    "resid_mid": (patching.get_act_patch_resid_mid, "layer pos"),
    "attn_out": (patching.get_act_patch_attn_out, "layer pos"),
    "mlp_out": (patching.get_act_patch_mlp_out, "layer pos"),
    "z by_pos": (patching.get_act_patch_attn_head_out_by_pos, "layer pos head"),
    "q by_pos": (patching.get_act_patch_attn_head_q_by_pos, "layer pos head"),
    "k by_pos": (patching.get_act_patch_attn_head_k_by_pos, "layer pos head"),
    "v by_pos": (patching.get_act_patch_attn_head_v_by_pos, "layer pos head"),
    "pattern by_pos": (patching.get_act_patch_attn_head_pattern_by_pos, "layer head query"),
    "pattern dest_src": (patching.get_act_patch_attn_head_pattern_dest_src_pos, "layer head query key"),
    "z": (patching.get_act_patch_attn_head_out_all_pos, "layer head"),
    "q": (patching.get_act_patch_attn_head_q_all_pos, "layer head"),
    "k": (patching.get_act_patch_attn_head_k_all_pos, "layer head"),
    "v": (patching.get_act_patch_attn_head_v_all_pos, "layer head"),
    "pattern": (patching.get_act_patch_attn_head_pattern_all_pos, "layer head"),
}
Pair = tuple[Model, np.ndarray, np.ndarray]


@pytest.fixture(scope="module")
def pair() -> Pair:
    """A tiny model and two texts that differ in two tokens."""
    model = qkscope.load(GOLDEN / "llama_gqa", device="cpu")
    clean = some_ids(model, 6)
    corrupted = clean.copy()
    corrupted[[1, 3]] = (corrupted[[1, 3]] + 5) % model.cfg.d_vocab
    return model, clean, corrupted


def metric(logits: Array) -> Array:
    return logits[-1, 3] - logits[-1, 7]


def by_hand(model: Model, clean: np.ndarray, corrupted: np.ndarray, name: str, put: Any) -> Any:
    """Returns the metric of a single patch."""
    cache = model.cache(clean, name)

    def patch(activation: Array, hook: HookPoint) -> None:
        put(activation, cache[name])

    return metric(model.run_with_hooks(corrupted, [(name, patch)]))


@pytest.mark.parametrize("case", SWEEPS)
def test_batched_patches_equal_single_patches(pair: Pair, case: str) -> None:
    model, clean, corrupted = pair
    sweep, axes = SWEEPS[case]
    found = sweep(model, corrupted, clean, metric)
    assert found.dtype == np.float64 and found.ndim == len(axes.split())
    activation = case.split()[0]
    name = hooks_by_layer(model, activation)[1]
    for index in [tuple(0 if i else 1 for i in range(0, found.ndim)), (1, *(n - 1 for n in found.shape[1:]))]:
        index = (1, *index[1:])
        place = {
            "layer pos": index[1:], "layer pos head": index[1:], "layer head": (slice(None), index[1]),
            "layer head query": index[1:], "layer head query key": index[1:],
        }[axes]
        if activation == "pattern" and axes == "layer head":
            place = (index[1],)

        def put(array: Array, clean_array: Any, place: Any = place) -> None:
            array[place] = clean_array[place]

        assert found[index] == by_hand(model, clean, corrupted, name, put)


# Parallel blocks, post-norms, skipped cross-attention layers, sliding windows, experts, recurrent mixers.
@pytest.mark.parametrize("family", [
    "gpt_neox", "gemma2", "mllama_text", "mistral_window", "qwen3_moe", "falcon_h1", "nemotron_h", "qwen3_next"])
def test_patches_equal_whole_runs_at_every_position(family: str) -> None:
    """Rows that a patch cannot reach are not computed again; no bit of any logit differs from that of a whole run."""
    model = qkscope.load(GOLDEN / family, device="cpu")
    clean = np.stack([some_ids(model, 6), some_ids(model, 6)])
    clean[1] = (clean[1] + 1) % model.cfg.d_vocab
    corrupted = clean.copy()
    corrupted[:, [2, 4]] = (corrupted[:, [2, 4]] + 5) % model.cfg.d_vocab
    for activation in ("resid_pre", "mlp_out"):
        found: list[Any] = []

        def keep_logits(logits: Any, found: list[Any] = found) -> float:
            found.append(np.array(logits))
            return 0.0

        getattr(patching, f"get_act_patch_{activation}")(model, corrupted, clean, keep_logits)
        names = hooks_by_layer(model, activation)
        cache = model.cache(clean, list(names.values()))
        patches = [(name, position) for name in names.values() for position in range(6)]
        for logits, (name, position) in zip(found, patches, strict=True):

            def patch(array: Array, hook: HookPoint, position: int = position) -> None:
                array[:, position] = cache[hook.name][:, position]

            np.testing.assert_array_equal(logits, model.run_with_hooks(corrupted, [(name, patch)]))


@pytest.mark.parametrize("family", ["falcon_h1", "granitemoehybrid", "lfm2", "nemotron_h", "qwen3_next"])
def test_path_patching_refuses_mixers_that_it_cannot_freeze(family: str) -> None:
    model = qkscope.load(GOLDEN / family, device="cpu")
    clean, corrupted = some_ids(model, 6), (some_ids(model, 6) + 1) % model.cfg.d_vocab
    message = f"{family}.* has layers without attention, or with another mixer"
    with pytest.raises(qkscope.InputError, match=message):
        qkscope.path_patch(model, corrupted, clean, metric, "logits")
    with pytest.raises(qkscope.InputError, match=message):
        get_act_patch_direct_path(model, corrupted, clean, None, metric, 0, 0)


def test_functions_of_add_hook_see_whole_texts_in_every_patch(pair: Pair) -> None:
    model, clean, corrupted = (pair[0], pair[1][None], pair[2][None])
    cache = model.cache(clean, "*hook_resid_pre")
    shapes: set[tuple[int, ...]] = set()

    def silence(z: Array, hook: HookPoint) -> None:
        shapes.add(z.shape[1:])
        z[:, 2:5, 0] = 0

    def patch(residual: Array, hook: HookPoint) -> None:
        residual[:, 1] = cache[hook.name][:, 1]

    with model.hooks([("blocks.0.attn.hook_z", silence)]):
        found = patching.get_act_patch_resid_pre(model, corrupted, cache, lambda logits: metric(logits[0]))
        expected = metric(model.run_with_hooks(corrupted, [("blocks.0.hook_resid_pre", patch)])[0])
        paths = qkscope.path_patch(model, corrupted, clean, lambda logits: metric(logits[0]), "logits")
    assert found[0, 1] == expected and shapes == {(6, model.cfg.n_heads, model.cfg.d_head)}
    without = patching.get_act_patch_resid_pre(model, corrupted, cache, lambda logits: metric(logits[0]))
    assert without[0, 1] != expected and not np.isnan(paths).any()


def test_batch_size_changes_no_bit(pair: Pair) -> None:
    model, clean, corrupted = pair
    cache = model.cache(clean, "*hook_z")
    whole = patching.get_act_patch_attn_head_out_all_pos(model, corrupted, cache, metric)
    choices: tuple[dict[str, Any], ...] = ({"batch_size": 1}, {"batch_size": 3}, {"progress": True})
    for options in choices:
        other = untyped.patching.get_act_patch_attn_head_out_all_pos(model, corrupted, cache, metric, **options)
        np.testing.assert_array_equal(whole, other)
    last = patching.get_act_patch_attn_head_out_all_pos(model, corrupted, cache, metric, positions=-1)
    np.testing.assert_array_equal(whole, last)
    both = patching.get_act_patch_attn_head_out_all_pos(
        model, np.stack([corrupted, corrupted]), np.stack([clean, clean]), lambda logits: metric(logits[1]))
    np.testing.assert_array_equal(whole, both)


def test_index_tables_select_patches(pair: Pair) -> None:
    model, clean, corrupted = pair
    whole = patching.get_act_patch_attn_head_out_by_pos(model, corrupted, clean, metric)
    rows = [(1, 2, 3), (0, 5, 1)]
    found, index = patching.get_act_patch_attn_head_out_by_pos(
        model, corrupted, clean, metric, index_df=rows, return_index_df=True)
    np.testing.assert_array_equal(found, [whole[row] for row in rows])
    np.testing.assert_array_equal(index, rows)


def test_every_functions_stack_single_results(pair: Pair) -> None:
    model, clean, corrupted = pair
    heads = patching.get_act_patch_attn_head_all_pos_every(model, corrupted, clean, metric)
    assert heads.shape == (5, model.cfg.n_layers, model.cfg.n_heads)
    keys = patching.get_act_patch_attn_head_k_all_pos(model, corrupted, clean, metric)
    np.testing.assert_array_equal(heads[2, :, : model.cfg.n_key_value_heads], keys)
    assert np.isnan(heads[2:4, :, model.cfg.n_key_value_heads :]).all() and not np.isnan(heads[[0, 1, 4]]).any()
    by_pos = patching.get_act_patch_attn_head_by_pos_every(model, corrupted, clean, metric)
    pattern = patching.get_act_patch_attn_head_pattern_by_pos(model, corrupted, clean, metric)
    np.testing.assert_array_equal(by_pos[4], pattern.transpose(0, 2, 1))
    blocks = patching.get_act_patch_block_every(model, corrupted, clean, metric)
    np.testing.assert_array_equal(blocks[0], patching.get_act_patch_resid_pre(model, corrupted, clean, metric))


def test_patching_the_whole_stream_restores_the_clean_run(pair: Pair) -> None:
    """The residual stream before a layer determines the output."""
    model, clean, corrupted = pair

    def everything(activation: Array, index: Any, clean_activation: Any) -> bool:
        return clean_activation

    found = patching.generic_activation_patch(
        model, corrupted, clean, metric, everything, "resid_pre", index_axis_names=("layer",))
    assert found == pytest.approx(np.full(model.cfg.n_layers, metric(model(clean))), abs=1e-5)


def with_setter(model: Model, clean: np.ndarray, corrupted: np.ndarray, answer: Any) -> Any:
    return patching.generic_activation_patch(
        model, corrupted, clean, metric, lambda activation, index, clean_activation: answer, "z", ("layer",))


def test_patching_functions_have_names_and_documentation() -> None:
    names = [name for name in dir(patching) if name.startswith("get_act_patch_")]
    assert len(names) == 18 and [getattr(patching, name).__name__ for name in names] == names


def identity(logits: Array) -> Array:
    return logits


def two_numbers(logits: object) -> str:
    return "1 2"


WRONG: list[tuple[Callable[[Any, Any, Any], object], str]] = [
    (lambda m, a, b: untyped.patching.get_act_patch_resid_pre(m, b, {}, metric), "there is no blocks.0.hook_resid_pre"),
    (lambda m, a, b: untyped.patching.get_act_patch_resid_pre(m, b, a[:3], metric), r"is of tokens \[1, 3\]"),
    (lambda m, a, b: untyped.patching.generic_activation_patch(m, b, a, metric, print, "zz", ("layer",)), "has none of"),
    (lambda m, a, b: untyped.patching.generic_activation_patch(m, b, a, metric, print, "z", ("layer", "x")), "found 'x'"),
    (lambda m, a, b: untyped.patching.generic_activation_patch(m, b, a, metric, print, "z"), "expected one of the two"),
    (lambda m, a, b: untyped.patching.get_act_patch_resid_pre(m, b, a, 3), "metric: found 3, expected a function"),
    (lambda m, a, b: untyped.patching.get_act_patch_resid_pre(m, b, a, identity), "metric: it gave shape .* a number"),
    (lambda m, a, b: untyped.patching.get_act_patch_resid_pre("m", b, a, metric), "model: found str"),
    (lambda m, a, b: untyped.path_patch(m, b, a, two_numbers, "logits"), "metric: it gave '1 2'"),
    (lambda m, a, b: untyped.patching.get_act_patch_resid_pre(m, b, None, metric), "expected a text, integers"),
    (lambda m, a, b: untyped.patching.get_act_patch_resid_pre(m, b, a, metric, index_df=[[1, 99]]), r"index \[1, 99\]"),
    (lambda m, a, b: untyped.patching.get_act_patch_resid_pre(m, b, a, metric, index_df="x"), "expected rows of whole"),
    (lambda m, a, b: untyped.patching.get_act_patch_resid_pre(m, b, a, metric, batch_size="x"), "batch_size='x'"),
    (lambda m, a, b: untyped.patching.get_act_patch_resid_pre(m, b, a, metric, batch=3), "did you mean 'batch_size'"),
    (lambda m, a, b: untyped.patching.get_act_patch_resid_pre(m, b), "get_act_patch_resid_pre: missing .*'clean_cache'"),
    (lambda m, a, b: untyped.patching.generic_activation_patch(m, b, a, metric, 5, "z", ("layer",)), "patch_setter: found 5"),
    (lambda m, a, b: with_setter(m, a, b, "x"), r"patch_setter: it gave 'x', expected the activation, of shape \[1, "),
    (lambda m, a, b: with_setter(m, a, b, "3"), "patch_setter: it gave '3'"),
    (lambda m, a, b: with_setter(m, a, b, np.zeros(3)), r"patch_setter: it gave shape \[3\]"),
    (lambda m, a, b: untyped.logit_lens(m, None), "expected a text, integers"),
    (lambda m, a, b: untyped.logit_lens(m, a, targets=1.5), "targets: found 1.5, expected token ids"),
    (lambda m, a, b: untyped.path_patch(m, b, a, metric, "logit"), "receivers='logit'"),
    (lambda m, a, b: untyped.path_patch(m, b, a, metric, [(9, 0)]), "no q of layer 9"),
    (lambda m, a, b: untyped.path_patch(m, b, a, metric, [(1, 0)], "z"), "component='z'"),
]


@pytest.mark.parametrize(("call", "message"), WRONG)
def test_wrong_arguments_raise_input_errors(pair: Pair, call: Callable[..., object], message: str) -> None:
    with pytest.raises(qkscope.Error, match=message):
        call(*pair)


def test_metrics_that_need_an_array_get_one(pair: Pair) -> None:
    model, clean, corrupted = pair

    untyped_metric: Any = metric

    def needs_array(logits: Any) -> Any:
        if not isinstance(logits, np.ndarray):
            raise TypeError("expected np.ndarray")
        return untyped_metric(logits)

    found = patching.get_act_patch_resid_pre(model, corrupted, clean, needs_array)
    np.testing.assert_array_equal(found, patching.get_act_patch_resid_pre(model, corrupted, clean, metric))


# Path patching


def test_last_layer_path_equals_activation_patching(pair: Pair) -> None:
    """From the last layer the only path leads through its MLP, as in activation patching."""
    model, clean, corrupted = pair
    paths = qkscope.path_patch(model, corrupted, clean, metric, "logits")
    patches = patching.get_act_patch_attn_head_out_all_pos(model, corrupted, clean, metric)
    np.testing.assert_array_equal(paths[-1], patches[-1])
    assert not np.isnan(paths).any() and (paths[0] != patches[0]).any()


def edge_by_hand(model: Model, clean: np.ndarray, corrupted: np.ndarray, sender: tuple[int, int], receiver: tuple[int, int],
                 component: str) -> Array:
    """The direct path in NumPy: adds the change of the sender to the residual stream, normalises and projects it."""
    (source, head), (layer, to) = sender, receiver
    names = [f"blocks.{source}.attn.hook_z", f"blocks.{layer}.hook_resid_pre"]
    ours, theirs = (model.cache(tokens, names) for tokens in (corrupted, clean))
    change = (theirs[names[0]][:, head] - ours[names[0]][:, head]) @ model.blocks[source].attn.W_O[head]
    residual = ours[names[1]] + change
    scale = np.sqrt((residual**2).mean(-1, keepdims=True) + model.cfg.eps)
    block = model.blocks[layer]
    vector = (residual / scale * block.ln1.w) @ getattr(block.attn, f"W_{component.upper()}")[to]

    def put(activation: Array, hook: HookPoint) -> None:
        activation[:, to] = vector

    return metric(model.run_with_hooks(corrupted, [(f"blocks.{layer}.attn.hook_{component}", put)]))


@pytest.mark.parametrize("component", ["q", "k", "v"])
def test_direct_paths_match_numpy(pair: Pair, component: str) -> None:
    model, clean, corrupted = pair
    found = get_act_patch_direct_path(model, corrupted, clean, None, metric, 0, 2, component)
    assert np.isnan(found[0]).all()
    for head in range(found.shape[1]):
        expected = edge_by_hand(model, clean, corrupted, (0, 2), (1, head), component)
        assert found[1, head] == pytest.approx(expected, abs=1e-5)
        one = qkscope.path_patch(
            model, corrupted, clean, metric, [(1, head)], component, senders=[(0, 2)], freeze_mlps=True)
        assert one[0, 2] == found[1, head] and np.isnan(one).sum() == one.size - 1


@pytest.mark.parametrize("freeze_mlps", [False, True])
@pytest.mark.parametrize("receivers", ["logits", [(1, 2), (1, 0)]])
def test_paths_equal_whole_runs_with_frozen_heads(pair: Pair, receivers: Any, freeze_mlps: bool) -> None:
    """Bit-identical to two passes with hooks, the first of which freezes every head of the base run."""
    model, clean, corrupted = pair
    names = ["*hook_z", "*hook_mlp_out"]
    base, source = (model.cache(tokens, names) for tokens in (corrupted, clean))
    found = qkscope.path_patch(model, corrupted, clean, metric, receivers, freeze_mlps=freeze_mlps)
    for layer, head in [(0, 1), (0, 3)]:
        seen: dict[str, Array] = {}

        def freeze(array: Array, hook: HookPoint, layer: int = layer, head: int = head) -> None:
            array[...] = base[hook.name]
            if hook.name == f"blocks.{layer}.attn.hook_z":
                array[:, head] = source[hook.name][:, head]

        def keep(array: Array, hook: HookPoint, seen: dict[str, Array] = seen) -> None:
            seen["q"] = array

        def put(array: Array, hook: HookPoint, seen: dict[str, Array] = seen) -> None:
            array[:, [0, 2]] = seen["q"][:, [0, 2]]

        last = 1 if receivers == "logits" else 0
        hooks: list[tuple[str, Any]] = [(name, freeze) for name in base if "hook_z" in name or freeze_mlps
                                        if int(name.split(".")[1]) <= last]
        if receivers != "logits":
            hooks.append(("blocks.1.attn.hook_q", keep))
        logits = model.run_with_hooks(corrupted, hooks)
        if receivers != "logits":
            logits = model.run_with_hooks(corrupted, [("blocks.1.attn.hook_q", put)])
        assert found[layer, head] == metric(logits)


def test_paths_lead_through_mlps_to_several_receivers(demo: Model) -> None:
    ids = some_ids(demo, 12)
    other = ids.copy()
    other[4] = (other[4] + 1) % demo.cfg.d_vocab
    options: dict[str, Any] = {"batch_size": 5, "positions": -1}
    both = qkscope.path_patch(demo, other, ids, metric, [(3, 1), (4, 0)], "v", **options)
    assert np.isnan(both[4:]).all() and not np.isnan(both[:4]).any()
    frozen = qkscope.path_patch(demo, other, ids, metric, [(3, 1), (4, 0)], "v", freeze_mlps=True, **options)
    assert (both[:3] != frozen[:3]).any()
    np.testing.assert_array_equal(
        both, qkscope.path_patch(demo, other, ids, metric, "3.1,4.0", "v", batch_size=1, positions=-1))
