"""Canaries: rows that an auditor adds to the sets of the clients of a run, each with probability 1/2.

A canary is a random pattern: each value is the smallest or the largest of its column, by a coin. Canaries are dealt to
clients and sets in turn, so each is in one set. With private rows, numbers of rows are public and the guarantee is
about replacing a row with one that contributes nothing: a canary that is left out is a row that is not a number, which
contributes nothing to any gradient (`fedul.privacy.row_privacy`). Otherwise it is absent.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedul._utils.randomness import numpy_generator, torch_generator
from fedul.core import Federation, Index, Rows, compute_dtype

MOST_ROWS = 4096
"""Rows that smallest and largest values are taken from."""


NO_ROWS = Rows(torch.zeros(0, dtype=torch.int64), torch.zeros(0, dtype=torch.int64))


@dataclass(frozen=True, eq=False)
class Canaries:
    """Canaries of a run.

    Parameters
    ----------
    federation : Federation
        The clients with those canaries that were drawn.
    complete : Federation
        The clients with all canaries: what the attacker knows.
    included : ndarray of shape (m,), bool
        Whether each canary was drawn: what the attacker guesses.
    client : ndarray of shape (m,)
        Number of the client of each canary.
    """

    federation: Federation
    complete: Federation
    included: NDArray[np.bool_]
    client: Index

    def __len__(self) -> int:
        return len(self.included)

    def of_client(self, number: int) -> Index:
        """Return the numbers of the canaries of a client, in the order of its rows, of which they are the last."""
        return np.flatnonzero(self.client == number)


def add_canaries(federation: Federation, count: int, seed: int, *, leaves_gaps: bool) -> Canaries:
    """Return a federation with canaries.

    Parameters
    ----------
    federation : Federation
        The clients. Rows that are held out are left out: the run delivers its last round.
    count : int
        Number of canaries.
    seed : int
        Seed of the patterns, and of which canaries are included.
    leaves_gaps : bool
        Whether a canary that is not included is a row that contributes nothing, so that numbers of rows stay.
    """
    clients = list(federation.clients)
    generator = numpy_generator(seed, "canaries")
    included = generator.random(count) < 0.5
    owner = np.arange(count) % len(clients)
    patterns = _patterns(federation, count, seed)
    drawn, complete = [], []
    for number, client in enumerate(clients):
        mine = np.flatnonzero(owner == number)
        at = torch.from_numpy(mine)
        different, place = torch.unique(client.train.index, return_inverse=True)  # a row may be in several sets
        own = client.inputs[different].to(patterns.dtype)
        every = torch.cat([own, patterns[at]])
        index = torch.cat([place, torch.arange(len(own), len(every))])
        sets = torch.cat([client.train.sets, torch.arange(len(mine)) % len(client.priors)])
        whole = replace(client, inputs=every, train=Rows(index, sets), held_out=NO_ROWS)
        complete.append(whole)
        left_out = torch.from_numpy(~included[mine])
        if leaves_gaps:
            gaps = every.clone()
            gaps[len(own) :][left_out] = torch.nan
            drawn.append(replace(whole, inputs=gaps))
        else:
            present = torch.cat([torch.ones(len(place), dtype=torch.bool), ~left_out])
            drawn.append(replace(whole, train=Rows(index[present], sets[present])))
    return Canaries(replace(federation, clients=drawn), replace(federation, clients=complete), included, owner)


def _patterns(federation: Federation, count: int, seed: int) -> Tensor:
    """Return random patterns (m, ...), of the smallest and largest values of each column."""
    client = federation.clients[0]
    dtype = compute_dtype(client.inputs)
    some = torch.cat([c.inputs[c.train.index[: 1 + MOST_ROWS // len(federation.clients)]] for c in federation.clients])
    low, high = some.amin(0).to(dtype), some.amax(0).to(dtype)
    # A column with one value would carry nothing.
    high = torch.where(high > low, high, low + 1)
    coins = torch.rand((count, *low.shape), generator=torch_generator(seed, "canary patterns"))
    return torch.where(coins < 0.5, low, high)
