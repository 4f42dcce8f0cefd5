"""Runs the Python code of the documentation on the demo model."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import DEMO, GOLDEN, ROOT
from documentation import DOCS, code_spans, python_blocks, run_block, table_rows
from test_runs import configuration
from test_studies import PROGRAM

import qkscope
from qkscope import Array, Model

# Blocks with these words need a GPU or torch (see beside_torch); lines with these words need the Hub.
ELSEWHERE = ('device="cuda"', "to_torch_module", "AutoModelForCausalLM", "import torch", "optimizer.step()")
AT_A_HUB = '"org/'


def ablate(z: Array) -> Array:
    return z * 0


def metric(logits: Array) -> Array:
    return logits[-1, 3]


@pytest.fixture
def names(demo: Model) -> dict[str, Any]:
    """Variables that the pages assume."""
    tokens = demo.to_tokens("Entry 1, day 5. A letter came for Orn: the road by the river is closed.")
    return {
        "np": np, "qkscope": qkscope, "model": demo, "tokens": tokens, "ids": tokens, "ablate": ablate,
        "texts": ["Entry 1, day 5.", "A letter came. Dear Orn"],
    }


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with small versions of the files that the pages name."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "share").symlink_to(ROOT / "share")
    config = configuration("stats/model")
    config["dataset"]["max_samples"] = 4
    del config["capture"]["layers"]
    (tmp_path / "run.yaml").write_text(json.dumps(config))
    del config["output"]
    config["capture"]["layers"] = [0]
    runs = [{"label": name, "overrides": {"model.name": str(DEMO.parent / name)}} for name in ("S1-40", "S3-4720")]
    (tmp_path / "sweep.yaml").write_text(json.dumps({"name": "sweep", "base": config, "runs": runs}))
    return tmp_path


def capture_and_analyse(folder: Path) -> None:
    qkscope.capture("run.yaml", {"output.data_root": "data"})
    for name in ("a", "b"):
        qkscope.analyze("data", out=f"results/{name}")
    shutil.copytree(folder / "results/a", folder / "results", dirs_exist_ok=True)


RUN = ("reference/python.md", "reference/transformerlens-calls.md", "how-to/heads.md", "how-to/attribution.md", "how-to/patching.md", "how-to/generate.md", "../README.md")
NOT_RUN = {
    "start/coming-from-transformerlens.md": "the first row of its table, which runs below",
    "how-to/capture.md": "needs datasets: tests/capture/run/check_clients.py",
    "how-to/checkpoints.md": "needs torch and transformers",
    "how-to/transformers-engine.md": "needs torch and transformers: tests/python/beside_torch/test_transformers_engine.py",
    "how-to/viewer.md": "opens a notebook's page: tests/python/test_view.py",
    "how-to/adding-a-figure.md": "a line for tests/analysis/figures/compare_figures.py",
    "how-to/adding-a-model.md": "lines of tools/golden/cases.py: tests/engine/model/config_test.cpp",
    "how-to/adding-an-analysis.md": "a function for the tests of the reader's analysis",
}


def test_every_page_with_code_runs_or_has_a_reason() -> None:
    pages = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md") if python_blocks(str(page))}
    assert pages == {*RUN, *NOT_RUN} - {"../README.md"}


def test_the_page_of_the_api_lists_every_public_name() -> None:
    page = (ROOT / "tools/site/pages/reference/python-api.md").read_text()
    assert {*re.findall(r"^::: qkscope\.(\w+)", page, re.MULTILINE)} == {*qkscope.__all__} - {"__version__"}


@pytest.mark.parametrize("page", RUN)
def test_code_of_the_page_runs(page: str, names: dict[str, Any], folder: Path) -> None:
    blocks = python_blocks(page)
    if any('analyze("data")' in block or 'compare("' in block for block in blocks):
        capture_and_analyse(folder)
    if any("qk.safetensors" in block for block in blocks):
        traced = ["--model", str(DEMO), "--text", "Entry 1", "--hooks", "blocks.*.attn.hook_rot_q", "--out", "qk.safetensors"]
        subprocess.run([PROGRAM, "trace", *traced], check=True)
    for block in blocks:
        if not any(words in block for words in ELSEWHERE):
            run_block(page, "".join(line for line in block.splitlines(True) if AT_A_HUB not in line), names)


# Rows of the first table of the page; other tables list differences.
ROWS = table_rows("start/coming-from-transformerlens.md", 2)
MOVED = [row for row in ROWS[: [left for left, _ in ROWS].index("arrays")] if "`" in row[0] + row[1]]


@pytest.fixture
def moving(names: dict[str, Any], folder: Path, demo: Model) -> dict[str, Any]:
    """Variables of the code for users of TransformerLens."""
    (folder / "gpt2").symlink_to(GOLDEN / "gpt2")
    tokens = names["tokens"]
    cache = demo.cache(tokens[None])
    return {
        **names, "text": "Entry 1: the road", "name": "blocks.3.attn.hook_z", "f": names["ablate"], "layer": 3,
        "head": 5, "residual": demo(tokens, stop_at_layer=3), "token": 643, "direction": np.ones(demo.cfg.d_model),
        "cache": cache, "stack": cache.decompose_resid(), "A": np.ones((5, 2)), "B": np.ones((2, 5)),
        "pattern": cache["pattern", 3][0], "str_tokens": demo.to_str_tokens(tokens),
        "corrupted": tokens[::-1].copy(), "clean_cache": demo.cache(tokens), "corrupted_cache": None,
        "metric": metric,
    }


@pytest.mark.parametrize("row", MOVED, ids=lambda row: row[0][:40])
def test_code_of_the_transformer_lens_table_runs(row: Any, moving: dict[str, Any]) -> None:
    left, right = row
    for code in code_spans(left if right.startswith("the same") else right):
        if code == 'cache.to("cpu")':
            continue  # needs torch: beside_torch/test_torch_arrays.py
        if code.startswith("."):
            code = "model.OV[3, 5]" + code
        if code.startswith('"'):
            code = f"model.cache(tokens, {code}, positions=-1)"
        run_block("coming-from-transformerlens.md", code, moving)
