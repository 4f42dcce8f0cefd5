"""Representations of models, caches, tables and results in notebooks and at the Python prompt."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from html import escape
from typing import Any

import numpy as np

from . import _engine
from ._svg import Raw, svg, table

_MOST_ROWS = 20  # rows of a table


def model_html(name: str, cfg: Any, device: str, dtype: str) -> str:
    """A table of the configuration, and a map of the layers: RoPE or NoPE, full or sliding attention."""
    facts = {
        "family": cfg.family, "layers": cfg.n_layers, "heads": f"{cfg.n_heads} on {cfg.n_key_value_heads} key heads",
        "d_model": cfg.d_model, "d_head": cfg.d_head, "d_mlp": cfg.d_mlp, "d_vocab": cfg.d_vocab, "n_ctx": cfg.n_ctx,
        "device": f"{device}, {dtype}", "positions": Raw(_layer_map(cfg)),
    }
    return table(["model", name], list(facts.items()))


def _layer_map(cfg: Any) -> str:
    boxes = ""
    kinds: dict[str, int] = {}
    for layer in range(cfg.n_layers):
        rope, window = cfg.rope[layer], cfg.window[layer]
        position = "RoPE" if rope is not None else "NoPE" if cfg.positional_embedding_type == "rotary" else "no RoPE"
        kind = position + (f", window {window}" if window else "")
        colour = "#9ecae1" if rope is not None and window else "#3182bd" if rope is not None else "#ff7f0e"
        kinds[kind] = kinds.get(kind, 0) + 1
        theta = f", theta {rope.theta:g}, {rope.dim} of {max(cfg.d_head, rope.dim)} dimensions" if rope is not None else ""
        boxes += (
            f'<rect x="{14 * (layer % 48)}" y="{14 * (layer // 48)}" width="12" height="12" fill="{colour}">'
            f"<title>layer {layer}: {escape(kind + theta)}</title></rect>")
    counts = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    height = 14 * (1 + (cfg.n_layers - 1) // 48)
    return svg(14 * min(48, cfg.n_layers), height, boxes, counts) + escape(counts)


def cache_text(arrays: Mapping[str, Any], has_batch_dim: bool) -> str:
    layers = {name.split(".")[1] for name in arrays if name.startswith("blocks.")}
    shapes = {tuple(array.shape) for array in arrays.values()}
    some = f"{len(shapes)} shapes" if len(shapes) > 3 else ", ".join(str(list(shape)) for shape in sorted(shapes))
    what = f"activations {'[batch, pos, ...]' if has_batch_dim else '[pos, ...]'} of {len(layers)} layers"
    return f"ActivationCache({len(arrays)} {what}, {some or 'no shapes'}, {_bytes(arrays)})"


def cache_html(arrays: Mapping[str, Any], has_batch_dim: bool) -> str:
    """A table with one row per kind of activation; layers with one shape share a row."""
    rows: dict[tuple[str, str], list[Any]] = {}
    for name, array in arrays.items():
        kind = re.sub(r"^blocks\.\d+\.", "blocks.*.", name)
        rows.setdefault((kind, str(list(array.shape))), []).append((name, array))
    lines = []
    for (kind, shape), members in rows.items():
        layers = [int(name.split(".")[1]) for name, _ in members] if kind.startswith("blocks.") else []
        name = kind if len(members) > 1 else members[0][0]
        lines.append([name, _ranges(layers), shape, _bytes(dict(members))])
    return table(["activation", "layers", "shape", "size"], lines, cache_text(arrays, has_batch_dim))


def _ranges(numbers: list[int]) -> str:
    """Writes numbers as ranges: "0-3, 5"."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and parts[-1][-1] == number - 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ", ".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)


def _bytes(arrays: Mapping[str, Any]) -> str:
    size: float = sum(4 * int(np.prod(array.shape)) for array in arrays.values())  # float32
    for unit in ("B", "KB", "MB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} GB"


def arrow_html(rows: Any) -> str:
    """The first rows of an Arrow table."""
    first = rows.slice(0, _MOST_ROWS)
    left = f", the first {_MOST_ROWS}" if rows.num_rows > _MOST_ROWS else ""
    cells = zip(*(column.to_pylist() for column in first.columns))
    return table(rows.column_names, cells, f"{rows.num_rows} rows × {rows.num_columns} columns{left}")


def _tokenizer_text(self: _engine.Tokenizer) -> str:
    return f"Tokenizer(vocab_size={self.vocab_size}, bos_id={self.bos_id}, eos_id={self.eos_id})"


def _drawn_text(self: _engine.Drawn) -> str:
    left = f", left_out={[name for name, _ in self.left_out]}" if self.left_out else ""
    return f"Drawn(figures={self.figures}{left}, report={self.report!r})"


def install() -> None:
    """Gives classes of the engine a repr; in IPython, shows Arrow tables as HTML unless they have a formatter."""
    setattr(_engine.Tokenizer, "__repr__", _tokenizer_text)
    setattr(_engine.Drawn, "__repr__", _drawn_text)
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if shell is not None:
        formatter = shell.display_formatter.formatters["text/html"]
        if not any(key == ("pyarrow.lib", "Table") for key in formatter.deferred_printers):
            formatter.for_type_by_name("pyarrow.lib", "Table", arrow_html)
