"""Statistics, sweeps, comparisons, exports and publishing from Python, with the options of the command line."""

import inspect
import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from conftest import DEMO, ROOT, untyped
from test_runs import configuration

import qkscope
from qkscope import StatsProgress, StatsResult, SweepResult

PROGRAM = ROOT / "build" / "bin" / "qkscope"
# Options without a Python keyword: logging, set_threads(), return values, positional arguments. Times at a given speed
# can be computed from the table of dry_run.
ELSEWHERE = {"help", "threads", "quiet", "verbose", "json", "csv", "resume", "speed", "bandwidth", "status", "watch"}
RENAMED = {
    "set": "overrides", "no_publish": "publish", "no_figures": "figures", "no_report": "report", "as": "as_",
    "format": "formats", "no_errors": "errors",
}


COMMANDS = ("analyze", "capture", "compare", "export", "figures", "merge", "publish", "report", "stats", "sweep")
Accumulated = tuple[Path, StatsResult, list[StatsProgress]]
Swept = tuple[Path, Path, SweepResult]


@pytest.mark.parametrize("name", COMMANDS)
def test_python_has_every_option_of_the_command(name: str) -> None:
    parameters = inspect.signature(getattr(qkscope, name)).parameters
    command = ["hub", name] if name == "publish" else [name]
    told = subprocess.run([PROGRAM, *command, "--help"], capture_output=True, text=True, check=True).stdout
    named = re.findall(r"^  (?:-\w, )?--([a-z][a-z-]+)", told, re.MULTILINE)
    options = {option.replace("-", "_") for option in named}
    assert len(options) > 3
    own = {"export": {"set": "set", "model": "checkpoint"}, "figures": {"heads": "head"}}  # --set of export is a set of rows
    renamed = RENAMED | own.get(name, {})
    missing = {option for option in options - ELSEWHERE if renamed.get(option, option) not in parameters}
    assert not missing
    by_place = [p for p in parameters.values() if p.kind != p.KEYWORD_ONLY]
    assert len(by_place) <= 3


def stats_configuration(folder: Path) -> dict[str, Any]:
    return {**configuration(folder), "stats": {"first": 2}}


@pytest.fixture(scope="module")
def statistics(tmp_path_factory: pytest.TempPathFactory) -> Accumulated:
    folder = tmp_path_factory.mktemp("stats") / "data"
    seen: list[StatsProgress] = []
    result = qkscope.stats(stats_configuration(folder), limit=4, groups="A,B", progress=seen.append)
    return folder, result, seen


def test_stats_accumulates_and_resumes(statistics: Accumulated) -> None:
    folder, result, seen = statistics
    assert result.outcome == "finished" and result.examples == 4 and result.seconds > result.load_seconds > 0
    assert [progress.examples for progress in seen] == [2, 4] and seen[-1].tokens == result.tokens
    stats = qkscope.open_stats(folder)
    assert stats.settings["groups"] == ["A", "B"] and stats.settings["first"] == 2
    assert qkscope.stats(stats_configuration(folder), limit=4, groups=["A", "B"]).outcome == "already finished"


def test_joined_statistics_equal_one_run(statistics: Accumulated, tmp_path: Path) -> None:
    config = stats_configuration(tmp_path / "parts")
    for index in range(2):
        assert qkscope.stats(config, limit=4, groups="A,B", shard=(index, 2)).outcome == "part finished"
    assert qkscope.merge(tmp_path / "parts").examples == 4
    joined = qkscope.merge([statistics[0], tmp_path / "parts"], out=tmp_path / "joined")
    assert joined.examples == 8 and qkscope.open_stats(tmp_path / "joined").n() == 2 * statistics[1].tokens


def test_an_exception_interrupts_statistics(tmp_path: Path) -> None:
    class Enough(Exception):
        pass

    def stop(progress: Any) -> None:
        raise Enough

    config = stats_configuration(tmp_path / "data")
    with pytest.raises(Enough):
        qkscope.stats(config, limit=4, progress=stop)
    assert qkscope.stats(config, limit=4).outcome == "finished"


def test_dry_runs_return_the_plan(tmp_path: Path) -> None:
    planned = qkscope.capture(configuration(tmp_path / "data"), limit=3, dry_run=True)
    assert planned["examples"] == 3 and planned["rows"] > 0 and planned["seconds"] > 0
    assert any("rows are few for the analyses" in warning for warning in planned["warnings"])
    planned = qkscope.stats(stats_configuration(tmp_path / "data"), limit=3, dry_run=True)
    assert planned["examples"] == 3 and planned["seconds"] > 0 and planned["warnings"] == []
    assert not (tmp_path / "data").exists()


def test_export_writes_files(statistics: Accumulated, tmp_path: Path) -> None:
    written = qkscope.export(statistics[0], "k-ranges", tmp_path / "ranges.safetensors", set="body")
    assert (tmp_path / "ranges.safetensors").exists() and str(tmp_path) in written
    with pytest.raises(qkscope.Error, match="overwrite|exists|there"):
        qkscope.export(statistics[0], "k-ranges", tmp_path / "ranges.safetensors")
    qkscope.export(statistics[0], "k-ranges", tmp_path / "ranges.safetensors", overwrite=True)


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Swept:
    folder = tmp_path_factory.mktemp("sweep")
    file = folder / "small.yaml"
    base = configuration("x")
    del base["output"]
    base["dataset"]["max_samples"] = 4
    runs = [{"label": label, "overrides": {"model.name": str(DEMO.parent / label)}} for label in ("S1-40", "S3-4720")]
    file.write_text(json.dumps({"name": "small", "base": base, "runs": runs}))
    return file, folder, qkscope.sweep(file, folder / "results", figures=False)


