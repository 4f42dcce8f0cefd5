"""Pictures for notebooks: attention patterns, maps of heads, profiles, tokens with scores.

Pictures are SVG and HTML in the cell, with the numbers as hover text. They need no other package, no JavaScript and no
network; picture.save("page.html") writes a file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from html import escape
from typing import Any

import numpy as np

from . import _options
from ._arrays import on_host
from ._engine import InputError
from ._svg import LINE_COLOURS, Picture, Scale, heat_map, hexadecimal, on_colour, shown_token, svg, text, ticks

_MOST_TOKENS = 1024
_WIDTH, _HEIGHT = 520, 220  # pixels of a profile


@_options.checked
def attention(
    pattern: Any,
    tokens: Sequence[str] | None = None,
    *,
    queries: Sequence[int] | None = None,
    labels: Sequence[str] | None = None,
    title: str = "attention",
) -> Picture:
    """Draws attention patterns or scores [query, key] or [head, query, key], one map per head.

    tokens: text of each key, for hover text and axes (model.to_str_tokens). queries: positions of the queries, if they
    are not all positions. labels: one per head. Scores of hidden keys (-inf) are grey.
    """
    values = on_host(pattern).astype(np.float64)
    values = values[None] if values.ndim == 2 else values
    if values.ndim != 3 or 0 in values.shape or max(values.shape[1:]) > _MOST_TOKENS:
        raise InputError(
            f"pattern: found shape {list(values.shape)}, expected [head, query, key] of at most {_MOST_TOKENS} tokens; "
            "slice longer patterns")
    heads, rows, keys = values.shape
    words = _labels("tokens", tokens, keys) or [str(key) for key in range(keys)]
    places = _labels("queries", queries, rows) or [str(query) for query in range(keys - rows, keys)]
    names = _labels("labels", labels, heads) or [f"head {head}" for head in range(heads)]
    values[~np.isfinite(values)] = np.nan
    scale = Scale(values)
    cell = max(2, min(16, 360 // max(rows, keys)))

    def word(position: str) -> str:
        return words[int(position)] if 0 <= int(position) < keys else position

    def hover(head: int, query: int, key: int) -> str:
        return f"{word(places[query])!r} ({places[query]}) → {words[key]!r} ({key}): {values[head, query, key]:.3g}"

    maps = [
        heat_map(
            values[head], scale, partial(hover, head), title=names[head], cell=cell,
            rows=[word(place) for place in places], columns=words, axes=("query", "key"))
        for head in range(heads)
    ]
    return Picture("".join(maps), title)


@_options.checked
def head_map(
    values: Any,
    *,
    title: str = "",
    limits: tuple[float, float] | None = None,
    row: str = "layer",
    column: str = "head",
    rows: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
) -> Picture:
    """Draws one number per head, [layer, head], such as a column of heads() or a result of patching.

    NaN is grey. Negative values are red and positive values blue. limits: (low, high) of the colours. row, column:
    names of the axes, and rows, columns: their labels, for other matrices, such as [layer, position].
    """
    numbers = on_host(values).astype(np.float64)
    if numbers.ndim != 2 or 0 in numbers.shape:
        raise InputError(f"values: found shape {list(numbers.shape)}, expected [{row}, {column}]")
    count, width = numbers.shape
    down = _labels("rows", rows, count) or [str(i) for i in range(count)]
    across = _labels("columns", columns, width) or [str(j) for j in range(width)]
    picture = heat_map(
        numbers, Scale(numbers, limits), lambda i, j: f"{row} {down[i]}, {column} {across[j]}: {numbers[i, j]:.4g}",
        title=title, cell=max(3, min(22, 900 // max(count, width))), axes=(row, column), rows=down, columns=across)
    return Picture(picture, title or f"{row} by {column}")


@_options.checked
def profile(
    values: Any, x: Sequence[Any] | None = None, *, title: str = "", x_label: str = "position", y_label: str = ""
) -> Picture:
    """Draws lines: values [point], [line, point], or a mapping from names to lines, over x.

    x: numbers, or names of the points; None: 0, 1, 2, ... NaN leaves a gap.
    """
    named = _lines(values)
    count = len(next(iter(named.values())))
    names = _labels("x", x, count) or [str(point) for point in range(count)]
    is_number = x is None or all(isinstance(one, (int, float, np.number)) for one in x)
    places = np.arange(float(count)) if x is None or not is_number else np.array([float(one) for one in x])
    every = np.concatenate(list(named.values()))
    low, high = (float(np.nanmin(every)), float(np.nanmax(every))) if np.isfinite(every).any() else (0.0, 1.0)
    low, high = (low, high) if high > low else (low - 0.5, high + 0.5)
    left, right, top, bottom = 60, _WIDTH - 10, 24, _HEIGHT - 34

    def at(point: float, value: float) -> tuple[float, float]:
        across = (point - places.min()) / max(float(np.ptp(places)), 1e-12)
        return left + (right - left) * across, bottom - (bottom - top) * (value - low) / (high - low)

    body = text(left, 12, title, more=' font-weight="bold"')
    for value in ticks(low, high):
        y = at(places[0], value)[1]
        body += f'<path d="M{left} {y:.1f}H{right}" stroke="#eee"/>' + text(left - 4, y + 3, f"{value:.4g}", "end")
    marks = ticks(places.min(), places.max()) if is_number else places[:: max(1, count // 9)]
    for point in marks:
        label = f"{point:g}" if is_number else names[int(point)]
        anchor = "middle" if is_number or 0 < point < count - 1 else "start" if point == 0 else "end"
        body += text(at(point, low)[0], bottom + 13, label, anchor)
    body += text((left + right) / 2, _HEIGHT - 6, x_label, "middle")
    body += text(12, (top + bottom) / 2, y_label, "middle", f' transform="rotate(-90 12 {(top + bottom) / 2:g})"')
    legend = ""
    for number, (name, line) in enumerate(named.items()):
        colour = LINE_COLOURS[number % len(LINE_COLOURS)]
        body += _line([at(point, value) for point, value in zip(places, line)], colour)
        for label, point, value in zip(names, places, line):
            if np.isfinite(value):
                px, py = at(point, value)
                hover = escape(f"{name + ', ' if name else ''}{x_label} {label}: {value:.4g}")
                body += f'<circle cx="{px:.1f}" cy="{py:.1f}" r="2.5" fill="{colour}"><title>{hover}</title></circle>'
        legend += f'<tspan dx="10" fill="{colour}">{escape(name)}</tspan>'
    body += f'<text x="{right}" y="12" text-anchor="end">{legend}</text>'
    return Picture(svg(_WIDTH, _HEIGHT, body, title), title or "profile")


@_options.checked
def score_rows(
    scores: Any,
    tokens: Sequence[str] | Sequence[Sequence[str]],
    *,
    labels: Sequence[str] | None = None,
    title: str = "",
    limits: tuple[float, float] | None = None,
) -> Picture:
    """Draws one line of tokens per row of scores [pos] or [row, pos], each token on the colour of its score.

    Scores are one number per token: attention of one query, losses, activations of a neuron. tokens: the text of each
    token, or one such list per row. labels: one per row. limits: (low, high) of the colours.
    """
    values = np.atleast_2d(on_host(scores).astype(np.float64))
    if values.ndim != 2:
        raise InputError(f"scores: found shape {list(values.shape)}, expected [pos] or [row, pos]")
    lines = [tokens] * len(values) if all(isinstance(token, str) for token in tokens) else tokens
    if len(lines) != len(values):
        raise InputError(f"tokens: found {len(lines)} lists, expected {len(values)}: one per row of scores")
    names = _labels("labels", labels, len(values)) or [""] * len(values)
    colours = Scale(values, limits).rgb(values)
    rows = []
    for name, line, row, own in zip(names, lines, values, colours):
        words = _labels("tokens", line, len(row)) or []
        spans = "".join(
            f'<span style="background:{hexadecimal(colour)};color:{on_colour(colour)}" '
            f'title="{escape(f"{word!r} ({position}): {value:.4g}")}">{shown_token(word)}</span>'
            for position, (word, value, colour) in enumerate(zip(words, row, own)))
        spans = f'<span style="white-space:pre-wrap">{spans}</span>'
        rows.append(f'<div style="margin:2px 0"><b>{escape(name)}</b> {spans}</div>')
    return Picture(f"<b>{escape(title)}</b>" + "".join(rows), title or "scores")


def _labels(argument: str, labels: Sequence[Any] | None, count: int) -> list[str] | None:
    if labels is None:
        return None
    found = [str(label) for label in labels]
    if len(found) != count:
        raise InputError(f"{argument}: found {len(found)}, expected {count}")
    return found


def _lines(values: Any) -> dict[str, np.ndarray]:
    """Returns lines by name; a single line has the name ""."""
    if isinstance(values, Mapping):
        lines = {str(name): on_host(line).astype(np.float64) for name, line in values.items()}
    else:
        rows = np.atleast_2d(on_host(values).astype(np.float64))
        lines = {"" if len(rows) == 1 else str(i): row for i, row in enumerate(rows)}
    shapes = {line.shape for line in lines.values()}
    if len(shapes) != 1 or len(shape := shapes.pop()) != 1 or shape == (0,):
        raise InputError("values: expected [point], [line, point], or a mapping from names to lines of one length")
    return lines


def _line(points: list[tuple[float, float]], colour: str) -> str:
    """A path through the points; a point that is not finite leaves a gap."""
    path, begins = "", True
    for px, py in points:
        if np.isfinite(py):
            path += f"{'M' if begins else 'L'}{px:.1f} {py:.1f}"
        begins = not np.isfinite(py)
    return f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>'
