"""Executes the notebooks of examples/, saves their outputs, and prints the seconds of each.

    ./run.sh test-python
    PYTHONPATH=build/python .venv/bin/python tools/run_notebooks.py [FILE...]
"""

import os
import sys
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient


def main():
    # Kernels start in the folder of the notebook, so a relative PYTHONPATH is made absolute.
    folders = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join(os.path.abspath(folder) for folder in folders if folder)
    chosen = [Path(name) for name in sys.argv[1:]] or (Path(__file__).parents[1] / "examples").glob("*.ipynb")
    for path in sorted(chosen):
        begin = time.perf_counter()
        notebook = nbformat.read(path, as_version=4)
        NotebookClient(
            notebook, timeout=300, record_timing=False, coalesce_streams=True,
            resources={"metadata": {"path": str(path.parent)}},
        ).execute()
        nbformat.write(notebook, path)
        print(f"{path.name:<32} {time.perf_counter() - begin:6.1f} s", flush=True)


if __name__ == "__main__":
    main()
