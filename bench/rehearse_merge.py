#!/usr/bin/env python3
"""Rehearses the end of a sharded capture: many workers write their parts with made-up vectors, then one merge.

    python3 bench/rehearse_merge.py --build build --folder scratch

The defaults are the row counts of one model of the study: 500 texts, 16 rows of each in every head, 432 heads of 128
numbers (the study draws 436), 64 shards. As many workers run at a time as the machine has cores. Prints one JSON line:
seconds, the merge's peak memory, files. --trace runs smaller cases with one row per text and head under strace, which
counts metadata operations: open, stat, mkdir, rename, unlink, fsync. Their timings are meaningless and not printed.

With --store the parts go to an S3 server that this script starts (moto; run with build/venv-store/bin/python, which
./run.sh test-store makes), every worker and the merge as on separate machines; a proxy counts the requests.
"""

import argparse
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HEAD_DIM = 128
METADATA_CALLS = (
    "open,openat,stat,lstat,newfstatat,statx,access,faccessat,faccessat2,mkdir,mkdirat,rename,renameat,renameat2,"
    "unlink,unlinkat,rmdir,getdents64,fsync,fdatasync,ftruncate,flock"
)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=Path("build"), help="folder of the build")
    parser.add_argument("--folder", type=Path, required=True, help="scratch folder; emptied first")
    parser.add_argument("--shards", type=int, default=64)
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="workers at a time")
    parser.add_argument("--documents", type=int, default=500)
    parser.add_argument("--rows", type=int, default=16, help="of a document in each head")
    parser.add_argument("--layers", type=int, default=36)
    parser.add_argument("--q-heads", type=int, default=8, help="of a layer")
    parser.add_argument("--k-heads", type=int, default=4, help="of a layer")
    parser.add_argument(
        "--segment", type=int, default=1, help="documents of a segment; texts of 131,072 tokens take long enough for one each"
    )
    parser.add_argument("--open-files", type=int, help="limit of open files for the merge")
    parser.add_argument("--store", action="store_true", help="into an S3 server instead of a folder")
    parser.add_argument("--trace", action="store_true", help="count operations on metadata with strace")
    return parser.parse_args()


class Store:
    """An S3 server behind a proxy that counts requests."""

    address = "s3://bucket/rehearsal"

    def __init__(self):
        sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests/input/store"))
        from s3_server import Proxy, S3Server

        self.server = S3Server()
        self.proxy = Proxy(self.server)

    def environment(self, scratch):
        """Returns the environment variables of a process on a separate machine."""
        return os.environ | {
            "AWS_ENDPOINT_URL": self.proxy.endpoint,
            "AWS_ACCESS_KEY_ID": self.server.key,
            "AWS_SECRET_ACCESS_KEY": self.server.secret,
            "AWS_REGION": "us-east-1",
            "QKSCOPE_SCRATCH": str(scratch),
        }

    def size(self):
        pages = self.server.client().get_paginator("list_objects_v2").paginate(Bucket="bucket")
        sizes = [entry["Size"] for page in pages for entry in page.get("Contents", [])]
        return len(sizes), sum(sizes)

    def stop(self):
        self.proxy.stop()
        self.server.stop()


def environment(arguments, machine):
    return arguments.store.environment(arguments.folder / machine) if arguments.store else None


def data_root(arguments):
    return arguments.store.address if arguments.store else str(arguments.folder)


def worker_command(arguments, shard, rows):
    """Returns the command that writes one part; shard -1 writes all parts."""
    return [
        str(program(arguments, "bench/store_bench")),
        *("--folder", data_root(arguments)),
        *("--shard", str(shard), "--shards", str(arguments.shards)),
        *("--documents", str(arguments.documents), "--rows", str(rows), "--layers", str(arguments.layers)),
        *("--q-heads", str(arguments.q_heads), "--k-heads", str(arguments.k_heads)),
        *("--segment", str(arguments.segment)),
    ]


def merge_command(arguments):
    return [str(program(arguments, "bin/qkscope")), "merge", data_root(arguments), "--quiet"]


def program(arguments, name):
    path = arguments.build / name
    if not path.exists():
        sys.exit(f"{path}: missing; build the targets qkscope and store_bench first")
    return path


def write_parts(arguments, rows):
    """Runs all workers; returns the wall seconds."""
    shutil.rmtree(arguments.folder, ignore_errors=True)
    start = time.perf_counter()

    def write(shard):
        subprocess.run(
            worker_command(arguments, shard, rows),
            stdout=subprocess.DEVNULL,
            env=environment(arguments, f"worker-{shard}"),
            check=True,
        )

    # moto implements conditional puts non-atomically, so two workers could start a run: the first worker starts alone.
    if arguments.store:
        write(0)
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for _ in pool.map(write, range(1 if arguments.store else 0, arguments.shards)):
            pass
    return time.perf_counter() - start


