#!/usr/bin/env bash
# Makes a tiny checkpoint of the SmolLM3 architecture and looks inside it. Called by `./run.sh demo`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly out=build/demo
readonly model=$out/tiny-smollm3
readonly trace=$out/trace.safetensors
readonly text="The harbour master wrote the date, and the ships came in one by one."

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }

mkdir -p "$out"
say "A tiny checkpoint with random weights: $model"
python3 tools/make_tiny_checkpoint.py --out "$model" --force

say "qkscope inspect $model"
build/bin/qkscope inspect "$model"

say "qkscope trace: queries and keys as they enter the dot product, and where the last token looks"
build/bin/qkscope trace --model "$model" --text "$text" \
  --hooks 'blocks.*.attn.hook_rot_q,blocks.*.attn.hook_rot_k,blocks.*.attn.hook_pattern,logits' \
  --positions -1 --out "$trace"

say "The same file from Python"
.venv/bin/python tools/show_trace.py "$trace"
