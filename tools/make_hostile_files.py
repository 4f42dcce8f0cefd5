#!/usr/bin/env python3
"""Writes malicious and damaged files, one folder each, and cases.json with the commands to run on them.

    tools/make_hostile_files.py FOLDER

tests/hostile/run.py runs the program over them. A case has the arguments ({} is its folder), the words that its message
must contain, and whether the run may also succeed: most must end with exit code 1 or 2 and a message.
"""

import argparse
import json
import os
import random
import shutil
import struct
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

SOURCE = Path(__file__).resolve().parent.parent
GOLDEN = SOURCE / "tests" / "golden"
TOKENIZERS = SOURCE / "tests/input/tokenizer" / "data"
DEMO = SOURCE / "share" / "demo" / "checkpoints" / "LC2-1200"

CASES = []


class Case:
    """One folder of files, and a command over it."""

    def __init__(self, root, name, arguments, says="", may_pass=False, stdin=None):
        self.folder = root / name
        self.folder.mkdir(parents=True)
        CASES.append({"name": name, "arguments": arguments, "says": says, "may_pass": may_pass})

    def write(self, name, content):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return self

    def write_json(self, name, value):
        return self.write(name, json.dumps(value))


INSPECT = ["inspect", "{}"]
TRACE = ["trace", "--model", "{}", "--token-ids", "1,2,3", "--hooks", "logits", "--out", "{}/out.safetensors"]


def tokenize(*more):
    return ["tokenize", "--tokenizer", "{}/tokenizer.json", "--text", "ab axx héé", *more]


def dataset(name):
    return ["dataset", "{}/" + name]


def golden_config():
    return json.loads((GOLDEN / "llama_mha" / "config.json").read_text())


def header(value):
    text = value if isinstance(value, bytes) else json.dumps(value).encode()
    return struct.pack("<Q", len(text)) + text


# --- checkpoints -----------------------------------------------------------------------------------------------------

def checkpoints(root):
    def weights(name, content, says=""):
        case = Case(root, "safetensors-" + name, INSPECT, says)
        case.write_json("config.json", golden_config()).write("model.safetensors", content)

    tensor = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
    weights("empty", b"", "not a safetensors file")
    weights("short", b"\x01\x02\x03", "not a safetensors file")
    weights("header-beyond-the-file", struct.pack("<Q", 10**6) + b"{}", "ends inside its header")
    weights("header-of-exabytes", struct.pack("<Q", 2**63) + b"{}", "header of")
    weights("many-empty-lists", header(b'{"a":[' + b"[]," * 3_000_000 + b"[]]}"), "more than 4000000 values")
    weights("deep", header(b"[" * 100_000), "nested deeper")
    weights("zero-byte", header(b'{}\0{"a":1}'), "zero byte")
    weights("overlap", header({"a": tensor, "b": tensor}) + bytes(8), "overlap")
    weights("reversed", header({"a": dict(tensor, data_offsets=[8, 0])}) + bytes(8), "reversed")
    weights("overflow", header({"a": dict(tensor, shape=[2**62, 2**62])}) + bytes(8), "64 bits")
    weights("beyond", header({"a": dict(tensor, data_offsets=[0, 2**60], shape=[2**58])}) + bytes(8), "truncated")
    weights("negative", header({"a": dict(tensor, shape=[-2])}) + bytes(8), "expected whole numbers")
    weights("escapes-in-a-name", header({"\x1b[2J": dict(tensor, dtype=3)}) + bytes(8), "\\x1b")
    weights("lfs-pointer", b"version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer")

    case = Case(root, "index-leaves-the-folder", INSPECT, "expected a file inside the checkpoint's folder")
    case.write_json("config.json", golden_config())
    case.write_json("model.safetensors.index.json", {"weight_map": {"a": "../../../etc/passwd"}})
    case = Case(root, "index-many-values", INSPECT, "more than 4000000 values")
    case.write_json("config.json", golden_config())
    case.write("model.safetensors.index.json", '{"weight_map":{},"x":[' + "0," * 5_000_000 + "0]}")
    case = Case(root, "pickle", INSPECT, "a pickle that can run code")
    case.write_json("config.json", golden_config()).write("pytorch_model.bin", b"\x80\x02.")
    case = Case(root, "folder-as-weights", INSPECT, "a folder, expected a file")
    case.write_json("config.json", golden_config())
    (case.folder / "model.safetensors").mkdir()
    case = Case(root, "pipe-as-weights", INSPECT, "not a regular file")
    case.write_json("config.json", golden_config())
    os.mkfifo(case.folder / "model.safetensors")
    case = Case(root, "pipe-as-config", INSPECT, "not a regular file")
    os.mkfifo(case.folder / "config.json")


