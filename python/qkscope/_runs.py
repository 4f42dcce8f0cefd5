"""Captures, statistics, analyses and figures: what the command line does, from Python."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike, fspath
from typing import Any, Union

import pyarrow as pa

from . import _engine, _options
from ._engine import CaptureResult, Drawn, Error, InputError, StatsResult
from ._progress import Progress, Told
from ._tables import to_arrow

ANALYSES = ("pca", "rotation", "plasticity")

Config = Union[str, "PathLike[str]", Mapping[str, Any]]


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
) -> CaptureResult | dict[str, Any]:
    """Stores query and key vectors of sampled heads and positions; docs/capture.md describes the configuration.

    config: a YAML file, or its content as a mapping. overrides: {"capture.min_bucket_size": 256}. limit: the first N
    examples. ids: what tells examples apart, "column" (dataset.id_column) or "row". shard: (i, n) captures every n-th
    example from the i-th; merge() joins them. shards: N captures those of N shards that no task has finished, one after
    another, and joins all. overwrite: start again. non_finite: a vector with NaN or infinity ends
    the run ("refuse", the default) or is stored and counted ("keep"). publish=False: not, whatever output.hf_repo_id
    says. dry_run: what the run would give and cost, as a dict; nothing is written.

    progress: a function that is called after every batch with a CaptureProgress; True: a bar of tqdm; None: that in
    notebooks. An exception in the function, or Ctrl-C, ends the run with everything kept: the same call continues it.

    device and dtype stand in place of the configuration's. devices: several that share the texts, "all" (every GPU) or
    "cuda:0,cuda:1". On CUDA, device_memory (bytes, or "8GiB") is the most that
    may be taken, batch_tokens how many tokens run together, and deterministic runs every document alone, so that
    vectors do not depend on what ran beside them; on the CPU they never do.
    """
    read = _read_config(config, overrides, _engine.read_capture_config, _engine.parse_capture_config)
    apply_choice(read, limit, ids)
    if non_finite:
        read.keep_non_finite = _options.choice("non_finite", non_finite, ("refuse", "keep")) == "keep"
    part = shard_pair(shard)
    count = _options.whole("shards", shards, 0, 1 << 40)
    if count and part != (0, 1):
        raise InputError("shards=N does what is left of all shards; leave shard out")
    compute = compute_options(device, devices, dtype, device_memory, batch_tokens, deterministic)
    if _options.flag("dry_run", dry_run):
        return json.loads(_engine.dry_run_capture(read, compute, part))
    anew = _options.flag("overwrite", overwrite)
    with Told(progress, "examples") as tell:
        if count:
            result = _capture_shards(read, compute, count, anew, tell)
        else:
            result = _engine.capture(read, compute, part, anew, tell)
    if _options.flag("publish", publish) and limit is None and result.outcome in ("finished", "already finished"):
        _publish_finished(read)
    return result


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
) -> StatsResult | dict[str, Any]:
    """Adds up statistics over every token of every head; docs/statistics.md describes them; open_stats() reads them.

    config: a capture's configuration with a section `stats`. groups: some of "A" (moments), "B" (attention to a few
    keys), "C" (to all keys, with B), also "A,C". min_match: of retrieval, the share of greedy tokens from which a trial
    counts. exact_rows: so many rows of each document are sorted too. progress is told a StatsProgress. The other options are those of capture().
    """
    more = _fields(overrides)
    if groups:
        named = groups.replace(" ", "").split(",") if isinstance(groups, str) else list(groups)
        more["stats.groups"] = [_options.choice("groups", group, ("A", "B", "C")) for group in named]
    if min_match is not None:
        more["stats.min_match"] = _options.number("min_match", min_match, 0, 1)
    if exact_rows is not None:
        more["stats.exact_rows"] = _options.whole("exact_rows", exact_rows, 0, 1 << 20)
    read = _read_config(config, more, _engine.read_stats_config, _engine.parse_stats_config)
    apply_choice(read, limit, ids)
    part = shard_pair(shard)
    compute = compute_options(device, devices, dtype, device_memory, batch_tokens, deterministic)
    if _options.flag("dry_run", dry_run):
        return json.loads(_engine.dry_run_stats(read, compute, part))
    with Told(progress, "documents") as tell:
        return _engine.stats(read, compute, part, _options.flag("overwrite", overwrite), tell)


@_options.checked
def merge(
    data_root: str | PathLike[str] | Sequence[str | PathLike[str]], out: str | PathLike[str] | None = None
) -> CaptureResult | StatsResult:
    """The final files of a capture or of statistics in shards, once every shard is done.

    With out, data_root is a list of folders of finished statistics, which are joined into that new one.
    """
    if out is not None:
        folders = [data_root] if isinstance(data_root, (str, PathLike)) else list(data_root)
        named = [_options.path("data_root", folder) for folder in folders]
        return _engine.merge_stats_folders(named, _options.path("out", out))
    folder = _options.path("data_root", data_root)
    return _engine.merge_stats_shards(folder) if _engine.holds_statistics(folder) else _engine.merge_capture(folder)


@_options.checked
def analyze(
    data_root: str | PathLike[str],
    out: str | PathLike[str] | None = None,
    *,
    only: str | Sequence[str] = ANALYSES,
    label: str = "",
    model: str | PathLike[str] = "",
    head_counts: tuple[int, int] | None = None,
    nope_layers: _options.Layers = (),
    layers: _options.Layers = (),
    heads: _options.Heads = (),
    max_tokens: int = 0,
    seed: int = 0,
    errors: bool = True,
    scatter: int = 96,
    planes_of: _options.Heads = (),
    components: int = 10,
    separate_pca: int = 5,
    high: float = 0.7,
    low: float = 0.3,
    separation: str = "mean",
    null_draws: int = 200,
    pairs: int = 30,
    active: float = 0.9,
    max_omega: float = 1.0,
    query_model: str = "local",
    covariance: str = "diagonal",
    free_keys: int = 40,
    max_pairs: int = 10_000_000,
    p_alpha: float = 0.01,
    profile_bins: int | str | None = None,
    fifths: str = "range",
    length_bins: Sequence[int] = (),
    heatmap_bins: int = 16,
    stage: str = "post",
    keys: str | PathLike[str] = "",
) -> dict[str, pa.Table]:
    """The analyses of the heads of a capture, as Arrow tables by name ("qk", ...; table.to_pandas()).

    The options are those of `qkscope analyze`; docs/analysis.md describes them, the tables and the columns. A head that
    cannot be analysed is an Error once the others are done and written.

    data_root: a folder, or "REPO@BRANCH" of a dataset on the Hugging Face Hub. out: also write the tables there, as the
    command does. only: "pca", "rotation", "plasticity", or some of them. label: the model column.
    A folder of statistics gives what follows from its sums; other fields are null. stage "pre" takes its vectors before
    RoPE, and keys is a capture of the same run, whose keys the plasticity compares.

    For captures that do not say it themselves: model, whose config.json tells head counts, RoPE and windows, or
    head_counts (query, key) and nope_layers.

    Which rows: layers ([0, 4], or "0,4-7"), heads ([(3, 5), (3, 6)], or "3.5,3.6"), max_tokens (a sample of at most so
    many rows per file; 0: all); seed is that of every sample. errors: intervals of the means over heads, by a jackknife
    over texts. scatter: rows per head and side kept for pictures. planes_of: heads whose rows are kept on every plane.

    PCA: components per head, separate_pca (of queries and of keys alone), high and low (bounds of the classes).
    Rotation: separation ("mean", "eigen", "eigen-then-project"), null_draws (shuffles; 0: none), pairs (planes of the
    complement), active (a plane turns above this), max_omega (where RoPE frequencies are not known).
    Plasticity: query_model ("local", "bin", "bucket", "linear"), covariance ("diagonal", "full"), free_keys (keys per
    bin up to which the model-free plasticity is exact), max_pairs (per cell; above it a sample), p_alpha (of the normality
    tests), profile_bins (a number, "buckets", or None: about 50 queries in each), fifths ("range", "context"),
    length_bins (edges), heatmap_bins (per axis).
    """
    chosen = list(only) if isinstance(only, Iterable) and not isinstance(only, str) else [only]
    for name in chosen:
        if not isinstance(name, str) or name not in ANALYSES:
            raise InputError(f"only: {name!r} is not an analysis; expected pca, rotation, plasticity")
    if not chosen:
        raise InputError("only: found none; expected some of pca, rotation, plasticity")
    options = _engine.AnalyzeOptions()
    options.data_root = _options.path("data_root", data_root)
    options.quiet = True
    for name in ANALYSES:
        setattr(options, name, name in chosen)
    _describe_capture(options, label, model, head_counts, nope_layers)
    options.pre_rope = _options.choice("stage", stage, ("pre", "post")) == "pre"
    options.keys = _options.path("keys", keys)
    options.layers = _options.layers("layers", layers)
    options.set_heads(_options.heads("heads", heads))
    options.max_tokens = _options.whole("max_tokens", max_tokens, 0, 2**62)
    options.seed = _options.whole("seed", seed, 0, 2**64 - 1)
    options.errors = _options.flag("errors", errors)
    options.scatter = _options.whole("scatter", scatter, 0)
    options.set_planes_of(_options.heads("planes_of", planes_of))
    options.pca_options.components = _options.whole("components", components, 1)
    options.pca_options.separate_components = _options.whole("separate_pca", separate_pca, 0)
    options.taxonomy.high = _options.number("high", high, 0, 1)
    options.taxonomy.low = _options.number("low", low, 0, 1)
    rotation = options.rotation_options
    word = _options.choice("separation", separation, ("mean", "eigen", "eigen-then-project"))
    rotation.separation = getattr(_engine.Separation, word.replace("-", "_"))
    rotation.null_draws = _options.whole("null_draws", null_draws, 0)
    rotation.pairs = _options.whole("pairs", pairs, 1)
    rotation.active_angle_r = _options.number("active", active, 0, 1)
    rotation.max_omega = _options.number("max_omega", max_omega, 1e-6, 3.14159)
    plasticity = options.plasticity_options
    word = _options.choice("query_model", query_model, ("local", "bin", "bucket", "linear"))
    plasticity.profile_model = getattr(_engine.QueryModel, word)
    word = _options.choice("covariance", covariance, ("diagonal", "full"))
    plasticity.covariance = getattr(_engine.Covariance, word)
    plasticity.free_keys = _options.whole("free_keys", free_keys, 1, 2**62)
    plasticity.max_pairs = _options.whole("max_pairs", max_pairs, 1, 2**62)
    plasticity.p_alpha = _options.number("p_alpha", p_alpha, 0, 1)
    plasticity.profile_bins = _profile_bins(profile_bins)
    plasticity.fifths = getattr(_engine.Fifths, _options.choice("fifths", fifths, ("range", "context")))
    plasticity.length_bins = _options.wholes("length_bins", length_bins, 0, 2**62)
    plasticity.heatmap_bins = _options.whole("heatmap_bins", heatmap_bins, 1, 1000)
    return _run(options, out)


@_options.checked
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
    label: str = "",
    model: str | PathLike[str] = "",
    head_counts: tuple[int, int] | None = None,
    nope_layers: _options.Layers = (),
) -> Drawn:
    """Draws the figures of results that analyze(out=...) or a sweep wrote, and report.html; docs/figures.md.

    results: their folder. A capture (a folder, or "REPO@BRANCH") is analysed first, into OUT/results; label, model,
    head_counts and nope_layers are those of analyze().
    only: the name of one figure, without the report. Each figure comes with the CSV and the gnuplot script it is from.
    formats: some of "svg", "png", "pdf". components: the two that qk_collage and the report show. head: "LAYER.HEAD" of
    head_planes. scores: a CSV of benchmark scores, for ap_drop_vs_score.
    """
    options = _engine.DrawOptions()
    options.results = _options.path("results", results)
    options.out = _options.path("out", out)
    options.only = _options.text("only", only)
    options.formats = [formats] if isinstance(formats, str) else [_options.text("formats", one) for one in formats]
    options.report = _options.flag("report", report)
    shown = _options.wholes("components", components, 0)
    if len(shown) != 2:
        raise InputError(f"components={components!r}: expected two numbers from 0 on, such as (2, 3)")
    options.components = shown
    options.head = _options.text("head", head)
    options.scores = _options.path("scores", scores)
    options.quiet = True
    if _engine.names_capture(options.results):
        analysis = _engine.AnalyzeOptions()
        analysis.data_root = options.results
        analysis.quiet = True
        _describe_capture(analysis, label, model, head_counts, nope_layers)
        options.results = options.out + "/results"
        _run(analysis, options.results)
    return _engine.draw_figures(options)


def _describe_capture(
    options: _engine.AnalyzeOptions,
    label: str,
    model: str | PathLike[str],
    head_counts: tuple[int, int] | None,
    nope_layers: _options.Layers,
) -> None:
    options.label = _options.text("label", label)
    options.model = _options.path("model", model)
    options.nope_layers = _options.layers("nope_layers", nope_layers)
    if head_counts is not None:
        counts = _options.wholes("head_counts", head_counts, 1)
        if len(counts) != 2:
            raise InputError(f"head_counts={head_counts!r}: expected two numbers, of query and of key heads per layer")
        options.set_head_counts(*counts)


def _profile_bins(value: int | str | None) -> int:
    kinds = _engine.PlasticityOptions
    if value is None:
        return 0
    if value == "buckets":
        return kinds.BUCKETS
    try:
        return _options.whole("profile_bins", value, 1, kinds.MOST_BINS)
    except InputError:
        raise InputError(f"profile_bins={value!r}: expected 1 to {kinds.MOST_BINS}, 'buckets' or None") from None


def _run(options: _engine.AnalyzeOptions, out: str | PathLike[str] | None) -> dict[str, pa.Table]:
    analysis = _engine.analyze(options)
    if out is not None:
        analysis.write(_options.path("out", out))
    _report_failures(analysis.failures)
    return {name: to_arrow(columns) for name, columns in analysis.tables.items()}


def _report_failures(failures: list[tuple[int, int, str]]) -> None:
    if failures:
        layer, head, why = failures[0]
        raise Error(f"{len(failures)} heads could not be analysed; layer {layer} head {head}: {why}")


def _read_config(
    config: Config, overrides: Mapping[str, Any] | None, read: Callable[..., Any], parse: Callable[..., Any]
) -> Any:
    options = override_texts(overrides)
    if isinstance(config, Mapping):
        return parse(json.dumps(config, default=fspath), options)
    return read(_options.path("config", config), options)


def _capture_shards(
    read: _engine.CaptureConfig, compute: _engine.ComputeOptions, count: int, anew: bool, tell: Any
) -> CaptureResult:
    """The shards that no task has finished, one after another, then the files of all."""
    for index in range(count):
        result = _engine.capture(read, compute, (index, count), anew, tell)
        if result.outcome != "part finished":
            return result
    return _engine.merge_capture(read.data_root)


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
    """KEY=VALUE, as the command line takes them."""
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
