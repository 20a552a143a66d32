"""Notebooks run from top to bottom, and the committed ones show no error and describe their plots."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .places import ROOT

FOLDER = ROOT / "notebooks"
NAMES = sorted(path.stem for path in FOLDER.glob("[0-9]*.py"))
LONG = "5-federation"
LIMIT = 300_000

needs_jupyter = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("jupytext", "nbclient", "ipykernel")),
    reason="Jupyter is not installed (fedul[notebooks])",
)


def build(out: Path, *arguments: str) -> None:
    """Run the command that makes notebooks."""
    homes = {name: str(out / "jupyter") for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR")}
    command = [sys.executable, str(FOLDER / "build.py"), *arguments, "--out", str(out)]
    done = subprocess.run(command, env={**os.environ, **homes}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def read(folder: Path, name: str) -> list[dict[str, Any]]:
    """Return the cells of a notebook."""
    cells: list[dict[str, Any]] = json.loads((folder / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]
    return cells


def outputs(cells: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [output for cell in cells for output in cell.get("outputs", ())]


def assert_good(cells: list[dict[str, Any]]) -> None:
    """Every code cell ran, none with an error, and every plot has alternative text."""
    assert all(cell["execution_count"] for cell in cells if cell["cell_type"] == "code")
    assert [output for output in outputs(cells) if output["output_type"] == "error"] == []
    plots = [output for output in outputs(cells) if "image/png" in output.get("data", {})]
    assert plots
    assert all(len(output["metadata"]["image/png"]["alt"]) > 20 for output in plots)


@needs_jupyter
@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long) if name == LONG else name for name in NAMES]
)
def test_a_notebook_runs_from_top_to_bottom(name: str, tmp_path: Path) -> None:
    build(tmp_path, name)
    assert_good(read(tmp_path, name))


@needs_jupyter
def test_the_committed_notebooks_have_the_cells_of_their_scripts(tmp_path: Path) -> None:
    build(tmp_path, "--without-outputs")
    for name in NAMES:
        of_script, committed = read(tmp_path, name), read(FOLDER, name)
        assert [c["source"] for c in committed] == [c["source"] for c in of_script], f"make notebooks ({name})"


@pytest.mark.parametrize("name", NAMES)
def test_a_committed_notebook_is_small_and_shows_no_error_and_no_place(name: str) -> None:
    file = FOLDER / f"{name}.ipynb"
    assert_good(read(FOLDER, name))
    assert file.stat().st_size < LIMIT
    shown = json.dumps(outputs(read(FOLDER, name)))
    assert not any(place in shown for place in ("/tmp/", "/root", "/home", "site-packages"))


def test_there_are_five_notebooks() -> None:
    assert len(NAMES) == 5