def merge(arguments):
    """Returns seconds, CPU seconds and peak memory in bytes of `qkscope merge`."""

    def limit():
        if arguments.open_files:
            resource.setrlimit(resource.RLIMIT_NOFILE, (arguments.open_files, arguments.open_files))

    start = time.perf_counter()
    process = subprocess.Popen(merge_command(arguments), preexec_fn=limit, env=environment(arguments, "merge"))
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"the merge failed with {process.returncode}")
    return time.perf_counter() - start, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


def size_of(arguments):
    """Returns the number of files and their bytes."""
    if arguments.store:
        return arguments.store.size()
    files = [path for path in arguments.folder.rglob("*") if path.is_file()]
    return len(files), sum(path.stat().st_size for path in files)


def count_calls(command):
    """Counts the metadata operations of one program, by system call."""
    with tempfile.NamedTemporaryFile("r") as table:
        subprocess.run(
            ["strace", "-f", "-c", "--seccomp-bpf", "-e", f"trace=?{METADATA_CALLS.replace(',', ',?')}", "-o", table.name]
            + command,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        rows = re.findall(r"^\s*[\d.]+\s+[\d.]+\s+\d+\s+(\d+)\s+(?:\d+\s+)?(\w+)$", table.read(), re.MULTILINE)
    return {name: int(calls) for calls, name in rows if name != "total"}


def trace_round(arguments, **changes):
    """Counts the operations of the last worker to start and of the merge, with one row per document and head."""
    changed = argparse.Namespace(**(vars(arguments) | changes))
    shutil.rmtree(changed.folder, ignore_errors=True)
    subprocess.run(worker_command(changed, -1, rows=1), check=True, stdout=subprocess.DEVNULL)
    last = changed.shards - 1
    shutil.rmtree(changed.folder / ".parts" / f"{last:05}-of-{changed.shards:05}")
    worker = count_calls(worker_command(changed, last, rows=1))
    return worker, count_calls(merge_command(changed))


def trace(arguments):
    """Fits metadata operations per task, segment and head, from runs with fewer shards, segments and heads."""

    def per(more, fewer, difference):
        return round((sum(more.values()) - sum(fewer.values())) / difference, 1)

    def segments(size):  # segments of the last shard, and of all shards
        counts = [
            -(-len(range(shard, arguments.documents, arguments.shards)) // size) for shard in range(arguments.shards)
        ]
        return counts[-1], sum(counts)

    worker, merging = trace_round(arguments)
    few_worker, few_segments = trace_round(arguments, segment=arguments.documents)
    _, few_heads = trace_round(arguments, layers=arguments.layers // 2)
    _, few_shards = trace_round(arguments, shards=arguments.shards // 2)
    own, all_parts = segments(arguments.segment)
    own_few, all_few = segments(arguments.documents)
    per_segment = per(worker, few_worker, own - own_few)
    half_heads = (arguments.layers - arguments.layers // 2) * (arguments.q_heads + arguments.k_heads)
    return {
        "task": round(sum(worker.values()) - own * per_segment, 1),
        "segment": per_segment,
        "merge": sum(merging.values()),
        "merge_per_task": per(merging, few_shards, arguments.shards - arguments.shards // 2),
        "merge_per_segment": per(merging, few_segments, all_parts - all_few),
        "merge_per_head": per(merging, few_heads, half_heads),
        "merge_by_name": merging,
    }


def main():
    arguments = parse_arguments()
    if arguments.store and arguments.trace:
        sys.exit("--trace counts what a file system does: without --store")
    arguments.store = Store() if arguments.store else None
    writing = write_parts(arguments, arguments.rows)
    requests_of_workers = arguments.store.proxy.requests if arguments.store else 0
    part_files, part_bytes = size_of(arguments)
    seconds, cpu_seconds, memory = merge(arguments)
    files, size = size_of(arguments)
    heads = arguments.layers * (arguments.q_heads + arguments.k_heads)
    rows = arguments.documents * arguments.rows * heads
    result = {
        "shards": arguments.shards,
        "workers_at_a_time": arguments.jobs,
        "documents": arguments.documents,
        "heads": heads,
        "rows": rows,
        "part_files": part_files,
        "part_bytes": part_bytes,
        "writing_s": round(writing, 1),
        "merge_s": round(seconds, 1),
        "merge_cpu_s": round(cpu_seconds, 1),
        "merge_rows_per_s": round(rows / seconds),
        "merge_bytes_per_s": round(part_bytes / seconds),
        "merge_peak_bytes": memory,
        "files": files,
        "bytes": size,
    }
    if arguments.store:
        merging = arguments.store.proxy.requests - requests_of_workers
        result["requests"] = {
            "workers": requests_of_workers,
            "workers_per_s": round(requests_of_workers / writing),
            "merge": merging,
            "merge_per_s": round(merging / seconds),
        }
        arguments.store.stop()
    if arguments.trace:
        result["metadata"] = trace(arguments)
        result["merge_metadata_per_s"] = round(result["metadata"]["merge"] / seconds)
    print(json.dumps(result))
    shutil.rmtree(arguments.folder)


if __name__ == "__main__":
    main()
