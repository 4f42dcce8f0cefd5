"""Building blocks of pictures for notebooks: SVG and HTML without JavaScript and without files from the network."""

from __future__ import annotations

import base64
import math
import struct
import zlib
from collections.abc import Callable, Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from . import _options

MOST_CELLS = 2000  # cells of a heat map with a rectangle each; a larger map is an image, with hover text on this many
_SEQUENTIAL = np.array([[255, 255, 255], [158, 202, 225], [49, 130, 189], [8, 48, 107]], float)
_DIVERGING = np.array([[178, 24, 43], [244, 165, 130], [255, 255, 255], [146, 197, 222], [33, 102, 172]], float)
LINE_COLOURS = ("#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f")


class Picture:
    """A picture that notebooks show in the cell; str(picture) is its HTML."""

    def __init__(self, html: str, title: str):
        style = "background:#fff;color:#222;font:12px sans-serif;padding:4px;overflow-x:auto"
        self._html = f'<div style="{style}">{html}</div>'
        self.title = title

    def _repr_html_(self) -> str:
        return self._html

    def __str__(self) -> str:
        return self._html

    def __repr__(self) -> str:
        return f"<Picture {self.title!r}, {len(self._html):,} bytes; save(path) writes an HTML file>"

    def save(self, path: Any) -> None:
        """Writes an HTML file that any browser shows."""
        page = f'<!DOCTYPE html><meta charset="utf-8"><title>{escape(self.title)}</title>{self._html}\n'
        Path(_options.path("path", path)).write_text(page, encoding="utf-8")


class Scale:
    """A colour scale: red, white, blue around 0 if values have both signs, else white to blue.

    White is 0, or the smallest value where that is above half of the largest.
    """

    def __init__(self, values: np.ndarray, limits: tuple[float, float] | None = None):
        finite = values[np.isfinite(values)]
        low, high = limits or ((float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0))
        self.diverging = low < 0 < high
        if limits is None:
            top = max(-low, high)
            low, high = (-top, top) if self.diverging else (0.0 if 0 <= low <= high / 2 else low, high)
        self.low, self.high = low, high if high > low else low + 1.0

    def rgb(self, values: np.ndarray) -> np.ndarray:
        """Returns colours uint8 [..., 3]; NaN is light grey."""
        stops = _DIVERGING if self.diverging else _SEQUENTIAL
        place = np.clip((values - self.low) / (self.high - self.low), 0, 1) * (len(stops) - 1)
        known = np.isfinite(place)
        place = np.where(known, place, 0)
        lower = np.minimum(place.astype(int), len(stops) - 2)
        part = (place - lower)[..., None]
        colours = stops[lower] * (1 - part) + stops[lower + 1] * part
        return np.where(known[..., None], colours, 235).round().astype(np.uint8)

    def legend(self, x: float, y: float) -> str:
        steps = np.linspace(self.low, self.high, 12)
        digits = next((n for n in range(3, 9) if f"{self.low:.{n}g}" != f"{self.high:.{n}g}"), 9)
        boxes = "".join(
            f'<rect x="{x + 8 * i:g}" y="{y:g}" width="8" height="8" fill="{hexadecimal(colour)}"/>'
            for i, colour in enumerate(self.rgb(steps)))
        low, high = f"{self.low:.{digits}g}", f"{self.high:.{digits}g}"
        return text(x - 3, y + 8, low, "end") + boxes + text(x + 99, y + 8, high)


def hexadecimal(colour: Iterable[int]) -> str:
    return "#" + "".join(f"{part:02x}" for part in colour)


def on_colour(colour: np.ndarray) -> str:
    """Returns the colour of text that is readable on a background."""
    return "#222" if colour @ np.array([0.3, 0.6, 0.1]) > 130 else "#fff"


def shown_token(token: Any) -> str:
    """Returns the text of a token on one line, escaped for HTML."""
    return escape(str(token).replace("\n", "↵").replace("\t", "⇥"))


def text(x: float, y: float, content: str, anchor: str = "start", more: str = "") -> str:
    """An SVG text; the content is escaped."""
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}"{more}>{escape(content)}</text>'


def svg(width: float, height: float, body: str, title: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" role="img" '
        f'aria-label="{escape(title)}" style="font:10px sans-serif;white-space:pre;margin-right:8px">{body}</svg>')


