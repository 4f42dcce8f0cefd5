"""Logits that are computed when a metric reads them, compared with a plain array."""

import copy
import pickle
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from qkscope._lazy_logits import LazyLogits

VALUES = np.random.default_rng(0).normal(size=(2, 5, 7)).astype(np.float32)


def lazy(values: Any = VALUES) -> tuple[LazyLogits, list[int]]:
    """Returns lazy logits with these values, and the list of positions that were computed."""
    computed: list[int] = []

    def compute(positions: Sequence[int], array: Any) -> None:
        computed.extend(positions)
        array[..., positions, :] = values[..., positions, :]

    return LazyLogits(values.shape, compute), computed


@pytest.mark.parametrize(
    ("index", "positions"),
    [
        ((0, -1, 3), {4}),
        ((slice(None), -1), {4}),
        ((Ellipsis, -1, 3), {4}),
        ((Ellipsis, [1, 3], slice(None)), {1, 3}),
        ((Ellipsis, slice(3, None), slice(2, 4)), {3, 4}),
        ((None, 1, 2), {2}),
        ((None, Ellipsis, 2, 0), {2}),
        (([0, 1], [4, 2], [3, 3]), {2, 4}),
        ((np.arange(2), np.array([[1], [4]]), 0), {1, 4}),
        ((np.int64(1), np.int64(0)), {0}),
        (0, set(range(5))),
        (Ellipsis, set(range(5))),
        ((Ellipsis, 3), set(range(5))),
        (VALUES > 0, set(range(5))),
        ((np.array([True, False]), 1), set(range(5))),
    ],
    ids=str,
)
def test_an_index_computes_only_its_positions(index: Any, positions: set[int]) -> None:
    logits, computed = lazy()
    np.testing.assert_array_equal(logits[index], VALUES[index])
    assert set(computed) == positions and len(computed) == len(positions)


def test_positions_are_computed_once() -> None:
    logits, computed = lazy()
    assert logits[0, -1, 3] == VALUES[0, -1, 3] and logits[1, 4, 2] == VALUES[1, 4, 2]
    np.testing.assert_array_equal(logits[0], VALUES[0])
    assert computed == [4, 0, 1, 2, 3]


USES: list[Callable[[Any], Any]] = [
    lambda x: x - 1, lambda x: 1 - x, lambda x: -x, lambda x: x == x, lambda x: x > 0, lambda x: x @ np.ones(7),
    lambda x: np.ones((7, 5)) @ x, lambda x: np.float32(2) * x, lambda x: np.ones(7) - x, lambda x: x / x,
    lambda x: x.mean(0), lambda x: np.exp(x), lambda x: np.argmax(x, -1), lambda x: np.stack([x, x]),
    lambda x: np.einsum("bpv->bv", x), lambda x: x.T, lambda x: x.astype(np.float64), lambda x: list(x)[1],
    lambda x: np.asarray(x, dtype=np.float64), lambda x: copy.deepcopy(x), lambda x: pickle.loads(pickle.dumps(x)),
    lambda x: x.tolist(), lambda x: str(x), lambda x: repr(x), lambda x: VALUES[0, 0, 0] in x,
    lambda x: float(x[0, 0, 0]), lambda x: len(x),
]


@pytest.mark.parametrize("use", USES)
def test_every_use_of_an_array_gives_its_result(use: Callable[[Any], Any]) -> None:
    np.testing.assert_array_equal(use(lazy()[0]), use(VALUES))


def test_shapes_and_types_compute_nothing() -> None:
    logits, computed = lazy()
    assert logits.shape == (2, 5, 7) and logits.ndim == 3 and logits.dtype == np.float32 and logits.size == 70
    assert not hasattr(logits, "detach") and computed == []


def test_written_values_stay() -> None:
    logits: Any = lazy()[0]
    logits[0, 1] = 3
    assert (logits[0, 1] == 3).all() and logits[1, 1, 0] == VALUES[1, 1, 0]


@pytest.mark.parametrize("index", [(0, 5), (0, "x"), (0, 0, 0, 0)])
def test_a_wrong_index_raises_the_error_of_the_array(index: Any) -> None:
    with pytest.raises(IndexError):
        lazy()[0][index]
