"""Logits that are computed when a metric reads them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ._arrays import is_torch, on_host

# Attributes that depend on the shape and type alone.
_OF_SHAPE = ("shape", "ndim", "dtype", "device", "size", "dim", "is_cuda")

_OPERATORS = (
    *(f"__{side}{name}__" for side in ("", "r") for name in
      ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor")),
    *(f"__{name}__" for name in
      ("eq", "ne", "lt", "le", "gt", "ge", "neg", "pos", "abs", "invert", "float", "int", "bool", "iter", "contains",
       "setitem", "repr", "str", "reduce_ex")),
)


class LazyLogits:
    """Logits [..., pos, d_vocab] in place of an array. An index computes its positions, any other use all positions.

    The unembedding of a large vocabulary costs as much as several layers, and most metrics read the last position:
    logits[..., -1, token] computes that one.
    """

    def __init__(self, shape: Sequence[int], reference: Any, compute: Callable[[list[int], Any], None]):
        """reference: an array of the library and device. compute(positions, array) fills these positions."""
        self._compute = compute
        self._missing = set(range(shape[-2]))
        self._array = reference.new_empty(tuple(shape)) if is_torch(reference) else np.empty(shape, reference.dtype)

    def _filled(self, positions: Sequence[int] | None = None) -> Any:
        """Returns the array after computing the positions; None: all."""
        wanted = self._missing if positions is None else self._missing.intersection(positions)
        if wanted:
            self._compute(sorted(wanted), self._array)
            self._missing = self._missing.difference(wanted)
        return self._array

    def __getitem__(self, index: Any) -> Any:
        return self._filled(_positions_read(index, self._array.shape))[index]

    def __len__(self) -> int:
        return len(self._array)

    def __array__(self, *args: Any, **kwargs: Any) -> np.ndarray:
        return np.array(on_host(self._filled()), *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name == "_array" or not hasattr(self._array, name):
            raise AttributeError(name)
        return getattr(self._array if name in _OF_SHAPE else self._filled(), name)

    @property
    def __class__(self) -> Any:  # makes isinstance(logits, torch.Tensor) true where the array is a tensor
        return type(self._array)

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return function(*_computed(args), **_computed(kwargs or {}))


def _add_operators() -> None:
    # Python looks operators up in the type, not through __getattr__.
    for name in _OPERATORS:
        setattr(LazyLogits, name, lambda self, *args, name=name: getattr(self._filled(), name)(*_computed(args)))


_add_operators()


def _computed(values: Any) -> Any:
    """Replaces lazy logits, also in nested tuples, lists and dictionaries, by computed arrays."""
    if type(values) is LazyLogits:
        return values._filled()
    if type(values) in (tuple, list):
        return type(values)(_computed(value) for value in values)
    return {key: _computed(value) for key, value in values.items()} if type(values) is dict else values


def _positions_read(index: Any, shape: Sequence[int]) -> list[int] | None:
    """Returns the positions, axis -2, that an index of an array of this shape reads; None: all."""
    parts = list(index) if isinstance(index, tuple) else [index]
    axes = [part for part in parts if part is not None and part is not Ellipsis]
    if any(not isinstance(part, slice) and on_host(part).dtype == bool for part in axes):
        return None  # a mask covers several axes
    if len(axes) < len(parts):  # expand the ellipsis
        at = next((i for i, part in enumerate(parts) if part is Ellipsis), len(parts))
        before = sum(part is not None for part in parts[:at])
        axes[before:before] = [slice(None)] * (len(shape) - len(axes) if at < len(parts) else 0)
    if len(axes) < len(shape) - 1:
        return None
    part = axes[len(shape) - 2]
    try:
        return np.arange(shape[-2])[part if isinstance(part, slice) else on_host(part)].ravel().tolist()
    except (IndexError, TypeError):
        return []  # indexing the array raises the error
