"""Log messages of the engine go to the Python logger, and are silent by default."""

import logging
import subprocess
import sys

import pytest

import qkscope
from conftest import ROOT

WARNS = ROOT / "tests/golden/gemma3_softcaps"  # a setting that transformers also ignores with a warning


def test_messages_go_to_the_logger(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="qkscope"):
        qkscope.load(WARNS)
    assert [record.levelname for record in caplog.records if record.name == "qkscope"] == ["WARNING"]
    assert "softcap" in caplog.text


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)


def test_nothing_is_printed_unless_asked() -> None:
    quiet = run(f"import qkscope; qkscope.load({str(WARNS)!r})")
    assert (quiet.stdout, quiet.stderr) == ("", "")
    asked = run(f"import logging, qkscope; logging.basicConfig(); qkscope.load({str(WARNS)!r})")
    assert asked.stderr.startswith("WARNING:qkscope:")


def test_a_child_process_computes_too() -> None:
    code = f"""
import multiprocessing, qkscope
model = qkscope.load({str(ROOT / "share/demo/checkpoints/LC2-1200")!r}, device="cpu")
expected = model([1, 2, 3]).tobytes()
def same(_): return model([1, 2, 3]).tobytes() == expected
with multiprocessing.get_context("fork").Pool(2) as pool:
    print(pool.map(same, range(4)))
"""
    assert run(code).stdout == "[True, True, True, True]\n"
