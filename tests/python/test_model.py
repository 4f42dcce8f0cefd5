"""Loading of models, tokens and caches."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import DEMO, some_ids, typed_calls, untyped

import qkscope
from qkscope import Model

TEXT = "The sea was calm and the old man sat by the fire."


def test_cfg_describes_the_model(demo: Model) -> None:
    cfg = demo.cfg
    assert (cfg.n_layers, cfg.n_heads, cfg.n_key_value_heads) == (8, 8, 2)
    assert (cfg.d_model, cfg.d_head, cfg.d_mlp, cfg.d_vocab) == (128, 16, 224, 1024)
    assert [layer for layer, rope in enumerate(cfg.rope) if rope is None] == [3, 7]
    rope = cfg.rope[0]
    assert rope is not None
    expected = rope.theta ** (-np.arange(8) / 8)
    np.testing.assert_allclose(rope.inv_freq(), expected, rtol=1e-6)


def test_tokens_convert_to_text_and_back(demo: Model) -> None:
    tokens = demo.to_tokens(TEXT)
    assert tokens.dtype == np.int32 and demo.to_string(tokens) == TEXT
    assert "".join(demo.to_str_tokens(TEXT)) == TEXT
    assert len(demo.to_tokens(TEXT, max_length=3)) == 3


def test_the_cache_has_every_hook_point_in_order(tiny: Model) -> None:
    ids = some_ids(tiny, 9)
    cache = tiny.cache(ids)
    cfg = tiny.cfg
    assert list(cache) == tiny.hook_names()
    assert all(array.dtype == np.float32 for array in cache.values())
    assert cache["blocks.0.attn.hook_rot_k"].shape == (9, cfg.n_key_value_heads, cfg.d_head)
    assert cache["blocks.0.attn.hook_pattern"].shape == (cfg.n_heads, 9, 9)
    assert cache["blocks.0.mlp.hook_post"].shape == (9, cfg.d_mlp)
    np.testing.assert_array_equal(cache["logits"], tiny(ids))


def test_a_batch_has_a_leading_dimension_and_the_bits_of_each_alone(tiny: Model) -> None:
    ids = np.stack([some_ids(tiny, 12, seed) for seed in (1, 2, 3)])
    together = tiny.cache(ids)
    for row, sequence in enumerate(ids):
        for name, array in tiny.cache(sequence).items():
            np.testing.assert_array_equal(together[name][row], array, err_msg=name)


@pytest.mark.parametrize("positions", [3, -1, [0, 5, 2], slice(1, 8, 2), np.array([4, 4])])
def test_chosen_positions_equal_rows_of_the_full_cache(demo: Model, positions: Any) -> None:
    ids = np.stack([some_ids(demo, 10), some_ids(demo, 10, 1)])
    chosen = np.atleast_1d(np.arange(10)[positions])
    whole = demo.cache(ids, ["blocks.0.*", "logits"])
    for name, array in demo.cache(ids, ["blocks.0.*", "logits"], positions=positions).items():
        axis = 2 if name.endswith(("pattern", "scores")) else 1
        np.testing.assert_array_equal(array, np.take(whole[name], chosen, axis), err_msg=name)


def test_logits_of_chosen_positions(demo: Model) -> None:
    ids = some_ids(demo, 10)
    np.testing.assert_array_equal(demo(ids, positions=[2, -1]), demo(ids)[[2, -1]])


def test_names_filter_accepts_names_patterns_lists_and_functions(demo: Model) -> None:
    ids = some_ids(demo, 4)
    every_q = [f"blocks.{layer}.attn.hook_q" for layer in range(8)]
    assert list(demo.cache(ids, "blocks.*.attn.hook_q")) == every_q
    assert list(demo.cache(ids, lambda name: name.endswith("hook_q"))) == every_q
    assert list(demo.cache(ids, ["logits", "blocks.2.attn.hook_q"])) == ["blocks.2.attn.hook_q", "logits"]


def test_stop_at_layer_leaves_out_later_hook_points(demo: Model) -> None:
    ids = some_ids(demo, 4)
    names = demo.cache(ids, stop_at_layer=2)
    assert list(names)[0] == "hook_embed" and list(names)[-1] == "blocks.1.hook_resid_post"
    assert list(demo.cache(ids, stop_at_layer=-6)) == list(names)


def test_tokens_of_other_libraries_are_accepted(demo: Model) -> None:
    ids = some_ids(demo, 5)
    np.testing.assert_array_equal(demo(ids.tolist()), demo(ids.astype(np.uint16)))
    np.testing.assert_array_equal(demo(TEXT), demo(demo.to_tokens(TEXT)))


def nothing(name: str) -> bool:
    return False


@pytest.mark.parametrize(
    ("call", "message"),
    typed_calls([
        (lambda m: m.cache([1], "blocks.0.attn.hook_rot_w"), "did you mean 'blocks.0.attn.hook_rot_q'"),
        (lambda m: m.cache([1], nothing), "accepts no hook point"),
        (lambda m: m.cache([1, 2], positions=2), "positions 0 to 1"),
        (lambda m: m.cache([1, 2], positions=[]), "names no position"),
        (lambda m: m.cache([1], stop_at_layer=9), "layers 0 to 7"),
        (lambda m: m.cache([1], "logits", stop_at_layer=3), "comes before it"),
        (lambda m: m([1, 1024]), "token id 1024 at position 1"),
        (lambda m: m([-2]), "expected 0 to 1023"),
        (lambda m: m([-1]), "nothing but padding"),
        (lambda m: m([]), r"shape \[0\]"),
        (lambda m: m([0.5]), "float64"),
        (lambda m: m.cache(np.zeros(40000, int), "blocks.0.attn.hook_pattern"), "positions="),
        (lambda m: untyped.show_progress("x"), "on='x': expected True or False"),
        (lambda m: m.cfg.rope[99], "layer 99: the model has layers 0 to 7"),
        (lambda m: m.cfg.window["x"], "layer 'x': expected a number from 0 to 7"),
        (lambda m: m.cfg.attn_scales[-9], "layer -9: the model has layers 0 to 7"),
        (lambda m: untyped.load(DEMO, device="cuda:99"), "device cuda:99: .*(use cpu|no such GPU)"),
        (lambda m: untyped.load(DEMO, device="tpu"), "found 'tpu', expected auto, cpu, cuda or cuda:N"),
        (lambda m: untyped.load(DEMO, device="cuda:x"), "expected auto, cpu, cuda or cuda:N"),
        (lambda m: untyped.load(DEMO, dtype="int8"), "expected 'float32'"),
        (lambda m: untyped.load("no/such-model"), "Hugging Face cache"),
        (lambda m: untyped.load(DEMO, config_overrides={"hidden_size": 7}), "hidden_size|shape"),
    ]),
)
def test_wrong_arguments_raise_input_errors(demo: Model, call: Callable[[Any], object], message: str) -> None:
    with pytest.raises(qkscope.Error, match=message):
        call(demo)


def test_half_precision_on_the_cpu_warns() -> None:
    with pytest.warns(UserWarning, match="computes in float32") as warned:
        assert qkscope.load(DEMO, device="cpu", dtype="bfloat16").dtype == "float32"
    assert warned[0].filename == __file__
