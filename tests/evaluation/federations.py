"""Federations whose priors are all that matters: rows are zeros, dealt to the sets as asked."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import ArrayLike

from fedul.federation import Federation, UnlabeledSets


def client(name: str, priors: ArrayLike, rows: int | Sequence[int] = 100, names: Sequence[str] = ()) -> UnlabeledSets:
    """A client with so many rows in each set."""
    sets = len(np.asarray(priors))
    counts = [rows] * sets if isinstance(rows, int) else rows
    numbers = np.repeat(np.arange(sets), counts)
    return UnlabeledSets.from_arrays(name, torch.zeros(len(numbers), 1), numbers, priors, held_out=0, set_names=names)


def federation(*clients: UnlabeledSets, classes: Sequence[str] = (), test_prior: ArrayLike | None = None) -> Federation:
    named = classes or [f"class {k}" for k in range(clients[0].priors.shape[1])]
    return Federation(clients, named, None if test_prior is None else np.asarray(test_prior))
