"""Class priors from a CSV table with the columns client, set and one for each class."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedul.errors import InputError
from fedul.priors import Matrix, validate


def read_priors(path: str, clients: Sequence[str], classes: Sequence[str]) -> dict[str, Matrix]:
    """The class-prior matrix of every client, rows in the order of the file."""
    try:
        with Path(path).open(newline="", encoding="utf-8-sig") as file:
            table = list(csv.reader(file))
    except FileNotFoundError:
        raise InputError(
            f"{path}: there is no such file; --priors takes a CSV with client,set,{','.join(classes)}."
        ) from None
    except (OSError, UnicodeDecodeError, csv.Error) as problem:
        raise InputError(f"{path}: not a readable CSV file ({problem}).") from None
    header = [cell.strip() for cell in table[0]] if table else []
    if header[:2] != ["client", "set"] or sorted(header[2:]) != sorted(classes):
        raise InputError(
            f"{path}: the first line must be client,set,{','.join(classes)}; got {','.join(header) or 'nothing'}."
        )
    columns = [header.index(name, 2) for name in classes]
    rows: dict[str, list[list[float]]] = {}
    seen: set[tuple[str, str]] = set()
    for number, cells in enumerate(table[1:], start=2):
        if not any(cell.strip() for cell in cells):
            continue
        if len(cells) != len(header):
            raise InputError(f"{path}, line {number}: {len(cells)} cells for {len(header)} columns.")
        try:
            values = [float(cells[column]) for column in columns]
        except ValueError:
            raise InputError(f"{path}, line {number}: a prior is not a number; give proportions in 0..1.") from None
        key = (cells[0].strip(), cells[1].strip())
        if key in seen:
            raise InputError(f"{path}, line {number}: set '{key[1]}' of client '{key[0]}' stands there twice.")
        seen.add(key)
        validate([values], classes=classes, where=f"{path}, line {number}")
        rows.setdefault(key[0], []).append(values)
    if sorted(rows) != sorted(clients):
        raise InputError(
            f"{path}: priors for {', '.join(sorted(rows)) or 'no client'}, but the clients are {', '.join(clients)}."
        )
    return {name: validate(np.array(rows[name]), classes=classes, where=path) for name in clients}
