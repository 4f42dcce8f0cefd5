"""Hooks that read and edit activations."""

import functools
import signal
import threading
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import FwdHook, some_ids, typed_calls, typed_functions

import qkscope
from qkscope import Array, HookPoint, Model


def everything(name: str) -> bool:
    return True


def same_bits(a: object, b: object) -> bool:
    return np.asarray(a).tobytes() == np.asarray(b).tobytes()


@pytest.mark.parametrize(
    "function", typed_functions([lambda a: None, lambda a: a, lambda a: a.copy()]), ids=["looks", "returns", "writes"])
def test_hooks_without_edits_change_no_bit(tiny: Model, function: Callable[[Any], object]) -> None:
    for ids in (some_ids(tiny, 33), np.stack([some_ids(tiny, 33), some_ids(tiny, 33, 1)])):
        assert same_bits(tiny.run_with_hooks(ids, [(everything, function)]), tiny(ids))


def test_writing_back_changes_no_bit(tiny: Model) -> None:
    def rewrite(activation: Array, hook: HookPoint) -> None:
        kept = np.array(activation)
        activation[...] = 0
        activation[...] = kept

    ids = some_ids(tiny, 33)
    assert same_bits(tiny.run_with_hooks(ids, [(everything, rewrite)]), tiny(ids))


def test_in_place_edits_equal_returned_arrays(tiny: Model) -> None:
    ids = some_ids(tiny, 12)

    def in_place(z: Array, hook: HookPoint) -> None:
        z[:, 0] = 0

    def returned(z: Array, hook: HookPoint) -> Any:
        return np.where(np.arange(z.shape[1])[:, None] == 0, np.float32(0), z)

    name = "blocks.0.attn.hook_z"
    edited = tiny.run_with_hooks(ids, [(name, in_place)])
    assert same_bits(edited, tiny.run_with_hooks(ids, [(name, returned)]))
    assert not same_bits(edited, tiny(ids))


def test_a_zero_pattern_gives_zero_z(tiny: Model) -> None:
    ids = some_ids(tiny, 12)

    def zero(activation: Array) -> Array:
        return activation * 0

    assert same_bits(
        tiny.run_with_hooks(ids, [("blocks.0.attn.hook_pattern", zero)]),
        tiny.run_with_hooks(ids, [("blocks.0.attn.hook_z", zero)]),
    )


def test_masking_scores_hides_a_key(demo: Model) -> None:
    """Scores are edited before the softmax; only the selected query changes."""
    ids = some_ids(demo, 12)
    patterns: list[np.ndarray] = []

    def hide(scores: Array, hook: HookPoint) -> None:  # [head, 1, key]
        scores[:, 0, 2] = -np.inf

    hooks: list[FwdHook] = [("blocks.0.attn.hook_attn_scores", hide), ("blocks.0.attn.hook_pattern", patterns.append)]
    edited = demo.run_with_hooks(ids, hooks, queries=5)
    assert patterns[0].shape == (8, 1, 12) and (patterns[0][:, 0, 2] == 0).all()
    np.testing.assert_allclose(patterns[0].sum(-1), 1, rtol=1e-5)
    plain = demo(ids)
    assert same_bits(edited[:5], plain[:5]) and not same_bits(edited[5], plain[5])
    assert same_bits(demo.run_with_hooks(ids, hooks, queries=5, positions=5), edited[5:6])


def test_logits_of_chosen_positions_beside_hooks(demo: Model) -> None:
    ids = some_ids(demo, 12)

    def ablate(z: Array, hook: HookPoint) -> None:
        z[:, 3] = 0

    hooks: list[FwdHook] = [("blocks.0.attn.hook_z", ablate)]
    chosen = demo.run_with_hooks(ids, hooks, positions=[2, 9])
    assert same_bits(chosen, demo.run_with_hooks(ids, hooks)[[2, 9]])


