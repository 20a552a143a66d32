"""Execute the notebooks: each `NAME.py` (percent format) becomes `NAME.ipynb` with its outputs.

    python notebooks/build.py [NAME ...] [--out FOLDER] [--without-outputs]

The `.py` files are what is edited and reviewed; the `.ipynb` files are made from them, so that outputs can be read
without running anything. Every notebook runs in an empty folder. An error in a cell ends the command with exit code 1,
and nothing is written for that notebook. --without-outputs converts and does not execute.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

HERE = Path(__file__).parent
NAMES = sorted(path.stem for path in HERE.glob("[0-9]*.py"))
KERNEL = {"name": "python3", "display_name": "Python 3", "language": "python"}
SECONDS = 1200
"""Longest time of one cell."""


def read_notebook(name: str) -> nbformat.NotebookNode:
    """Return a notebook without outputs, with cell ids that do not change from one build to the next."""
    notebook = jupytext.read(HERE / f"{name}.py")
    notebook.metadata = nbformat.from_dict({"kernelspec": KERNEL, "language_info": {"name": "python"}})
    for number, cell in enumerate(notebook.cells):
        cell.id, cell.metadata = f"cell-{number}", nbformat.from_dict({})
    return notebook


def execute(notebook: nbformat.NotebookNode) -> None:
    """Execute a notebook in an empty folder, with the interpreter of this process."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(notebook, timeout=SECONDS, resources={"metadata": {"path": folder}})
        client.execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # times of day


def main() -> None:
    """Build the notebooks that are named, by default all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[*NAMES, []], default=[], metavar="NAME")
    parser.add_argument("--out", type=Path, default=HERE)
    parser.add_argument("--without-outputs", action="store_true")
    options = parser.parse_args()
    for name in options.names or NAMES:
        notebook = read_notebook(name)
        if not options.without_outputs:
            try:
                execute(notebook)
            except CellExecutionError as problem:
                sys.exit(f"{name}: {problem}")
        nbformat.validate(notebook)
        nbformat.write(notebook, options.out / f"{name}.ipynb")
        print(f"{options.out / name}.ipynb")


if __name__ == "__main__":
    main()
