"""Hook points by name, and the functions that users hang on them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Union

import numpy as np

from ._arrays import Array, assign, dtype_of, on_host
from ._engine import DeviceArray, Error

NamesFilter = Union[str, Sequence[str], Callable[[str], bool], None]
Positions = Union[int, slice, Sequence[int], None]
HookFunction = Callable[..., Any]
FwdHook = tuple[Union[str, Callable[[str], bool]], HookFunction]

SQUARES = ("attn.hook_attn_scores", "attn.hook_pattern")


@dataclass(frozen=True)
class HookPoint:
    """Where a hook function stands."""

    name: str

    def layer(self) -> int:
        """The block's number; -1 outside the blocks."""
        return layer_of(self.name)


def layer_of(name: str) -> int:
    parts = name.split(".")
    return int(parts[1]) if parts[0] == "blocks" else -1


def is_square(name: str) -> bool:
    return name.endswith(SQUARES)


def select(engine: Any, names: NamesFilter) -> list[str]:
    """The hook names that a name, pattern, list of them or function means, in order of firing."""
    if names is None:
        return engine.hook_names()
    if callable(names):
        chosen = [name for name in engine.hook_names() if names(name)]
        if not chosen:
            raise Error("names_filter: the function accepts no hook point of this model")
        return chosen
    return engine.match_hooks([names] if isinstance(names, str) else list(names))


def rows_of(positions: Positions, length: int, sequences: int) -> list[int]:
    """Rows of the batch that hold the given positions of each sequence; empty: all of them."""
    if positions is None:
        return []
    every = range(length)
    try:
        if isinstance(positions, slice):
            chosen = list(every[positions])
        else:
            chosen = [every[int(p)] for p in np.atleast_1d(positions)]
    except IndexError:
        raise Error(f"positions: {positions} reaches outside the text, which has positions 0 to {length - 1}") from None
    if not chosen:
        raise Error(f"positions: {positions} names no position")
    return [sequence * length + p for sequence in range(sequences) for p in chosen]


def shaped(name: str, array: np.ndarray | DeviceArray, sequences: int | None) -> np.ndarray | DeviceArray:
    """A view as the user gave the tokens: one sequence without, several with a leading dimension.

    array: [sequences * rows, ...], squares [head, sequences * rows, key].
    """
    if sequences is None:
        return array
    if is_square(name):
        heads, rows, keys = array.shape
        return array.reshape(heads, sequences, rows // sequences, keys).transpose(1, 0, 2, 3)
    return array.reshape(sequences, array.shape[0] // sequences, *array.shape[1:])


def collect(engine: Any, fwd_hooks: Iterable[FwdHook]) -> dict[str, list[HookFunction]]:
    """Functions by hook name, in the order in which they were given."""
    functions: dict[str, list[HookFunction]] = {}
    for entry in fwd_hooks:
        try:
            names, function = entry
        except (TypeError, ValueError):
            raise Error(f"fwd_hooks: found {entry!r}, expected pairs (name, function)") from None
        if not callable(function):
            raise Error(f"fwd_hooks: {function!r} at {names!r} is not a function")
        for name in select(engine, names):
            functions.setdefault(name, []).append(with_hook(function))
    return functions


def with_hook(function: HookFunction) -> HookFunction:
    """f(activation, hook=...) as TransformerLens calls it, also for functions of the activation alone."""
    try:
        inspect.signature(function).bind(None, hook=None)
    except TypeError:
        return lambda activation, hook: function(activation)
    except ValueError:  # a builtin without a signature
        return lambda activation, hook: function(activation)
    return function


def apply(function: HookFunction, activation: Array, array: np.ndarray | DeviceArray, point: HookPoint) -> None:
    """Calls the function and writes what it returns into the activation; None leaves it as it is now.

    activation is the array as the function sees it.
    """
    result = function(activation, hook=point)
    if result is None or result is activation:
        return
    if not hasattr(result, "__dlpack__"):
        result = on_host(result)
    if dtype_of(result) != "float32":
        raise Error(f"hook at {point.name}: it returned {dtype_of(result)}, expected float32")
    if tuple(result.shape) != tuple(array.shape):
        raise Error(f"hook at {point.name}: it returned shape {list(result.shape)}, expected {list(array.shape)}")
    assign(array, result)
