"""Captures, analyses and figures from Python, compared with the files of the command line."""

# A test compares the table of options of the private engine.
# pyright: reportPrivateUsage=false
import inspect
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from conftest import DEMO, ROOT, untyped

import qkscope
from qkscope import CaptureProgress, CaptureResult
from qkscope._engine import AnalysisOption, analysis_options

Captured = tuple[Path, CaptureResult, list[CaptureProgress]]


def configuration(folder: str | Path) -> dict[str, Any]:
    return {
        "dataset": {"path": str(ROOT / "share/demo/corpus.jsonl"), "split": "train", "text_column": "text"},
        "model": {"name": str(DEMO), "dtype": "float32", "device_map": "cpu"},
        "tokenizer": {"max_length": 256},
        "inference": {"batch_size": 2},
        "capture": {"layers": [0, 3], "min_bucket_size": 16},
        "output": {"data_root": str(folder)},
    }


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> Captured:
    folder = tmp_path_factory.mktemp("capture") / "data"
    seen: list[CaptureProgress] = []
    result = qkscope.capture(configuration(folder), limit=8, progress=seen.append)
    return folder, result, seen


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(Path(folder).rglob("*.parquet"))}


def test_capture_reports_progress(captured: Captured) -> None:
    folder, result, seen = captured
    assert result.outcome == "finished" and result.examples == 8 and result.rows > 0
    assert [progress.examples for progress in seen] == [2, 4, 6, 8]
    assert {progress.total for progress in seen} == {8}
    assert seen[-1].tokens == result.tokens and (folder / "l03h00q").exists()
    again = qkscope.capture(configuration(folder), limit=8)
    assert again.outcome == "already finished"


def test_file_with_overrides_equals_mapping(captured: Captured, tmp_path: Path) -> None:
    config = configuration("elsewhere")
    path = tmp_path / "run.yaml"
    path.write_text(json.dumps(config))
    qkscope.capture(path, {"output.data_root": str(tmp_path / "data")}, limit=8)
    assert files(tmp_path / "data") == files(captured[0])


def test_gpu_options_change_nothing_on_the_cpu(captured: Captured, tmp_path: Path) -> None:
    config = configuration(tmp_path / "data")
    result = qkscope.capture(
        config, limit=8, device="cpu", deterministic=True, device_memory="8GiB", batch_tokens=64)
    assert files(tmp_path / "data") == files(captured[0])
    parts = result.load_seconds + result.forward_seconds + result.input_seconds + result.assembly_seconds
    assert 0 < parts <= result.seconds


def test_interrupted_capture_resumes(captured: Captured, tmp_path: Path) -> None:
    class Enough(Exception):
        pass

    def stop(progress: Any) -> None:
        raise Enough

    config = configuration(tmp_path / "data")
    with pytest.raises(Enough):
        qkscope.capture(config, limit=8, progress=stop)
    assert qkscope.capture(config, limit=8).outcome == "finished"
    assert files(tmp_path / "data") == files(captured[0])


def test_merged_shards_equal_one_capture(captured: Captured, tmp_path: Path) -> None:
    config = configuration(tmp_path / "data")
    for index in range(2):
        assert qkscope.capture(config, limit=8, shard=(index, 2)).outcome == "part finished"
    assert qkscope.merge(tmp_path / "data").examples == 8
    assert files(tmp_path / "data") == files(captured[0])


def test_missing_shards_are_captured_and_merged(captured: Captured, tmp_path: Path) -> None:
    config = configuration(tmp_path / "data")
    assert qkscope.capture(config, limit=8, shard=(1, 3)).outcome == "part finished"
    assert qkscope.capture(config, limit=8, shards=3).outcome == "finished"
    assert files(tmp_path / "data") == files(captured[0])
    with pytest.raises(qkscope.InputError, match="leave shard out"):
        qkscope.capture(config, limit=8, shard=(0, 3), shards=3)


