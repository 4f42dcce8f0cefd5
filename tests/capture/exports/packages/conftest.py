"""Fixtures: a tiny random Llama with the tokenizer of the demo, and its statistics, made by the program QKSCOPE."""
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

ROOT = Path(__file__).resolve().parents[4]
QKSCOPE = os.environ.get("QKSCOPE", str(ROOT / "build" / "bin" / "qkscope"))
DEMO = ROOT / "share" / "demo"


def qkscope(*arguments):
    result = subprocess.run([QKSCOPE, *map(str, arguments)], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.fixture(scope="session")
def llama(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model") / "tiny-llama"
    torch.manual_seed(7)
    config = LlamaConfig(vocab_size=1024, hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4,
                         num_key_value_heads=2, head_dim=16, max_position_embeddings=512)
    model = LlamaForCausalLM(config).to(torch.float32)
    with torch.no_grad():  # trained models have queries with non-zero means
        for layer in model.model.layers:
            layer.self_attn.q_proj.weight.mul_(4)
            layer.self_attn.k_proj.weight.mul_(4)
    model.save_pretrained(folder)
    shutil.copy(DEMO / "checkpoints" / "S3-4720" / "tokenizer.json", folder)
    return folder


@pytest.fixture(scope="session")
def statistics(llama, tmp_path_factory):
    folder = tmp_path_factory.mktemp("stats")
    config = folder / "run.yaml"
    config.write_text(json.dumps({
        "dataset": {"path": str(DEMO / "corpus.jsonl"), "id_column": "id", "max_samples": 8},
        "model": {"name": str(llama), "dtype": "float32", "device_map": "cpu"},
        "tokenizer": {"max_length": 128},
        "inference": {"batch_size": 4},
        "output": {"data_root": str(folder / "data")},
        "stats": {"groups": ["A", "B"]},
    }))
    qkscope("stats", "--config", config, "--quiet")
    return folder / "data"


@pytest.fixture(scope="session")
def export(statistics, tmp_path_factory):
    def run(to, *options, name="out"):
        out = tmp_path_factory.mktemp(to) / name
        qkscope("export", statistics, "--to", to, "--out", out, *options)
        return out

    return run