def test_sweep_returns_tables_and_figures(swept: Swept) -> None:
    file, folder, result = swept
    assert result.folder == str(folder / "results/small") and result.drawn is None
    assert result.runs.to_pydict()["outcome"] == ["done", "done"]
    assert "r_q" in result.overview.column_names and set(result.overview["label"].to_pylist()) == {"S1-40", "S3-4720"}
    assert set(result.table("qk")["model"].to_pylist()) == {"S1-40", "S3-4720"}
    seen: list[tuple[int, int]] = []

    def tell(done: int, total: int) -> None:
        seen.append((done, total))

    again = qkscope.sweep(file, folder / "results", figures=False, only="S1-40", progress=tell)
    assert again.runs.to_pydict()["outcome"] == ["already done"] and all(total == 2 for _, total in seen)
    with pytest.raises(qkscope.Error, match="no nothing.parquet"):
        result.table("nothing")


def test_stages_of_a_sweep_equal_one_run(swept: Swept, tmp_path: Path) -> None:
    file, _, whole = swept
    for index in range(2):
        qkscope.sweep(file, tmp_path, part="capture", shard=(index, 2))
    for task in ({"part": "merge", "shards": 2}, {"part": "analyse"}, {"part": "tables", "figures": False}):
        result = untyped.sweep(file, tmp_path, **task)
    assert result.table("qk").equals(whole.table("qk"))
    for wrong in ({"part": "captures"}, {"shards": 2}, {"part": "merge", "dry_run": True}):
        with pytest.raises(qkscope.InputError):
            untyped.sweep(file, tmp_path, **wrong)


def test_dry_run_of_a_sweep_returns_the_plan(swept: Swept, tmp_path: Path) -> None:
    plan = qkscope.sweep(swept[0], tmp_path, dry_run=True, overrides={"capture.layers": [0]})
    assert plan["label"].to_pylist() == ["S1-40", "S3-4720"] and plan["captured"].to_pylist() == [False, False]
    assert plan["files"].to_pylist() == [10, 10] and not (tmp_path / "small").exists()


def test_failed_runs_raise_an_error(swept: Swept, tmp_path: Path) -> None:
    broken = json.loads(swept[0].read_text())
    broken["runs"][0]["overrides"]["model.name"] = str(tmp_path / "nowhere")
    file = tmp_path / "small.yaml"
    file.write_text(json.dumps(broken))
    with pytest.raises(qkscope.Error, match="1 of 2 runs failed: S1-40"):
        qkscope.sweep(file, tmp_path / "results", figures=False)


def test_compare_with_published_and_with_runs(swept: Swept, tmp_path: Path) -> None:
    runs = swept[1] / "results/small/runs"
    table = qkscope.compare(runs / "S1-40", runs / "S3-4720", out=tmp_path)
    assert isinstance(table, pa.Table) and {"measure", "a", "b", "difference", "z"} <= set(table.column_names)
    assert (tmp_path / "compare.csv").read_text().count("\n") == table.num_rows + 1
    published = qkscope.compare(runs / "S1-40", published="smollm3", as_="S1-40K")
    assert {"published", "ours", "note"} <= set(published.column_names)


def test_publishing_refuses_other_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(qkscope.Error):
        qkscope.publish(tmp_path, repo="org/name", private=True)


def test_openssl_works_after_the_package_is_imported() -> None:
    """libparquet of pyarrow exports OpenSSL symbols that must not be used."""
    import sys

    subprocess.run([sys.executable, "-c", "import qkscope, hashlib, numpy.random; hashlib.sha256(b'')"], check=True)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: untyped.stats(configuration("x"), groups="D"), "groups='D': expected 'A' or 'B' or 'C'"),
        (lambda: untyped.stats(configuration("x"), min_match=2), "min_match=2"),
        (lambda: untyped.stats(configuration("x"), [1]), "overrides=.*expected a mapping"),
        (lambda: untyped.capture(configuration("x"), ids="name"), "ids='name': expected 'column' or 'row'"),
        (lambda: untyped.capture(configuration("x"), non_finite="drop"), "non_finite='drop'"),
        (lambda: untyped.capture(configuration("x"), limt=3), "no argument 'limt'; did you mean 'limit'"),
        (lambda: untyped.sweep("no/such.yaml"), "no/such.yaml"),
        (lambda: untyped.sweep("x", jobs=0), "x"),
        (lambda: untyped.compare("a", "b", published="models"), "are for a comparison with published numbers"),
        (lambda: untyped.compare("no/such"), "no/such"),
        (lambda: untyped.export("x", "gguf", "y"), "to='gguf': expected 'expected-attention'"),
    ],
)
def test_wrong_arguments_raise_errors(call: Callable[[], object], message: str) -> None:
    with pytest.raises(qkscope.Error, match=message):
        call()
