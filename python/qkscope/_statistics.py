"""Reads a finished folder of `qkscope stats` as arrays and tables."""

from __future__ import annotations

import json
import mmap
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from . import _options
from ._engine import InputError

_DTYPES: dict[str, np.dtype[Any]] = {"F64": np.dtype("<f8"), "F32": np.dtype("<f4"), "I64": np.dtype("<i8")}
_SETS = ("first", "body", "all")


@_options.checked
def open_stats(folder: str | PathLike[str]) -> Statistics:
    """Opens a folder of statistics; docs/reference/statistics.md describes every number."""
    return Statistics(_options.path("folder", folder))


class Statistics:
    """Statistics over every token, as NumPy arrays with layers as the first axis.

    kind: "q", "k" or "v"; stage: "pre" (before RoPE) or "post" (as they enter the dot product; values have only "pre");
    set: "all" rows, the "first" rows of each document, or the "body" without the first rows.
    """

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)
        if not (self.folder / "stats_state.json").is_file():
            raise InputError(f"{folder}: there is no stats_state.json; expected the folder of a finished `qkscope stats`")
        self._tensors = _Safetensors(self.folder / "stats.safetensors")
        self.metadata: dict[str, str] = self._tensors.metadata
        self.settings: dict[str, Any] = json.loads(self.metadata["settings"])
        self.layers: list[int] = self.tensor("layers").tolist()  # layers that have moments
        self.lengths: np.ndarray = self.tensor("documents")  # tokens per document
        self.n_heads = int(self.metadata["num_heads"])
        self.n_key_value_heads = int(self.metadata["num_kv_heads"])
        self.d_head = int(self.metadata["head_dim"])

    def __repr__(self) -> str:
        return (
            f"Statistics of {self.metadata.get('model', 'a model')}: {len(self.lengths)} documents, "
            f"{int(self.lengths.sum())} tokens, groups {''.join(self.settings['groups'])}"
        )

    @property
    def names(self) -> list[str]:
        """Names of the tensors in the file."""
        return list(self._tensors.places)

    def tensor(self, name: str) -> np.ndarray:
        """Returns a read-only view of a tensor of the file: "q.post.body.m2"."""
        return self._tensors[name]

    # ---- Moments, group A.

    def n(self, set: str = "all") -> int:
        """Number of rows of a set, equal for all heads."""
        return sum(int(self.tensor(f"positions.{part}.n")[0]) for part in self._parts(set))

    def mean(self, kind: str, stage: str = "post", set: str = "all") -> np.ndarray:
        """Shape [layer, head, d]."""
        return self._moments(kind, stage, set)["mean"]

    def cov(self, kind: str, stage: str = "post", set: str = "all", ddof: int = 1) -> np.ndarray:
        """Covariance, [layer, head, d, d], divided by n - ddof."""
        return self._unpacked(self._moments(kind, stage, set)["m2"]) / (self.n(set) - ddof)

    def second_moment(self, kind: str, stage: str = "post", set: str = "all") -> np.ndarray:
        """Mean of x x^T, not centred, [layer, head, d, d]."""
        mean = self.mean(kind, stage, set)
        return self.cov(kind, stage, set, ddof=0) + mean[..., :, None] * mean[..., None, :]

    def std(self, kind: str, stage: str = "post", set: str = "all", ddof: int = 1) -> np.ndarray:
        """Shape [layer, head, d]."""
        return np.sqrt(self._squares(self._moments(kind, stage, set)["m2"]) / (self.n(set) - ddof))

    def skew(self, kind: str, stage: str = "post", set: str = "all") -> np.ndarray:
        """Skewness, [layer, head, d]; NaN for constant dimensions."""
        moments, n = self._moments(kind, stage, set), self.n(set)
        with np.errstate(invalid="ignore", divide="ignore"):
            return moments["m3"] / n / (self._squares(moments["m2"]) / n) ** 1.5

    def excess_kurtosis(self, kind: str, stage: str = "post", set: str = "all") -> np.ndarray:
        """Shape [layer, head, d]."""
        moments = self._moments(kind, stage, set)
        with np.errstate(invalid="ignore", divide="ignore"):
            return self.n(set) * moments["m4"] / self._squares(moments["m2"]) ** 2 - 3

    def min(self, kind: str, stage: str = "post", set: str = "all") -> np.ndarray:
        """Exact values, [layer, head, d], float32."""
        return np.minimum.reduce([self._field(kind, stage, part, "min") for part in self._parts(set)])

    def max(self, kind: str, stage: str = "post", set: str = "all") -> np.ndarray:
        """Exact values, [layer, head, d], float32."""
        return np.maximum.reduce([self._field(kind, stage, part, "max") for part in self._parts(set)])

    def absmax(self, kind: str, stage: str = "post", set: str = "all") -> np.ndarray:
        """[layer, head, d], float32"""
        return np.maximum(-self.min(kind, stage, set), self.max(kind, stage, set))

    def pair_abs(self, kind: str, set: str = "all") -> np.ndarray:
        """Mean L2 norm of each rotary pair before RoPE, [layer, head, pair]; 0 on layers without RoPE."""
        return self._weighted(kind, "pre", set, "pair_abs")

    def norm_mean(self, kind: str, stage: str = "post", set: str = "all") -> np.ndarray:
        """Mean L2 norm, [layer, head]."""
        return self._weighted(kind, stage, set, "norm_mean")

    def norm_max(self, kind: str, stage: str = "post", set: str = "all") -> np.ndarray:
        """[layer, head], float32"""
        return np.maximum.reduce([self._field(kind, stage, part, "norm_max") for part in self._parts(set)])

    def position_r(self, kind: str, stage: str = "post", set: str = "all") -> np.ndarray:
        """Correlation of each dimension with position, [layer, head, d]; NaN for constant dimensions."""
        moments = self._moments(kind, stage, set)
        with np.errstate(invalid="ignore", divide="ignore"):
            return moments["ct"] / np.sqrt(self._squares(moments["m2"]) * moments["tt"])

    def bucket_mean(self, kind: str, stage: str = "post") -> np.ndarray:
        """[layer, head, bucket, d]"""
        return self._field(kind, stage, "bucket", "mean")

    def bucket_rows(self) -> np.ndarray:
        """[bucket]"""
        return self.tensor("positions.bucket.n")

    def bucket_var(self, kind: str, stage: str = "post", ddof: int = 1) -> np.ndarray:
        """Variance, [layer, head, bucket, d]; NaN in buckets with too few rows."""
        rows = (self.bucket_rows() - ddof).astype(float)
        rows[rows <= 0] = np.nan
        return self._field(kind, stage, "bucket", "m2") / rows[:, None]

    # ---- Tables.

    def attention(self) -> pa.Table:
        """Attention statistics (groups B and C) per layer, head and bucket of query positions (null: all positions)."""
        return self._table("attention")

    def documents(self) -> pa.Table:
        """Attention statistics per document, with the head scores of TransformerLens and sink scores."""
        return self._table("attention_documents")

    def distance(self) -> pa.Table:
        """Distribution of attention over distances (group C)."""
        return self._table("distance")

    def channels(self) -> pa.Table:
        """Moments per channel."""
        return self._table("channels")

    def retrieval(self) -> pa.Table:
        """Retrieval trials, one row each."""
        return self._table("retrieval")

    def examples(self) -> pa.Table:
        """Example numbers and ids of the dataset."""
        return self._table("examples")

    def key_sums(self, layer: int, head: int) -> pa.Table:
        """Attention that each key of one head receives, summed over queries (stats.columns)."""
        return self._table(f"columns/l{layer:02}h{head:02}")

    # ---- Reading the file.

    def _table(self, name: str) -> pa.Table:
        path = self.folder / f"{name}.parquet"
        if not path.is_file():
            raise InputError(f"{path}: there is no such table; these statistics have groups {self.settings['groups']}")
        return pq.read_table(path)

    @staticmethod
    def _parts(set: str) -> tuple[str, ...]:
        if set not in _SETS:
            raise InputError(f"set={set!r}: expected one of {', '.join(_SETS)}")
        return ("first", "body") if set == "all" else (set,)

    def _field(self, kind: str, stage: str, part: str, field: str) -> np.ndarray:
        name = f"{kind}.{stage}.{part}.{field}"
        if name not in self._tensors.places:
            kept = sorted({".".join(key.split(".")[:2]) for key in self.names if key.endswith(".body.mean")})
            raise InputError(f"{self.folder}: there is no {name}; kept are {', '.join(kept) or 'no moments'}")
        return self.tensor(name)

    def _weighted(self, kind: str, stage: str, set: str, field: str) -> np.ndarray:
        parts = self._parts(set)
        n = self.n(set)
        return np.sum([self._field(kind, stage, part, field) * (self.n(part) / n) for part in parts], axis=0)

    def _moments(self, kind: str, stage: str, set: str) -> dict[str, Any]:
        """Returns the moments of one set, or of both sets merged by the formulas of Chan, Golub, LeVeque and Pebay."""
        parts = []
        for part in self._parts(set):
            fields: dict[str, Any] = {name: self._field(kind, stage, part, name) for name in ("mean", "m2", "m3", "m4", "ct")}
            fields["n"] = self.n(part)
            fields["t"] = float(self.tensor(f"positions.{part}.t.mean")[0])
            fields["tt"] = float(self.tensor(f"positions.{part}.t.m2")[0])
            parts.append(fields)
        parts = [part for part in parts if part["n"] > 0] or parts[:1]
        return parts[0] if len(parts) == 1 else self._merged(*parts)

    def _merged(self, a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
        na, nb = a["n"], b["n"]
        n = na + nb
        delta, dt = b["mean"] - a["mean"], b["t"] - a["t"]
        weight = na * nb / n
        rows, columns = np.triu_indices(self.d_head)
        a2, b2 = self._squares(a["m2"]), self._squares(b["m2"])
        return {
            "n": n,
            "mean": a["mean"] + delta * (nb / n),
            "m2": a["m2"] + b["m2"] + delta[..., rows] * delta[..., columns] * weight,
            "ct": a["ct"] + b["ct"] + delta * (dt * weight),
            "m3": a["m3"] + b["m3"] + delta**3 * (weight * (na - nb) / n) + 3 * delta * (na * b2 - nb * a2) / n,
            "m4": a["m4"]
            + b["m4"]
            + delta**4 * (weight * (na * na - na * nb + nb * nb) / n**2)
            + 6 * delta**2 * (na * na * b2 + nb * nb * a2) / n**2
            + 4 * delta * (na * b["m3"] - nb * a["m3"]) / n,
            "t": a["t"] + dt * nb / n,
            "tt": a["tt"] + b["tt"] + dt * dt * weight,
        }

    def _squares(self, triangle: np.ndarray) -> np.ndarray:
        """Returns the diagonals of matrices stored as packed upper triangles."""
        rows, columns = np.triu_indices(self.d_head)
        return triangle[..., rows == columns]

    def _unpacked(self, triangle: np.ndarray) -> np.ndarray:
        rows, columns = np.triu_indices(self.d_head)
        full = np.empty((*triangle.shape[:-1], self.d_head, self.d_head))
        full[..., rows, columns] = triangle
        full[..., columns, rows] = triangle
        return full


class _Safetensors:
    """Memory-mapped tensors of a safetensors file."""

    def __init__(self, path: Path) -> None:
        try:
            with open(path, "rb") as file:
                self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            length = int.from_bytes(self._data[:8], "little")
            self.places: dict[str, Any] = json.loads(self._data[8 : 8 + length])
        except (OSError, ValueError) as error:
            raise InputError(f"{path}: not a readable safetensors file: {error}") from error
        self._start = 8 + length
        self.metadata: dict[str, str] = self.places.pop("__metadata__", {})

    def __getitem__(self, name: str) -> np.ndarray:
        place = self.places.get(name)
        if place is None:
            raise InputError(f"there is no tensor {name!r} in these statistics")
        begin, _ = place["data_offsets"]
        shape = tuple(place["shape"])
        count = int(np.prod(shape, dtype=np.int64))
        if count == 0:
            return np.empty(shape, _DTYPES[place["dtype"]])
        return np.frombuffer(self._data, _DTYPES[place["dtype"]], count, self._start + begin).reshape(shape)