def gguf_files(root):
    def file(name, content, says, arguments=None):
        Case(root, "gguf-" + name, arguments or ["inspect", "{}/model.gguf"], says).write("model.gguf", content)

    def text(value):
        return struct.pack("<Q", len(value)) + value

    def start(tensors, keys, version=3):
        return b"GGUF" + struct.pack("<IQQ", version, tensors, keys)

    real = (GOLDEN / "gguf_llama" / "model.gguf").read_bytes()
    file("empty", b"", "not a GGUF file")
    file("cut", real[:len(real) // 2], "truncated")
    file("exabytes-of-tensors", start(2**63, 0), "the number of tensors")
    file("exabytes-of-name", start(0, 1) + struct.pack("<Q", 2**63), "expected at most")
    file("exabytes-of-list", start(0, 1) + text(b"a") + struct.pack("<IIQ", 9, 0, 2**63), "the length of")
    file("lists-in-lists", start(0, 1) + text(b"a") + struct.pack("<IIQ", 9, 9, 1) * 1000, "a list of lists")
    file("escapes-in-a-name", start(1, 0) + text(b"\x1b[2J") + struct.pack("<I", 9), "\\x1b")
    file("overflow", start(1, 0) + text(b"a") + struct.pack("<IQQQQIQ", 4, *[2**31 - 1] * 4, 0, 0), "more elements")
    file("unknown-type", start(1, 0) + text(b"a") + struct.pack("<IQIQ", 1, 256, 16, 0), "IQ2_XXS")
    bare = (GOLDEN / "gguf_smollm3" / "model.gguf").read_bytes()
    file("no-tokenizer", bare, 'no "tokenizer.ggml.model"',
         ["tokenize", "--tokenizer", "{}/model.gguf", "--text", "a"])


def configs(root):
    def config(name, change, says):
        value = golden_config()
        value.update(change)
        Case(root, "config-" + name, TRACE, says).write_json("config.json", value) \
            .write("model.safetensors", (GOLDEN / "llama_mha" / "model.safetensors").read_bytes())

    config("billion-layers", {"num_hidden_layers": 10**9}, "num_hidden_layers")
    config("eps-negative", {"rms_norm_eps": -1e-5}, "rms_norm_eps")
    config("theta-huge", {"rope_theta": 1e300, "rope_parameters": None}, "rope_theta")
    config("window-overflow", {"model_type": "mistral", "sliding_window": 2**31}, "sliding_window")
    config("heads-huge", {"num_attention_heads": 2**30, "head_dim": 2**30, "num_key_value_heads": 1}, "head_dim")
    config("width-overflow", {"hidden_size": 2**63}, "hidden_size")
    for name, rope in {
        "factor-tiny": {"rope_type": "linear", "factor": 1e-300},
        "yarn-beta-zero": {"rope_type": "yarn", "factor": 2.0, "beta_fast": 0},
        "longrope-zero": {"rope_type": "longrope", "factor": 2.0, "short_factor": [0.0] * 8, "long_factor": [0.0] * 8},
        "unknown": {"rope_type": "\x1b[31mnew", "factor": 2.0},
    }.items():
        config("rope-" + name, {"rope_scaling": rope, "rope_parameters": None}, "")
    Case(root, "config-not-json", INSPECT, "not valid JSON").write("config.json", "{")
    Case(root, "config-deep", INSPECT, "nested deeper").write("config.json", '{"a":' * 100_000)
    Case(root, "config-huge-number", INSPECT, "").write("config.json", '{"model_type":"llama","hidden_size":1e999}')
    Case(root, "config-list", INSPECT, "expected a map").write("config.json", "[]")
    Case(root, "config-empty", INSPECT, "not valid JSON").write("config.json", "")


# --- tokenizers ------------------------------------------------------------------------------------------------------

def tokenizers(root):
    model = {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}
    bytes_too = dict(model, vocab={**model["vocab"], **{f"<0x{i:02X}>": i + 3 for i in range(256)}},
                     byte_fallback=True, merges=[])

    def file(name, value, says, may_pass=False, more=("--offsets", "--json")):
        case = Case(root, "tokenizer-" + name, tokenize(*more), says, may_pass)
        case.write("tokenizer.json", value if isinstance(value, str) else json.dumps(value))

    file("prefix-in-bytes", {"model": dict(bytes_too, continuing_subword_prefix="##########")}, "", may_pass=True)
    file("prefix-long", {"model": dict(bytes_too, continuing_subword_prefix="#" * 10**6)}, "at most 64")
    grow = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 100}
    file("chained-replace", {"model": model, "normalizer": {"type": "Sequence", "normalizers": [grow] * 10}},
         "grow more than 64 times")
    file("deep", {"model": model} if False else '{"model":' + "[" * 10**5, "")
    file("deep-normalizers", '{"normalizer":' + '{"type":"Sequence","normalizers":[' * 300 + "]}" * 300 + "}", "")
    file("catastrophic-pattern", {"model": model, "pre_tokenizer": {
        "type": "Split", "pattern": {"Regex": "(a+)+(b+)+(x+x+)+y"}, "behavior": "Isolated", "invert": False}}, "",
        may_pass=True)
    file("ids-huge", {"model": dict(model, vocab={"a": 2**31})}, "ids run from 0")
    file("merges-twice", '{"model":{"vocab":{"a":0},"merges":[],"merges":[]}}', "is there twice")
    file("not-utf8", '{"model":{"vocab":{"\udcff":0}}}'.encode("utf-8", "surrogateescape").decode("latin-1"), "")
    file("half-surrogate", '{"model":{"vocab":{"\\ud800":0},"merges":[]}}', "surrogate")
    file("empty", "", "")
    case = Case(root, "tokenizer-pipe", tokenize(), "not a regular file")
    os.mkfifo(case.folder / "tokenizer.json")


# --- texts -----------------------------------------------------------------------------------------------------------

def texts(root):
    def file(name, content, says, may_pass=False):
        Case(root, "texts-" + name.replace(".", "-"), dataset(name), says, may_pass).write(name, content)

    file("nul.jsonl", b'{"text": "a"}\0{"text": "lost"}\n', "zero byte")
    file("deep.jsonl", '{"text":"a","x":' + "[" * 10**6 + "]" * 10**6 + "}\n", "", may_pass=True)
    file("deep.json", "[" * 10**6, "")
    file("endless.json", '[{"text":"a"},' * 3, "")
    file("not-utf8.jsonl", b'{"text": "\xff\xfe"}\n', "")
    file("not-utf8.txt", b"\xff\xfe\x00", "not UTF-8")
    file("number.jsonl", '{"text": 3}\n', "expected a string")
    file("escapes.jsonl", '{"te\\u001b[2Jxt": "a"}\n', "there is no column")
    file("quote.csv", 'text\n"never closed\n', "")
    file("empty.csv", "", "")
    file("empty.parquet", b"", "")
    file("magic.parquet", b"PAR1" * 100, "")
    case = Case(root, "texts-pipe", dataset("t.parquet"), "not a regular file")
    os.mkfifo(case.folder / "t.parquet")
    table = pa.table({"text": ["one", "two", "three"], "id": [1, 2, 3]})
    whole = root / "whole.parquet"
    pq.write_table(table, whole, compression="none")
    content = whole.read_bytes()
    whole.unlink()
    file("cut.parquet", content[:-20], "")
    file("footer.parquet", content[:-8] + struct.pack("<I", 2**31 - 1) + b"PAR1", "")

    def card(name, front, says, may_pass=True):
        case = Case(root, "card-" + name, ["dataset", "{}"], says, may_pass)
        case.write("README.md", "---\n" + front + "\n---\n")
        case.write("d/" * 40 + "train.jsonl", '{"text": "a"}\n').write("train.jsonl", '{"text": "a"}\n')

    card("stars", "configs:\n- config_name: x\n  data_files: '" + "**/d/" * 40 + "no.jsonl'", "no data files",
         may_pass=False)
    card("aliases", "a: &a [" + "x," * 1000 + "]\nconfigs:\n" + "- {data_files: {train: *a}}\n" * 2000, "")
    card("deep", "configs: " + "[" * 10**5, "")
    card("laughs", "a: &a [x,x]\n" + "".join(f"{chr(b)}: &{chr(b)} [*{chr(b - 1)},*{chr(b - 1)}]\n"
                                               for b in range(ord("b"), ord("z"))) + "configs: *y", "")
    card("leaves-the-folder", "configs:\n- {config_name: x, data_files: '../../**'}", "no data files", may_pass=False)


def configurations(root):
    def yaml(name, content, says=""):
        case = Case(root, "yaml-" + name, ["capture", "--config", "{}/run.yaml", "--dry-run"], says)
        case.write("run.yaml", content)

    start = "dataset: {path: x}\nmodel:\n  name: y\n"
    laughs = "  config_overrides:\n    a: &a {k: v, l: w}\n"
    for level in range(30):
        name, before = "abcdefghijklmnopqrstuvwxyzABCDEFGH"[level + 1], "abcdefghijklmnopqrstuvwxyzABCDEFGH"[level]
        laughs += f"    {name}: &{name} {{k: *{before}, l: *{before}}}\n"
    yaml("aliases", start + laughs, "aliases stand for more than")
    yaml("circle", start + "  config_overrides: &a {k: *a}\n")
    yaml("deep", "[" * 10**5)
    yaml("large", "# " + "x" * 5_000_000, "expected at most")
    yaml("twice", "dataset: {path: x, path: y}\nmodel: {name: z}\n", "twice")
    yaml("escapes", '"\\e[2J": 1\n')
    yaml("binary", bytes(range(256)))


# --- captures --------------------------------------------------------------------------------------------------------

def captures(root):
    def head(name, table, metadata, says=""):
        case = Case(root, "capture-" + name, ["analyze", "{}", "--out", "{}/results", "--only", "pca"], says)
        folder = case.folder / "l00h00q"
        folder.mkdir()
        if isinstance(table, bytes):
            (folder / "data.parquet").write_bytes(table)
        else:
            pq.write_table(table.replace_schema_metadata(metadata), folder / "data.parquet")

    rows = 4
    vectors = pa.array([[1.0, 2.0]] * rows, pa.list_(pa.float32()))
    columns = {"bucket": pa.array([0] * rows, pa.int32()), "example_id": pa.array(range(rows), pa.int32()),
               "position": pa.array(range(rows), pa.int32()), "vector": vectors,
               "sliding_window": pa.array([None] * rows, pa.int32())}
    head("nothing", b"", {})
    head("no-parquet", b"PAR1PAR1", {})
    head("columns", pa.table({"x": [1]}), {})
    head("ragged", pa.table(dict(columns, vector=pa.array([[1.0], [1.0, 2.0], [], [1.0]], pa.list_(pa.float32())))), {})
    head("not-a-number", pa.table(dict(columns, vector=pa.array([[1.0, float("nan")]] * rows,
                                                                  pa.list_(pa.float32())))), {})
    head("rope-dim", pa.table(columns), {"rope": '{"theta": 10000, "dim": 2000000000}'})
    head("rope-theta", pa.table(columns), {"rope": '{"theta": 1e300, "dim": 128}'})
    head("rope-list", pa.table(columns), {"rope": "{}", "rope_inv_freq": "[1e999]"})
    head("deep-metadata", pa.table(columns), {"rope": "[" * 10**5})


# --- damage at random ------------------------------------------------------------------------------------------------

def damaged(root, count):
    """Applies seeded damage to valid files; such a file may still be valid."""
    numbers = random.Random(17)

    def damage(content):
        content = bytearray(content)
        for _ in range(numbers.randint(1, 4)):
            at = numbers.randrange(len(content) or 1)
            kind = numbers.randrange(4)
            if kind == 0 and content:
                content[at] ^= 1 << numbers.randrange(8)
            elif kind == 1:
                del content[at:at + numbers.randint(1, 64)]
            elif kind == 2:
                content[at:at] = content[numbers.randrange(len(content) or 1):][:64]
            elif content:
                content[at] = numbers.randrange(256)
        return bytes(content)

    config = (GOLDEN / "llama_mha" / "config.json").read_bytes()
    weights = (GOLDEN / "llama_mha" / "model.safetensors").read_bytes()
    tokenizer = [path.read_bytes() for path in sorted(TOKENIZERS.glob("*.json"))]
    table = root / "table.parquet"
    pq.write_table(pa.table({"text": [f"text {i}" for i in range(50)]}), table)
    parquet = table.read_bytes()
    table.unlink()
    for i in range(count):
        Case(root, f"damaged-config-{i}", TRACE, may_pass=True).write("config.json", damage(config)) \
            .write("model.safetensors", weights)
        Case(root, f"damaged-weights-{i}", TRACE, may_pass=True).write("config.json", config) \
            .write("model.safetensors", damage(weights[:4096]) + weights[4096:])
        Case(root, f"damaged-tokenizer-{i}", tokenize("--offsets", "--json"), may_pass=True) \
            .write("tokenizer.json", damage(numbers.choice(tokenizer)))
        Case(root, f"damaged-parquet-{i}", dataset("t.parquet"), may_pass=True).write("t.parquet", damage(parquet))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--damaged", type=int, default=40, help="files of each kind with damage at random")
    options = parser.parse_args()
    shutil.rmtree(options.folder, ignore_errors=True)
    options.folder.mkdir(parents=True)
    for make in (checkpoints, gguf_files, configs, tokenizers, texts, configurations, captures):
        make(options.folder)
    damaged(options.folder, options.damaged)
    (options.folder / "cases.json").write_text(json.dumps(CASES, indent=1))
    print(f"{len(CASES)} cases in {options.folder}")


if __name__ == "__main__":
    main()
