#!/usr/bin/env python3
"""Writes the golden data of tests/golden: tiny random checkpoints and the results of transformers for them.

    python tools/make_golden.py [--out tests/golden] [CASE ...]

Needs torch, transformers and gguf (tools/requirements-bench.txt). Each case is a folder

    config.json, model.safetensors   the checkpoint, as published
    model.gguf                       the same as a GGUF file
    config.SPELLING.json             the same model in another spelling of the configuration
    golden.safetensors               results of transformers: float32, eager attention, on the widened weights

golden.safetensors holds `token_ids` [pos] and float32 tensors under the hook names of the engine, with these rules:

  - `rows` (int64) lists the stored positions: every tensor with a position axis has them, in this order, as its first
    axis, so a test compares `ours[rows]` with the stored tensor.
  - `pattern_rows` lists the stored query positions of `hook_pattern` and `hook_attn_scores`: [head, pattern_rows, key],
    with all keys, masked scores -inf.
  - `mixer.hook_state` is the state after the last position: [1, head, d_key, d_value]; of a short convolution the last
    inputs, [1, taps - 1, d_model].
  - a stage that a case leaves out is not in the file.

The script refuses to write a case whose recorded tensors are inconsistent (golden/checks.py) or whose other
spellings transformers does not read as the same model, bit for bit.
"""

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

import torch
import transformers
from safetensors.torch import save_file

from golden import checkpoint, gguf_file, rope_table
from golden.cases import CASES
from golden.checks import check
from golden.recorder import Recorder

ROPE_STAGES = tuple(f"attn.hook_{stage}" for stage in ("q", "k", "rot_q", "rot_k", "pattern")) + ("hook_resid_post",)


def token_ids(case):
    generator = torch.Generator().manual_seed(case.seed + 1)
    vocabulary = case.text_values()["vocab_size"]
    return torch.randint(0, vocabulary, (case.tokens,), generator=generator)


def kept_rows(length, count):
    """Returns positions spread over the sequence, always including the first two and the last."""
    if length <= count:
        return torch.arange(length)
    spread = torch.linspace(2, length - 1, count - 2).long()
    return torch.unique(torch.cat([torch.tensor([0, 1]), spread]))


def select(case, tensors):
    """Returns the stored stages and rows of a recorded pass."""
    rows = kept_rows(case.tokens, case.rows)
    pattern_rows = kept_rows(case.tokens, case.pattern_rows)
    stored = {"rows": rows, "pattern_rows": pattern_rows}
    for name, tensor in tensors.items():
        if case.stages == "rope" and name.startswith("blocks.") and not name.endswith(ROPE_STAGES):
            continue
        square = name.endswith(("hook_pattern", "hook_attn_scores"))
        if name.endswith("hook_attn_scores") and case.tokens > 64:
            continue
        if name.endswith("mixer.hook_state"):
            kept = tensor
        else:
            kept = tensor[:, pattern_rows] if square else tensor[rows]
        stored[name] = kept.float().contiguous().clone()
    return stored


def record(case, folder):
    model = checkpoint.load(folder, case.model_type)
    recorder = Recorder(model)
    ids = token_ids(case)
    tensors = recorder.run(ids)
    layers = [layer.index for layer in recorder.anatomy.layers if layer is not None]
    check(recorder, layers, kept_rows(case.tokens, case.rows))
    return ids, tensors


def spell(case, folder):
    """Writes config.json as published, and its other spellings."""
    saved = checkpoint.read_config(folder)
    others = {name: edit(saved) for name, edit in case.spellings.items()}
    if case.published is not None:
        others["saved"] = saved
        checkpoint.write_config(folder / "config.json", case.published(saved))
    for name, config in others.items():
        checkpoint.write_config(folder / f"config.{name}.json", config)


