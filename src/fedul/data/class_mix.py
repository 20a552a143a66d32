"""Class mix of a population as a user writes it: uniform, 'A=0.1,B=0.9', or a file with one row."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from fedul._utils.display import counted
from fedul.core import Matrix, validate_class_mix
from fedul.data.files.tables import open_table
from fedul.errors import InputError


def parse_class_mix(text: str, classes: tuple[str, ...], *, where: str) -> Matrix:
    """Return the class mix (K,) that a text describes.

    Parameters
    ----------
    text : str
        "uniform", "A=0.1,B=0.9" with every class, or the path of a table with one row under the class names.
    classes : tuple of str
        Names of the K classes.
    where : str
        What the mix is for, for messages.

    Examples
    --------
    >>> parse_class_mix("flu=0.1,cold=0.9", ("cold", "flu"), where="prior")
    array([0.9, 0.1])
    """
    if text == "uniform":
        return np.full(len(classes), 1 / len(classes))
    if "=" not in text and os.path.isfile(os.path.expanduser(text)):
        shares = _read_shares(Path(os.path.expanduser(text)), classes)
    else:
        shares = _parse_shares(text, classes, where)
    if missing := [name for name in classes if name not in shares]:
        raise InputError(f"{where}: no share for class '{missing[0]}'; give one for every class.")
    try:
        vector = [float(shares[name]) for name in classes]
    except ValueError:
        raise InputError(f"{where}: '{text}' has a share that is not a number; give one for every class.") from None
    return validate_class_mix(vector, classes, where=where)


def _parse_shares(text: str, classes: tuple[str, ...], where: str) -> dict[str, str]:
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


def _read_shares(path: Path, classes: tuple[str, ...]) -> dict[str, str]:
    table = open_table(path)
    table.check_has(classes)
    rows = [row for block in table.blocks(classes) for row in block.to_pylist()]
    if len(rows) != 1:
        raise InputError(f"{path}: {counted(len(rows), 'row')}; a class mix is one row under the class names.")
    return {name: str(value) for name, value in rows[0].items()}
