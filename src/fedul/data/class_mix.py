"""The class mix of a population as a user writes it: uniform, 'A=0.1,B=0.9', or a file with one row."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from fedul.data.tables import open_table
from fedul.errors import InputError
from fedul.priors import Matrix, validate_mix


def parse_prior(text: str, classes: tuple[str, ...], *, where: str) -> Matrix:
    """The shares (K,) of the classes.

    >>> parse_prior("flu=0.1,cold=0.9", ("cold", "flu"), where="prior")
    array([0.9, 0.1])
    """
    if text == "uniform":
        return np.full(len(classes), 1 / len(classes))
    if "=" not in text and os.path.isfile(os.path.expanduser(text)):
        shares = _from_file(Path(os.path.expanduser(text)), classes)
    else:
        shares = _from_words(text, classes, where)
    if missing := [name for name in classes if name not in shares]:
        raise InputError(f"{where}: no share for class '{missing[0]}'; give one for every class.")
    try:
        vector = [float(shares[name]) for name in classes]
    except ValueError:
        raise InputError(f"{where}: '{text}' has a share that is not a number; give one for every class.") from None
    return validate_mix(vector, classes, where=where)


def _from_words(text: str, classes: tuple[str, ...], where: str) -> dict[str, str]:
    shares: dict[str, str] = {}
    for part in text.split(","):
        name, equals, value = part.rpartition("=")
        if not equals or name.strip() not in classes or name.strip() in shares:
            raise InputError(
                f"{where}: '{part.strip()}' is not CLASS=SHARE with a class of {', '.join(classes)}; "
                "give uniform, a share for every class, or a file."
            )
        shares[name.strip()] = value
    return shares


def _from_file(path: Path, classes: tuple[str, ...]) -> dict[str, str]:
    table = open_table(path)
    table.check_has(classes)
    rows = [row for block in table.blocks(classes) for row in block.to_pylist()]
    if len(rows) != 1:
        raise InputError(f"{path}: {len(rows)} rows; a class mix is one row under the class names.")
    return {name: str(value) for name, value in rows[0].items()}
