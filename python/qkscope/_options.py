"""Arguments of the calls that take many: mistakes are an InputError that says what was found and expected."""

from __future__ import annotations

import difflib
import functools
import inspect
import operator
import re
from collections.abc import Callable, Iterable, Sequence
from os import fspath
from typing import Any, TypeVar, Union

from ._engine import InputError

Function = TypeVar("Function", bound=Callable[..., Any])
Layers = Union[str, int, Iterable[int]]
Heads = Union[str, Iterable[tuple[int, int]]]

_MOST = 1 << 20  # layers, heads and other counts


def checked(function: Function) -> Function:
    """Arguments that the function does not have, or that are missing, are an InputError instead of a TypeError.

    So is something else in place of a model, where that comes first.
    """
    signature = inspect.signature(function)
    names = [name for name in signature.parameters if name != "self"]
    takes_any = any(parameter.kind == parameter.VAR_KEYWORD for parameter in signature.parameters.values())
    takes_model = next(iter(signature.parameters), "") == "model"

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        for name in kwargs:
            if name not in names and not takes_any:
                raise InputError(f"{function.__name__}: no argument {name!r}; {_expected(name, names)}")
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise InputError(f"{function.__name__}: {error}; expected {function.__name__}{_short(signature)}") from None
        if takes_model:
            check_model(bound.arguments["model"])
        return function(*args, **kwargs)

    return call  # type: ignore[return-value]


def check_model(value: Any) -> None:
    from .model import Model  # which is made of modules that use this one

    if not isinstance(value, Model):
        raise InputError(f"model: found {type(value).__name__}, expected what load() gives")


def _expected(name: str, names: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, names, 1)
    return f"did you mean {near[0]!r}?" if near else f"expected some of {', '.join(names)}"


def _short(signature: inspect.Signature) -> str:
    """The arguments that may come without their name; the others are told by the documentation."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    by_place = [name for name, parameter in signature.parameters.items() if parameter.kind in kinds and name != "self"]
    return f"({', '.join(by_place)}, *, ...)"


def path(name: str, value: Any) -> str:
    try:
        return fspath(value)
    except TypeError:
        raise InputError(f"{name}={value!r}: expected a text or a path") from None


def text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise InputError(f"{name}={value!r}: expected a text")
    return value


def flag_or_none(name: str, value: Any) -> bool | None:
    return None if value is None else flag(name, value)


def flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise InputError(f"{name}={value!r}: expected True or False")
    return value


def whole(name: str, value: Any, least: int, most: int = _MOST) -> int:
    found = _index(value)
    if found is None or not least <= found <= most:
        raise InputError(f"{name}={value!r}: expected a whole number from {least} to {most}")
    return found


def number(name: str, value: Any, low: float, high: float) -> float:
    try:
        found = float(value) if not isinstance(value, (str, bool)) else None
    except (TypeError, ValueError):
        found = None
    if found is None or not low <= found <= high:
        raise InputError(f"{name}={value!r}: expected a number from {low:g} to {high:g}")
    return found


def choice(name: str, value: Any, words: Sequence[str]) -> str:
    if not isinstance(value, str) or value not in words:
        raise InputError(f"{name}={value!r}: expected {' or '.join(map(repr, words))}")
    return value


def wholes(name: str, value: Any, least: int, most: int = _MOST) -> list[int]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise InputError(f"{name}={value!r}: expected a list of whole numbers")
    return [whole(name, item, least, most) for item in value]


def layers(name: str, value: Layers) -> list[int]:
    """Numbers, or a text as the command line takes it: "0,4-7"."""
    if not isinstance(value, str):
        one = _index(value)
        return [whole(name, one, 0)] if one is not None else wholes(name, value, 0)
    found: list[int] = []
    for part in value.replace(" ", "").split(","):
        ends = re.fullmatch(r"(\d{1,6})(?:-(\d{1,6}))?", part)
        first, last = (int(ends[1]), int(ends[2] or ends[1])) if ends else (1, 0)
        if last < first:
            raise InputError(f"{name}={value!r}: {part!r} is not a layer; expected numbers and ranges, as '0,4-7'")
        found.extend(range(first, last + 1))
    return found


def heads(name: str, value: Heads) -> list[tuple[int, int]]:
    """Pairs (layer, head), or a text as the command line takes it: "3.5,3.6"."""
    if isinstance(value, str):
        parts = [re.fullmatch(r"(\d{1,6})\.(\d{1,6})", part) for part in value.replace(" ", "").split(",")]
        pairs: list[Any] = [part and (int(part[1]), int(part[2])) for part in parts]
    else:
        pairs = list(value) if isinstance(value, Iterable) else [None]
    found = []
    for pair in pairs:
        ends = [_index(end) for end in pair] if isinstance(pair, Sequence) and len(pair) == 2 else []
        inside = [end for end in ends if end is not None and 0 <= end <= _MOST]
        if len(inside) != 2:
            raise InputError(f"{name}={value!r}: expected pairs (layer, head), as [(3, 5), (3, 6)], or '3.5,3.6'")
        found.append((inside[0], inside[1]))
    return found


def _index(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None
