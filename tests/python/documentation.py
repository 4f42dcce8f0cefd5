"""Extracts code and tables from pages of the documentation."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parents[2] / "docs"
COMMAND = r"(echo .*\| )?(qkscope|sniff-qk|cmake|ctest|build/bin/\S+|tools/\S+|\./run\.sh) "


def python_blocks(page: str) -> list[str]:
    """Returns the Python code blocks of a page."""
    return re.findall(r"^```python\n(.*?)^```", (DOCS / page).read_text(), re.DOTALL | re.MULTILINE)


def run_block(page: str, code: str, names: dict[str, Any]) -> None:
    """Executes a code block with the variables `names`; errors name the page."""
    exec(compile(code, f"docs/{page}", "exec"), names)  # noqa: S102


def table_rows(page: str, columns: int) -> list[list[str]]:
    """Returns the cells of all table rows with the given number of columns."""
    rows = re.findall(r"^\| (.*) \|$", (DOCS / page).read_text(), re.MULTILINE)
    return [cells for cells in (row.split(" | ") for row in rows) if len(cells) == columns]


def code_spans(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def shell_commands(page: str) -> Iterator[tuple[str, list[str]]]:
    """Yields the commands of a page, each with the lines of output that the page shows below it.

    Commands are all lines of blocks in `sh`, and lines of other blocks that begin with a prompt or with a program of qkscope.
    """
    for language, block in re.findall(r"^```(\w*)\n(.*?)^```", (DOCS / page).read_text(), re.DOTALL | re.MULTILINE):
        lines = re.sub(r"\\\n +", "", block).splitlines()
        if language not in ("", "sh") or "(--" in block:  # a summary of the options
            continue
        has_prompt = any(line.startswith("$ ") for line in lines)
        command: str | None = None
        output: list[str] = []
        for line in lines:
            begins = line.startswith("$ ") if has_prompt else language == "sh" or re.match(COMMAND, line)
            if begins:
                if command:
                    yield command, output
                command, output = re.sub(r" +# .*", "", line.removeprefix("$ ")), []
            elif line:
                output.append(line)
        if command:
            yield command, output


def yaml_blocks(page: str) -> list[str]:
    return re.findall(r"^```yaml\n(.*?)^```", (DOCS / page).read_text(), re.DOTALL | re.MULTILINE)
