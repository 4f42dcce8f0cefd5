"""The code of the documentation, for tests that run it."""

import re
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"


def python_blocks(page):
    """The Python of a page, block by block."""
    return re.findall(r"^```python\n(.*?)^```", (DOCS / page).read_text(), re.DOTALL | re.MULTILINE)


def run_block(page, code, names):
    """Runs a block in `names`, as somebody would who types it; an error names the page."""
    exec(compile(code, f"docs/{page}", "exec"), names)  # noqa: S102


def table_rows(page, columns):
    """The cells of every row of the tables with so many columns."""
    rows = re.findall(r"^\| (.*) \|$", (DOCS / page).read_text(), re.MULTILINE)
    return [cells for cells in (row.split(" | ") for row in rows) if len(cells) == columns]


def code_spans(cell):
    return re.findall(r"`([^`]+)`", cell)
