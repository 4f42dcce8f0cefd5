"""Sweeps over checkpoints, comparisons, publishing and exports, with the options of the command line."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, Union, overload

import pyarrow as pa
import pyarrow.parquet as pq

from . import _engine, _options
from ._engine import Drawn, Error, InputError, PublishResult
from ._progress import Bar
from ._runs import ComputeKeywords, compute_options, figures as draw, override_texts, shard_pair
from ._tables import to_arrow

if TYPE_CHECKING:
    from typing_extensions import Unpack

Path = Union[str, "PathLike[str]"]


class SweepKeywords(ComputeKeywords, total=False):
    """Keywords of sweep(), for type checkers."""

    only: str | Sequence[str]
    overrides: Mapping[str, Any] | None
    every: int
    log: int
    data: Path
    jobs: int
    part: str
    shards: int
    evict: bool
    publish: bool
    figures: bool
    progress: bool | Callable[[int, int], Any] | None


@dataclass(frozen=True)
class SweepResult:
    """Result of sweep()."""

    folder: str
    """RESULTS/NAME, with the tables of all runs; for an address, the local working folder"""
    runs: pa.Table
    """label, outcome ("done", "already done", "elsewhere", "interrupted"), error, publication, publish_error"""
    overview: pa.Table
    """means over the heads of every run: label, phase, order, layers ("all", "rope", "nope"), heads, measures"""
    drawn: Drawn | None
    """the figures; None with figures=False"""

    def table(self, name: str) -> pa.Table:
        """Reads a table over all runs: "qk", "taxonomy", "rotated", "head_metrics", ..."""
        try:
            return pq.read_table(f"{self.folder}/{name}.parquet")
        except FileNotFoundError:
            raise InputError(f"{self.folder}: there is no {name}.parquet") from None


@overload
def sweep(
    file: Path, out: Path = ..., *, dry_run: Literal[False] = ..., **options: Unpack[SweepKeywords]
) -> SweepResult: ...
@overload
def sweep(file: Path, out: Path = ..., *, dry_run: Literal[True], **options: Unpack[SweepKeywords]) -> pa.Table: ...
@_options.checked
def sweep(
    file: Path,
    out: Path = "results",
    *,
    only: str | Sequence[str] = (),
    overrides: Mapping[str, Any] | None = None,
    every: int = 0,
    log: int = 0,
    data: Path = "",
    jobs: int = 1,
    shard: tuple[int, int] = (0, 1),
    part: str = "",
    shards: int = 0,
    overwrite: bool = False,
    evict: bool = False,
    device: str = "",
    devices: str | Sequence[str] = (),
    dtype: str = "",
    device_memory: int | str = 0,
    batch_tokens: int = 0,
    deterministic: bool = False,
    publish: bool = True,
    figures: bool = True,
    dry_run: bool = False,
    progress: bool | Callable[[int, int], Any] | None = None,
) -> SweepResult | pa.Table:
    """Captures and analyses a list of checkpoints; docs/how-to/sweep.md describes the file. Finished runs are not repeated.

    out: folder or address of results; the sweep writes to OUT/NAME. only: labels of runs. overrides: fields of every
    capture. every, log: choose, from the `checkpoints` of the file, every n-th, or so many evenly in the log of the
    step. data: folder in which relative paths are looked up first. jobs: concurrent runs. shard: (i, n), each n-th run.
    part: one stage, for a task of a cluster: "capture" (shard then divides the texts), "merge" (of so many shards),
    "analyse" or "tables". overwrite: capture again if the configuration has changed. evict: remove weights from the Hub
    cache after their last run. figures=False: tables only. publish=False: publish nothing. dry_run: returns the plan as
    a table and writes nothing. progress: f(runs done, runs), True for a tqdm bar, None for a bar in notebooks only.
    device to deterministic: as in capture().

    Failed runs raise an Error after all other runs are done. The same call tries failed or interrupted runs again.
    """
    compute = compute_options(device, devices, dtype, device_memory, batch_tokens, deterministic)
    if every and log:
        raise InputError(f"every={every}, log={log}: expected one of the two")
    chosen = _options.whole("every", every, 0, 1 << 40), _options.whole("log", log, 0, 1 << 40)
    folders = _options.path("data", data), compute, *chosen, _options.path("out", out)
    read = _engine.read_sweep(_options.path("file", file), override_texts(overrides), *folders)
    options = _engine.SweepOptions()
    options.only = _names("only", only)
    _choose_part(options, part, shard_pair(shard), _options.whole("shards", shards, 0, 1 << 40))
    options.jobs = _options.whole("jobs", jobs, 1, 256)
    options.overwrite = _options.flag("overwrite", overwrite)
    options.evict = _options.flag("evict", evict)
    if part and (evict or dry_run):
        raise InputError(f"part={part!r}: dry_run tells about whole runs, and other parts need what evict removes")
    options.publish = _options.flag("publish", publish)
    if _options.flag("dry_run", dry_run):
        return to_arrow(read.plan(options).columns)
    with Bar(0, "runs", False if callable(progress) else progress) as bar:
        reports = to_arrow(read.run(options, progress if callable(progress) else bar.to).columns)
    draws = _options.flag("figures", figures) and part in ("", "tables")
    drawn = draw(read.folder, f"{read.folder}/figures") if draws else None
    while drawn is not None and not read.put_figures():  # another machine has stored newer tables
        drawn = draw(read.folder, f"{read.folder}/figures")
    _refuse_failed(reports)
    return SweepResult(read.folder, reports, to_arrow(read.overview().columns), drawn)


@_options.checked
def compare(
    results: Path,
    other: Path | None = None,
    *,
    published: Path = "smollm3",
    as_: str = "",
    only: str | Sequence[str] = (),
    all_sources: bool = False,
    out: Path | None = None,
) -> pa.Table:
    """Compares runs with published numbers, or with each other; returns the rows of `qkscope compare`.

    results, other: folders of a sweep (RESULTS/NAME) or of analyze(out=...). Without other: published is a set
    ("smollm3", "models", "profiles", "pooled", "small_models") or your own CSV file, as_ the published name of a single
    run, only the labels of runs; all_sources uses every source of a number, not only the most exact.
    out: folder for compare.csv. Unknown numbers are null.
    """
    folder = _options.path("results", results)
    if other is not None:
        if (published, as_, only, all_sources) != ("smollm3", "", (), False):
            raise InputError("compare: published, as_, only, all_sources are for a comparison with published numbers")
        found = _engine.compare_runs(folder, _options.path("other", other))
    else:
        words = _options.path("published", published), _names("only", only), _options.text("as_", as_)
        found = _engine.compare_with_published(folder, *words, _options.flag("all_sources", all_sources))
    if out is not None:
        folder = _options.path("out", out)
        os.makedirs(folder, exist_ok=True)
        found.write_csv(f"{folder}/compare.csv")
    return to_arrow(found.columns)


@_options.checked
def publish(data_root: Path, *, repo: str = "", branch: str = "", private: bool = False) -> PublishResult:
    """Uploads a finished capture to a branch of a dataset on the Hugging Face Hub; docs/how-to/hub.md.

    repo ("org/name") and branch override the configuration of the capture. private: create the repository as private if
    it does not exist. After an interruption, the same call resumes the upload.
    """
    words = _options.path("data_root", data_root), _options.text("repo", repo), _options.text("branch", branch)
    return _engine.publish_capture(*words, _options.flag("private", private))


@_options.checked
def export(
    statistics: Path,
    to: str,
    out: Path,
    *,
    overwrite: bool = False,
    set: str = "all",
    kvpress_name: str = "",
    checkpoint: Path = "",
    strategy: str = "tensor",
    margin: float = 1.0,
    queries: bool = False,
) -> str:
    """Writes statistics as calibration files of other programs; docs/how-to/exports.md lists them. Returns the path.

    to: "expected-attention", "q-filters", "triattention", "tria", "fp8-kv", "k-ranges", "duo" or "retrieval-heads".
    For k-ranges: set, "all", "body" or "first" rows. For q-filters: kvpress_name. For fp8-kv: checkpoint, strategy
    ("tensor", "attn_head"), margin and queries.
    """
    options = _engine.ExportOptions()
    options.statistics = _options.path("statistics", statistics)
    options.to = _options.choice("to", to, _engine.export_names())
    options.out = _options.path("out", out)
    options.overwrite = _options.flag("overwrite", overwrite)
    options.set = _options.choice("set", set, ("all", "body", "first"))
    options.kvpress_name = _options.text("kvpress_name", kvpress_name)
    options.checkpoint = _options.path("checkpoint", checkpoint)
    options.strategy = _options.choice("strategy", strategy, ("tensor", "attn_head"))
    options.margin = _options.number("margin", margin, 0, 1e6)
    options.queries = _options.flag("queries", queries)
    return _engine.export_statistics(options)


def _names(name: str, value: str | Sequence[str]) -> list[str]:
    return [value] if isinstance(value, str) else [_options.text(name, one) for one in value]


def _choose_part(options: _engine.SweepOptions, part: str, shard: tuple[int, int], shards: int) -> None:
    """Applies shard to the runs, or with part="capture" to the texts of every run."""
    options.set_part(_options.text("part", part))
    if shards and part != "merge":
        raise InputError("shards says how many shards are merged: expected part='merge' beside it")
    if shards:
        options.set_texts(0, shards)
    if part == "capture":
        options.set_texts(*shard)
    else:
        options.set_shard(*shard)


def _refuse_failed(reports: pa.Table) -> None:
    for outcome, why, what in (("outcome", "error", "failed"), ("publication", "publish_error", "are not published")):
        failed = [row for row in reports.to_pylist() if row[outcome] == "failed"]
        if failed:
            labels = ", ".join(row["label"] for row in failed)
            first = f"{failed[0]['label']}: {failed[0][why]}"
            raise Error(f"{len(failed)} of {reports.num_rows} runs {what}: {labels}; {first}")
