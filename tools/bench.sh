#!/usr/bin/env bash
# Runs the benchmarks, each with its peer in the same run. Called by `./run.sh bench`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly data=build/bench-data

echo "== Forward pass on the CPU, shape of SmolLM2-135M =="
.venv/bin/python bench/forward_table.py "$data/smollm2-135m"
.venv/bin/python bench/generate_table.py "$data/smollm2-135m-bf16"

echo "== Tokenizer =="
mkdir -p "$data"
.venv/bin/python bench/tokenizer_bench.py tests/input/tokenizer/data/llama3.json

echo "== Capture =="
python3 tools/make_tiny_checkpoint.py --out "$data/shape" --force --layers 12 --hidden 512 --heads 8 --key-heads 2 --mlp 1536
rm -rf "$data/capture"
build/bench/capture_bench --model "$data/shape" --folder "$data/capture" --documents 3

echo "== Analyses =="
.venv/bin/python bench/analysis_bench.py build/bin/qkscope --quick

echo "== Report of a big sweep =="
.venv/bin/python bench/report_bench.py build/bin/qkscope
