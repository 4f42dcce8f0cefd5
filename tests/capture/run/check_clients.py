"""check_clients.py DATA_ROOT CACHE: opens a capture as its users do, with datasets, pandas, pyarrow
and DuckDB. Every configuration of the card must load by name and agree in all of them."""

import os
import pathlib
import sys

root, cache = pathlib.Path(sys.argv[1]), sys.argv[2]
os.environ.update(HF_HOME=cache, HF_DATASETS_OFFLINE="1", HF_HUB_OFFLINE="1")

import datasets  # noqa: E402  (reads the environment when it is imported)
import duckdb  # noqa: E402
import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402
import pyarrow as pa  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402

COLUMNS = ["bucket", "example_id", "position", "vector", "sliding_window", "example_key"]
KEYS = {"model", "revision", "layer", "head", "kind", "rope", "stage", "sampler", "base_rate", "min_bucket_size",
        "dtype", "device", "version", "config_hash"}


def check_schema(path):
    file = pq.ParquetFile(path)
    schema = file.schema_arrow
    assert schema.names == COLUMNS, schema.names
    for name in ("bucket", "example_id", "position", "sliding_window"):
        assert schema.field(name).type == pa.int32(), schema
    assert schema.field("example_key").type == pa.int64(), schema
    vector = schema.field("vector").type
    assert pa.types.is_fixed_size_list(vector) and vector.value_type == pa.float32(), vector
    assert KEYS <= {key.decode() for key in schema.metadata}, schema.metadata
    for column in range(file.metadata.row_group(0).num_columns):
        assert file.metadata.row_group(0).column(column).compression == "ZSTD"
    for group in range(file.num_row_groups):
        assert file.metadata.row_group(group).num_rows <= 512
    return vector.list_size


def check_head(name):
    path = root / name / "data.parquet"
    width = check_schema(path)
    table = pq.read_table(path)
    loaded = datasets.load_dataset(str(root), name, split="train", cache_dir=os.path.join(cache, "data"))
    frame = pd.read_parquet(path)
    assert loaded.column_names == COLUMNS == list(frame.columns)
    assert len(loaded) == len(frame) == table.num_rows > 0
    vectors = np.array(table["vector"].to_pylist(), dtype=np.float32)
    assert vectors.shape == (table.num_rows, width)
    assert np.array_equal(np.array(loaded["vector"], dtype=np.float32), vectors)
    assert np.array_equal(np.stack(frame["vector"]), vectors)
    assert loaded["position"] == frame["position"].tolist() == table["position"].to_pylist()
    count, last = duckdb.sql(f"SELECT count(*), max(position) FROM '{path}' WHERE len(vector) = {width}").fetchall()[0]
    assert (count, last) == (table.num_rows, int(frame["position"].max()))
    return table.num_rows


def main():
    names = datasets.get_dataset_config_names(str(root))
    assert sorted(names) == sorted(path.parent.name for path in root.glob("l*/data.parquet")), names
    rows = sum(check_head(name) for name in names)
    examples = pd.read_parquet(root / "examples.parquet")
    assert list(examples.columns) == ["example_id", "example_key", "source_id", "tokens", "truncated"]
    joined = duckdb.sql(f"SELECT count(*) FROM '{root}/*/data.parquet' JOIN '{root}/examples.parquet' "
                        "USING (example_id) WHERE position < tokens").fetchall()[0][0]
    assert joined == rows, f"{joined} of {rows} rows belong to an example"
    print(f"{len(names)} configurations, {rows} rows, datasets {datasets.__version__}, duckdb {duckdb.__version__}")


main()