def test_functions_at_one_hook_point_run_in_order(demo: Model) -> None:
    ids = some_ids(demo, 6)
    seen: list[tuple[str, int, Any]] = []
    hooks: list[FwdHook] = [
        ("hook_embed", lambda a: a * 2),
        ("hook_embed", lambda a, hook: seen.append((hook.name, hook.layer(), a.copy()))),
        ("blocks.3.hook_resid_pre", lambda a, hook: seen.append((hook.name, hook.layer(), None))),
    ]
    demo.run_with_hooks(ids, hooks)
    assert [entry[:2] for entry in seen] == [("hook_embed", -1), ("blocks.3.hook_resid_pre", 3)]
    np.testing.assert_array_equal(seen[0][2], demo.cache(ids, "hook_embed")["hook_embed"] * 2)


def test_an_array_can_be_kept(demo: Model) -> None:
    kept: list[np.ndarray] = []
    ids = some_ids(demo, 50)
    demo.run_with_hooks(ids, [("blocks.*.hook_resid_pre", kept.append)])
    for layer, array in enumerate(kept):
        name = f"blocks.{layer}.hook_resid_pre"
        assert same_bits(array, demo.cache(ids, name)[name])


def test_logits_can_be_edited(demo: Model) -> None:
    assert (demo.run_with_hooks([1, 2], [("logits", lambda a: a * 0)]) == 0).all()


@pytest.mark.parametrize(
    ("function", "message"),
    typed_calls([
        (lambda z: z[:2], r"blocks.2.attn.hook_z.*shape \[2, 8, 16\], expected \[5, 8, 16\]"),
        (lambda z: z.astype(np.float64), "blocks.2.attn.hook_z.*float64, expected float32"),
        (lambda z: "z", "expected float32"),
    ]),
)
def test_wrong_results_of_hooks_name_the_hook_point(demo: Model, function: Callable[[Any], object], message: str) -> None:
    with pytest.raises(qkscope.Error, match=message):
        demo.run_with_hooks([1, 2, 3, 4, 5], [("blocks.2.attn.hook_z", function)])


def test_hooks_must_be_pairs(demo: Model) -> None:
    wrong: Any = demo  # without types
    with pytest.raises(qkscope.Error, match="pairs"):
        wrong.run_with_hooks([1], ["blocks.0.attn.hook_z"])
    with pytest.raises(qkscope.Error, match="not a function"):
        wrong.run_with_hooks([1], [("blocks.0.attn.hook_z", 3)])
    with pytest.raises(qkscope.Error, match="did you mean"):
        demo.run_with_hooks([1], [("blocks.0.attn.hook_zz", print)])


def of_three(activation: Array, hook: HookPoint, factor: float) -> Array:
    return activation * factor


def of_none() -> None:
    pass


def of_wrong_name(z: Array, other: object) -> Array:
    return z


@pytest.mark.parametrize("function", [of_three, of_none, of_wrong_name])
def test_hooks_may_take_one_or_two_arguments(demo: Model, function: Any) -> None:
    expected = r"hook at blocks.0.attn.hook_z: found .*, expected f\(activation\) or f\(activation, hook\)"
    with pytest.raises(qkscope.InputError, match=expected):
        demo.run_with_hooks([1], [("blocks.0.attn.hook_z", function)])


def test_hooks_may_be_partial_functions(demo: Model) -> None:
    none = demo.run_with_hooks([1], [("blocks.0.attn.hook_z", functools.partial(of_three, factor=0))])
    assert same_bits(none, demo.run_with_hooks([1], [("blocks.0.attn.hook_z", lambda z: z * 0)]))


def test_an_exception_arrives_with_its_traceback_and_the_model_goes_on(demo: Model) -> None:
    def broken_hook(activation: Array, hook: HookPoint) -> None:
        raise KeyError("mine")

    before = demo([1, 2, 3])
    with pytest.raises(KeyError, match="mine") as caught:
        demo.run_with_hooks([1, 2, 3], [("blocks.4.mlp.hook_post", broken_hook)])
    assert "broken_hook" in "".join(traceback.format_tb(caught.value.__traceback__))
    assert same_bits(demo([1, 2, 3]), before)


def test_a_hook_may_run_the_model(demo: Model) -> None:
    inner: list[Array] = []
    demo.run_with_hooks([1, 2], [("blocks.0.hook_resid_pre", lambda a: inner.append(demo([1, 2])))])
    assert same_bits(inner[0], demo([1, 2]))


def run_cache(model: Model, ids: np.ndarray) -> None:
    model.cache(ids, "logits", positions=0)


def run_hooks(model: Model, ids: np.ndarray) -> None:
    model.run_with_hooks(ids, [])


