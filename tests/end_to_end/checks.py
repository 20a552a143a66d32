"""Checks of the outcome of commands and of the files that they leave."""

from __future__ import annotations

from pathlib import Path

from ..runs import contents
from .command import Fedul


def leftovers(folder: Path) -> list[str]:
    """Return the files that an interrupted write left behind."""
    return [path.name for path in folder.rglob(".*") if path.is_file()]


def is_one_sentence(err: str) -> bool:
    """Return whether standard error holds one sentence of fedul on one line, and nothing else."""
    return err.startswith("fedul: ") and err.endswith("\n") and err.count("\n") == 1 and "Traceback" not in err


def refuses(fedul: Fedul, folder: Path, line: str, complaint: str) -> None:
    """Assert that the command exits with code 2 and this complaint in one sentence, and leaves the folder as it was."""
    before = contents(folder)
    outcome = fedul(line)
    assert is_one_sentence(outcome.err), outcome.err
    assert complaint in outcome.err
    assert (outcome.code, outcome.out) == (2, "")
    assert contents(folder) == before
