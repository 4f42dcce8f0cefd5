"""SQL over a capture in an object store, without fetching it: python duckdb_over_s3.py s3://bucket/capture

Reads through pyarrow, which takes credentials, region and AWS_ENDPOINT_URL from the environment; of every head file only the
columns that the query names are read. Where the address has manifests (manifest/00000000.json, ...), the newest says which
objects are the capture; else it is a copy of a capture's folder.
"""

import json
import sys

import duckdb
import pyarrow.dataset
import pyarrow.fs

QUERY = """
    SELECT bucket, count(*) AS rows, count(DISTINCT example_key) AS texts, round(avg(position), 1) AS mean_position
    FROM heads GROUP BY bucket ORDER BY bucket
"""


def listed(files, folder):
    selector = pyarrow.fs.FileSelector(folder, recursive=True, allow_not_found=True)
    return sorted(file.path for file in files.get_file_info(selector) if file.is_file)


def head_files(files, root):
    manifests = listed(files, f"{root}/manifest")
    if not manifests:
        return [path for path in listed(files, root) if path.endswith("/data.parquet")]
    with files.open_input_stream(manifests[-1]) as stream:
        manifest = json.loads(stream.read())
    return [f"{root}/{file['object']}" for file in manifest["files"] if file["name"].endswith("/data.parquet")]


def main(address):
    files, root = pyarrow.fs.FileSystem.from_uri(address)
    paths = head_files(files, root)
    if not paths:
        raise SystemExit(f"{address}: no head files there")
    with duckdb.connect() as connection:
        connection.register("heads", pyarrow.dataset.dataset(paths, filesystem=files, format="parquet"))
        print(connection.sql(QUERY))


if __name__ == "__main__":
    main(sys.argv[1])
