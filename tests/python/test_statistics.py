"""Statistics over every token, compared with NumPy on the vectors."""

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest
from conftest import DEMO, ROOT

import qkscope

PROGRAM = ROOT / "build" / "bin" / "qkscope"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stats")
    config = folder / "run.yaml"
    config.write_text(json.dumps({
        "dataset": {"path": str(ROOT / "share/demo/corpus.jsonl"), "id_column": "id", "max_samples": 3},
        "model": {"name": str(DEMO), "dtype": "float32", "device_map": "cpu"},
        "tokenizer": {"max_length": 64},
        "output": {"data_root": str(folder / "data")},
        "stats": {"groups": ["A", "B"]},
    }))
    subprocess.run([PROGRAM, "stats", "--config", config, "--quiet"], check=True)
    return folder / "data"


@pytest.fixture(scope="module")
def rows() -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Queries of layer 2 before and after RoPE, concatenated over documents, with positions."""
    model = qkscope.load(DEMO)
    texts = [json.loads(line)["text"] for line in open(ROOT / "share/demo/corpus.jsonl")][:3]
    found: dict[str, list[np.ndarray]] = {"hook_q": [], "hook_rot_q": []}
    positions: list[np.ndarray] = []
    for text in texts:
        tokens = model.to_tokens(text)[:64]
        cache = model.cache(tokens, ["blocks.2.attn.hook_q", "blocks.2.attn.hook_rot_q"])
        for name in found:
            found[name].append(np.asarray(cache[f"blocks.2.attn.{name}"], dtype=np.float64))
        positions.append(np.arange(len(tokens)))
    return {name: np.concatenate(parts) for name, parts in found.items()}, np.concatenate(positions)


def test_moments_match_numpy(folder: Path, rows: tuple[dict[str, np.ndarray], np.ndarray]) -> None:
    stats = qkscope.open_stats(folder)
    vectors, positions = rows
    assert stats.n() == len(positions) and stats.n("first") == 12
    for stage, name in (("pre", "hook_q"), ("post", "hook_rot_q")):
        for part, take in (("all", positions >= 0), ("body", positions >= 4), ("first", positions < 4)):
            x = vectors[name][take]  # [rows, head, d]
            np.testing.assert_allclose(stats.mean("q", stage, part)[2], x.mean(0), atol=1e-12)
            for head in range(x.shape[1]):
                np.testing.assert_allclose(stats.cov("q", stage, part)[2, head], np.cov(x[:, head].T), atol=1e-11)
            np.testing.assert_allclose(stats.std("q", stage, part)[2], x.std(0, ddof=1), atol=1e-11)
            np.testing.assert_array_equal(stats.absmax("q", stage, part)[2], np.abs(x).max(0).astype(np.float32))
            centred = x - x.mean(0)
            m2 = (centred**2).mean(0)
            np.testing.assert_allclose(stats.skew("q", stage, part)[2], (centred**3).mean(0) / m2**1.5, atol=1e-9)
            kurtosis = (centred**4).mean(0) / m2**2 - 3
            np.testing.assert_allclose(stats.excess_kurtosis("q", stage, part)[2], kurtosis, atol=1e-9)
            t = positions[take] - positions[take].mean()
            r = np.einsum("rhd,r->hd", centred, t) / np.sqrt((centred**2).sum(0) * (t**2).sum())
            np.testing.assert_allclose(stats.position_r("q", stage, part)[2], r, atol=1e-9)
    half = vectors["hook_q"].shape[-1] // 2
    lengths = np.hypot(vectors["hook_q"][..., :half], vectors["hook_q"][..., half:]).mean(0)
    np.testing.assert_allclose(stats.pair_abs("q")[2], lengths, atol=1e-11)
    second = np.einsum("rhi,rhj->hij", vectors["hook_rot_q"], vectors["hook_rot_q"]) / len(positions)
    np.testing.assert_allclose(stats.second_moment("q")[2], second, atol=1e-11)


def test_shapes_and_tables(folder: Path) -> None:
    stats = qkscope.open_stats(folder)
    assert stats.cov("k").shape == (8, 2, 16, 16) and stats.bucket_mean("k").shape == (8, 2, 16, 16)
    assert len(stats.layers) == 8 and stats.settings["groups"] == ["A", "B"]
    assert stats.attention().num_rows == 64 * 17 and stats.channels().num_rows > 0
    assert "3 documents" in repr(stats)
    tables = qkscope.analyze(folder)
    assert tables["qk"].num_rows == 640 and tables["rotated"]["active_planes"].null_count == 64


def test_wrong_arguments_raise_errors(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(qkscope.Error, match="stats_state.json"):
        qkscope.open_stats(tmp_path)
    stats = qkscope.open_stats(folder)
    with pytest.raises(qkscope.Error, match=r"no v.post.first.mean"):
        stats.mean("v", "post")
    with pytest.raises(qkscope.Error, match="first, body, all"):
        stats.mean("q", "post", "some")
    with pytest.raises(qkscope.Error, match="distance.parquet"):
        stats.distance()
    with pytest.raises(qkscope.Error, match="'post' or 'pre'"):
        qkscope.analyze(folder, stage="mid")
