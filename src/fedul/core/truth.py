"""Studies, and the truth of research data, which is separate from what clients hold.

Only evaluation and methods that declare `needs_truth` receive a `Truth`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedul.config import IN_MEMORY
from fedul.core.federation import Federation
from fedul.core.priors import Matrix
from fedul.core.reading import ColumnReading
from fedul.errors import InputError, wrong_type

Labels = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Truth:
    """True labels, which exist only in research data.

    Parameters
    ----------
    test_inputs : Tensor of shape (T, ...)
        Test rows.
    test_labels : ndarray of shape (T,)
        Their classes.
    test_clients : ndarray of shape (T,)
        Number of the client that each test row is assigned to, as in the paper's tables.
    train_labels, held_out_labels : mapping of str to ndarray of shape (n,)
        By client, the classes of its training and held-out rows, in their order.

    Examples
    --------
    >>> import fedul
    >>> truth = fedul.load("digits", clients=2, rows=400).truth
    >>> {name: len(labels) for name, labels in truth.train_labels.items()}
    {'client-1': 160, 'client-2': 160}
    """

    test_inputs: Tensor
    test_labels: Labels
    test_clients: Labels
    train_labels: Mapping[str, Labels]
    held_out_labels: Mapping[str, Labels]


@dataclass(frozen=True, eq=False, repr=False)
class Study:
    """A federation, where it comes from, and its truth if it is research data.

    Parameters
    ----------
    federation : Federation
        The clients and what they share.
    truth : Truth or None
        True labels of research data.
    origin : mapping of str to object
        Options of `fedul.load` that give this study, JSON-serializable, with absolute paths. Empty for a federation
        that was built in Python.
    warnings : sequence of str
        What a user should know about the data, one sentence each.
    prior_counts : mapping of str to ndarray of shape (M,)
        By client, the number of counted cases that the priors of each set are as certain as; infinity means exact.
    true_labels : mapping of str to tuple of ndarray, or None
        By client, the true classes of its training and of its held-out rows, from the truth column of a user's table.
        They are used in evaluation only.
    columns : sequence of ColumnReading
        How the columns of a user's table were read; empty for other data.
    priors_unit : str
        What the numbers of a table of class priors are: proportions, percentages or counts; empty without a table.

    Examples
    --------
    >>> import fedul
    >>> study = fedul.load("digits", clients=2, sets=10, rows=400)
    >>> study.federation.clients[0].priors.shape
    (10, 10)
    """

    federation: Federation
    truth: Truth | None
    origin: Mapping[str, Any] = field(default_factory=dict)
    warnings: Sequence[str] = ()
    prior_counts: Mapping[str, Matrix] = field(default_factory=dict)
    true_labels: Mapping[str, tuple[Labels, Labels]] | None = None
    columns: Sequence[ColumnReading] = ()
    priors_unit: str = ""

    def __post_init__(self) -> None:
        truth = self.truth
        if truth is None:
            return
        for client in self.federation.clients:
            for rows, labels in ((client.train, truth.train_labels), (client.held_out, truth.held_out_labels)):
                count = len(labels.get(client.name, ()))
                if count != len(rows):
                    raise InputError(f"client '{client.name}': {len(rows)} rows but {count} labels; give one for each.")

    @classmethod
    def of(cls, data: Study | Federation) -> Study:
        """Return a federation as a study without truth, and a study as it is."""
        if isinstance(data, Federation):
            return cls(data, None)
        if not isinstance(data, Study):
            raise wrong_type("data", "a Federation or what fedul.load returns", data)
        return data

    def __repr__(self) -> str:
        return repr(self.federation).replace("Federation", "Study", 1)

    @property
    def reloadable(self) -> bool:
        """Whether `fedul.load` with the options of `origin` gives this study again."""
        return bool(self.origin) and IN_MEMORY not in (self.origin.get("data"), self.origin.get("priors"))
