"""Sets, clients and class priors by name, as users of DataFrames have them.

Sets are numbered in the order in which they first appear among a client's rows. So the same rows give the same clients,
whether the class priors are a DataFrame, a mapping or an array, and in any order.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedul._utils.display import counted
from fedul.core import Matrix, PriorScope, UnlabeledSets, pooled_class_mix, validate_priors
from fedul.errors import InputError, unknown_name

FORMS = (
    "give a DataFrame (one line per set, one column per class), a mapping {set: {class: share}} or "
    "{(client, set): ...}, or an array whose rows are the sets 0, 1, 2 and so on"
)

ONLY_CLIENT = "client"
"""Name of a single client, whatever the user called it: its name must not change the result."""


@dataclass(frozen=True, eq=False)
class PriorsByName:
    """Class priors by the name of a set, or by the names of a client and a set.

    Parameters
    ----------
    rows : dict of Hashable to ndarray of shape (K,)
        Class priors by set, or by (client, set).
    classes : ndarray of shape (K,)
        Names of the classes, sorted, as scikit-learn wants them.

    Examples
    --------
    >>> priors = PriorsByName.read({"may": {"well": 0.8, "ill": 0.2}, "june": {"well": 0.3, "ill": 0.7}})
    >>> priors.classes.tolist(), priors.of(None, "may").tolist()
    (['ill', 'well'], [0.2, 0.8])
    """

    rows: dict[Hashable, Matrix]
    classes: NDArray[Any]

    def __post_init__(self) -> None:
        if len(self.classes) < 2:
            raise InputError(f"there is one class only, {_join_names(self.classes)}; a classifier needs two or more.")

    @classmethod
    def of_labels(cls, labels: NDArray[Any]) -> PriorsByName:
        """Return the priors of labelled rows: each class is a set with a one-hot prior."""
        classes = np.unique(labels)
        return cls(dict(zip(classes.tolist(), np.eye(len(classes)), strict=True)), classes)

    @classmethod
    def read(cls, priors: Any, classes: Sequence[Any] | None = None) -> PriorsByName:
        """Read class priors.

        Parameters
        ----------
        priors : DataFrame, mapping or array
            A DataFrame indexed by set or by (client, set) with one column per class; a mapping from set or from
            (client, set) to {class: share}, or to shares in the order of `classes`; or an array of shape (M, K), whose
            rows are the sets 0, 1, 2, ...
        classes : sequence, optional
            Names of the classes, where the columns have none.

        Raises
        ------
        InputError
            If the priors are no such table, or do not sum to 1.
        """
        keys, columns, shares = _parse_priors(priors, classes)
        ordered, order = np.unique(np.asarray(columns), return_index=True)
        if len(ordered) != len(columns):
            raise InputError("class priors: two columns are of the same class; give every class one.")
        if classes is not None and not np.array_equal(ordered, np.unique(np.asarray(classes))):
            raise InputError(
                f"class priors: are of the classes {_join_names(columns)}, but the parameter classes says "
                f"{_join_names(classes)}; give the same, or leave it out."
            )
        if len(set(keys)) < len(keys):
            again = next(key for i, key in enumerate(keys) if key in keys[:i])
            raise InputError(f"class priors: {again!r} occurs twice; give every set one line.")
        return cls(dict(zip(keys, validate_priors(shares)[:, order], strict=True)), ordered)

    def of(self, client: Hashable, name: Hashable) -> Matrix:
        """Return the priors of a client's set, or those of any client's set of this name."""
        priors = self.rows.get((client, name), self.rows.get(name))
        if priors is None:
            whose = "" if client is None else f" of client {client!r}"
            raise InputError(
                f"set {name!r}{whose} has no class priors, which are there for {_join_names(self.rows)}; add its line, "
                "or leave out its rows."
            )
        return priors


def make_clients(
    inputs: NDArray[Any],
    sets: Any,
    clients: Any,
    priors: PriorsByName,
    *,
    held_out: float = 0.0,
    seed: int = 0,
    priors_of: str = PriorScope.of,
) -> list[UnlabeledSets]:
    """Return the clients that own rows.

    Parameters
    ----------
    inputs : ndarray of shape (n, ...)
        The rows; all clients share this array.
    sets, clients : array-like of shape (n,)
        Name of the set and of the client of each row; with None as `clients` there is one.
    priors : PriorsByName
        Class priors; those of sets without rows are ignored.
    held_out : float, default=0.0
        Share of every set that is held out.
    seed : int, default=0
        Seed that decides which rows are held out.
    priors_of : {"population", "rows"}, default="population"
        What the class priors speak of.
    """
    set_names = _names_by_row(sets, len(inputs), "sets")
    client_names = [None] * len(set_names) if clients is None else _names_by_row(clients, len(inputs), "clients")
    rows_by_client: dict[Hashable, list[int]] = {}
    for row, client in enumerate(client_names):
        rows_by_client.setdefault(client, []).append(row)
    result = []
    for client, rows in rows_by_client.items():
        numbers: dict[Hashable, int] = {}
        for row in rows:
            numbers.setdefault(set_names[row], len(numbers))
        result.append(
            UnlabeledSets.from_arrays(
                ONLY_CLIENT if len(rows_by_client) == 1 else str(client),
                inputs,
                [numbers[set_names[row]] for row in rows],
                np.stack([priors.of(client, name) for name in numbers]),
                rows=rows,
                held_out=held_out,
                seed=seed,
                set_names=[str(name) for name in numbers],
                priors_of=priors_of,
            )
        )
    return result


def order_by_class(shares: Any, classes: NDArray[Any], where: str) -> Any:
    """Return a mapping {class: share} as a list in the order of the classes; other values as they are."""
    if not hasattr(shares, "items"):
        return shares
    given, names = dict(shares.items()), classes.tolist()
    for name in given:
        if name not in names:
            raise unknown_name(f"class in {where}", str(name), map(str, names))
    return [given.get(name, 0.0) for name in names]


def has_labels(y: Any, sets: Any, priors: Any) -> bool:
    """Return whether rows come with labels, rather than with sets and class priors."""
    if y is not None and sets is None and priors is None:
        return True
    if y is None and sets is not None and priors is not None:
        return False
    if y is not None:
        raise InputError("give labels y, or sets and priors, not both.")
    missing = "priors" if sets is not None else "sets" if priors is not None else "sets and priors"
    raise InputError(
        f"{missing}: not given; name the set of each row and the class priors of the sets (in a grid search, first "
        "sklearn.set_config(enable_metadata_routing=True)), or give labels y."
    )


def resolve_test_prior(
    given: Any, known: PriorsByName, clients: Sequence[UnlabeledSets], classes: Sequence[Any] | None
) -> Any:
    """Return the shares of the test prior in the order of the sorted classes; None if it is uniform.

    Parameters
    ----------
    given : str, mapping, array-like or None
        The parameter `test_prior` of the estimator.
    known : PriorsByName
        Class priors with the sorted classes.
    clients : sequence of UnlabeledSets
        Clients whose mean class mix is the "natural" prior.
    classes : sequence, optional
        The parameter `classes` of the estimator.
    """
    if given is None or (isinstance(given, str) and given == "uniform"):
        return None
    if isinstance(given, str) and given == "natural":
        return pooled_class_mix(clients)
    in_order = classes is None or list(classes) == known.classes.tolist()
    if not hasattr(given, "items") and not in_order:
        raise InputError("test_prior: classes are sorted, so it is unclear whose each share is; give {class: share}.")
    return order_by_class(given, known.classes, "test_prior")


def _parse_priors(priors: Any, classes: Sequence[Any] | None) -> tuple[list[Any], list[Any], Any]:
    """Return the keys of the sets, the names of the classes, and the shares (M, K)."""
    if hasattr(priors, "columns") and hasattr(priors, "index"):  # a pandas DataFrame, without importing pandas
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
            f"class priors: {counted(shares.shape[1], 'column')} for {len(columns)} classes; give one column for each "
            f"of {_join_names(columns)}."
        )
    return list(range(len(shares))) if keys is None else keys, columns, shares


def _names_by_row(values: Any, rows: int, what: str) -> list[Hashable]:
    try:
        array = np.asarray(values, dtype=object)
    except ValueError:  # lists of different lengths
        array = np.empty((0, 0))
    if array.ndim != 1 or len(array) != rows:
        raise InputError(
            f"{what}: got shape {array.shape} for {counted(rows, 'row')}; give one name or number for each row."
        )
    names: list[Hashable] = array.tolist()
    for row, name in enumerate(names, start=1):
        if _is_missing(name):
            raise InputError(f"{what}: is missing in row {row}; give one for each row, or leave out the row.")
    return names


def _is_missing(name: Any) -> bool:
    try:
        return name is None or bool(name != name)  # only NaN differs from itself
    except TypeError:  # pandas.NA has no truth value
        return True


def _join_names(names: Iterable[Any]) -> str:
    known = [repr(name) for name in (names.tolist() if isinstance(names, np.ndarray) else names)]
    return ", ".join(known[:5]) + (f" and {len(known) - 5} more" if len(known) > 5 else "")
