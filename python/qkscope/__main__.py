"""Commands that need Python: python3 -m qkscope capture | stats | sweep | audit.

capture, stats and sweep run configurations with `engine: transformers`; the program `qkscope` has all others.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from . import _engine, capture, stats, sweep
from ._audit import audit
from ._engine import Error, InputError


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    if not getattr(options, "quiet", False):
        _engine.show_progress(True)
    try:
        return int(options.run(options))
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except Error as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped; run the same command to continue", file=sys.stderr)
        return 130


def _run_config(options: argparse.Namespace) -> int:
    """Runs capture() or stats() with the options of the command line."""
    overrides: dict[str, Any] = {}
    for pair in options.set:
        key, separator, value = pair.partition("=")
        if not separator:
            raise InputError(f"--set {pair}: expected KEY=VALUE, as engine=transformers")
        overrides[key] = _value(value)
    shard = (0, 1)
    if options.shard:
        try:
            index, count = (int(part) for part in options.shard.split("/"))
        except ValueError:
            raise InputError(f"--shard {options.shard}: expected i/n, as 0/4")
        shard = index, count
    call: Any = capture if options.command == "capture" else stats
    result = call(options.config, overrides, limit=options.limit, shard=shard, overwrite=options.overwrite, device=options.device,
                  dry_run=options.dry_run, progress=None if options.quiet else True)
    print(json.dumps(result, indent=2) if options.dry_run else result)
    return 0


def _run_sweep(options: argparse.Namespace) -> int:
    print(sweep(options.config, overwrite=options.overwrite))
    return 0


def _run_audit(options: argparse.Namespace) -> int:
    result = audit(options.model, options.text, options.against, dtype=options.dtype, device=options.device,
                   length=options.length, save=options.save)
    print(result)
    if options.figure:
        with open(options.figure, "w") as file:
            file.write(result.figure())
    return 0 if result.agrees else 1


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python3 -m qkscope", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("capture", "stats"):
        command = commands.add_parser(name, help=f"as 'qkscope {name}', also with engine: transformers")
        command.add_argument("--config", required=True, metavar="FILE")
        command.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override a field, as engine=transformers")
        command.add_argument("--limit", type=int, metavar="N", help="the first N examples")
        command.add_argument("--shard", metavar="i/n", help="every n-th example from the i-th")
        command.add_argument("--device", default="", help="cpu, cuda or cuda:N")
        command.add_argument("--overwrite", action="store_true", help="start again")
        command.add_argument("--dry-run", action="store_true", help="print the plan and write nothing")
        command.add_argument("--quiet", action="store_true", help="no progress bar")
        command.set_defaults(run=_run_config)
    command = commands.add_parser("sweep", help="as 'qkscope sweep', also with engine: transformers")
    command.add_argument("config", metavar="FILE")
    command.add_argument("--overwrite", action="store_true", help="start again")
    command.set_defaults(run=_run_sweep)
    command = commands.add_parser("audit", help="compare qkscope with transformers, stage by stage")
    command.add_argument("model", help="a checkpoint folder or model id")
    command.add_argument("--text", help="the text that runs (default: fixed token ids)")
    command.add_argument("--length", type=int, default=256, metavar="N", help="number of fixed token ids (default: 256)")
    command.add_argument("--against", default="transformers", metavar="FILE", help="transformers (the default) or a file of --save")
    command.add_argument("--save", metavar="FILE", help="write the stages of qkscope to a file (safetensors)")
    command.add_argument("--figure", metavar="FILE", help="write the differences over layers as an SVG")
    command.add_argument("--dtype", default="float32", help="float32, bfloat16 or float16, on a GPU (default: float32)")
    command.add_argument("--device", default="cpu", help="cpu (the default), cuda or cuda:N")
    command.set_defaults(run=_run_audit)
    return parser


if __name__ == "__main__":
    sys.exit(main())
