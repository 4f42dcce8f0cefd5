#!/usr/bin/env bash
# Runs the benchmarks, each beside its peer in the same run. Called by `./run.sh bench`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

echo "== Forward pass on the CPU, shape of SmolLM2-135M =="
.venv/bin/python bench/forward_table.py build/bench-data/smollm2-135m
