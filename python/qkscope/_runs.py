"""Captures, statistics, analyses and figures, with the options of the command line."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Union, overload

import pyarrow as pa

from . import _engine, _options
from ._engine import CaptureResult, Drawn, Error, InputError, StatsResult
from ._progress import Progress, Told
from ._tables import to_arrow
from ._transformers import engine_of

if TYPE_CHECKING:
    from typing_extensions import Unpack

ANALYSES = ("pca", "rotation", "plasticity", "geometry")

Config = Union[str, "PathLike[str]", Mapping[str, Any]]


class ComputeKeywords(TypedDict, total=False):
    """Keywords that capture(), stats() and sweep() share, for type checkers."""

    shard: tuple[int, int]
    overwrite: bool
    device: str
    devices: str | Sequence[str]
    dtype: str
    device_memory: int | str
    batch_tokens: int
    deterministic: bool


class CaptureKeywords(ComputeKeywords, total=False):
    limit: int | None
    ids: str
    shards: int
    non_finite: str
    publish: bool
    progress: Progress
    model: Any


class StatsKeywords(ComputeKeywords, total=False):
    groups: str | Sequence[str]
    min_match: float | None
    exact_rows: int | None
    limit: int | None
    ids: str
    progress: Progress
    model: Any


@overload
def capture(
    config: Config, overrides: Mapping[str, Any] | None = ..., *, dry_run: Literal[False] = ...,
    **options: Unpack[CaptureKeywords]
) -> CaptureResult: ...
@overload
def capture(
    config: Config, overrides: Mapping[str, Any] | None = ..., *, dry_run: Literal[True], **options: Unpack[CaptureKeywords]
) -> dict[str, Any]: ...
@_options.checked
def capture(
    config: Config,
    overrides: Mapping[str, Any] | None = None,
    *,
    limit: int | None = None,
    ids: str = "",
    shard: tuple[int, int] = (0, 1),
    shards: int = 0,
    overwrite: bool = False,
    non_finite: str = "",
    device: str = "",
    devices: str | Sequence[str] = (),
    dtype: str = "",
    device_memory: int | str = 0,
    batch_tokens: int = 0,
    deterministic: bool = False,
    publish: bool = True,
    dry_run: bool = False,
    progress: Progress = None,
    model: Any = None,
) -> CaptureResult | dict[str, Any]:
    """Stores query and key vectors of sampled heads and positions; docs/how-to/capture.md describes the configuration.

    config: a YAML file, or its content as a mapping. overrides: {"capture.min_bucket_size": 256}. limit: the first N
    examples. ids: what identifies an example, "column" (dataset.id_column) or "row". shard: (i, n) captures every n-th
    example from the i-th; merge() joins the shards. shards: N captures, one after another, the shards that no task has
    finished, and joins all. overwrite: start again. non_finite: a vector with NaN or infinity ends the run ("refuse",
    the default) or is stored and counted ("keep"). publish=False: do not publish, even if output.hf_repo_id is set.
    dry_run: returns the plan, its cost, the estimated seconds and warnings as a dict and writes nothing.

    progress: a function that is called after every batch with a CaptureProgress; True: a tqdm bar; None: a bar in
    notebooks only. An exception in the function, or Ctrl-C, stops the run; the same call resumes it.

    device and dtype override the configuration. devices: several that share the texts, "all" (every GPU) or
    "cuda:0,cuda:1". On CUDA, device_memory (bytes, or "8GiB") limits the memory, batch_tokens is the number of tokens
    per batch, and deterministic runs every document alone, so that vectors do not depend on the batch; on the CPU they
    never do.

    model: a decoder of Hugging Face transformers (any family) or a TransformersEngine, which runs instead of the
    checkpoint model.name; `engine: transformers` in the configuration loads model.name with transformers
    (docs/how-to/transformers-engine.md).
    """
    read = read_capture_config(config, overrides)
    engine = None if model is None else engine_of(model).handle
    apply_choice(read, limit, ids)
    if non_finite:
        read.keep_non_finite = _options.choice("non_finite", non_finite, ("refuse", "keep")) == "keep"
    part = shard_pair(shard)
    count = _options.whole("shards", shards, 0, 1 << 40)
    if count and part != (0, 1):
        raise InputError("shards=N does what is left of all shards; leave shard out")
    compute = compute_options(device, devices, dtype, device_memory, batch_tokens, deterministic)
    if _options.flag("dry_run", dry_run):
        return json.loads(_engine.dry_run_capture(read, compute, part, engine))
    anew = _options.flag("overwrite", overwrite)
    with Told(progress, "examples") as tell:
        result = _engine.capture(read, compute, part, count, anew, tell, engine)
    if _options.flag("publish", publish) and limit is None and result.outcome in ("finished", "already finished"):
        _publish_finished(read)
    return result


@overload
def stats(
    config: Config, overrides: Mapping[str, Any] | None = ..., *, dry_run: Literal[False] = ..., **options: Unpack[StatsKeywords]
) -> StatsResult: ...
@overload
def stats(
    config: Config, overrides: Mapping[str, Any] | None = ..., *, dry_run: Literal[True], **options: Unpack[StatsKeywords]
) -> dict[str, Any]: ...
@_options.checked
def stats(
    config: Config,
    overrides: Mapping[str, Any] | None = None,
    *,
    groups: str | Sequence[str] = (),
    min_match: float | None = None,
    exact_rows: int | None = None,
    limit: int | None = None,
    ids: str = "",
    shard: tuple[int, int] = (0, 1),
    overwrite: bool = False,
    device: str = "",
    devices: str | Sequence[str] = (),
    dtype: str = "",
    device_memory: int | str = 0,
    batch_tokens: int = 0,
    deterministic: bool = False,
    dry_run: bool = False,
    progress: Progress = None,
    model: Any = None,
) -> StatsResult | dict[str, Any]:
    """Accumulates statistics over every token of every head; open_stats() reads them; docs/reference/statistics.md.

    config: configuration of a capture with a section `stats`. groups: some of "A" (moments), "B" (attention to near
    keys), "C" (to all keys, includes B), also "A,C". min_match: retrieval, the least fraction of correct greedy tokens
    of a trial that counts. exact_rows: number of rows of each document that are sorted for exact counts. progress is
    called with a StatsProgress. The other options are those of capture().
    """
    more = _fields(overrides)
    if groups:
        named = groups.replace(" ", "").split(",") if isinstance(groups, str) else list(groups)
        more["stats.groups"] = [_options.choice("groups", group, ("A", "B", "C")) for group in named]
    if min_match is not None:
        more["stats.min_match"] = _options.number("min_match", min_match, 0, 1)
    if exact_rows is not None:
        more["stats.exact_rows"] = _options.whole("exact_rows", exact_rows, 0, 1 << 20)
    read = read_stats_config(config, more)
    engine = None if model is None else engine_of(model).handle
    apply_choice(read, limit, ids)
    part = shard_pair(shard)
    compute = compute_options(device, devices, dtype, device_memory, batch_tokens, deterministic)
    if _options.flag("dry_run", dry_run):
        return json.loads(_engine.dry_run_stats(read, compute, part, engine))
    with Told(progress, "documents") as tell:
        return _engine.stats(read, compute, part, _options.flag("overwrite", overwrite), tell, engine)


@_options.checked
def merge(
    data_root: str | PathLike[str] | Sequence[str | PathLike[str]], out: str | PathLike[str] | None = None
) -> CaptureResult | StatsResult:
    """Writes the final files of a capture or of statistics whose shards are all done.

    With out, data_root is a list of folders of finished statistics, which are joined into the new folder out.
    """
    if out is not None:
        folders = [data_root] if isinstance(data_root, (str, PathLike)) else list(data_root)
        named = [_options.path("data_root", folder) for folder in folders]
        return _engine.merge_stats_folders(named, _options.path("out", out))
    folder = _options.path("data_root", data_root)
    return _engine.merge_stats_shards(folder) if _engine.holds_statistics(folder) else _engine.merge_capture(folder)


@_options.takes_analysis_options()
def analyze(
    data_root: str | PathLike[str],
    out: str | PathLike[str] | None = None,
    *,
    only: str | Sequence[str] = ANALYSES,
    overwrite: bool = False,
    **options: Any,
) -> dict[str, pa.Table]:
    """Analyses the heads of a capture and returns Arrow tables by name ("qk", ...; table.to_pandas()).

    The options are those of `qkscope analyze`; docs/explanation/analysis.md describes them, the tables and the columns. A head that
    cannot be analysed is an Error once the other heads are done and written.

    data_root: a folder, or "REPO@BRANCH" of a dataset on the Hugging Face Hub. A folder of statistics gives the numbers
    that follow from its sums; other fields are null. out: also write the tables to this folder, as the command does; a folder
    with results of other options is refused, unless overwrite replaces them.
    only: "pca", "rotation", "plasticity", "geometry", or several of them. Layers are [0, 4] or "0,4-7"; heads are [(3, 5), (3, 6)]
    or "3.5,3.6".
    """
    chosen = list(only) if isinstance(only, Iterable) and not isinstance(only, str) else [only]
    for name in chosen:
        if not isinstance(name, str) or name not in ANALYSES:
            raise InputError(f"only: {name!r} is not an analysis; expected pca, rotation, plasticity, geometry")
    if not chosen:
        raise InputError("only: found none; expected some of pca, rotation, plasticity, geometry")
    analysis = _engine.AnalyzeOptions()
    analysis.data_root = _options.path("data_root", data_root)
    analysis.quiet = True
    for name in ANALYSES:
        setattr(analysis, name, name in chosen)
    _options.set_analysis_options(analysis, options)
    return _run(analysis, out, _options.flag("overwrite", overwrite))


@_options.takes_analysis_options("Capture")
def figures(
    results: str | PathLike[str],
    out: str | PathLike[str],
    *,
    only: str = "",
    formats: Sequence[str] = ("svg", "png", "pdf"),
    report: bool = True,
    components: tuple[int, int] = (0, 1),
    head: str = "",
    scores: str | PathLike[str] = "",
    attention: str = "",
    **capture: Any,
) -> Drawn:
    """Draws the figures of results that analyze(out=...) or a sweep wrote, and report.html; docs/reference/figures.md.

    results: folder of the results. A capture (a folder, or "REPO@BRANCH") is analysed first, into OUT/results.
    only: name of one figure, drawn without the report. Each figure comes with its CSV and its gnuplot script.
    formats: some of "svg", "png", "pdf". components: the two principal components of qk_collage and the report.
    head: "LAYER.HEAD" of head_planes. scores: CSV of benchmark scores, for ap_drop_vs_score. attention: only heads of
    this kind of attention, "full" or "sliding:512".
    """
    options = _engine.DrawOptions()
    options.results = _options.path("results", results)
    options.out = _options.path("out", out)
    options.only = _options.text("only", only)
    options.formats = [formats] if isinstance(formats, str) else [_options.text("formats", one) for one in formats]
    options.report = _options.flag("report", report)
    options.components = _two_components(components)
    options.head = _options.text("head", head)
    options.scores = _options.path("scores", scores)
    options.attention = _options.text("attention", attention)
    options.quiet = True
    if _engine.names_capture(options.results):
        analysis = _engine.AnalyzeOptions()
        analysis.data_root = options.results
        analysis.quiet = True
        _options.set_analysis_options(analysis, capture)
        options.results = options.out + "/results"
        _run(analysis, options.results, overwrite=True)
    return _engine.draw_figures(options)


def report(
    results: str | PathLike[str],
    *,
    compare: str | PathLike[str] = "",
    out: str | PathLike[str] = "report.html",
    components: tuple[int, int] = (0, 1),
    attention: str = "",
) -> Drawn:
    """Writes the report of results alone, one HTML file; docs/reference/figures.md.

    results: folder of analyze(out=...) or of a sweep. compare: results of another run of a model with the same layers
    and heads; the report shows both values of every head and their difference. components: the two principal
    components of a head's points. attention: only heads of this kind of attention, "full" or "sliding:512".
    """
    options = _engine.ReportOptions()
    options.results = _options.path("results", results)
    options.compare = _options.path("compare", compare)
    options.out = _options.path("out", out)
    options.components = _two_components(components)
    options.attention = _options.text("attention", attention)
    options.quiet = True
    return _engine.write_report(options)


def _two_components(components: tuple[int, int]) -> tuple[int, int]:
    shown = _options.wholes("components", components, 0)
    if len(shown) != 2:
        raise InputError(f"components={components!r}: expected two numbers from 0 on, such as (2, 3)")
    return shown[0], shown[1]


def demo_folder() -> Path:
    """Returns the folder of the demo's data: checkpoints/ and corpus.jsonl.

    $QKSCOPE_DATA/demo if that variable is set, else the data of the installed package, else share/demo of the clone.
    """
    chosen = os.environ.get("QKSCOPE_DATA")
    here = Path(__file__)
    folders = [here.parent / "share/qkscope/demo", here.resolve().parents[2] / "share/demo"]
    folders = [Path(chosen).absolute() / "demo"] if chosen else folders
    for folder in folders:
        if (folder / "checkpoints").is_dir():
            return folder
    raise InputError(f"demo_folder: found no demo data in {' or '.join(map(str, folders))}; set QKSCOPE_DATA")


def _run(options: _engine.AnalyzeOptions, out: str | PathLike[str] | None, overwrite: bool) -> dict[str, pa.Table]:
    folder = "" if out is None else _options.path("out", out)
    if folder and not overwrite:
        _engine.check_results_folder(folder, options)
    analysis = _engine.analyze(options)
    if folder:
        analysis.write(folder, overwrite)
    _report_failures(analysis.failures)
    return {name: to_arrow(columns) for name, columns in analysis.tables.items()}


def _report_failures(failures: list[tuple[int, int, str]]) -> None:
    if failures:
        layer, head, why = failures[0]
        raise Error(f"{len(failures)} heads could not be analysed; layer {layer} head {head}: {why}")


def read_capture_config(config: Config, overrides: Mapping[str, Any] | None) -> _engine.CaptureConfig:
    read: _engine.CaptureConfig = _read_config(config, overrides, _engine.read_capture_config, _engine.parse_capture_config)
    return read


def read_stats_config(config: Config, overrides: Mapping[str, Any] | None) -> _engine.StatsConfig:
    read: _engine.StatsConfig = _read_config(config, overrides, _engine.read_stats_config, _engine.parse_stats_config)
    return read


def _read_config(
    config: Config, overrides: Mapping[str, Any] | None, read: Callable[..., Any], parse: Callable[..., Any]
) -> Any:
    options = override_texts(overrides)
    if isinstance(config, Mapping):
        return parse(json.dumps(config, default=fspath), options)
    return read(_options.path("config", config), options)


def _publish_finished(config: _engine.CaptureConfig) -> None:
    repository, branch, private = config.publication
    if not repository:
        return
    if not _engine.can_publish():
        logging.getLogger("qkscope").warning(
            "not published to %s: there is no token, or HF_HUB_OFFLINE is set; set HF_TOKEN and call publish(%r)",
            repository, config.data_root,
        )
        return
    _engine.publish_capture(config.data_root, repository, branch, private)


def override_texts(overrides: Mapping[str, Any] | None) -> list[str]:
    """Returns overrides as KEY=VALUE texts of the command line."""
    return [f"{key}={json.dumps(value, default=fspath)}" for key, value in _fields(overrides).items()]


def _fields(overrides: Mapping[str, Any] | None) -> dict[str, Any]:
    if overrides is not None and not isinstance(overrides, Mapping):
        raise InputError(f"overrides={overrides!r}: expected a mapping, as {{'capture.min_bucket_size': 256}}")
    return dict(overrides or {})


def apply_choice(config: Any, limit: int | None, ids: str) -> None:
    if limit is not None:
        most = _options.whole("limit", limit, 1, 2**62)
        config.max_samples = min(most, config.max_samples or most)
    if ids:
        config.number_rows = _options.choice("ids", ids, ("column", "row")) == "row"


def shard_pair(shard: tuple[int, int]) -> tuple[int, int]:
    found = _options.wholes("shard", shard, 0)
    if len(found) != 2 or not found[0] < found[1]:
        raise InputError(f"shard={shard}: expected (i, n) with i from 0 to n - 1")
    return found[0], found[1]


def compute_options(
    device: str,
    devices: str | Sequence[str],
    dtype: str,
    device_memory: int | str,
    batch_tokens: int,
    deterministic: bool,
) -> _engine.ComputeOptions:
    if isinstance(batch_tokens, bool) or not isinstance(batch_tokens, int) or batch_tokens < 0:
        raise InputError(f"batch_tokens={batch_tokens}: expected at least 1, or 0 for what the device likes best")
    memory = str(device_memory) if device_memory else ""
    several = devices.split(",") if isinstance(devices, str) and devices else list(devices)
    if device and several:
        raise InputError(f"device={device!r}, devices={devices!r}: expected one of the two")
    return _engine.compute_options(
        _options.text("device", device),
        [_options.text("devices", one) for one in several],
        _options.text("dtype", dtype),
        memory,
        batch_tokens,
        _options.flag("deterministic", deterministic),
    )