def heat_map(
    values: np.ndarray,
    scale: Scale,
    hover: Callable[[int, int], str],
    *,
    rows: Sequence[str],
    columns: Sequence[str],
    title: str,
    cell: int,
    axes: tuple[str, str],
) -> str:
    """An SVG of values [row, column] with hover text per cell. Labels are drawn where cells are large enough."""
    count, width = values.shape
    labelled = cell >= 9
    longest = max(len(_short(label)) for label in columns)
    left = 14 + (6 * max(len(_short(label)) for label in rows) if labelled else 0)
    top = 30 + ((6 * longest if longest > 2 else 12) if labelled else 0)
    body = text(left, 12, title, more=' font-weight="bold"') + text(left, 25, f"{axes[0]} ↓  {axes[1]} →")
    if labelled:
        for i, label in enumerate(rows):
            body += text(left - 3, top + cell * (i + 0.5) + 3, _short(label), "end")
        for j, label in enumerate(columns):
            x, y = left + cell * (j + 0.5), top - 3
            if longest > 2:
                body += text(x + 3, y, _short(label), more=f' transform="rotate(-90 {x + 3:g} {y:g})"')
            else:
                body += text(x, y, label, "middle")
    body += f'<g transform="translate({left} {top})">' + _cells(values, scale, hover, cell) + "</g>"
    bottom = top + cell * count
    body += scale.legend(left + 30, bottom + 6)
    return svg(left + max(cell * width + 4, 170, 6 * len(title)), bottom + 20, body, title)


def _cells(values: np.ndarray, scale: Scale, hover: Callable[[int, int], str], cell: int) -> str:
    count, width = values.shape
    colours = scale.rgb(values)
    blank = np.isnan(values) | ((values == 0) & (scale.low == 0))  # white as the background
    places = [(i, j) for i in range(count) for j in range(width) if not blank[i, j]]
    image = ""
    if values.size > MOST_CELLS:
        strength = np.nan_to_num(np.abs(values)).reshape(-1)
        strongest = np.sort(np.argsort(-strength, kind="stable")[:MOST_CELLS])
        places = [(int(i) // width, int(i) % width) for i in strongest if strength[i] > 0]
        image = (
            f'<image width="{cell * width}" height="{cell * count}" style="image-rendering:pixelated" '
            f'preserveAspectRatio="none" href="data:image/png;base64,{base64.b64encode(_png(colours)).decode()}"/>')
    boxes = []
    for i, j in places:
        fill = hexadecimal(colours[i, j]) if not image else "transparent"
        boxes.append(
            f'<rect x="{cell * j}" y="{cell * i}" width="{cell}" height="{cell}" fill="{fill}">'
            f"<title>{escape(hover(i, j))}</title></rect>")
    frame = f'<rect width="{cell * width}" height="{cell * count}" fill="none" stroke="#999"/>'
    missing = "".join(
        f'<rect x="{cell * j}" y="{cell * i}" width="{cell}" height="{cell}" fill="#ebebeb"/>'
        for i, j in np.argwhere(np.isnan(values)) if not image)
    return image + "".join(boxes) + missing + frame


def _short(label: str) -> str:
    label = label.replace("\n", "↵").replace("\t", "⇥")
    return label if len(label) <= 16 else label[:15] + "…"


def _png(colours: np.ndarray) -> bytes:
    """Encodes colours uint8 [row, column, 3] as a PNG file."""
    rows, columns, _ = colours.shape
    raw = np.zeros((rows, 1 + 3 * columns), np.uint8)  # each row begins with filter type 0
    raw[:, 1:] = colours.reshape(rows, -1)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", columns, rows, 8, 2, 0, 0, 0)  # 8 bits per channel, RGB
    chunks = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(raw.tobytes(), 9)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + chunks


def ticks(low: float, high: float) -> list[float]:
    """Returns about five round numbers between two values."""
    step = 10 ** math.floor(math.log10((high - low) / 4)) if high > low else 1.0
    step *= next(factor for factor in (1, 2, 5, 10) if (high - low) / (step * factor) <= 5.5)
    return [step * i for i in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def table(header: Sequence[str], rows: Iterable[Sequence[Any]], caption: str = "") -> str:
    """An HTML table; cells are escaped, except those that are Raw."""
    head = "".join(f"<th>{escape(name)}</th>" for name in header)
    body = "".join("<tr>" + "".join(f"<td>{_cell(value)}</td>" for value in row) + "</tr>" for row in rows)
    top = f'<caption style="text-align:left">{escape(caption)}</caption>' if caption else ""
    return f"<table>{top}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


class Raw(str):
    """HTML that is not escaped."""


def _cell(value: Any) -> str:
    if isinstance(value, Raw):
        return value
    return escape("" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value))
