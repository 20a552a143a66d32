"""Where tests find files: the repository, and real data that is not part of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fedul.data import find_source

ROOT = next(folder for folder in Path(__file__).resolve().parents if (folder / "pyproject.toml").is_file())
"""The repository."""


def real_data(name: str) -> tuple[str, Path]:
    """The folder that FEDUL_DATA names and where the data set is below it; a test that has none is skipped."""
    folder = os.environ.get("FEDUL_DATA")
    if not folder:
        pytest.skip(f"needs the real {name}: FEDUL_DATA names no folder with data")
    place = find_source(name, folder)
    if place is None:
        pytest.skip(f"needs the real {name}, which is not in the folder that FEDUL_DATA names")
    return folder, place
