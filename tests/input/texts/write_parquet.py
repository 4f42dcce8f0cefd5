#!/usr/bin/env python3
"""Writes the Parquet files that parquet_test.cpp reads. Usage: write_parquet.py FOLDER"""

import datetime
import pathlib
import sys

import pyarrow as pa
import pyarrow.parquet as pq

ROWS = 1002
folder = pathlib.Path(sys.argv[1])
texts = [f"text {i} ü" for i in range(ROWS)]
texts[700], texts[701] = None, ""
ids = pa.array([f"id-{i}" for i in range(ROWS)])
columns = {
    "string_id": ids,
    "int_id": pa.array([i - 500 for i in range(ROWS)]),
    "bool_id": pa.array([i % 2 == 1 for i in range(ROWS)]),
    "float_id": pa.array([i / 2 for i in range(ROWS)]),
    "dictionary_id": ids.dictionary_encode(),
    "date_id": pa.array([datetime.date(2020, 1, 1)] * ROWS),
    "null_id": pa.nulls(ROWS, pa.string()),
    "nested": pa.array([{"text": [i]} for i in range(ROWS)]),
}
kinds = {"string": pa.array(texts), "large_string": pa.array(texts, pa.large_string()),
         "dictionary": pa.array(texts).dictionary_encode()}
for name, text in kinds.items():
    pq.write_table(pa.table({**columns, "text": text}), folder / f"{name}.parquet", row_group_size=300)
for codec in ("snappy", "zstd", "gzip", "brotli", "lz4", "none"):
    pq.write_table(pa.table({**columns, "text": kinds["string"]}), folder / f"{codec}.parquet", compression=codec)
