"""Makes the n-th allocation, write, rename, fsync, open or start of a thread of every command fail, n = 1, 2, 3 ...

    run.py PROGRAM fault_preload.so --all          all of them, before a release
    run.py PROGRAM fault_preload.so --sample 40    this many, another choice every day (--day repeats one)
    run.py PROGRAM fault_preload.so --only 'capture write 3'

After each fault the exit code must tell the truth: 0 with the output of an undisturbed run, or 1 with a message. No file
may have its final name with other bytes than those of the undisturbed run, and the same command, run again, must give
exactly its output and leave nothing else behind.

All faults: every rename, fsync, open and start of a thread; the first and the last write of every call path (the innermost
functions) in every command; and the first allocation of every call path in the first command that has it.
"""

import argparse
import collections
import datetime
import json
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from workspace import COMMANDS, files_of, prepare, remove, run

KINDS = ["malloc", "write", "rename", "fsync", "open", "thread", "flock"]
INJECTED = KINDS[:6]  # limits_test.py refuses flock
GLIBC = "Fatal glibc error: failed to register TLS destructor: out of memory"  # ends the program by itself
REGRESSIONS = [("analyze", "open", n) for n in range(3, 7)]  # faults that found a bug: part of every sample
SITE = struct.Struct("4Q")  # call path, kind, number of the first and of the last call (fault_preload.c)


class Faults:
    def __init__(self, program, preload, root):
        self.program, self.preload, self.root = program, preload, root
        self.clean = {}   # output of each command after an undisturbed run
        self.counts = {}  # calls of each kind
        self.calls = {}   # those that fail, of each kind
        self.known_paths = set()

    def measure(self):
        """Runs every command undisturbed, counts its calls and keeps its output."""
        prepare(self.root / "clean", self.program)
        for name, line, output in COMMANDS:
            counts = self.root / f"{name}.counts"
            done = run(self.program, line, self.root / "clean",
                       {"LD_PRELOAD": self.preload, "QKSCOPE_FAULT_COUNTS": str(counts)})
            if done.returncode != 0:
                sys.exit(f"{name} failed without a fault: {done.stderr.decode()}")
            record, size = counts.read_bytes(), 8 * len(KINDS)
            self.counts[name] = dict(zip(KINDS, struct.unpack(f"{len(KINDS)}Q", record[:size])))
            self.calls[name] = {kind: range(1, count + 1) for kind, count in self.counts[name].items()}
            sites = [site for site in SITE.iter_unpack(record[size:]) if site[0]]
            self.calls[name]["write"] = sorted({call for _, kind, *ends in sites if KINDS[kind] == "write" for call in ends})
            self.calls[name]["malloc"] = sorted(first for path, kind, first, _ in sites
                                                if KINDS[kind] == "malloc" and path not in self.known_paths)
            self.known_paths.update(path for path, *_ in sites)
            self.clean[name] = files_of(self.root / "clean" / output) if output else done.stdout

    def cases(self):
        for name, _, _ in COMMANDS:
            yield from ((name, kind, n) for kind in INJECTED for n in self.calls[name][kind])

    def try_case(self, case):
        """Returns what is wrong after one fault, or None."""
        name, kind, n = case
        _, line, output = next(command for command in COMMANDS if command[0] == name)
        with tempfile.TemporaryDirectory(dir=self.root) as place:
            folder = Path(place) / "work"
            copy_inputs(self.root / "clean", folder, line.split())
            if output:
                remove(folder / output)
            try:
                return self.check(name, line, folder, folder / output if output else None, f"{kind} {n}")
            except subprocess.TimeoutExpired as expired:
                return f"still running after {expired.timeout:.0f} s"

    def check(self, name, line, folder, output, fault):
        done = run(self.program, line, folder, {"LD_PRELOAD": self.preload, "QKSCOPE_FAULT": fault})
        message = done.stderr.decode("utf-8", "replace")
        if done.returncode not in (0, 1) and GLIBC not in message:
            return f"exit code {done.returncode}, expected 0 or 1: {message[-400:]}"
        if done.returncode == 1 and "error: " not in message:
            return f"exit code 1 without a message: {message[-400:]}"
        if "internal error" in message:
            return f"our own mistake: {message[-400:]}"
        clean = self.clean[name]
        if output is None:
            return "exit code 0 and another output" if done.returncode == 0 and done.stdout != clean else None
        if done.returncode == 0 and (wrong := difference(files_of(output), clean)):
            return f"exit code 0, but {wrong}"
        for file, data in files_of(output).items() if output.exists() else ():
            if file in clean and data != clean[file] and not lists_failures((output / file).parent):
                return f"{file} has its final name and {len(data)} bytes, expected {len(clean[file])} others"
        again = run(self.program, line, folder)
        if again.returncode != 0:
            return f"the next run fails: {again.stderr.decode()[-400:]}"
        if wrong := difference(files_of(output), clean):
            return f"after the next run {wrong}"
        leftovers = [str(file.relative_to(folder)) for file in folder.rglob("*")
                     if file.name.endswith(".tmp") or file.name.startswith(".drawing-")]
        return f"the next run leaves {leftovers}" if leftovers else None


def copy_inputs(clean, folder, words):
    """Copies the inputs of all commands and the outputs that this command line names."""
    outputs = {output for _, _, output in COMMANDS if output} - set(words)
    shutil.copytree(clean, folder,
                    ignore=lambda place, names: outputs & set(names) if place == str(clean) else ())


def lists_failures(folder):
    """Returns whether the folder holds results whose summary says that heads could not be analysed."""
    summary = folder / "summary.json"
    return summary.is_file() and json.loads(summary.read_text()).get("counts", {}).get("failed", 0) > 0


def difference(found, expected):
    if missing := sorted(set(expected) - set(found)):
        return f"{missing[:3]} are missing"
    if surplus := sorted(set(found) - set(expected)):
        return f"{surplus[:3]} are there as well"
    other = [name for name in expected if found[name] != expected[name]]
    return f"{other[:3]} differ" if other else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=lambda text: str(Path(text).resolve()))
    parser.add_argument("preload", type=lambda text: str(Path(text).resolve()))
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--sample", type=int, default=40)
    parser.add_argument("--day", type=int, default=datetime.date.today().toordinal())
    parser.add_argument("--only", action="append", default=[], help="COMMAND, COMMAND KIND or COMMAND KIND N")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="qkscope-faults-", dir=memory) as root:
        faults = Faults(options.program, options.preload, Path(root))
        faults.measure()
        cases = [case for case in faults.cases()
                 if not options.only or " ".join(map(str, case[:2])) in options.only or case[0] in options.only]
        cases += [(name, kind, int(n)) for name, kind, n in (part.split() for part in options.only if part.count(" ") == 2)]
        if not options.all and not options.only:
            random.Random(options.day).shuffle(cases)
            cases = REGRESSIONS + cases[:options.sample - len(REGRESSIONS)]
        failed = 0
        tried = collections.Counter()
        with ThreadPoolExecutor(options.jobs) as pool:
            for case, wrong in zip(cases, pool.map(faults.try_case, cases)):
                tried[case[1]] += 1
                if wrong:
                    failed += 1
                    print(f"--only '{' '.join(map(str, case))}': {wrong}", flush=True)
    print(f"day {options.day}: {len(cases)} faults ({', '.join(f'{n} {kind}' for kind, n in tried.items())}), "
          f"{failed} failed")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
