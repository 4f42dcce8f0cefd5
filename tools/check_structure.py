#!/usr/bin/env python3
"""Checks the dependencies between the folders of src/: tools/check_structure.py [--print-depends]

src/ has six floors (FLOORS), each with rooms; a room is a folder with a qkscope_library() of the same name. The check fails on

- an include of a room that is not under DEPENDS of the CMake target, and a listed room that is never included;
- an include of a higher floor, or of a room that is added later on the same floor;
- a type defined twice in namespace qkscope (an ODR violation, because all rooms are linked into one library);
- an include of src/ in cli/, python/src or examples/, which may include include/qkscope only.

A public header counts as a use of the room that implements it (PUBLIC).
"""
import re
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SRC = ROOT / "src"
FLOORS = ["base", "input", "engine", "capture", "analysis", "study"]

# Public header -> rooms that implement its functions. Headers with types and inline functions only are not listed.
PUBLIC = {
    "analysis.h": ["analysis/results"],
    "experimental/attribution.h": ["analysis/attribution"],
    "experimental/bench.h": ["engine/api"],
    "capture.h": ["capture/run"],
    "captures.h": ["capture/format"],
    "experimental/cluster.h": ["study/cluster", "study/sweep"],
    "correlation.h": ["base/numerics"],
    "experimental/cpu.h": ["base/core"],
    "experimental/engine.h": ["capture/run", "capture/stats_run"],
    "error.h": ["base/core"],
    "experimental/exports.h": ["capture/exports"],
    "figures.h": ["analysis/report"],
    "forward.h": ["engine/forward"],
    "experimental/generate.h": ["engine/api"],
    "experimental/heads.h": ["capture/stats_run"],
    "hub.h": ["input/hub", "capture/publish"],
    "experimental/log.h": ["base/core"],
    "experimental/options.h": ["analysis/results"],
    "model.h": ["engine/api", "engine/model"],
    "statistics.h": ["engine/statistics", "capture/stats_format", "capture/stats_run"],
    "experimental/store.h": ["input/store"],
    "experimental/study.h": ["study/sweep", "study/compare", "study/cluster"],
    "tables.h": ["base/tables"],
    "tensor.h": ["base/core"],
    "experimental/text.h": ["base/core"],
    "texts.h": ["input/texts"],
    "experimental/threads.h": ["base/core"],
    "tokenizer.h": ["input/tokenizer"],
    "version.h": ["base/core"],
    "experimental/viewer.h": ["analysis/viewer"],
}


def rooms():
    """Returns room -> (position in the build order, rooms under DEPENDS), in the order of add_subdirectory."""
    found = {}
    for floor in FLOORS:
        text = (SRC / floor / "CMakeLists.txt").read_text()
        for name in re.findall(r"add_subdirectory\((\w+)\)", text):
            lists = (SRC / floor / name / "CMakeLists.txt").read_text()
            call = re.search(r"qkscope_library\(([\w/]+)(.*?)\n?\)", re.sub(r"#.*", "", lists), re.S)
            depends = re.search(r"DEPENDS\s+([\w/\s]*?)(?:LINK|$)", call[2], re.S)
            room = f"{floor}/{name}"
            if call[1] != room:
                raise SystemExit(f"src/{room}/CMakeLists.txt: found the library {call[1]}, expected {room}")
            found[room] = (len(found), depends[1].split() if depends else [])
    return found


def sources(folder):
    return sorted(p for p in folder.rglob("*") if p.suffix in (".h", ".cpp", ".cu", ".cuh"))


def includes(path):
    for number, line in enumerate(path.read_text().splitlines(), 1):
        match = re.match(r'#include "([^"]+)"', line)
        if match:
            yield number, match[1]


def check_includes(known, errors):
    needed = {}
    for room, (place, named) in known.items():
        direct, public = set(), set()
        for path in sources(SRC / room):
            for number, header in includes(path):
                if header.startswith("qkscope/"):
                    public.update(PUBLIC.get(header[8:], []))
                    continue
                used = "/".join(header.split("/")[:2])
                where = f"{path.relative_to(ROOT)}:{number}"
                if used not in known:
                    errors.append(f'{where}: "{header}" is in no room of src/')
                elif used != room:
                    direct.add(used)
                    if known[used][0] > place:
                        errors.append(f"{where}: {room} comes before {used} and cannot include it")
                    if used not in named:
                        errors.append(f"{where}: {room} includes {used}; add it under DEPENDS or drop the include")
        for name in named:
            if name not in direct | public:
                errors.append(f"src/{room}/CMakeLists.txt: DEPENDS names {name}, which no file includes")
        needed[room] = direct | {r for r in public if r in named and r != room}
    return needed


def check_users(errors):
    for folder in ("cli", "python/src", "examples"):
        for path in sources(ROOT / folder):
            for number, header in includes(path):
                if header.split("/")[0] in FLOORS:
                    errors.append(f"{path.relative_to(ROOT)}:{number}: expected a header of include/qkscope, found {header}")


def check_types(errors):
    """Checks types of namespace qkscope itself, not nested types nor those of unnamed or inner namespaces."""
    defined = defaultdict(list)
    for path in [*sources(SRC), *sources(ROOT / "include")]:
        inner = None  # the currently open namespace inside qkscope
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if match := re.match(r"namespace (\w+)?\s*\{", line):
                inner = match[1] if match[1] != "qkscope" else None
                if match[1] is None:
                    inner = "unnamed"
            elif match := re.match(r"namespace ([\w:]+) \{", line):
                inner = match[1]
            elif match := re.match(r"\}  // namespace(?: (\S+))?", line):
                inner = None
            elif inner is None:
                if match := re.match(r"(?:class|struct|enum class|enum|union)(?: \w+\(.*?\)| QKSCOPE_API)? (\w+)(?: final)?(?: : [^;]*)?\s*\{", line):
                    defined[match[1]].append(f"{path.relative_to(ROOT)}:{number}")
    for name, places in sorted(defined.items()):
        if len(places) > 1:
            errors.append(f"{places[0]}: {name} is defined again at {', '.join(places[1:])}")


def main():
    known, errors = rooms(), []
    needed = check_includes(known, errors)
    if "--print-depends" in sys.argv:
        order = list(known)
        for room in known:
            print(room, *sorted(needed[room], key=order.index))
        return 0
    check_users(errors)
    check_types(errors)
    for error in errors:
        print(f"error: {error}", file=sys.stderr)
    print(f"{len(known)} rooms on {len(FLOORS)} floors, {sum(len(n) for _, n in known.values())} arrows, {len(errors)} errors")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
