"""Runs the shell commands of the documentation as they are written, in a folder with small stand-ins for the files they name."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import DEMO, GOLDEN, ROOT
from documentation import DOCS, shell_commands, yaml_blocks
from test_runs import configuration

PAGES = ["../README.md", *sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))]
COMMANDS = {page: commands for page in PAGES if (commands := list(shell_commands(page)))}

# Commands that do not run here, by a regular expression, with the reason and the test that runs them, if there is one.
NOT_RUN = {
    r"^\./run\.sh |^pip install |cmake |ctest ": "builds the program",
    r"bench/|--out shape|build/tests/|check_cuda": "a benchmark or a long test, which a release runs",
    r"build/golden|train_demo|make_demo_golden": "needs torch and transformers",
    r"-m qkscope |transformers_families": "needs torch and transformers: tests/python/beside_torch/test_transformers_engine.py",
    r"^qkscope demo$": "takes two minutes; ./run.sh docs and the test study.sweep.demo_trends run it",
    r"query_key_distance": "draws a figure that the reader adds",
    r"viktoroo/|hub (download|branches|remove|publish)|fineweb|pythia-70m.yaml|published.yaml": "needs the Hub: tests/input/hub",
    r"--device (cuda|all)": "needs a GPU: tools/check_cuda.sh",
    r"s3://": "needs an S3 server: ./run.sh test-store",
    r"^qkscope submit (?!.*--dry-run)": "needs Slurm: ./run.sh test-slurm",
    r"qkscope view (?!.*--export)|make_viewer_screenshots|measure_viewer|^ssh ": "serves until Ctrl-C, or needs a browser: tests/analysis/viewer",
    r"^kubectl |^sky |examples/cluster/": "needs Kubernetes, SkyPilot or Ray: tests/examples/cluster_test.py",
}

# Commands that make what a page assumes, before its own commands.
BEFORE = {
    "explanation/geometry.md": ["qkscope stats --config run.yaml --set output.data_root=stats/demo",
                                "qkscope capture --config run.yaml --set output.data_root=captures/demo"],
    "../README.md": ["qkscope capture --config my-run.yaml", "qkscope analyze data --out other"],
    "how-to/atlas.md": [f"qkscope sweep {name}.yaml --out results --no-figures" for name in ("pythia-70m", "smollm3-atlas")],
    "how-to/reproducing.md": [f"qkscope sweep smollm3-{name}.yaml --out results --no-figures" for name in ("training", "published")],
    "how-to/other-engines.md": ["qkscope capture --config run.yaml --set output.data_root=DATA_ROOT --shard 0/1"],
    "how-to/sweep.md": [
        *(f"qkscope sweep {name}.yaml --out results --no-figures" for name in ("pythia-70m", "attention-plasticity")),
        "qkscope capture --config my-run.yaml",
        *(f"qkscope analyze data --out results/{name} --label qwen3-4b" for name in ("my-run", "before", "after")),
    ],
    "how-to/cluster.md": ["qkscope sweep study.yaml --out results --no-figures"],
    "reference/statistics.md": [
        "qkscope stats --config run.yaml --set output.data_root=stats/smollm2 --shard 1/2",
        *(f"qkscope stats --config run.yaml --set output.data_root=stats/{name}" for name in ("a", "b")),
    ],
}


def reason(command: str) -> str | None:
    return next((why for words, why in NOT_RUN.items() if re.search(words, command)), None)


def without_times(text: str) -> str:
    return re.sub(r"[\d.,]+ (s|tokens/s)\b", r"TIME \1", text)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files that commands name: the demo's model and texts, and the repository's own folders."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{ROOT / 'build/bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.setenv("QKSCOPE_SHARD_INDEX", "0")  # --shard auto
    monkeypatch.setenv("QKSCOPE_SHARD_COUNT", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    for name in ("build", "share", "tools"):
        (tmp_path / name).symlink_to(ROOT / name)
    for name in ("HuggingFaceTB/SmolLM3-3B", "HuggingFaceTB/SmolLM2-135M", "org/model", "path/to/folder", "checkpoints/mine", "DIR_OR_FILE"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).symlink_to(DEMO.parent / "LC2-1200" if "SmolLM2" in name else DEMO)  # a context of 2,048 tokens
    for name in ("model.Q4_1.gguf", "SmolLM2-135M-Instruct.Q4_1.gguf"):
        (tmp_path / name).symlink_to(GOLDEN / "gguf_llama/model.gguf")
    texts = (ROOT / "share/demo/corpus.jsonl").read_text().splitlines(True)[:4]
    for name in ("texts.jsonl", "corpus.jsonl"):
        (tmp_path / name).write_text("".join(texts))
    (tmp_path / "book.txt").write_text(json.loads(texts[0])["text"])
    (tmp_path / "books").mkdir()
    for name, text in zip(("emma", "persuasion"), texts):
        (tmp_path / f"books/{name}.txt").write_text(json.loads(text)["text"])
    config = configuration("stats/smollm2")
    config["dataset"]["max_samples"] = 4
    config["inference"]["batch_size"] = 1
    del config["capture"]["layers"]
    (tmp_path / "run.yaml").write_text(json.dumps(config))
    config["output"]["data_root"] = "data"
    config["capture"]["layers"] = [0]
    (tmp_path / "my-run.yaml").write_text(json.dumps(config))
    del config["output"]
    for name, labels in SWEEPS.items():
        runs = [{"label": label, "overrides": {"model.name": str(DEMO)}} for label in labels]
        sections = {"name": name, "base": config, "runs": runs}
        (tmp_path / f"{name}.yaml").write_text("".join(f"{key}: {json.dumps(value)}\n" for key, value in sections.items()))
    (tmp_path / "configs/sweeps").mkdir(parents=True)
    shutil.copy("smollm3-training.yaml", "configs/sweeps")
    shutil.copy(ROOT / "share/published/models.csv", "my-numbers.csv")
    return tmp_path


# Names of sweeps, with labels that published numbers have.
SWEEPS = {
    "smollm3-training": ("S1-40K", "S1-1.2M"), "smollm3-published": ("S1-40K", "S1-1.2M"), "smollm3-atlas": ("S1-40K", "S1-1.2M"),
    "attention-plasticity": ("qwen3-4b", "qwen3-8b"), "pythia-70m": ("70m-1", "70m-2"), "study": ("early", "late"),
}


def run(command: str) -> Any:
    done = subprocess.run(["bash", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, f"{command}\n{done.stdout}"
    return done.stdout


@pytest.mark.parametrize("page", [page for page in COMMANDS if any(not reason(command) for command, _ in COMMANDS[page])])
def test_commands_of_the_page_run(page: str, folder: Path) -> None:
    if page == "how-to/capture.md":
        (folder / "run.yaml").write_text(yaml_blocks(page)[0])
    if page == "how-to/cluster.md":
        (folder / "study.yaml").write_text((folder / "study.yaml").read_text() + yaml_blocks(page)[0])
    for command in BEFORE.get(page, []):
        run(command)
    for command, output in COMMANDS[page]:
        if not reason(command):
            found = without_times(run(command))
            for line in output:
                assert without_times(line) in found, f"{command}\n{found}"


@pytest.mark.parametrize("words", NOT_RUN)
def test_every_reason_has_a_command(words: Any) -> None:
    commands = [command for commands in COMMANDS.values() for command, _ in commands]
    assert any(re.search(words, command) for command in commands)
