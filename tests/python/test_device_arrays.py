"""Activations that stay where they are computed, as on CUDA; here the place is the CPU, where every bit must be the same.

Without torch they are DeviceArray, with torch tensors. test_cuda.py is the same on a GPU.
"""

import threading

import numpy as np
import pytest
from conftest import DEMO, some_ids

import qkscope


def numpy(array):
    return array if isinstance(array, np.ndarray) else np.from_dlpack(array)


def same_bits(a, b):
    return numpy(a).tobytes() == numpy(b).tobytes()


@pytest.fixture(scope="module")
def holding():
    model = qkscope.load(DEMO, device="cpu")
    model._engine.keeps_on_device = True
    return model


def test_an_array_describes_itself(holding):
    array = holding._engine.record(np.array([[1, 2, 3]], np.int32), ["hook_embed"], [])["hook_embed"]
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


def test_dlpack_shows_the_same_memory(holding):
    array = holding._engine.record(np.array([[1, 2, 3]], np.int32), ["hook_embed"], [])["hook_embed"]
    shown, again, copy = np.from_dlpack(array), np.from_dlpack(array.reshape(1, 3, 128)), array.numpy()
    assert shown.ctypes.data == again.ctypes.data != copy.ctypes.data
    array.assign(np.full((3, 128), 7, np.float32))
    del array  # whoever looks keeps the memory
    assert (shown == 7).all() and (again == 7).all() and not (copy == 7).any()


@pytest.mark.parametrize("positions", [None, [0, 5, 2], -1])
def test_the_cache_has_the_same_bits(demo, holding, positions):
    for ids in (some_ids(demo, 12), np.stack([some_ids(demo, 12), some_ids(demo, 12, 1)])):
        expected = demo.run_with_cache(ids, positions=positions)
        cache = holding.run_with_cache(ids, positions=positions)
        assert list(cache) == list(expected)
        for name, array in expected.items():
            assert tuple(cache[name].shape) == array.shape and same_bits(cache[name], array), name


@pytest.mark.parametrize("side", ["right", "left"])
def test_sequences_of_different_length(demo, holding, side):
    sequences = [some_ids(demo, length, length) for length in (4, 9)]
    expected = demo.run_with_cache(sequences, padding_side=side)
    for name, array in holding.run_with_cache(sequences, padding_side=side).items():
        assert same_bits(array, expected[name]), name

    def double(activation, hook):
        return numpy(activation) * np.float32(2)

    hooks = [("blocks.0.attn.hook_z", double), ("blocks.2.hook_mlp_out", double), ("blocks.1.attn.hook_pattern", double)]
    edited = holding.run_with_hooks(sequences, hooks, padding_side=side)
    assert same_bits(edited, demo.run_with_hooks(sequences, hooks, padding_side=side))
    with holding.hooks(hooks), demo.hooks(hooks):
        for name, array in demo.run_with_cache(sequences, "blocks.2.*", positions=-1).items():
            assert same_bits(holding.run_with_cache(sequences, name, positions=-1)[name], array), name


@pytest.mark.parametrize(
    "function", [lambda a: None, lambda a: a, lambda a: numpy(a).copy()], ids=["looks", "returns", "writes"])
def test_what_is_not_changed_keeps_every_bit(demo, holding, function):
    ids = np.stack([some_ids(demo, 33), some_ids(demo, 33, 1)])
    assert same_bits(holding.run_with_hooks(ids, [(lambda name: True, function)]), demo(ids))


def test_edits_are_the_same_in_place_and_returned(demo, holding):
    ids = some_ids(demo, 12)
    name = "blocks.2.attn.hook_z"

    def in_place(z, hook):
        numpy(z)[:, 1] = 0

    def returned(z, hook):
        edited = numpy(z).copy()
        edited[:, 1] = 0
        return edited

    expected = demo.run_with_hooks(ids, [(name, in_place)])
    assert not same_bits(expected, demo(ids))
    # np.from_dlpack gives a writable array from NumPy 2.1 on.
    if numpy(holding(ids)).flags.writeable:
        assert same_bits(holding.run_with_hooks(ids, [(name, in_place)]), expected)
    assert same_bits(holding.run_with_hooks(ids, [(name, returned)]), expected)


def test_a_pattern_is_edited_on_the_host(demo, holding):
    ids = some_ids(demo, 12)
    hooks = [("blocks.1.attn.hook_pattern", lambda pattern: pattern * 0)]
    assert same_bits(holding.run_with_hooks(ids, hooks), demo.run_with_hooks(ids, hooks))


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda z: numpy(z)[:2], r"blocks.2.attn.hook_z.*shape \[2, 8, 16\], expected \[5, 8, 16\]"),
        (lambda z: numpy(z).astype(np.float64), "blocks.2.attn.hook_z.*float64, expected float32"),
        (lambda z: "z", "expected float32"),
    ],
)
def test_a_wrong_answer_says_which(holding, function, message):
    with pytest.raises(qkscope.Error, match=message):
        holding.run_with_hooks([1, 2, 3, 4, 5], [("blocks.2.attn.hook_z", function)])


def test_threads_keep_what_is_theirs(demo, holding):
    ids = [some_ids(demo, 100, seed) for seed in range(4)]
    caches = [None] * 4

    def work(i):
        caches[i] = holding.run_with_cache(ids[i], "blocks.*.hook_resid_post")

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for sequence, cache in zip(ids, caches):
        for name, array in demo.run_with_cache(sequence, "blocks.*.hook_resid_post").items():
            assert same_bits(cache[name], array)