@pytest.mark.parametrize("run", [run_cache, run_hooks], ids=["cache", "hooks"])
def test_ctrl_c_ends_a_pass(demo: Model, run: Callable[..., object]) -> None:
    ids = some_ids(demo, 12000)
    before = demo([1, 2])
    timer = threading.Timer(0.1, signal.raise_signal, [signal.SIGINT])
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        run(demo, ids)
    timer.join()
    assert same_bits(demo([1, 2]), before)


def test_the_gil_is_released_during_a_pass(demo: Model) -> None:
    """A counting thread makes progress while the engine computes."""
    ids = some_ids(demo, 3000)
    done = threading.Event()
    counted: list[int] = []

    def count() -> None:
        while not done.wait(0.001):
            counted.append(1)

    thread = threading.Thread(target=count)
    thread.start()
    demo.cache(ids, "blocks.7.hook_resid_post")
    done.set()
    thread.join()
    assert len(counted) > 5


def test_threads_may_share_one_model(demo: Model) -> None:
    ids = [some_ids(demo, 200, seed) for seed in range(4)]
    alone = [demo(sequence) for sequence in ids]
    together: list[Array | None] = [None] * 4

    def work(i: int) -> None:
        together[i] = demo.run_with_hooks(ids[i], [("blocks.*.hook_resid_pre", lambda a: None)])

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(same_bits(a, b) for a, b in zip(alone, together))


def test_optional_hook_points_fire_only_if_selected(demo: Model) -> None:
    ids = some_ids(demo, 9)
    assert "blocks.0.attn.hook_result" not in demo.hook_names()
    assert "blocks.0.attn.hook_result" not in demo.cache(ids)
    cache = demo.cache(ids, ["blocks.1.attn.hook_result", "blocks.1.hook_attn_out", "*hook_scale",
                                      "blocks.1.hook_q_input", "blocks.1.hook_resid_pre"])
    assert cache["blocks.1.attn.hook_result"].shape == (9, demo.cfg.n_heads, demo.cfg.d_model)
    # Float32 sums in a different order, with terms of about 50.
    total = cache["blocks.1.attn.hook_result"].sum(1)
    np.testing.assert_allclose(total, cache["blocks.1.hook_attn_out"], rtol=1e-6, atol=5e-5)
    assert cache["ln_final.hook_scale"].shape == (9, 1)
    stream = cache["blocks.1.hook_resid_pre"]
    assert same_bits(cache["blocks.1.hook_q_input"], np.repeat(stream[:, None], demo.cfg.n_heads, 1))
    chosen = demo.cache(ids, "blocks.1.attn.hook_result", positions=[3])
    assert same_bits(chosen["blocks.1.attn.hook_result"], cache["blocks.1.attn.hook_result"][[3]])


def test_an_edited_input_of_a_head_changes_that_head(demo: Model) -> None:
    ids = some_ids(demo, 9)
    seen: dict[str, np.ndarray] = {}

    def move(x: Array, hook: HookPoint) -> None:  # [pos, head, d_model]
        x[5, 2] = x[4, 2]

    hooks: list[FwdHook] = [("blocks.1.hook_q_input", move), ("blocks.1.attn.hook_q", lambda q: seen.update(q=q.copy()))]
    edited = demo.run_with_hooks(ids, hooks)
    plain = np.array(demo.cache(ids, "blocks.1.attn.hook_q")["q", 1])
    plain[5, 2] = plain[4, 2]
    assert same_bits(seen["q"], plain) and not same_bits(edited, demo(ids))


def test_hook_result_cannot_be_edited(demo: Model) -> None:
    def ablate(result: Array, hook: HookPoint) -> None:
        result[:, 0] = 0

    with pytest.raises(qkscope.InputError, match="edit attn.hook_z"):
        demo.run_with_hooks([1, 2, 3], [("blocks.0.attn.hook_result", ablate)])
    looked: list[tuple[int, ...]] = []
    logits = demo.run_with_hooks([1, 2, 3], [("blocks.0.attn.hook_result", lambda r: looked.append(r.shape))])
    assert looked == [(3, demo.cfg.n_heads, demo.cfg.d_model)] and same_bits(logits, demo([1, 2, 3]))
