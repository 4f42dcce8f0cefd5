#!/usr/bin/env python3
"""Prints what a release says about itself.

    tools/release_info.py version         the version; an error where the files that hold it disagree
    tools/release_info.py notes           the release notes: the section of this version in CHANGELOG.md
    tools/release_info.py requirements    what pip needs to build and to install the package, one requirement per line
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
VERSIONS = {  # file: the line that holds the version
    "pyproject.toml": r'^version = "(.*)"$',
    "CMakeLists.txt": r"^project\(qkscope VERSION (\S+)",
    "CITATION.cff": r"^version: (.*)$",
    "CHANGELOG.md": r"^## (\S+)",
}


class Mistake(Exception):
    pass


def find_versions(root: pathlib.Path) -> dict[str, str]:
    """Returns the version that each file names first."""
    versions = {}
    for file, pattern in VERSIONS.items():
        match = re.search(pattern, (root / file).read_text(), re.MULTILINE)
        if not match:
            raise Mistake(f"{file}: found no version; expected a line like {pattern}")
        versions[file] = match[1]
    return versions


def version(root: pathlib.Path = ROOT) -> str:
    versions = find_versions(root)
    if len(set(versions.values())) > 1:
        found = ", ".join(f"{file} {value}" for file, value in versions.items())
        raise Mistake(f"the version differs between files: {found}; write the same version into each")
    return versions["pyproject.toml"]


def notes(root: pathlib.Path = ROOT) -> str:
    """Returns the section of this version. Its links start at the root of the repository, which readers of the notes lack:
    they become names of files."""
    number = version(root)
    text = (root / "CHANGELOG.md").read_text()
    section = re.search(rf"^## {re.escape(number)}\b[^\n]*\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    body = section[1].strip() if section else ""
    if not body.startswith("- "):
        raise Mistake(f"CHANGELOG.md: the section {number} is empty; expected a list of changes")
    body = re.sub(r"\[([^\]]+)\]\((?!\w+:)([^)]+)\)", lambda m: m[2] if m[1] == m[2].split("#")[0] else f"{m[1]}: {m[2]}", body)
    upgrading = (root / "docs/start/upgrading.md").read_text()
    summary = upgrading.split("\n\n")[1].replace("\n", " ").split("? ", 1)[-1]  # the answer without the question
    return f"# qkscope {number}\n\n{summary} The whole list is in docs/start/upgrading.md.\n\n## Changes\n\n{body}\n"


def requirements(root: pathlib.Path = ROOT) -> str:
    import tomllib  # Python 3.11

    project = tomllib.loads((root / "pyproject.toml").read_text())
    return "\n".join(sorted({*project["build-system"]["requires"], *project["project"]["dependencies"]})) + "\n"


def main() -> int:
    commands = {"version": lambda: version() + "\n", "notes": notes, "requirements": requirements}
    if len(sys.argv) != 2 or sys.argv[1] not in commands:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        print(commands[sys.argv[1]](), end="")
    except Mistake as mistake:
        print(f"error: {mistake}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