def check_spellings(case, folder, ids, logits):
    """Checks that transformers reads every config.*.json as the same model, bit for bit."""
    for other in folder.glob("config.*.json"):
        with tempfile.TemporaryDirectory() as scratch:
            copy = Path(scratch) / "checkpoint"
            shutil.copytree(folder, copy)
            shutil.copy(other, copy / "config.json")
            model = checkpoint.load(copy, case.model_type)
            with torch.no_grad():
                found = model(input_ids=ids[None], use_cache=False).logits[0]
        if not torch.equal(found, logits):
            raise AssertionError(f"{case.name}: transformers reads {other.name} as another model")


def check_gguf(case, folder, ids, logits):
    """Checks that transformers computes the same from the GGUF file, up to the order of sums, if it can read it."""
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, gguf_file=gguf_file.FILE, dtype=torch.float32, attn_implementation="eager")
    with torch.no_grad():
        found = model(input_ids=ids[None], use_cache=False).logits[0]
    difference = float((found - logits).abs().max())
    if difference > 1e-5:
        raise AssertionError(f"{case.name}: transformers reads the file as another model, {difference} away")


def record_gguf(case, folder):
    """Records from the original weights after rounding to the types of the GGUF file."""
    ids, tensors = record(case, folder / "widened")
    shutil.rmtree(folder / "widened")
    if case.read_by_transformers:
        check_gguf(case, folder, ids, tensors["logits"])
    return ids, tensors


def record_folder(case, folder):
    spell(case, folder)
    with tempfile.TemporaryDirectory() as scratch:
        source = folder
        if "quantization_config" in checkpoint.read_config(folder):
            source = Path(scratch) / "dequantized"
            checkpoint.dequantized_copy(folder, source)
        ids, tensors = record(case, source)
    check_spellings(case, folder, ids, tensors["logits"])
    return ids, tensors


def make(case, out):
    folder = out / case.name
    model = checkpoint.make_model(case.model_type, case.config, case.seed)
    checkpoint.save(model, folder, case.dtype, case.shard_size, case.published_names)
    if case.finish is not None:
        case.finish(folder)
    ids, tensors = (record_gguf if (folder / gguf_file.FILE).exists() else record_folder)(case, folder)
    save_file({"token_ids": ids, **select(case, tensors)}, folder / "golden.safetensors")
    size = sum(file.stat().st_size for file in folder.iterdir())
    print(f"{case.name:32} {case.tokens:4} tokens  {case.dtype:9} {size / 1024:7.1f} KiB  "
          f"logits std {tensors['logits'].std():.2f}")


def find_draw(case, most):
    """Prints the first `draw` of a case that passes the checks; mixtures of experts reject most draws."""
    for draw in range(most):
        with tempfile.TemporaryDirectory() as scratch:
            try:
                case.draw, case.spellings = draw, {}
                make(case, Path(scratch))
            except AssertionError as error:
                print(f"{case.name}: draw {draw}: {error}", file=sys.stderr)
                continue
        print(f"{case.name}: draw={draw}")
        return
    sys.exit(f"error: {case.name}: no draw below {most} passes the checks")


def main():
    parser = argparse.ArgumentParser(description="Make the golden data of the engine's tests.")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent.parent / "tests" / "golden")
    parser.add_argument("--find-draw", type=int, metavar="N", help="try up to N draws of each case and print the first "
                        "one that the checks accept; writes nothing")
    parser.add_argument("cases", nargs="*", help="names of cases; all of them when none is given")
    arguments = parser.parse_args()

    unknown = set(arguments.cases) - {case.name for case in CASES}
    if unknown:
        sys.exit(f"error: no such case: {', '.join(sorted(unknown))}")
    torch.use_deterministic_algorithms(True)
    transformers.utils.logging.disable_progress_bar()
    for case in CASES:
        if arguments.cases and case.name not in arguments.cases:
            continue
        if arguments.find_draw:
            find_draw(case, arguments.find_draw)
        else:
            make(case, arguments.out)
    if not arguments.cases and not arguments.find_draw:
        rope_table.write(arguments.out / "rope_frequencies.json")


if __name__ == "__main__":
    main()
