"""Captures, analyses and figures from Python: the files and tables of the command line."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from conftest import DEMO, ROOT

import qkscope


def configuration(folder):
    return {
        "dataset": {"path": str(ROOT / "share/demo/corpus.jsonl"), "split": "train", "text_column": "text"},
        "model": {"name": str(DEMO), "dtype": "float32", "device_map": "cpu"},
        "tokenizer": {"max_length": 256},
        "inference": {"batch_size": 2},
        "capture": {"layers": [0, 3], "min_bucket_size": 16},
        "output": {"data_root": str(folder)},
    }


@pytest.fixture(scope="module")
def captured(tmp_path_factory):
    folder = tmp_path_factory.mktemp("capture") / "data"
    seen = []
    result = qkscope.capture(configuration(folder), limit=8, progress=seen.append)
    return folder, result, seen


def files(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(Path(folder).rglob("*.parquet"))}


def test_a_capture_tells_how_far_it_is(captured):
    folder, result, seen = captured
    assert result.outcome == "finished" and result.examples == 8 and result.rows > 0
    assert [progress.examples for progress in seen] == [2, 4, 6, 8]
    assert {progress.total for progress in seen} == {8}
    assert seen[-1].tokens == result.tokens and (folder / "l03h00q").exists()
    again = qkscope.capture(configuration(folder), limit=8)
    assert again.outcome == "already finished"


def test_a_file_and_overrides_give_the_same(captured, tmp_path):
    config = configuration("elsewhere")
    path = tmp_path / "run.yaml"
    path.write_text(json.dumps(config))
    qkscope.capture(path, {"output.data_root": str(tmp_path / "data")}, limit=8)
    assert files(tmp_path / "data") == files(captured[0])


def test_options_of_a_card_change_nothing_on_the_cpu(captured, tmp_path):
    options = {"device": "cpu", "deterministic": True, "device_memory": "8GiB", "batch_tokens": 64}
    result = qkscope.capture(configuration(tmp_path / "data"), limit=8, **options)
    assert files(tmp_path / "data") == files(captured[0])
    parts = result.load_seconds + result.forward_seconds + result.input_seconds + result.assembly_seconds
    assert 0 < parts <= result.seconds


def test_an_exception_interrupts_and_the_same_call_continues(captured, tmp_path):
    class Enough(Exception):
        pass

    def stop(progress):
        raise Enough

    config = configuration(tmp_path / "data")
    with pytest.raises(Enough):
        qkscope.capture(config, limit=8, progress=stop)
    assert qkscope.capture(config, limit=8).outcome == "finished"
    assert files(tmp_path / "data") == files(captured[0])


def test_shards_merge(captured, tmp_path):
    config = configuration(tmp_path / "data")
    for index in range(2):
        assert qkscope.capture(config, limit=8, shard=(index, 2)).outcome == "part finished"
    assert qkscope.merge(tmp_path / "data").examples == 8
    assert files(tmp_path / "data") == files(captured[0])


def test_analyses_are_arrow_tables(captured, tmp_path):
    tables = qkscope.analyze(captured[0], out=tmp_path)
    assert "qk" in tables
    for name, table in tables.items():
        assert table.equals(pq.read_table(tmp_path / f"{name}.parquet")), name
    heads = tables["qk"].to_pandas()
    assert set(heads["layer"]) == {0, 3}


def test_one_analysis_alone(captured):
    assert set(qkscope.analyze(captured[0], only="pca")) < set(qkscope.analyze(captured[0]))


def test_captures_that_say_nothing_of_themselves(captured, tmp_path):
    """As other programs write them: head files without metadata, and no state."""
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


def test_figures(captured, tmp_path):
    qkscope.analyze(captured[0], out=tmp_path / "results")
    drawn = qkscope.figures(tmp_path / "results", tmp_path / "figures", only="rq_rk_scatter", formats=["svg"])
    assert drawn.figures == ["rq_rk_scatter"] and drawn.report == ""
    assert (tmp_path / "figures/rq_rk_scatter.svg").read_text().startswith("<?xml")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: qkscope.capture({"capture": {"layres": [0]}}), "config:1: .*layres|dataset|model"),
        (lambda: qkscope.capture("no/such.yaml"), "no/such.yaml"),
        (lambda: qkscope.capture(configuration("x"), limit=0), "limit=0"),
        (lambda: qkscope.capture(configuration("x"), shard=(2, 2)), "shard="),
        (lambda: qkscope.capture(configuration("x"), device="cuda:99"), "device cuda:99: "),
        (lambda: qkscope.capture(configuration("x"), dtype="int8"), "dtype: found 'int8'"),
        (lambda: qkscope.capture(configuration("x"), device_memory="much"), "device_memory: found 'much'"),
        (lambda: qkscope.capture(configuration("x"), batch_tokens=-1), "batch_tokens=-1"),
        (lambda: qkscope.analyze("no/such/folder"), "no/such/folder"),
        (lambda: qkscope.analyze("no/such/folder@main"), "REPO@BRANCH"),
        (lambda: qkscope.figures("no/such/folder", "x"), "no/such/folder"),
        (lambda: qkscope.analyze("x", only="pcr"), "expected pca, rotation, plasticity"),
    ],
)
def test_mistakes_are_named(call, message):
    with pytest.raises(qkscope.Error, match=message):
        call()
