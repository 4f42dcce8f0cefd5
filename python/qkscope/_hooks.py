"""Selection of hook points by name, and calls of hook functions."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Union

from ._arrays import assign, dtype_of, on_host
from ._engine import InputError
from ._engine import Model as Engine

NamesFilter = Union[str, Sequence[str], Callable[[str], bool], None]
HookFunction = Union[Callable[[Any], Any], Callable[[Any, "HookPoint"], Any]]
FwdHook = tuple[Union[str, Callable[[str], bool]], HookFunction]
BoundHook = Callable[..., Any]  # f(activation, hook=...)
Functions = dict[str, list[BoundHook]]


@dataclass(frozen=True)
class HookPoint:
    """The hook point that a hook function is called at."""

    name: str

    def layer(self) -> int:
        """Returns the layer index; -1 outside the blocks."""
        return layer_of(self.name)


def layer_of(name: str) -> int:
    parts = name.split(".")
    return int(parts[1]) if parts[0] == "blocks" else -1


def select(engine: Engine, names: NamesFilter) -> list[str]:
    """Returns hook names selected by a name, a pattern, a list or a function, in order of firing."""
    if names is None:
        return engine.hook_names()
    if callable(names):
        chosen = [name for name in engine.hook_names() if names(name)]
        chosen = chosen or [name for name in engine.derived_hook_names() if names(name)]
        if not chosen:
            raise InputError("names_filter: the function accepts no hook point of this model")
        return chosen
    wanted = [names] if isinstance(names, str) else list(names) if isinstance(names, Iterable) else [names]
    if not wanted or not all(isinstance(name, str) for name in wanted):
        raise InputError(f"names_filter: found {names!r}, expected a name, a pattern, a list of them or a function")
    return engine.match_hooks(wanted)


def pairs(fwd_hooks: Any) -> list[Any]:
    if isinstance(fwd_hooks, (str, bytes)) or not isinstance(fwd_hooks, Iterable):
        raise InputError(f"fwd_hooks: found {fwd_hooks!r}, expected a list of pairs (name, function)")
    return list(fwd_hooks)


def collect(engine: Engine, fwd_hooks: Iterable[FwdHook]) -> Functions:
    """Groups hook functions by hook name, in the given order."""
    functions: Functions = {}
    for entry in fwd_hooks:
        try:
            names, function = entry
        except (TypeError, ValueError):
            raise InputError(f"fwd_hooks: found {entry!r}, expected pairs (name, function)") from None
        if not callable(function):
            raise InputError(f"fwd_hooks: {function!r} at {names!r} is not a function")
        for name in select(engine, names):
            functions.setdefault(name, []).append(with_hook(function, name))
    return functions


def with_hook(function: Callable[..., Any], name: str) -> BoundHook:
    """Wraps a function of the activation alone, so that it can be called as f(activation, hook=...)."""
    try:
        signature = inspect.signature(function)
    except ValueError:  # builtins have no signature
        return lambda activation, hook: function(activation)
    if _takes(signature, None, hook=None):
        return function
    if _takes(signature, None):
        return lambda activation, hook: function(activation)
    found = f"{getattr(function, '__name__', 'a function')}{signature}"
    raise InputError(
        f"hook at {name}: found {found}, expected f(activation) or f(activation, hook); functools.partial binds the rest")


def _takes(signature: inspect.Signature, *args: Any, **kwargs: Any) -> bool:
    try:
        signature.bind(*args, **kwargs)
    except TypeError:
        return False
    return True


def apply(function: BoundHook, activation: Any, array: Any, point: HookPoint) -> None:
    """Calls a hook function and copies its result, unless None, into the array.

    activation: view or padded copy of the array that is passed to the function.
    """
    result = function(activation, hook=point)
    if result is None or result is activation:
        return
    if not hasattr(result, "__dlpack__"):
        result = on_host(result)
    if dtype_of(result) != "float32":
        raise InputError(f"hook at {point.name}: it returned {dtype_of(result)}, expected float32")
    if tuple(result.shape) != tuple(array.shape):
        raise InputError(f"hook at {point.name}: it returned shape {list(result.shape)}, expected {list(array.shape)}")
    assign(array, result)


@dataclass(frozen=True)
class Added:
    """A hook function added by add_hook()."""

    names: Union[str, Callable[[str], bool]]
    function: BoundHook
    permanent: bool
