"""Logits that are computed when a metric reads them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ._arrays import on_host

# Attributes that do not require computing the logits.
_OF_SHAPE = ("shape", "ndim", "dtype", "size")

_OPERATORS = (
    *(f"__{side}{name}__" for side in ("", "r") for name in
      ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor")),
    *(f"__{name}__" for name in
      ("eq", "ne", "lt", "le", "gt", "ge", "neg", "pos", "abs", "invert", "float", "int", "bool", "iter", "contains",
       "setitem", "repr", "str", "reduce_ex")),
)


class LazyLogits:
    """Logits [..., pos, d_vocab] in place of a NumPy array. An index computes its positions, any other use all.

    The unembedding of a large vocabulary costs as much as several layers, and most metrics read the last position:
    logits[..., -1, token] computes that one.
    """

    def __init__(self, shape: Sequence[int], compute: Callable[[list[int], np.ndarray], None]):
        """compute(positions, array) fills these positions of the array."""
        self._compute = compute
        self._missing = set(range(shape[-2]))
        self._array = np.empty(shape, np.float32)

    def filled(self, positions: Sequence[int] | None = None) -> np.ndarray:
        """Returns the array after computing the positions; None: all."""
        wanted = self._missing if positions is None else self._missing.intersection(positions)
        if wanted:
            self._compute(sorted(wanted), self._array)
            self._missing = self._missing.difference(wanted)
        return self._array

    def __getitem__(self, index: Any) -> Any:
        return self.filled(_positions_read(index, self._array.shape))[index]

    def __len__(self) -> int:
        return len(self._array)

    def __array__(self, *args: Any, **kwargs: Any) -> np.ndarray:
        return np.array(self.filled(), *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name == "_array" or not hasattr(self._array, name):
            raise AttributeError(name)
        return getattr(self._array if name in _OF_SHAPE else self.filled(), name)


def _add_operators() -> None:
    # Python looks up operators on the type, not through __getattr__, so each needs a method.
    for name in _OPERATORS:
        setattr(LazyLogits, name, lambda self, *args, name=name: getattr(self.filled(), name)(*args))


_add_operators()


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
