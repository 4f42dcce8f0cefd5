"""The smallest inputs of every command, and the commands of the fault tests."""

import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2]

SECONDS = 20  # of a command that takes less than one: the machine may be busy

# Configurations are JSON, which is YAML.
TEXTS = ["the stone and the cold light of the river", "a river", "light and stone and light again and again"]


def config(data_root, texts=3):
    return {
        "dataset": {"path": "texts.jsonl", "split": "train", "text_column": "text", "max_samples": texts},
        "model": {"name": "model"},
        "tokenizer": {"max_length": 64},
        "inference": {"batch_size": 2},
        "capture": {"sampler": {"type": "all"}, "min_bucket_size": 16, "layers": [0]},
        "output": {"data_root": data_root},
    }


# Name, command line, output. Commands run in a folder that holds the inputs; an output is a file or a folder there.
# In this order, each can read the clean outputs of those before it.
COMMANDS = [
    ("inspect", "inspect model", None),
    ("tokenize", "tokenize --tokenizer model --text 'a river'", None),
    ("dataset", "dataset texts.jsonl --tokenizer model --out long.jsonl --min-tokens 8", "long.jsonl"),
    ("trace", "trace --model model --token-ids 1,2,3 --hooks blocks.0.hook_resid_post --out trace.safetensors",
     "trace.safetensors"),
    ("generate", "generate --model model --text river --max-new-tokens 2", None),
    ("heads", "heads --model model --token-ids 1,2,3,1,2,3 --out heads --no-figures", "heads"),
    ("synth", "synth synth --layers 1 --head-counts 1,1 --examples 4 --context 64 --dim 8 --planes 2 --buckets 4", "synth"),
    ("capture", "capture --config capture.yaml", "data"),
    ("shards", "capture --config shards.yaml --shards 2", "shards"),
    ("stats", "stats --config stats.yaml", "stats"),
    ("check", "check data", None),
    ("analyze", "analyze synth --out results", "results"),
    ("export", "export stats --to k-ranges --out ranges.json --overwrite", "ranges.json"),
    ("figures", "figures results --out figures --only bias_strength --format svg", "figures"),
    ("pool", "pool results --out pool", "pool"),
    ("compare", "compare results results --out compare", "compare"),
    ("sweep", "sweep sweep.yaml --out sweeps --no-figures", "sweeps"),
]

# Files that differ from run to run: times.
VOLATILE = ("timings.json", "timing.json", ".drawn.json", "runs.json", "overview.csv", "overview.parquet")


def prepare(folder, program):
    """Writes the inputs and runs every command once. Returns the seconds of each."""
    folder.mkdir(parents=True)
    subprocess.run([sys.executable, SOURCE / "tools/make_tiny_checkpoint.py", "--out", folder / "model", "--layers", "1",
                    "--hidden", "16", "--heads", "2", "--key-heads", "1", "--mlp", "16"],
                   check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    lines = [json.dumps({"id": f"doc-{i}", "text": text}) for i, text in enumerate(TEXTS)]
    (folder / "texts.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "capture.yaml").write_text(json.dumps(config("data")))
    (folder / "shards.yaml").write_text(json.dumps(config("shards")))
    (folder / "stats.yaml").write_text(json.dumps(config("stats") | {"stats": {"groups": ["A"]}}))
    (folder / "sweep.yaml").write_text(json.dumps(
        {"name": "s", "base": config("ignored", 2), "runs": [{"label": "a"}]}))


def run(program, line, folder, variables=None, **options):
    """Runs one command line of the program in the folder."""
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "HF_HUB_OFFLINE": "1", "OPENBLAS_NUM_THREADS": "1",
                   "ARROW_DEFAULT_MEMORY_POOL": "system", **(variables or {})}
    return subprocess.run([program, *shlex.split(line), "--threads", "2"], cwd=folder, env=environment, timeout=SECONDS,
                          stdin=subprocess.DEVNULL, capture_output=True, **options)


def files_of(path):
    """Returns the bytes of a file, or of every file in a folder by its relative name."""
    if path.is_file():
        return {"": path.read_bytes()}
    return {str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*"))
            if file.is_file() and file.name not in VOLATILE and not file.name.endswith(".lock")}


def remove(path):
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
