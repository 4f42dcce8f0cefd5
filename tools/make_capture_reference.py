#!/usr/bin/env python3
"""Writes reference captures from transformers by the rules of the Python prototype, for
tests/capture/run/reference_test.cpp.

Runs the tiny checkpoints of tests/golden over generated texts. The rules (heads, positions, buckets, ids) are
reimplemented in Python with CPython's random and PyTorch's generator. Needs torch, transformers, tokenizers and pyyaml:

    python tools/make_capture_reference.py tests/capture/run/reference
"""

import hashlib
import json
import pathlib
import random
import sys

import torch
import yaml
from safetensors.torch import save_file
from tokenizers import Tokenizer
from transformers import AutoConfig, AutoModelForCausalLM, MllamaForCausalLM

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))
from golden.recorder import Recorder  # noqa: E402
from make_sampling_golden import log_buckets, mask, sampling_seed  # noqa: E402

IDS = {
    "strings": ["doc-a", "doc-b", "Größe", "東京", "", "doc f"],
    "numbers": [0, -1, 2**31, 2**40 + 17, -(2**63), 7],
}

CASES = {
    "windows": {"checkpoint": "qwen3_windows", "ids": "strings", "max_length": 70,
                "capture": {"sampler": {"type": "log_uniform", "base_rate": 3.0}, "min_bucket_size": 4,
                            "capture_token_strings": True}},
    "nope": {"checkpoint": "smollm3_list", "ids": "numbers", "max_length": 90,
             "capture": {"head_sampling": {"count": 7, "seed": 0}, "full_attention_only": True,
                         "sampler": {"type": "uniform", "base_rate": 1.0}, "min_bucket_size": 6}},
    "pre_rope": {"checkpoint": "qwen3_windows", "ids": None, "max_length": 50,
                 "capture": {"capture_pre_rope": True, "full_attention_only": True,
                             "sampler": {"type": "uniform", "base_rate": 2.0}, "min_bucket_size": 8}},
    "cross": {"checkpoint": "mllama_text", "ids": "strings", "max_length": 200,
              "capture": {"head_sampling": {"count": 6, "seed": 3},
                          "sampler": {"type": "uniform", "base_rate": 0.5}, "min_bucket_size": 3}},
    "keys": {"checkpoint": "llama_gqa", "ids": "numbers", "max_length": 40,
             "capture": {"capture_queries": False, "layers": [1], "heads": [2, 3],
                         "sampler": {"type": "all"}, "min_bucket_size": 16}},
}


def tokenizer_json():
    """Byte-level BPE over lower-case letters with 44 tokens: fits the smallest vocabulary of the checkpoints."""
    letters = list("abcdefghijklmnopqrstuvwxyz") + ["Ġ", ".", ",", "Ċ"]
    merges = [("t", "h"), ("th", "e"), ("Ġ", "the"), ("i", "n"), ("e", "r"), ("Ġ", "a"), ("o", "n"),
              ("r", "e"), ("n", "d"), ("Ġa", "nd"), ("o", "u"), ("i", "s"), ("Ġ", "s")]
    tokens = ["<s>"] + letters + [a + b for a, b in merges]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0", "truncation": None, "padding": None, "normalizer": None,
        "added_tokens": [{"id": 0, "content": "<s>", "single_word": False, "lstrip": False, "rstrip": False,
                          "normalized": False, "special": True}],
        "pre_tokenizer": byte_level, "decoder": byte_level,
        "post_processor": {"type": "TemplateProcessing",
                           "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                                      {"Sequence": {"id": "A", "type_id": 0}}],
                           "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
                           "special_tokens": {"<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]}}},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": {token: i for i, token in enumerate(tokens)},
                  "merges": [list(pair) for pair in merges]},
    }


def texts():
    """Returns six texts of made-up words, from one word to a few hundred tokens."""
    generator = random.Random(11)
    words = ["the", "and", "stone", "river", "is", "under", "a", "thin", "red", "sound", "reading", "on"]
    return [" ".join(generator.choice(words) for _ in range(count)) + "." for count in (1, 12, 30, 60, 7, 90)]


def example_key(value, row):
    if value is None:
        return row
    if isinstance(value, int):
        return value
    return int.from_bytes(hashlib.blake2b(value.encode(), digest_size=8).digest(), "little", signed=True)


def low_bits(key):
    low = key & 0xFFFFFFFF
    return low - (1 << 32) if low >= 1 << 31 else low


def sliding_layers(config):
    kinds = getattr(config, "layer_types", None) or ["full_attention"] * config.num_hidden_layers
    return {i for i, kind in enumerate(kinds) if kind == "sliding_attention"}


