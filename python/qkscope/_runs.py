"""Captures, analyses and figures: what the command line does, from Python."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from os import PathLike, fspath
from typing import Any, Union

import numpy as np
import pyarrow as pa

from . import _engine
from ._engine import CaptureProgress, CaptureResult, Drawn, Error

ANALYSES = ("pca", "rotation", "plasticity")

_ARROW_TYPES = {"integer": pa.int64(), "real": pa.float64(), "boolean": pa.bool_(), "text": pa.string()}

Config = Union[str, "PathLike[str]", Mapping[str, Any]]


def capture(
    config: Config,
    overrides: Mapping[str, Any] | None = None,
    limit: int | None = None,
    shard: tuple[int, int] = (0, 1),
    overwrite: bool = False,
    device: str = "",
    progress: Callable[[CaptureProgress], Any] | None = None,
    dtype: str = "",
    device_memory: int | str = 0,
    batch_tokens: int = 0,
    deterministic: bool = False,
) -> CaptureResult:
    """Stores query and key vectors of sampled heads and positions; docs/capture.md describes the configuration.

    config: a YAML file, or its content as a mapping. overrides: {"capture.min_bucket_size": 256}. limit: the first N
    examples. shard: (i, n) captures every n-th example from the i-th; merge() joins them. progress is called after
    every batch. An exception there, or Ctrl-C, ends the run with everything kept: the same call continues it.

    device and dtype stand in place of the configuration's. On CUDA, device_memory (bytes, or "8GiB") is the most that
    may be taken, batch_tokens how many tokens run together, and deterministic runs every document alone, so that
    vectors do not depend on what ran beside them; on the CPU they never do.
    """
    options = [f"{key}={json.dumps(value)}" for key, value in (overrides or {}).items()]
    if isinstance(config, Mapping):
        read = _engine.parse_capture_config(json.dumps(config, default=fspath), options)
    else:
        read = _engine.read_capture_config(fspath(config), options)
    if limit is not None:
        if limit < 1:
            raise Error(f"limit={limit}: expected at least 1")
        read.max_samples = min(limit, read.max_samples or limit)
    index, count = shard
    if not 0 <= index < count:
        raise Error(f"shard={shard}: expected (i, n) with i from 0 to n - 1")
    if batch_tokens < 0:
        raise Error(f"batch_tokens={batch_tokens}: expected at least 1, or 0 for what the device likes best")
    memory = str(device_memory) if device_memory else ""
    compute = _engine.compute_options(device, dtype, memory, batch_tokens, deterministic)
    return _engine.capture(read, compute, (index, count), overwrite, progress)


def merge(data_root: str | PathLike[str]) -> CaptureResult:
    """The final files of a capture in shards, once every shard is done."""
    return _engine.merge_capture(fspath(data_root))


def analyze(
    data_root: str | PathLike[str],
    out: str | PathLike[str] | None = None,
    only: str | Sequence[str] = ANALYSES,
    label: str = "",
    nope_layers: Sequence[int] = (),
    max_tokens: int = 0,
    seed: int = 0,
    model: str | PathLike[str] = "",
    head_counts: tuple[int, int] | None = None,
    stage: str = "post",
    keys: str | PathLike[str] = "",
) -> dict[str, pa.Table]:
    """The analyses of every head of a capture, as Arrow tables by name ("qk", ...; table.to_pandas()).

    data_root: a folder, or "REPO@BRANCH" of a dataset on the Hugging Face Hub. For captures that do not say it
    themselves: model, whose config.json tells head counts, RoPE and windows, or head_counts (query, key) and nope_layers.
    A folder of statistics gives what follows from its sums; other fields are null. stage "pre" takes its vectors before
    RoPE, and keys is a capture of the same run, whose keys the plasticity compares.
    out: also write them there, as `qkscope analyze` does. docs/analysis.md describes tables and columns. A head that
    cannot be analysed is an Error once the others are done and written.
    """
    chosen = [only] if isinstance(only, str) else list(only)
    for name in chosen:
        if name not in ANALYSES:
            raise Error(f"only: {name!r} is not an analysis; expected pca, rotation, plasticity")
    options = _engine.AnalyzeOptions()
    options.data_root = fspath(data_root)
    options.label = label
    options.nope_layers = list(nope_layers)
    options.model = fspath(model)
    if head_counts is not None:
        options.set_head_counts(*head_counts)
    options.max_tokens = max_tokens
    if stage not in ("pre", "post"):
        raise Error(f"stage={stage!r}: expected pre or post")
    options.pre_rope = stage == "pre"
    options.keys = fspath(keys)
    options.seed = seed
    options.quiet = True
    for name in ANALYSES:
        setattr(options, name, name in chosen)
    analysis = _engine.analyze(options)
    if out is not None:
        analysis.write(fspath(out))
    _report_failures(analysis.failures)
    return {name: _table(columns) for name, columns in analysis.tables.items()}


def figures(
    results: str | PathLike[str],
    out: str | PathLike[str],
    only: str = "",
    formats: Sequence[str] = ("svg", "png", "pdf"),
    report: bool = True,
    components: tuple[int, int] = (0, 1),
    head: str = "",
    scores: str | PathLike[str] = "",
) -> Drawn:
    """Draws the figures of results that analyze(out=...) or a sweep wrote, and report.html; docs/figures.md.

    only: the name of one figure, without the report. Each figure comes with the CSV and the gnuplot script it is from.
    components: the two that qk_collage and the report show. head: "LAYER.HEAD" of head_planes. scores: a CSV of
    benchmark scores, for ap_drop_vs_score.
    """
    options = _engine.DrawOptions()
    options.results = fspath(results)
    options.out = fspath(out)
    options.only = only
    options.formats = list(formats)
    options.report = report
    options.components = list(components)
    options.head = head
    options.scores = fspath(scores)
    options.quiet = True
    return _engine.draw_figures(options)


def _report_failures(failures: list[tuple[int, int, str]]) -> None:
    if failures:
        layer, head, why = failures[0]
        raise Error(f"{len(failures)} heads could not be analysed; layer {layer} head {head}: {why}")


def _array(kind: str, values: Any) -> pa.Array:
    if kind in ("integer", "boolean"):  # the smallest integer stands for no value
        values = np.asarray(values)
        known = values if kind == "integer" else values != 0
        return pa.array(known, type=_ARROW_TYPES[kind], mask=values == np.iinfo(np.int64).min)
    return pa.array(values, type=_ARROW_TYPES[kind], from_pandas=True)


def _table(columns: list[tuple[str, str, Any]]) -> pa.Table:
    arrays = [_array(kind, values) for _, kind, values in columns]
    return pa.table(arrays, names=[name for name, _, _ in columns])
