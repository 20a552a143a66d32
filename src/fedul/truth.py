"""The truth that research data has, apart from what clients own.

Only the evaluation and the method called `supervised` accept a `Truth`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedul.errors import InputError
from fedul.federation import Federation
from fedul.priors import Matrix

Labels = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Truth:
    """Labels, which exist only in research data: of a test population, and of the clients' rows."""

    test_inputs: Tensor  # (T, ...)
    test_labels: Labels  # (T,)
    test_clients: Labels  # (T,): test rows are dealt out to clients too, as the paper's tables do
    train_labels: Mapping[str, Labels]  # client name -> (n,), in the order of its training rows
    held_out_labels: Mapping[str, Labels]


@dataclass(frozen=True, eq=False)
class Study:
    """A federation and where it is from; if its data is labelled, as in research, with the truth kept beside it."""

    federation: Federation
    truth: Truth | None
    origin: Mapping[str, Any] = field(default_factory=dict)  # the options it was made with, for the record of a run
    remarks: Sequence[str] = ()  # what a user should know of the data
    # By client, as sure as counts of so many cases would make the priors of each set (M,); infinity is certain.
    prior_counts: Mapping[str, Matrix] = field(default_factory=dict)

    def __post_init__(self) -> None:
        truth = self.truth
        if truth is None:
            return
        for client in self.federation.clients:
            for rows, labels in ((client.train, truth.train_labels), (client.held_out, truth.held_out_labels)):
                found = len(labels.get(client.name, ()))
                if found != len(rows):
                    raise InputError(f"client '{client.name}': {len(rows)} rows but {found} labels; give one for each.")
