"""Calls of a model: losses, batches of texts of any length, persistent hooks, passes over some layers."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import DEMO, some_ids, typed_calls, untyped

import qkscope
from qkscope import Array, HookPoint, Model

TEXTS = ["The sea was calm.", "Entry 1, day 5: the old man sat by the fire.", "the"]


def same_bits(a: object, b: object) -> bool:
    return np.asarray(a).tobytes() == np.asarray(b).tobytes()


def log_softmax(logits: Any) -> np.ndarray:
    logits = np.asarray(logits, np.float64)
    return logits - np.log(np.exp(logits - logits.max(-1, keepdims=True)).sum(-1, keepdims=True)) - logits.max(
        -1, keepdims=True)


# Losses


def test_loss_is_the_cross_entropy_of_the_next_token(demo: Model) -> None:
    ids = some_ids(demo, 9)
    expected = -log_softmax(demo(ids))[np.arange(8), ids[1:]]
    each = demo(ids, return_type="loss", loss_per_token=True)
    assert each.shape == (8,) and each.dtype == np.float32
    np.testing.assert_allclose(each, expected, rtol=1e-5)
    np.testing.assert_allclose(demo(ids, "loss"), expected.mean(), rtol=1e-6)
    logits, loss = demo(ids, "both")
    assert same_bits(logits, demo(ids)) and loss == demo(ids, "loss")
    assert demo(ids, return_type=None) is None


@pytest.mark.parametrize("side", ["right", "left"])
def test_mean_loss_weighs_all_tokens_equally(demo: Model, side: str) -> None:
    alone = [demo(text, "loss", loss_per_token=True) for text in TEXTS]
    together = demo(TEXTS, "loss", loss_per_token=True, padding_side=side)
    for row, own in zip(together, alone):
        np.testing.assert_array_equal(row[~np.isnan(row)], own)
    np.testing.assert_allclose(demo(TEXTS, "loss", padding_side=side), np.concatenate(alone).mean(), rtol=1e-6)


# Texts of different lengths


@pytest.mark.parametrize("side", ["right", "left"])
def test_each_sequence_of_a_batch_has_the_bits_it_has_alone(tiny: Model, side: str) -> None:
    sequences = [some_ids(tiny, length, length) for length in (5, 12, 1)]
    together = tiny.cache(sequences, padding_side=side)
    for row, ids in enumerate(sequences):
        place = slice(0, len(ids)) if side == "right" else slice(12 - len(ids), 12)
        for name, array in tiny.cache(ids).items():
            padded = together[name][row]
            if name.endswith(("pattern", "scores")):
                assert same_bits(padded[:, place, place], array), name
                hidden = np.delete(padded[:, place], np.arange(12)[place], axis=2)
                assert (hidden == (0 if name.endswith("pattern") else -np.inf)).all(), name
                outside = np.delete(padded, np.arange(12)[place], axis=1)
            else:
                assert same_bits(padded[place], array), name
                outside = np.delete(padded, np.arange(12)[place], axis=0)
            assert np.isnan(outside).all(), name


def test_padding_of_ids_is_ignored(demo: Model) -> None:
    for side in ("right", "left"):
        ids = demo.to_tokens(TEXTS, padding_side=side)
        assert ids.shape == (3, 19) and (ids == -1).sum() == 11 + 17
        np.testing.assert_array_equal(demo(ids), demo(TEXTS, padding_side=side))
        assert demo.to_string(ids) == TEXTS
        assert demo.to_str_tokens(ids) == demo.to_str_tokens(TEXTS)


def test_positions_are_relative_to_each_text(demo: Model) -> None:
    logits = demo(TEXTS, positions=-1)
    assert logits.shape == (3, 1, 1024)
    for row, text in enumerate(TEXTS):
        assert same_bits(logits[row], demo(text, positions=-1))
    cache = demo.cache(TEXTS[:2], ["blocks.1.*"], positions=slice(-3, None), padding_side="left")
    alone = demo.cache(TEXTS[0], ["blocks.1.*"], positions=slice(-3, None))
    for name, array in alone.items():
        if name.endswith(("pattern", "scores")):
            assert same_bits(cache[name][0][..., 11:], array), name
        else:
            assert same_bits(cache[name][0], array), name
    whole = demo.cache(TEXTS, "blocks.1.hook_resid_pre", positions=slice(1, None))["resid_pre", 1]
    assert whole.shape == (3, 18, 128) and np.isnan(whole[2, 1:]).all()


@pytest.mark.parametrize("side", ["right", "left"])
def test_hooks_edit_sequences_of_different_lengths(tiny: Model, side: str) -> None:
    sequences = [some_ids(tiny, length, length) for length in (4, 9)]
    batched: list[bool] = []

    def ablate(z: Array, hook: HookPoint) -> None:
        batched.append(z.ndim == 4)
        z[..., 0, :] = 0

    def soften(pattern: Array, hook: HookPoint) -> Array:
        return pattern * np.float32(0.5)

    hooks = [("blocks.0.attn.hook_z", ablate), ("blocks.1.attn.hook_pattern", soften)]
    hooks = hooks if "blocks.1.attn.hook_pattern" in tiny.hook_names() else hooks[:1]
    together = tiny.run_with_hooks(sequences, hooks, padding_side=side)
    for row, ids in enumerate(sequences):
        place = slice(0, len(ids)) if side == "right" else slice(9 - len(ids), 9)
        assert same_bits(together[row, place], tiny.run_with_hooks(ids, hooks))
    assert batched == [True, False, False]


# Persistent hooks


def zero(activation: Array, hook: HookPoint) -> None:
    activation[...] = 0


def test_added_hooks_stay_until_they_are_reset(demo: Model) -> None:
    ids = some_ids(demo, 6)
    plain = demo(ids)
    edited = demo.run_with_hooks(ids, [("blocks.0.attn.hook_z", zero)])
    demo.add_hook("blocks.0.attn.hook_z", zero)
    try:
        assert same_bits(demo(ids), edited) and not same_bits(edited, plain)
        logits, cache = demo.run_with_cache(ids, ["blocks.0.attn.hook_z", "blocks.2.*"])
        assert (cache["z", 0] == 0).all() and same_bits(logits, edited)
        demo.add_hook("blocks.3.attn.hook_z", zero, is_permanent=True)
        demo.reset_hooks()
        assert same_bits(demo(ids), demo.run_with_hooks(ids, []))
        assert not same_bits(demo(ids), plain)
    finally:
        demo.reset_hooks(including_permanent=True)
    assert same_bits(demo(ids), plain)


def test_hooks_of_a_with_block_end_with_the_block(demo: Model) -> None:
    ids = some_ids(demo, 6)
    plain = demo(ids)
    with demo.hooks([("blocks.*.hook_mlp_out", zero)]) as model:
        assert model is demo and not same_bits(demo(ids), plain)
    assert same_bits(demo(ids), plain)
    with pytest.raises(KeyError), demo.hooks([("blocks.0.hook_mlp_out", zero)]):
        raise KeyError("mine")
    assert same_bits(demo(ids), plain)


@pytest.mark.parametrize("positions", [-1, [0, 3], slice(2, None)])
def test_hooks_see_all_queries_while_positions_are_cached(demo: Model, positions: Any) -> None:
    """A hook on patterns sees all queries and keys, even if only some positions are cached."""
    ids = np.stack([some_ids(demo, 6), some_ids(demo, 6, 1)])
    seen: list[tuple[int, ...]] = []

    def half(pattern: Array, hook: HookPoint) -> Array:
        seen.append(pattern.shape)
        return pattern * np.float32(0.5)

    names = ["blocks.0.attn.hook_pattern", "blocks.1.attn.hook_z", "logits"]
    with demo.hooks([("blocks.0.attn.hook_pattern", half)]):
        whole = demo.cache(ids, names)
        chosen = demo.cache(ids, names, positions=positions)
    assert seen == [(2, 8, 6, 6)] * 2
    places = np.atleast_1d(np.arange(6)[positions])
    for name, array in chosen.items():
        np.testing.assert_array_equal(array, np.take(whole[name], places, 2 if name.endswith("pattern") else 1))


# Passes that start or stop at a layer


def test_a_pass_in_two_parts_has_the_bits_of_one_pass(tiny: Model) -> None:
    ids = np.stack([some_ids(tiny, 7), some_ids(tiny, 7, 1)])
    middle = tiny(ids, stop_at_layer=1)
    np.testing.assert_array_equal(middle, tiny.cache(ids, "blocks.0.hook_resid_post")["resid_post", 0])
    assert same_bits(tiny(middle, start_at_layer=1), tiny(ids))
    assert same_bits(tiny(middle[0], start_at_layer=1), tiny(ids[0]))
    cache = tiny.cache(middle, start_at_layer=1)
    assert not any(name.startswith(("blocks.0.", "hook_")) for name in cache)
    assert same_bits(cache["logits"], tiny(ids))


def test_residuals_start_and_stop_at_the_ends(demo: Model) -> None:
    ids = some_ids(demo, 5)
    whole = demo.cache(ids)
    assert same_bits(demo(ids, stop_at_layer=0), whole["resid_pre", 0])
    assert same_bits(demo(ids, stop_at_layer=8), whole["resid_post", 7])
    assert same_bits(demo(ids, stop_at_layer=-1), whole["resid_pre", 7])
    assert same_bits(demo(whole["resid_post", 7], start_at_layer=8), whole["logits"])
    out, cache = demo.run_with_cache(ids, stop_at_layer=2)
    assert same_bits(out, whole["resid_post", 1]) and list(cache)[-1] == "blocks.1.hook_resid_post"
    edited = demo.run_with_hooks(whole["resid_pre", 4], [("blocks.2.attn.hook_z", zero)], start_at_layer=4)
    assert same_bits(edited, whole["logits"])  # hooks before the start do not fire


# Caches


def test_run_with_cache_returns_a_pair_as_transformer_lens_does(demo: Model) -> None:
    ids, names = some_ids(demo, 5), ["blocks.0.attn.hook_q", "blocks.0.attn.hook_k"]
    logits, cache = demo.run_with_cache(ids, names_filter=names)
    assert same_bits(logits, demo(ids)) and list(cache) == names
    nothing, same = demo.run_with_cache(ids, names, return_type=None)
    assert nothing is None and list(same) == names == list(demo.cache(ids, names))
    (both, loss), _ = demo.run_with_cache(ids, names, return_type="both")
    assert same_bits(both, logits) and loss == demo(ids, "loss")
    logits, cache = demo.run_with_cache(ids[None], remove_batch_dim=True)
    assert logits.shape[:2] == (1, 5) and cache["q", 0].shape[0] == 5


# Text


def test_bos_follows_the_tokenizer_by_default(demo: Model) -> None:
    assert demo.bos_token_id is None and demo.eos_token_id == demo.to_single_token("<|end_of_text|>")
    with pytest.raises(qkscope.InputError, match="no token that begins texts"):
        demo.to_tokens("a", prepend_bos=True)
    np.testing.assert_array_equal(demo.to_tokens("a b", prepend_bos=False), demo.to_tokens("a b"))


@pytest.fixture(params=["knows", "adds"])
def with_bos(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Model, bool]:
    """The demo model with a tokenizer that has a BOS token, and with one that adds BOS itself."""
    for path in DEMO.iterdir():
        (tmp_path / path.name).symlink_to(path)
    for name, change in (
        ("tokenizer_config.json", {"bos_token": {"content": "<|end_of_text|>"}}),
        ("tokenizer.json", {"post_processor": BEGINS_TEXTS} if request.param == "adds" else {}),
    ):
        content = json.loads((DEMO / name).read_text()) | change
        (tmp_path / name).unlink()
        (tmp_path / name).write_text(json.dumps(content))
    return qkscope.load(tmp_path, device="cpu"), request.param == "adds"


BEGINS_TEXTS = {
    "type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "<|end_of_text|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
    "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
    "special_tokens": {"<|end_of_text|>": {"id": "<|end_of_text|>", "ids": [0], "tokens": ["<|end_of_text|>"]}},
}


def test_bos_is_prepended_once_or_not_at_all(with_bos: tuple[Model, bool], demo: Model) -> None:
    model, adds = with_bos
    alone = demo.to_tokens(TEXTS[0]).tolist()
    bos = model.bos_token_id
    assert bos is not None and bos == demo.eos_token_id
    assert model.to_tokens(TEXTS[0]).tolist() == ([bos] if adds else []) + alone
    assert model.to_tokens(TEXTS[0], prepend_bos=True).tolist() == [bos, *alone]
    assert model.to_tokens(TEXTS[0], prepend_bos=True, max_length=3).tolist() == [bos, *alone[:2]]
    assert model.to_tokens(TEXTS[0], prepend_bos=False).tolist() == alone
    assert model.to_tokens(TEXTS, prepend_bos=True)[:, 0].tolist() == [bos] * 3
    assert model.to_single_token(" se") == demo.to_single_token(" se")
    assert model.get_token_position(" se", TEXTS[0], prepend_bos=True) == 2
    assert same_bits(model(TEXTS[0], prepend_bos=True), model([bos, *alone]))
    assert same_bits(model(TEXTS, prepend_bos=False), demo(TEXTS))


@pytest.mark.parametrize(
    ("call", "message"),
    typed_calls([
        (lambda m: m([1, 2], "losses"), "return_type: found 'losses', expected 'logits', 'loss', 'both' or None"),
        (lambda m: m([1], "loss"), "a text of one token"),
        (lambda m: m([1, 2], "loss", positions=0), "whole texts"),
        (lambda m: m(["a", "b c"], padding_side="up"), "padding_side: found 'up', expected 'left' or 'right'"),
        (lambda m: m([[1, -1, 2]]), "padding .* between its tokens"),
        (lambda m: m([[1, 2], [-1, -1]]), "nothing but padding"),
        (lambda m: m(np.array([[1, -1], [-1, 2]])), "both sides"),
        (lambda m: m([[1, 2], "a"]), "expected a text, integers"),
        (lambda m: m(3.5), "expected a text, integers"),
        (lambda m: m([1, 2], positions="all"), "expected a position, a slice or a list"),
        (lambda m: m([1, 2], stop_at_layer=9), "layers 0 to 7"),
        (lambda m: m([1, 2], stop_at_layer="2"), "expected the number of a layer"),
        (lambda m: m([1, 2], start_at_layer=1), r"expected the residual stream \[pos, 128\]"),
        (lambda m: m(np.zeros((3, 64)), start_at_layer=1), r"shape \[3, 64\]"),
        (lambda m: m.cache([1], 7), "names_filter: found 7"),
        (lambda m: m.run_with_hooks([1], 7), "expected a list of pairs"),
        (lambda m: m.add_hook("blocks.9.attn.hook_z", print), "no such hook point"),
        (lambda m: m.to_tokens(7), "to_tokens: found 7, expected a text or a list of texts"),
        (lambda m: m.to_tokens(["a", 7]), "expected a text or a list of texts"),
        (lambda m: m.to_tokens(["a", ""]), "has no tokens"),
        (lambda m: m.to_string("abc"), "expected token ids"),
        (lambda m: m.to_single_token("two words"), r"is \d+ tokens .* expected one"),
        (lambda m: m.get_token_position(" sea", [1, 2, 3]), "tokens|is not in the text"),
        (lambda m: m.get_token_position(5, [1, 2, 3], mode="middle"), "expected 'first' or 'last'"),
        (lambda m: m([1, 2], "loss", loss_per_token=1), "loss_per_token=1: expected True or False"),
        (lambda m: m([1, 2], return_typ="loss"), "no argument 'return_typ'; did you mean 'return_type'"),
        (lambda m: m.cache([1], []), r"names_filter: found \[\], expected a name"),
        (lambda m: m.cache([1], pos_slice=-1), "cache: no argument 'pos_slice'; expected some of tokens"),
        (lambda m: m([1, 2], positions=[0.5]), "expected a position, a slice or a list"),
        (lambda m: m([1, 2], positions=True), "expected a position, a slice or a list"),
        (lambda m: m.to_tokens("\ud800"), "half a surrogate pair"),
        (lambda m: m.to_tokens("a", prepend_bos="yes"), "prepend_bos='yes': expected True or False"),
        (lambda m: m.to_tokens("a", max_length="x"), "max_length='x': expected a whole number"),
        (lambda m: m.to_tokens(["a", "b"], pad="x"), "pad='x': expected a whole number"),
        (lambda m: m.to_string([1, 4000]), "found 4000, expected 0 to 1023"),
        (lambda m: m.to_single_str_token(-1), "found -1, expected 0 to 1023"),
        (lambda m: m.to_string(), "to_string: missing a required argument: 'tokens'"),
        (lambda m: m.to_str_tokens("a", bos=True), "to_str_tokens: no argument 'bos'; expected some of tokens, prepend_bos"),
        (lambda m: m.get_token_position([1], "a"), "found list, expected a text or a token id"),
        (lambda m: m.get_token_position(4000, "a"), "found 4000, expected 0 to 1023"),
        (lambda m: m.add_hook("hook_embed"), "add_hook: missing a required argument: 'hook'"),
        (lambda m: m.add_hook("hook_embed", print, "bwd"), "dir='bwd': expected 'fwd'"),
        (lambda m: m.hook_names(on_request=1), "on_request=1: expected True or False"),
        (lambda m: m.cache([1], padding_side=np.zeros(2)), "expected 'left' or 'right'"),
        (lambda m: m([1], return_type=np.zeros(2)), "expected 'logits', 'loss', 'both' or None"),
        (lambda m: m.all_composition_scores(np.zeros(2)), "expected 'Q', 'K' or 'V'"),
        (lambda m: m.accumulated_bias(1, "yes"), "mlp_input='yes': expected True or False"),
        (lambda m: untyped.heads(m, [1, 2], progress="yes"), "progress='yes': expected True or False"),
        (lambda m: untyped.detect_head(m, [1, 2], {}), r"pattern 'pattern': found {}, expected numbers \[2, 2\]"),
        (lambda m: untyped.analyze("nowhere", only=3.7), "only: 3.7 is not an analysis"),
        (lambda m: m.W_Q["a"], "layer 'a': expected a number from 0 to 7"),
        (lambda m: m.OV[9, 1], r"FactoredMatrix of shape \[8, 8, 128, 128\]"),
        (lambda m: m.accumulated_bias("2"), "layer='2': expected a whole number"),
        (lambda m: untyped.SVDInterpreter(3), "model: found int, expected what load"),
        (lambda m: untyped.get_act_name(3), "found 3, expected a text"),
        (lambda m: untyped.set_threads("two"), "count='two': expected a whole number"),
        (lambda m: untyped.open_stats("nowhere"), "nowhere: there is no stats_state.json"),
        (lambda m: untyped.load(3), "name_or_path=3: expected a text or a path"),
        (lambda m: untyped.load(DEMO, revision=5), "revision=5: expected a text"),
        (lambda m: untyped.load(DEMO, config_overrides=5), "config_overrides=5: expected a mapping"),
        (lambda m: untyped.load(DEMO, fold=True), "load: no argument 'fold'; did you mean 'fold_ln'"),
        (lambda m: untyped.load(DEMO, fold_ln="yes"), "fold_ln='yes': expected True or False"),
        (lambda m: untyped.load(DEMO, arrays="jax"), "arrays: found 'jax', expected 'auto', 'numpy' or 'torch'"),
    ]),
)
def test_wrong_arguments_raise_input_errors(demo: Model, call: Callable[[Any], object], message: str) -> None:
    with pytest.raises(qkscope.InputError, match=message):
        call(demo)


def test_bad_input_of_the_engine_raises_input_error() -> None:
    """InputError is a subclass of Error."""
    assert issubclass(qkscope.InputError, qkscope.Error)
    with pytest.raises(qkscope.InputError, match="cuda:x"):
        qkscope.load(DEMO, device="cuda:x")
