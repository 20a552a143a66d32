"""Sets, clients and class priors as users of data frames have them: by name, row by row.

Sets are numbered as they first appear among a client's rows. So the same rows give the same clients, whether the class
priors came as a data frame, a mapping or an array, and in whatever order.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedul.errors import InputError, unknown
from fedul.federation import UnlabeledSets
from fedul.priors import Matrix, validate

FORMS = (
    "give a data frame (a line a set, a column a class), a mapping {set: {class: share}} or {(client, set): ...}, "
    "or an array whose rows are the sets 0, 1, 2, ..."
)

ONLY_CLIENT = "client"
"""The name of a client that is alone, whatever it was called: with one, nothing depends on its name."""


@dataclass(frozen=True, eq=False)
class SetPriors:
    """Class priors by the name of a set, or of a client and its set; classes are sorted, as scikit-learn wants them."""

    rows: dict[Hashable, Matrix]  # each (K,)
    classes: NDArray[Any]  # (K,)

    def __post_init__(self) -> None:
        if len(self.classes) < 2:
            raise InputError(f"there is one class only, {_listed(self.classes)}; a classifier needs two or more.")

    @classmethod
    def of_labels(cls, labels: NDArray[Any]) -> SetPriors:
        """Labelled rows are sets of one class each."""
        classes = np.unique(labels)
        return cls(dict(zip(classes.tolist(), np.eye(len(classes)), strict=True)), classes)

    @classmethod
    def read(cls, priors: Any, classes: Sequence[Any] | None = None) -> SetPriors:
        """Class priors in any of the FORMS; `classes` names columns that have no name of their own."""
        keys, columns, shares = _keys_columns_shares(priors, classes)
        ordered, order = np.unique(np.asarray(columns), return_index=True)
        if len(ordered) != len(columns):
            raise InputError("class priors: two columns are of the same class; give every class one.")
        if classes is not None and not np.array_equal(ordered, np.unique(np.asarray(classes))):
            raise InputError(
                f"class priors: are of the classes {_listed(columns)}, but the parameter classes says "
                f"{_listed(classes)}; give the same, or leave it out."
            )
        if len(set(keys)) < len(keys):
            again = next(key for i, key in enumerate(keys) if key in keys[:i])
            raise InputError(f"class priors: {again!r} stands there twice; give every set one line.")
        return cls(dict(zip(keys, validate(shares)[:, order], strict=True)), ordered)

    def of(self, client: Hashable, name: Hashable) -> Matrix:
        """Those of a client's set, else those of any client's set of this name."""
        found = self.rows.get((client, name))
        if found is None:
            found = self.rows.get(name)
        if found is None:
            whose = "" if client is None else f" of client {client!r}"
            raise InputError(
                f"set {name!r}{whose} has no class priors, which are there for {_listed(self.rows)}; add its line, or "
                "leave out its rows."
            )
        return found


def clients_of(
    inputs: NDArray[Any], sets: Any, clients: Any, priors: SetPriors, *, held_out: float = 0.0, seed: int = 0
) -> list[UnlabeledSets]:
    """The clients that own these rows, sharing one table; priors of sets without rows here are left out."""
    names = _one_a_row(sets, len(inputs), "sets")
    owners = [None] * len(names) if clients is None else _one_a_row(clients, len(inputs), "clients")
    rows: dict[Hashable, list[int]] = {}
    for row, owner in enumerate(owners):
        rows.setdefault(owner, []).append(row)
    found = []
    for owner, own in rows.items():
        numbers: dict[Hashable, int] = {}
        for row in own:
            numbers.setdefault(names[row], len(numbers))
        client = UnlabeledSets.from_arrays(
            ONLY_CLIENT if len(rows) == 1 else str(owner),
            inputs,
            [numbers[names[row]] for row in own],
            np.stack([priors.of(owner, name) for name in numbers]),
            rows=own,
            held_out=held_out,
            seed=seed,
            set_names=[str(name) for name in numbers],
        )
        found.append(client)
    return found


def by_class(shares: Any, classes: NDArray[Any], where: str) -> Any:
    """A mapping {class: share} in the order of the classes, with 0 for those it leaves out; else as it was given."""
    if not hasattr(shares, "items"):
        return shares
    given, names = dict(shares.items()), classes.tolist()
    for name in given:
        if name not in names:
            raise unknown(f"class in {where}", str(name), map(str, names))
    return [given.get(name, 0.0) for name in names]


def _keys_columns_shares(priors: Any, classes: Sequence[Any] | None) -> tuple[list[Any], list[Any], Any]:
    if hasattr(priors, "columns") and hasattr(priors, "index"):  # a data frame, without a need for pandas
        return list(priors.index), list(priors.columns), priors.to_numpy()
    keys, rows = (list(priors), list(priors.values())) if isinstance(priors, Mapping) else (None, priors)
    if keys and all(hasattr(row, "items") for row in rows):
        named = [dict(row.items()) for row in rows]
        columns = list(dict.fromkeys(name for row in named for name in row))
        return keys, columns, [[row.get(name, 0.0) for name in columns] for row in named]
    try:
        shares = np.asarray(rows, dtype=np.float64)
    except (TypeError, ValueError):
        shares = np.empty(0)
    if shares.ndim != 2 or not shares.size:
        raise InputError(f"class priors: not a table of numbers; {FORMS}.")
    columns = list(range(shares.shape[1])) if classes is None else list(classes)
    if len(columns) != shares.shape[1]:
        raise InputError(
            f"class priors: {shares.shape[1]} columns for {len(columns)} classes; give one column for each of "
            f"{_listed(columns)}."
        )
    return list(range(len(shares))) if keys is None else keys, columns, shares


def _one_a_row(values: Any, rows: int, what: str) -> list[Hashable]:
    try:
        array = np.asarray(values, dtype=object)
    except ValueError:  # lists of different lengths
        array = np.empty((0, 0))
    if array.ndim != 1 or len(array) != rows:
        raise InputError(f"{what}: got shape {array.shape} for {rows} rows; give one name or number for each row.")
    names: list[Hashable] = array.tolist()
    for row, name in enumerate(names, start=1):
        if _is_missing(name):
            raise InputError(f"{what}: is missing in row {row}; give one for each row, or leave out the row.")
    return names


def _is_missing(name: Any) -> bool:
    try:
        return name is None or bool(name != name)  # only NaN differs from itself
    except TypeError:  # pandas' NA says neither yes nor no
        return True


def _listed(names: Iterable[Any]) -> str:
    known = [repr(name) for name in (names.tolist() if isinstance(names, np.ndarray) else names)]
    return ", ".join(known[:5]) + (f" and {len(known) - 5} more" if len(known) > 5 else "")
