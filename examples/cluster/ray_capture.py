"""A capture as Ray tasks, one command each, then the merge: python ray_capture.py run.yaml DATA_ROOT --shards 64

The configuration and DATA_ROOT lie where every machine of the Ray cluster sees them. A task that dies with its machine is run
again by Ray and continues from its journal.
"""

import argparse
import subprocess

import ray


@ray.remote(max_retries=5)
def run(*command):
    return subprocess.run(command, text=True, stderr=subprocess.PIPE)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config")
    parser.add_argument("data_root")
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--gpus", type=float, default=1, help="of a task; 0 for the CPU")
    arguments = parser.parse_args()
    ray.init()
    task = run.options(num_gpus=arguments.gpus)
    shards = [
        task.remote(
            *("qkscope", "capture", "--config", arguments.config, "--set", f"output.data_root={arguments.data_root}"),
            *("--shard", f"{index}/{arguments.shards}", "--quiet"),
        )
        for index in range(arguments.shards)
    ]
    failed = [(index, done) for index, done in enumerate(ray.get(shards)) if done.returncode != 0]
    for index, done in failed:
        print(f"shard {index}: {done.stderr.strip()}")
    if failed:
        raise SystemExit(1)
    merged = ray.get(run.remote("qkscope", "merge", arguments.data_root))
    print(merged.stderr, end="")
    raise SystemExit(merged.returncode)


if __name__ == "__main__":
    main()
