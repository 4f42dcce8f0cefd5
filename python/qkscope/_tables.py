"""Converts tables of the engine to Arrow tables."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

_ARROW_TYPES = {"integer": pa.int64(), "real": pa.float64(), "boolean": pa.bool_(), "text": pa.string()}


def to_arrow(columns: list[tuple[str, str, Any]]) -> pa.Table:
    """columns: list of (name, type, values)."""
    arrays = [_array(kind, values) for _, kind, values in columns]
    return pa.table(arrays, names=[name for name, _, _ in columns])


def _array(kind: str, values: Any) -> pa.Array:
    if kind in ("integer", "boolean"):  # the smallest integer means null
        values = np.asarray(values)
        known = values if kind == "integer" else values != 0
        return pa.array(known, type=_ARROW_TYPES[kind], mask=values == np.iinfo(np.int64).min)
    return pa.array(values, type=_ARROW_TYPES[kind], from_pandas=True)
