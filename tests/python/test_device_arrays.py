"""Activations in device memory, as on CUDA; here the device is the CPU, so that every bit must be equal.

Without torch they are DeviceArray, with torch tensors. test_cuda.py has the same tests for a GPU.
"""

# These tests use the private engine of Model.
# pyright: reportPrivateUsage=false
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import DEMO, FwdHook, some_ids, typed_calls, typed_functions

import qkscope
from qkscope import ActivationCache, Array, HookPoint, Model


def numpy(array: Any) -> np.ndarray:
    return np.asarray(array if hasattr(array, "tobytes") else np.from_dlpack(array))


def same_bits(a: object, b: object) -> bool:
    return numpy(a).tobytes() == numpy(b).tobytes()


@pytest.fixture(scope="module")
def holding() -> Model:
    model = qkscope.load(DEMO, device="cpu")
    model._engine.keeps_on_device = True
    return model


def test_device_arrays_have_shape_dtype_and_device(holding: Model) -> None:
    array = holding._engine.record([np.array([1, 2, 3], np.int32)], ["hook_embed"], [])["hook_embed"]
    assert array.shape == (3, 128) and array.dtype == "float32" and array.device == "cpu"
    assert repr(array) == "DeviceArray(shape=[3, 128], dtype='float32', device='cpu')"
    assert array.__dlpack_device__() == (1, 0)
    assert array.reshape(1, 3, 128).shape == (1, 3, 128)
    with pytest.raises(qkscope.Error, match=r"384 values do not make \[2, 3\]"):
        array.reshape(2, 3)
    for sizes in ((-1, -384), (-3, -128), (2**33, 2**31, 3, 0), (-1,)):
        with pytest.raises(qkscope.Error, match="384 values do not make"):
            array.reshape(*sizes)
    with pytest.raises(qkscope.Error, match="found 2 values, expected 384"):
        array.assign(np.zeros(2, np.float32))


def test_dlpack_shows_the_same_memory(holding: Model) -> None:
    array = holding._engine.record([np.array([1, 2, 3], np.int32)], ["hook_embed"], [])["hook_embed"]
    shown, again, copy = np.from_dlpack(array), np.from_dlpack(array.reshape(1, 3, 128)), array.numpy()
    assert shown.ctypes.data == again.ctypes.data != copy.ctypes.data
    array.assign(np.full((3, 128), 7, np.float32))
    del array  # the view keeps the memory alive
    assert (shown == 7).all() and (again == 7).all() and not (copy == 7).any()


@pytest.mark.parametrize("positions", [None, [0, 5, 2], -1])
def test_the_cache_has_the_same_bits(demo: Model, holding: Model, positions: Any) -> None:
    for ids in (some_ids(demo, 12), np.stack([some_ids(demo, 12), some_ids(demo, 12, 1)])):
        expected = demo.cache(ids, positions=positions)
        cache = holding.cache(ids, positions=positions)
        assert list(cache) == list(expected)
        for name, array in expected.items():
            assert tuple(cache[name].shape) == array.shape and same_bits(cache[name], array), name


@pytest.mark.parametrize("side", ["right", "left"])
def test_sequences_of_different_lengths_are_padded(demo: Model, holding: Model, side: str) -> None:
    sequences = [some_ids(demo, length, length) for length in (4, 9)]
    expected = demo.cache(sequences, padding_side=side)
    for name, array in holding.cache(sequences, padding_side=side).items():
        assert same_bits(array, expected[name]), name

    def double(activation: Array, hook: HookPoint) -> np.ndarray:
        return numpy(activation) * np.float32(2)

    hooks = [("blocks.0.attn.hook_z", double), ("blocks.2.hook_mlp_out", double), ("blocks.1.attn.hook_pattern", double)]
    edited = holding.run_with_hooks(sequences, hooks, padding_side=side)
    assert same_bits(edited, demo.run_with_hooks(sequences, hooks, padding_side=side))
    with holding.hooks(hooks), demo.hooks(hooks):
        for name, array in demo.cache(sequences, "blocks.2.*", positions=-1).items():
            assert same_bits(holding.cache(sequences, name, positions=-1)[name], array), name


@pytest.mark.parametrize(
    "function", typed_functions([lambda a: None, lambda a: a, lambda a: numpy(a).copy()]), ids=["looks", "returns", "writes"])
def test_hooks_without_edits_change_no_bit(demo: Model, holding: Model, function: Callable[[Any], object]) -> None:
    ids = np.stack([some_ids(demo, 33), some_ids(demo, 33, 1)])
    assert same_bits(holding.run_with_hooks(ids, [(lambda name: True, function)]), demo(ids))


def test_in_place_edits_equal_returned_arrays(demo: Model, holding: Model) -> None:
    ids = some_ids(demo, 12)
    name = "blocks.2.attn.hook_z"

    def in_place(z: Array, hook: HookPoint) -> None:
        numpy(z)[:, 1] = 0

    def returned(z: Array, hook: HookPoint) -> Any:
        edited = numpy(z).copy()
        edited[:, 1] = 0
        return edited

    expected = demo.run_with_hooks(ids, [(name, in_place)])
    assert not same_bits(expected, demo(ids))
    # np.from_dlpack returns a writable array since NumPy 2.1.
    if numpy(holding(ids)).flags.writeable:
        assert same_bits(holding.run_with_hooks(ids, [(name, in_place)]), expected)
    assert same_bits(holding.run_with_hooks(ids, [(name, returned)]), expected)


def test_a_pattern_is_edited_on_the_host(demo: Model, holding: Model) -> None:
    ids = some_ids(demo, 12)
    hooks: list[FwdHook] = [("blocks.1.attn.hook_pattern", lambda pattern: pattern * 0)]
    assert same_bits(holding.run_with_hooks(ids, hooks), demo.run_with_hooks(ids, hooks))


@pytest.mark.parametrize(
    ("function", "message"),
    typed_calls([
        (lambda z: numpy(z)[:2], r"blocks.2.attn.hook_z.*shape \[2, 8, 16\], expected \[5, 8, 16\]"),
        (lambda z: numpy(z).astype(np.float64), "blocks.2.attn.hook_z.*float64, expected float32"),
        (lambda z: "z", "expected float32"),
    ]),
)
def test_wrong_results_of_hooks_name_the_hook_point(holding: Model, function: Callable[[Any], object], message: str) -> None:
    with pytest.raises(qkscope.Error, match=message):
        holding.run_with_hooks([1, 2, 3, 4, 5], [("blocks.2.attn.hook_z", function)])


def test_concurrent_threads_get_their_own_activations(demo: Model, holding: Model) -> None:
    ids = [some_ids(demo, 100, seed) for seed in range(4)]
    caches: dict[int, ActivationCache] = {}

    def work(i: int) -> None:
        caches[i] = holding.cache(ids[i], "blocks.*.hook_resid_post")

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for sequence, cache in zip(ids, (caches[i] for i in range(4))):
        for name, array in demo.cache(sequence, "blocks.*.hook_resid_post").items():
            assert same_bits(cache[name], array)
