"""The notebooks of examples/ run from the first cell to the last, from any folder."""

from pathlib import Path

import nbformat
import pytest
from conftest import ROOT
from nbclient import NotebookClient

NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs_from_any_folder(path: Path, tmp_path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [output.get("data", {}) for cell in notebook.cells for output in cell.get("outputs", [])]
    assert any("<svg" in data.get("text/html", "") + data.get("image/svg+xml", "") for data in shown)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_needs_no_other_plotting_package_and_names_no_folder(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    code = "".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
    assert "matplotlib" not in code and "../" not in code
    assert str(ROOT) not in path.read_text()


def test_every_notebook_is_tested() -> None:
    assert len(NOTEBOOKS) == 7
