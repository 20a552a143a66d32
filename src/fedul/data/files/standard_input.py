"""Rows from standard input: stored in a temporary file, because tables are read more than once."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from fedul.errors import EnvironmentFailure, InputError

STANDARD_INPUT = "-"
"""Path that stands for standard input."""

NAME = "standard input"
ENDINGS = {b"PAR1": ".parquet", b"\x93NUMPY": ".npy", b"PK\x03\x04": ".npz"}
"""Endings of files by their first bytes; everything else is read as CSV."""


@contextmanager
def stored_standard_input(stream: BinaryIO | None = None) -> Iterator[Path]:
    """Context with a temporary file that holds what standard input, or a stream, has; messages name standard input."""
    with tempfile.TemporaryDirectory(prefix="fedul-") as folder:
        file = _store(stream or sys.stdin.buffer, Path(folder))
        try:
            yield file
        except InputError as problem:
            raise InputError(str(problem).replace(str(file), NAME)) from None


def _store(stream: BinaryIO, folder: Path) -> Path:
    file = folder / "input"
    try:
        with file.open("wb") as copy:
            shutil.copyfileobj(stream, copy)
        with file.open("rb") as copy:
            start = copy.read(8)
        ending = next((each for magic, each in ENDINGS.items() if start.startswith(magic)), ".csv")
        return file.rename(file.with_suffix(ending))
    except OSError as problem:
        raise EnvironmentFailure(
            f"{NAME}: could not be stored in {folder} ({problem.strerror}); free some space, or set TMPDIR."
        ) from None
