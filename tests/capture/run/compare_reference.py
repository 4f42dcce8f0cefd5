"""compare_reference.py GOLDEN DATA_ROOT: rows must be equal, vectors within 2e-4 (the bound on
float32 against transformers that holds for the forward pass), token strings those of the Hugging Face
library."""

import json
import pathlib
import sys

import numpy as np
import pyarrow.parquet as pq
from safetensors.numpy import load_file
from tokenizers import Tokenizer

TOLERANCE = 2e-4


def check_token_strings(folder, root, table):
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    texts = [json.loads(line)["text"] for line in open(folder / "texts.jsonl", encoding="utf-8")]
    ids = pq.read_table(root / "examples.parquet")["example_id"].to_pylist()
    tokens = {example: tokenizer.encode(text).tokens for example, text in zip(ids, texts)}
    columns = (table[name].to_pylist() for name in ("example_id", "position", "token_str"))
    for example, position, token in zip(*columns):
        assert tokens[example][position] == token, f"example {example}, position {position}: {token}"


def main():
    golden, root = load_file(sys.argv[1]), pathlib.Path(sys.argv[2])
    heads = sorted({name.split("/")[0] for name in golden})
    captured = sorted(path.parent.name for path in root.glob("*/data.parquet"))
    assert captured == heads, f"head files: expected {heads}, found {captured}"
    rows, worst = 0, 0.0
    for head in heads:
        table = pq.read_table(root / head / "data.parquet")
        for column in ("bucket", "example_id", "position"):
            found = table[column].to_numpy()
            assert np.array_equal(found, golden[f"{head}/{column}"]), f"{head}: {column} differs"
        if "token_str" in table.column_names:
            check_token_strings(pathlib.Path(sys.argv[1]).parent, root, table)
        expected = golden[f"{head}/vector"]
        vectors = np.array(table["vector"].to_pylist(), dtype=np.float32).reshape(expected.shape)
        if vectors.size:
            worst = max(worst, float(np.abs(vectors - expected).max()))
        rows += len(vectors)
    assert rows > 0, "nothing was compared"
    assert worst < TOLERANCE, f"vectors differ by {worst}"
    print(f"{len(heads)} heads, {rows} rows, largest difference {worst:.1e}")


if __name__ == "__main__":
    main()
