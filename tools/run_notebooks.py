"""Runs the notebooks of examples/ from the first cell to the last and keeps what they show.

    ./run.sh test-python
    PYTHONPATH=build/python .venv/bin/python tools/run_notebooks.py
"""

from pathlib import Path

import nbformat
from nbclient import NotebookClient


def main():
    for path in sorted((Path(__file__).parents[1] / "examples").glob("*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        NotebookClient(
            notebook, timeout=300, record_timing=False, coalesce_streams=True,
            resources={"metadata": {"path": str(path.parent)}},
        ).execute()
        nbformat.write(notebook, path)
        print(path.name)


if __name__ == "__main__":
    main()