def selected_heads(config, capture):
    """Returns (layer, head) of every captured query head, cross-attention layers included."""
    sliding = sliding_layers(config) if capture.get("full_attention_only") else set()
    candidates = [(layer, head) for layer in capture.get("layers") or range(config.num_hidden_layers)
                  for head in capture.get("heads") or range(config.num_attention_heads) if layer not in sliding]
    sampling = capture.get("head_sampling")
    if sampling and sampling["count"] < len(candidates):
        candidates = random.Random(sampling["seed"]).sample(candidates, sampling["count"])
    return candidates


def kept_positions(capture, seed, length):
    sampler = capture["sampler"]
    if sampler["type"] == "all":
        return list(range(length))
    return mask(sampler["type"], seed, length, capture["min_bucket_size"], sampler.get("base_rate", 1.0))


def buckets(capture, positions):
    if capture["sampler"]["type"] == "log_uniform":
        by_position = log_buckets(max(positions, default=0) + 1, capture["min_bucket_size"]).to(torch.int64)
        return [int(by_position[position]) for position in positions]
    return [position // capture["min_bucket_size"] for position in positions]


def stage_names(capture, kind, config):
    if not capture.get("capture_pre_rope"):
        return [f"hook_rot_{kind}"]
    return [f"hook_{kind}_normed", f"hook_{kind}"]


def head_rows(case, recordings, layer, head, kind, config):
    """Returns bucket, example_id, position and vector of one head file."""
    capture = case["capture"]
    columns = {"bucket": [], "example_id": [], "position": [], "vector": []}
    for key, tensors in recordings:
        name = next(n for n in (f"blocks.{layer}.attn.{s}" for s in stage_names(capture, kind, config)) if n in tensors)
        vectors = tensors[name][:, head]
        positions = kept_positions(capture, sampling_seed(key, layer, kind), vectors.shape[0])
        columns["position"] += positions
        columns["bucket"] += buckets(capture, positions)
        columns["example_id"] += [low_bits(key)] * len(positions)
        columns["vector"] += [vectors[p] for p in positions]
    width = recordings[0][1][name].shape[-1]
    vectors = torch.stack(columns["vector"]) if columns["vector"] else torch.zeros(0, width)
    result = {n: torch.tensor(columns[n], dtype=torch.int32) for n in ("bucket", "example_id", "position")}
    return result | {"vector": vectors.float().contiguous()}


def make_case(out, name, case, tokenizer, documents):
    folder = ROOT / "tests" / "golden" / case["checkpoint"]
    config = AutoConfig.from_pretrained(folder).get_text_config()
    loader = MllamaForCausalLM if config.model_type == "mllama_text_model" else AutoModelForCausalLM
    model = loader.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    tokenizer.enable_truncation(case["max_length"])
    recordings = []
    for row, text in enumerate(documents):
        value = IDS[case["ids"]][row] if case["ids"] else None
        ids = torch.tensor(tokenizer.encode(text).ids)
        recordings.append((example_key(value, row), Recorder(model).run(ids)))
    cross = set(getattr(config, "cross_attention_layers", None) or [])
    queries = {pair for pair in selected_heads(config, case["capture"]) if pair[0] not in cross}
    group = config.num_attention_heads // config.num_key_value_heads
    wanted = {"q": queries, "k": {(layer, head // group) for layer, head in queries}}
    golden = {}
    for kind, key in (("q", "capture_queries"), ("k", "capture_keys")):
        for layer, head in sorted(wanted[kind]) if case["capture"].get(key, True) else []:
            for column, values in head_rows(case, recordings, layer, head, kind, config).items():
                golden[f"l{layer:02d}h{head:02d}{kind}/{column}"] = values
    save_file(golden, out / f"{name}.safetensors")
    settings = {"dataset": {"path": "texts.jsonl", "id_column": case["ids"]},
                "model": {"name": str(case["checkpoint"]), "dtype": "float32"},
                "tokenizer": {"name": "tokenizer.json", "max_length": case["max_length"]},
                "capture": case["capture"]}
    (out / f"{name}.yaml").write_text(yaml.safe_dump(settings, sort_keys=False))


def main():
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    (out / "tokenizer.json").write_text(json.dumps(tokenizer_json(), ensure_ascii=False, indent=1) + "\n")
    documents = texts()
    with open(out / "texts.jsonl", "w", encoding="utf-8") as file:
        for row, text in enumerate(documents):
            file.write(json.dumps({"text": text} | {name: values[row] for name, values in IDS.items()},
                                  ensure_ascii=False) + "\n")
    tokenizer = Tokenizer.from_file(str(out / "tokenizer.json"))
    assert tokenizer.get_vocab_size() <= 48
    for name, case in CASES.items():
        make_case(out, name, case, tokenizer, documents)


if __name__ == "__main__":
    main()
