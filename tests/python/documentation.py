"""Extracts code and tables from pages of the documentation."""

import re
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"


def python_blocks(page):
    """Returns the Python code blocks of a page."""
    return re.findall(r"^```python\n(.*?)^```", (DOCS / page).read_text(), re.DOTALL | re.MULTILINE)


def run_block(page, code, names):
    """Executes a code block with the variables `names`; errors name the page."""
    exec(compile(code, f"docs/{page}", "exec"), names)  # noqa: S102


def table_rows(page, columns):
    """Returns the cells of all table rows with the given number of columns."""
    rows = re.findall(r"^\| (.*) \|$", (DOCS / page).read_text(), re.MULTILINE)
    return [cells for cells in (row.split(" | ") for row in rows) if len(cells) == columns]


def code_spans(cell):
    return re.findall(r"`([^`]+)`", cell)
