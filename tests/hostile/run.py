"""Runs the program on malicious files (tools/make_hostile_files.py) with limited memory and time: it must exit by
itself with a message and exit code 1 or 2.

    run.py PROGRAM FOLDER [--keep] [PART OF A NAME]
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

SECONDS = 10.0          # most end in a hundredth of it; the machine may be busy
MEMORY = 2 << 30        # address space
OUTPUT = 1 << 20        # bytes of a message that is still one


def limits():
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def complaint(case, program, root, limited):
    """Returns a description of an abnormal exit, or None."""
    folder = root / case["name"]
    command = [program, *(argument.replace("{}", str(folder)) for argument in case["arguments"])]
    environment = dict(os.environ, OPENBLAS_NUM_THREADS="1", HF_HUB_OFFLINE="1", HF_HOME=str(root / "cache"))
    started = time.monotonic()
    try:
        run = subprocess.run(command, capture_output=True, timeout=SECONDS, env=environment, stdin=subprocess.DEVNULL,
                             preexec_fn=limits if limited else None)
    except subprocess.TimeoutExpired:
        return f"still running after {SECONDS} s"
    case["seconds"] = time.monotonic() - started
    message = run.stderr.decode("utf-8", "replace")
    allowed = (0, 1, 2) if case["may_pass"] else (1, 2)
    if run.returncode not in allowed:
        return f"ended with {run.returncode}: {message[-300:]}"
    if len(run.stderr) > OUTPUT:
        return f"a message of {len(run.stderr)} bytes"
    if run.returncode != 0 and "error: " not in message:
        return f"no message: {message[:300]!r}"
    if "internal error" in message:
        return f"our own mistake: {message[:300]!r}"
    if any(ord(c) < 32 and c not in "\n\t" for c in message):
        return f"control characters in the message: {message[:300]!r}"
    if run.returncode != 0 and case["says"] not in message:
        return f"expected the words {case['says']!r}, found {message[:300]!r}"
    return None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("folder", type=Path)
    parser.add_argument("part", nargs="?", default="")
    parser.add_argument("--damaged", default="40")
    parser.add_argument("--no-memory-limit", action="store_true", help="the sanitizers map terabytes")
    options = parser.parse_args()
    tool = Path(__file__).resolve().parents[2] / "tools" / "make_hostile_files.py"
    subprocess.run([sys.executable, tool, options.folder, "--damaged", options.damaged], check=True)
    cases = [case for case in json.loads((options.folder / "cases.json").read_text()) if options.part in case["name"]]
    failed = 0
    for case in cases:
        wrong = complaint(case, options.program, options.folder, not options.no_memory_limit)
        if wrong:
            failed += 1
            print(f"{case['name']}: {wrong}", flush=True)
    slowest = sorted(cases, key=lambda case: -case.get("seconds", SECONDS))[:3]
    print(f"{len(cases) - failed} of {len(cases)} cases as they should be; slowest: "
          + ", ".join(f"{case['name']} {case.get('seconds', SECONDS):.2f} s" for case in slowest))
    return 1 if failed or not cases else 0


if __name__ == "__main__":
    sys.exit(main())