def test_chunks_equal_the_overflowing_tokens_of_tokenizers(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    config = configuration(tmp_path / "data")
    config["tokenizer"] = {"chunk": 100, "chunk_overlap": 10, "chunk_min": 20}
    config["capture"] |= {"sampler": {"type": "all"}, "capture_token_strings": True}
    plan = qkscope.capture(config, limit=2, dry_run=True)
    result = qkscope.capture(config, limit=2)
    assert result.examples == plan["examples"] > 2 and result.rows == plan["rows"]
    library = tokenizers.Tokenizer.from_file(str(DEMO / "tokenizer.json"))
    library.enable_truncation(max_length=100, stride=10)
    texts = [json.loads(line)["text"] for line in (ROOT / "share/demo/corpus.jsonl").open().readlines()[:2]]
    expected = {}
    for row, text in enumerate(texts):
        first = library.encode(text)
        for number, chunk in enumerate([first, *first.overflowing]):
            if len(chunk.tokens) >= 20:
                expected[f"{row}#{number}"] = chunk.tokens
    examples = pq.read_table(tmp_path / "data/examples.parquet").to_pandas().set_index("example_key")
    rows = pq.read_table(tmp_path / "data/l00h00q/data.parquet").to_pandas()
    found = {}
    for key, chunk in rows.groupby("example_key", sort=False):
        assert chunk["position"].tolist() == list(range(len(chunk)))
        found[examples.loc[key, "source_id"]] = chunk["token_str"].tolist()
    assert found == expected


def test_interrupted_capture_of_chunks_resumes(tmp_path: Path) -> None:
    class Enough(Exception):
        pass

    def stop(progress: Any) -> None:
        assert progress.total == 26
        raise Enough

    config = configuration(tmp_path / "whole")
    config["tokenizer"] = {"chunk": 128}
    assert qkscope.capture(config, limit=1).examples == 26
    config["output"]["data_root"] = str(tmp_path / "data")
    with pytest.raises(Enough):
        qkscope.capture(config, limit=1, progress=stop)
    assert qkscope.capture(config, limit=1).outcome == "finished"
    assert files(tmp_path / "data") == files(tmp_path / "whole")
    with pytest.raises(qkscope.InputError, match="an overlap below the size"):
        qkscope.capture(config, {"tokenizer.chunk_overlap": 128})


def test_analyze_returns_the_written_tables(captured: Captured, tmp_path: Path) -> None:
    tables = qkscope.analyze(captured[0], out=tmp_path)
    assert "qk" in tables
    for name, table in tables.items():
        assert table.equals(pq.read_table(tmp_path / f"{name}.parquet")), name
    heads = tables["qk"].to_pandas()
    assert set(heads["layer"]) == {0, 3}


def test_only_selects_analyses(captured: Captured) -> None:
    assert set(qkscope.analyze(captured[0], only="pca")) < set(qkscope.analyze(captured[0]))


# Option: (value, check of the tables and of the options in summary.json).
OPTIONS: dict[str, tuple[Any, Callable[[Any, Any], bool]]] = {
    "layers": ([3], lambda t, o: set(t["qk"]["layer"].to_pylist()) == {3}),
    "heads": ([(0, 1), (3, 2)], lambda t, o: o["heads"] == [[0, 1], [3, 2]]),
    "attention": ("full", lambda t, o: o["attention"] == "full" and set(t["qk"]["attention"].to_pylist()) == {"full"}),
    "max_tokens": (20, lambda t, o: max(t["qk"]["n_q"].to_pylist()) == 20),
    "seed": (7, lambda t, o: o["seed"] == 7),
    "errors": (False, lambda t, o: "errors" not in t),
    "scatter": (0, lambda t, o: "head_scatter" not in t),
    "planes_of": ("3.2", lambda t, o: set(t["head_planes"]["head"].to_pylist()) == {2}),
    "components": (3, lambda t, o: max(t["qk"]["pc"].to_pylist()) == 2),
    "separate_pca": (2, lambda t, o: max(t["correlations"]["pca_dim"].to_pylist()) <= 2),
    "high": (0.5, lambda t, o: o["taxonomy_high"] == 0.5),
    "low": (0.1, lambda t, o: o["taxonomy_low"] == 0.1),
    "separation": ("eigen-then-project", lambda t, o: o["separation"] == "eigen-then-project"),
    "null_draws": (0, lambda t, o: t["rotated"]["position_r_null"].null_count == t["rotated"].num_rows),
    "pairs": (2, lambda t, o: max(t["complement"]["pair"].to_pylist()) == 1),
    "active": (0.4, lambda t, o: o["active_angle_r"] == 0.4),
    "max_omega": (0.5, lambda t, o: o["max_omega"] == 0.5),
    "query_model": ("linear", lambda t, o: o["query_model"] == "linear"),
    "covariance": ("full", lambda t, o: o["covariance"] == "full"),
    "free_keys": (5, lambda t, o: o["free_keys"] == 5),
    "max_pairs": (9, lambda t, o: max(t["head_profile"]["n_pairs"].to_pylist()) == 9),
    "p_alpha": (0.2, lambda t, o: o["p_alpha"] == 0.2),
    "profile_bins": (4, lambda t, o: max(t["head_profile"]["bin"].to_pylist()) == 3),
    "fifths": ("context", lambda t, o: o["fifths"] == "context"),
    "length_bins": ([0, 50, 100], lambda t, o: o["length_bins"] == [0, 50, 100]),
    "heatmap_bins": (2, lambda t, o: t["pair_heatmap"].num_rows <= 4 * 16),
    "score_pairs": (50, lambda t, o: o["score_pairs"] == 50 and t["geometry"]["distance_share"].null_count == 0),
    "swap_queries": (3, lambda t, o: o["swap_queries"] == 3 and t["geometry"]["symbolic_score"].null_count == 0),
    "weights": (str(DEMO), lambda t, o: t["geometry"]["weight_rank_90"].null_count == 0),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_option_changes_the_result(captured: Captured, tmp_path: Path, name: str) -> None:
    value, holds = OPTIONS[name]
    tables = qkscope.analyze(captured[0], tmp_path, **{name: value})
    assert holds(tables, json.loads((tmp_path / "summary.json").read_text())["options"])


def test_a_folder_holds_results_of_one_set_of_options(captured: Captured, tmp_path: Path) -> None:
    qkscope.analyze(captured[0], tmp_path, only="pca", layers=[3])
    with pytest.raises(qkscope.Error, match=r"layers is \[3\] there, \[0\] here"):
        qkscope.analyze(captured[0], tmp_path, only="rotation", layers=[0])
    qkscope.analyze(captured[0], tmp_path, only="rotation", layers=[3])
    assert {"qk.parquet", "rotated.parquet"} < {path.name for path in tmp_path.iterdir()}
    qkscope.analyze(captured[0], tmp_path, only="rotation", layers=[0], overwrite=True)
    assert not (tmp_path / "qk.parquet").exists()


def test_every_row_of_the_table_of_options_is_tested_and_documented() -> None:
    rows = {row.name: row for row in qkscope._engine.analysis_options()}
    elsewhere = {"label", "model", "head_counts", "nope_layers", "stage", "keys", "partial"}  # tested elsewhere
    assert set(OPTIONS) | elsewhere == set(rows)
    parameters = inspect.signature(qkscope.analyze).parameters
    for name, row in rows.items():
        assert parameters[name].default == row.default and parameters[name].kind == inspect.Parameter.KEYWORD_ONLY
        assert f"{name}: {row.help}" in (qkscope.analyze.__doc__ or "")


def test_a_partial_capture_is_refused_or_marked(captured: Captured, tmp_path: Path) -> None:
    part = tmp_path / "part"
    shutil.copytree(captured[0], part)
    shutil.rmtree(sorted(part.glob("l*q"))[0])
    with pytest.raises(qkscope.InputError, match="not a whole capture"):
        qkscope.analyze(part)
    tables = qkscope.analyze(part, only="pca", partial=True, label="x")
    assert set(tables["qk"]["model"].to_pylist()) == {"x (partial)"}


def test_layers_and_heads_may_be_texts(captured: Captured) -> None:
    written = qkscope.analyze(captured[0], only="pca", layers="0, 3-3", heads="3.1,3.2")
    listed = qkscope.analyze(captured[0], only="pca", layers=[0, 3], heads=[(3, 1), (3, 2)])
    assert written["qk"].equals(listed["qk"]) and set(written["qk"]["head"].to_pylist()) == {1, 2}


def test_captures_without_metadata_need_a_model_or_head_counts(captured: Captured, tmp_path: Path) -> None:
    """Head files without metadata and without a state file, as other programs write them."""
    bare = tmp_path / "bare"
    for path in sorted(captured[0].glob("l*/data.parquet")):
        (bare / path.parent.name).mkdir(parents=True)
        pq.write_table(pq.read_table(path).replace_schema_metadata(None), bare / path.parent.name / "data.parquet")
    with pytest.raises(qkscope.Error, match="which key head"):
        qkscope.analyze(bare)
    both = ("pca", "rotation")
    told = qkscope.analyze(captured[0], only=both, label="x")
    for name, table in qkscope.analyze(bare, only=both, model=DEMO, label="x").items():
        assert table.equals(told[name]), name
    config = qkscope.load(DEMO, device="cpu").cfg
    counted = qkscope.analyze(bare, only="pca", head_counts=(config.n_heads, config.n_key_value_heads), label="x")
    assert counted["qk"]["r_q"].equals(told["qk"]["r_q"])


def test_a_report_compares_two_results(captured: Captured, tmp_path: Path) -> None:
    for name in ("a", "b"):
        qkscope.analyze(captured[0], only="pca", out=tmp_path / name, label=name)
    page = tmp_path / "both.html"
    drawn = qkscope.report(tmp_path / "a", compare=tmp_path / "b", out=page)
    assert drawn.report == str(page) and '"other":{' in page.read_text()
    with pytest.raises(qkscope.InputError, match="there is no such folder"):
        qkscope.report(tmp_path / "a", compare=tmp_path / "none", out=page)
    with pytest.raises(qkscope.InputError, match="components="):
        untyped.report(tmp_path / "a", components=(1, 2, 3))


def test_one_figure_is_drawn(captured: Captured, tmp_path: Path) -> None:
    qkscope.analyze(captured[0], out=tmp_path / "results")
    drawn = qkscope.figures(tmp_path / "results", tmp_path / "figures", only="rq_rk_scatter", formats=["svg"])
    assert drawn.figures == ["rq_rk_scatter"] and drawn.report == ""
    assert repr(drawn) == "Drawn(figures=['rq_rk_scatter'], report='')"
    assert (tmp_path / "figures/rq_rk_scatter.svg").read_text().startswith("<?xml")


def test_figures_analyse_a_capture_first(captured: Captured, tmp_path: Path) -> None:
    drawn = qkscope.figures(captured[0], tmp_path, only="rq_rk_scatter", formats="svg", label="mine")
    assert drawn.figures == ["rq_rk_scatter"]
    assert set(pq.read_table(tmp_path / "results/qk.parquet")["model"].to_pylist()) == {"mine"}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: untyped.capture({"capture": {"layres": [0]}}), "config:1: .*layres|dataset|model"),
        (lambda: untyped.capture("no/such.yaml"), "no/such.yaml"),
        (lambda: untyped.capture(configuration("x"), limit=0), "limit=0"),
        (lambda: untyped.capture(configuration("x"), shard=(2, 2)), "shard="),
        (lambda: untyped.capture(configuration("x"), device="cuda:99"), "device cuda:99: "),
        (lambda: untyped.capture(configuration("x"), dtype="int8"), "dtype: found 'int8'"),
        (lambda: untyped.capture(configuration("x"), device_memory="much"), "device_memory: found 'much'"),
        (lambda: untyped.capture(configuration("x"), batch_tokens=-1), "batch_tokens=-1"),
        (lambda: untyped.analyze("no/such/folder"), "no/such/folder"),
        (lambda: untyped.analyze("no/such/folder@main"), "REPO@BRANCH"),
        (lambda: untyped.figures("no/such/folder", "x"), "no/such/folder"),
        (lambda: untyped.analyze("x", only="pcr"), "expected pca, rotation, plasticity"),
        (lambda: untyped.analyze("x", only=()), "only: found none"),
        (lambda: untyped.analyze("x", layres=[1]), "analyze: no argument 'layres'; did you mean 'layers'"),
        (lambda: untyped.analyze("x", zzz=1), "no argument 'zzz'; expected some of data_root, out, only"),
        (lambda: untyped.analyze(), r"missing a required argument: 'data_root'; expected analyze\(data_root, out, \*"),
        (lambda: untyped.analyze("x", "out", "pca"), "too many positional arguments"),
        (lambda: untyped.analyze(3), "data_root=3: expected a text or a path"),
        (lambda: untyped.analyze("x", layers="4-2"), "'4-2' is not a layer; expected numbers and ranges"),
        (lambda: untyped.analyze("x", layers=[-1]), "layers=-1: expected a whole number from 0"),
        (lambda: untyped.analyze("x", heads=[3, 5]), r"expected pairs \(layer, head\)"),
        (lambda: untyped.analyze("x", planes_of="3:5"), "planes_of='3:5': expected pairs"),
        (lambda: untyped.analyze("x", errors=1), "errors=1: expected True or False"),
        (lambda: untyped.analyze("x", components=0), "components=0: expected a whole number from 1"),
        (lambda: untyped.analyze("x", null_draws=1.5), "null_draws=1.5: expected a whole number"),
        (lambda: untyped.analyze("x", high=2), "high=2: expected a number from 0 to 1"),
        (lambda: untyped.analyze("x", low="0.3"), "low='0.3': expected a number"),
        (lambda: untyped.analyze("x", separation="median"), "expected 'mean' or 'eigen' or 'eigen-then-project'"),
        (lambda: untyped.analyze("x", fifths="all"), "expected 'range' or 'context'"),
        (lambda: untyped.analyze("x", profile_bins="many"), "profile_bins='many': expected 1 to 8192, 'buckets'"),
        (lambda: untyped.analyze("x", length_bins=5), "length_bins=5: expected a list of whole numbers"),
        (lambda: untyped.analyze("x", head_counts=(4,)), "expected two numbers, of query and of key heads"),
        (lambda: untyped.figures("x", "y", formts=["svg"]), "figures: no argument 'formts'; did you mean 'formats'"),
        (lambda: untyped.figures("x", "y", components=(1, 2, 3)), "expected two numbers from 0 on"),
    ],
)
def test_wrong_arguments_raise_errors(call: Callable[[], object], message: str) -> None:
    with pytest.raises(qkscope.Error, match=message):
        call()


@pytest.mark.parametrize("row", analysis_options(), ids=lambda row: row.name)
def test_numbers_of_every_option_are_checked(row: AnalysisOption) -> None:
    """Every option of the table refuses NaN, infinity and overflow."""
    wrong: list[Any] = []
    if row.kind == "number":
        wrong = [float("nan"), float("inf"), -float("inf"), 1e300, 10**400, "0.5", True]
    elif row.kind == "count":
        wrong = [float("nan"), -1, 1.5, 2**64, 10**30, "010", True]
    elif row.kind in ("counts", "layers"):
        wrong = [[float("nan")], [-1], [1.5], [2**64], [True]]
    elif row.kind == "heads":
        wrong = [[(0, -1)], [(0, 2**40)], [(0, float("nan"))], [(True, 0)]]
    for value in wrong:
        with pytest.raises(qkscope.InputError, match=f"^{row.name}="):
            untyped.analyze("x", **{row.name: value})
