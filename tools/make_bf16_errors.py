#!/usr/bin/env python3
"""Writes tests/golden/bf16_errors.json: the error of transformers' own bfloat16 run against its float32 run.

    python tools/make_bf16_errors.py [--golden tests/golden] [CASE ...]

Needs torch and transformers (tools/requirements-bench.txt) and the golden data of tools/make_golden.py. For every case
(or the named cases; the others are unchanged) and stored tensor it writes the relative norm |bf16 - float32| / |float32|,
the tolerance of a bfloat16 run on a GPU. Chaotic models are left out. Expert indices and weights are left out: the test computes them from the
router logits.
"""

import argparse
import json
import math
import tempfile
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file

from golden import checkpoint, gguf_file
from golden.cases import CASES
from golden.recorder import Recorder

CHAOTIC = 0.1  # models whose logits change by this share amplify single roundings: their errors compare nothing
DERIVED = ("hook_attn_scores", "hook_expert_weights", "hook_expert_indices")  # computed from other tensors


def relative_error(found, expected):
    seen = torch.isfinite(expected)  # masked scores are -inf
    difference = (found.double() - expected.double())[seen].norm().item()
    size = expected.double()[seen].norm().item()
    return difference / size if size > 0 else difference


def errors(case, golden):
    folder = golden / case.name
    stored = load_file(folder / "golden.safetensors")
    rows, pattern_rows = stored.pop("rows"), stored.pop("pattern_rows")
    ids = stored.pop("token_ids")
    with tempfile.TemporaryDirectory() as scratch:
        source = folder
        if "quantization_config" in checkpoint.read_config(folder):
            source = Path(scratch) / "dequantized"
            checkpoint.dequantized_copy(folder, source)
        model = checkpoint.load(source, case.model_type, torch.bfloat16)
        tensors = Recorder(model).run(ids)
    found = {}
    for name, expected in stored.items():
        if name.endswith(DERIVED):
            continue
        kept = tensors[name]
        if name.endswith("hook_pattern"):
            kept = kept[:, pattern_rows]
        elif not name.endswith("hook_state"):  # the states after the last row
            kept = kept[rows]
        error = relative_error(kept.float(), expected)
        if math.isfinite(error):
            found[name] = float(f"{error:.3g}")
    return found


def main():
    parser = argparse.ArgumentParser(description="Measure transformers' own bfloat16 error on the golden cases.")
    parser.add_argument("--golden", type=Path, default=Path(__file__).parent.parent / "tests" / "golden")
    parser.add_argument("cases", nargs="*", help="names of cases; all of them when none is given")
    arguments = parser.parse_args()
    transformers.utils.logging.disable_progress_bar()
    path = arguments.golden / "bf16_errors.json"
    before = json.loads(path.read_text()) if arguments.cases else {}
    table = {}
    for case in CASES:
        if (arguments.golden / case.name / gguf_file.FILE).exists():  # the same model as another case
            continue
        if arguments.cases and case.name not in arguments.cases:
            if case.name in before:  # else it has no CUDA kernels
                table[case.name] = before[case.name]
            continue
        found = errors(case, arguments.golden)
        print(f"{case.name:32} logits {found.get('logits', math.nan):.2e}, largest {max(found.values()):.2e}")
        if found.get("logits", 0) < CHAOTIC:
            table[case.name] = found
    path.write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    main()
