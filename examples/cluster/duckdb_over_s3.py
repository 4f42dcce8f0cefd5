"""SQL over a capture in an object store, without fetching it: python duckdb_over_s3.py s3://bucket/capture

Reads through pyarrow, which takes credentials, region and AWS_ENDPOINT_URL from the environment; of every head file only the
columns that the query names are read.
"""

import sys

import duckdb
import pyarrow.dataset
import pyarrow.fs

QUERY = """
    SELECT bucket, count(*) AS rows, count(DISTINCT example_key) AS texts, round(avg(position), 1) AS mean_position
    FROM heads GROUP BY bucket ORDER BY bucket
"""


def main(address):
    files, root = pyarrow.fs.FileSystem.from_uri(address)
    selector = pyarrow.fs.FileSelector(root, recursive=True)
    paths = [file.path for file in files.get_file_info(selector) if file.base_name == "data.parquet"]
    with duckdb.connect() as connection:
        connection.register("heads", pyarrow.dataset.dataset(paths, filesystem=files, format="parquet"))
        print(connection.sql(QUERY))


if __name__ == "__main__":
    main(sys.argv[1])
