"""Checks of arguments. A wrong argument is an InputError that names the value found and the values expected."""

from __future__ import annotations

import difflib
import functools
import inspect
import operator
import re
from collections.abc import Callable, Iterable, Sequence
from os import fspath
from typing import Any, TypeVar, Union

from ._engine import AnalysisOption, AnalyzeOptions, InputError, analysis_options

Function = TypeVar("Function", bound=Callable[..., Any])
Layers = Union[str, int, Iterable[int]]
Heads = Union[str, Iterable[tuple[int, int]]]

_MOST = 1 << 20  # default upper bound of layers, heads and other counts


def checked(function: Function) -> Function:
    """Raises InputError, not TypeError, for unknown and missing arguments.

    A first parameter `model: Model` must be a Model.
    """
    signature = inspect.signature(function)
    names = [name for name in signature.parameters if name != "self"]
    takes_any = any(parameter.kind == parameter.VAR_KEYWORD for parameter in signature.parameters.values())
    first = next(iter(signature.parameters.values()), None)
    takes_model = first is not None and first.name == "model" and first.annotation == "Model"

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


class ModelType:
    """Base of Model: arguments are checked against it, so that this module need not import model.py."""


def check_model(value: Any) -> None:
    if not isinstance(value, ModelType):
        raise InputError(f"model: found {type(value).__name__}, expected what load() gives")


def _expected(name: str, names: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, names, 1)
    return f"did you mean {near[0]!r}?" if near else f"expected some of {', '.join(names)}"


def _short(signature: inspect.Signature) -> str:
    """The positional parameters of a signature: (data_root, out, *, ...)."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    by_place = [name for name, parameter in signature.parameters.items() if parameter.kind in kinds and name != "self"]
    return f"({', '.join(by_place)}, *, ...)"


def takes_analysis_options(*groups: str) -> Callable[[Function], Function]:
    """Replaces **options in a signature by the rows of the engine's table of options, and documents them."""
    rows = [row for row in analysis_options() if not groups or row.group in groups]

    def decorate(function: Function) -> Function:
        signature = inspect.signature(function)
        own = [one for one in signature.parameters.values() if one.kind != one.VAR_KEYWORD]
        new = [inspect.Parameter(row.name, inspect.Parameter.KEYWORD_ONLY, default=row.default) for row in rows]
        function.__signature__ = signature.replace(parameters=own + new)  # type: ignore[attr-defined]
        if function.__doc__:  # absent under python -OO
            lines = [f"    {row.name}: {row.help}; {row.expected}." for row in rows]
            function.__doc__ += "\n" + "\n".join(lines) + "\n    "
        return checked(function)

    return decorate


def set_analysis_options(options: AnalyzeOptions, given: dict[str, Any]) -> None:
    """Checks the given values against the table of options and stores them."""
    for row in analysis_options():
        if row.name in given and not (given[row.name] is None and row.default is None):
            options.set(row, _value(row, given[row.name]))


def _value(row: AnalysisOption, value: Any) -> Any:
    if row.kind == "flag":
        return flag(row.name, value)
    if row.kind == "count":
        return _count_or_word(row, value) if row.words else whole(row.name, value, row.least, row.most)
    if row.kind == "number":
        return number(row.name, value, row.lower, row.upper)
    if row.kind == "choice":
        return choice(row.name, value, row.words)
    if row.kind == "text":
        return path(row.name, value)
    if row.kind == "layers":
        return layers(row.name, value)
    if row.kind == "heads":
        return heads(row.name, value)
    found = wholes(row.name, value, row.least, row.most)
    if row.length and len(found) != row.length:
        raise InputError(f"{row.name}={value!r}: expected {row.expected}")
    return found


def _count_or_word(row: AnalysisOption, value: Any) -> int | str:
    if isinstance(value, str) and value in row.words:
        return value
    try:
        return whole(row.name, value, row.least, row.most)
    except InputError:
        words = ", ".join(map(repr, row.words))
        raise InputError(f"{row.name}={value!r}: expected {row.least} to {row.most}, {words} or None") from None


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
    except (TypeError, ValueError, OverflowError):
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
    """Accepts layer numbers, or text as on the command line: "0,4-7"."""
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
    """Accepts pairs (layer, head), or text as on the command line: "3.5,3.6"."""
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
