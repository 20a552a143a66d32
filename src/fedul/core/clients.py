"""The clients of a federation: a tuple of objects, or a table whose objects are made when they are asked for.

Both have the same attributes, so that nothing loops over a million objects.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from torch import Tensor

from fedul.core.inputs import Index, inputs_digest, memory_key
from fedul.core.prior_scope import PriorScope
from fedul.core.priors import Matrix
from fedul.core.unlabeled_sets import UnlabeledSets, pooled_class_mix

Move = Callable[[Tensor], Tensor]
"""Function that returns inputs on another device or in another dtype; the same tensor if nothing has to change."""


class Clients(Protocol):
    """The clients of a federation, and figures of all of them."""

    @property
    def names(self) -> Sequence[str]:
        """Name of every client."""

    @property
    def sources(self) -> Sequence[Tensor]:
        """The different inputs."""

    @property
    def train_rows(self) -> Index:
        """Number of training rows of every client (C,)."""

    @property
    def held_out_rows(self) -> Index:
        """Number of held-out rows of every client (C,)."""

    @property
    def priors(self) -> Sequence[Matrix]:
        """Class priors (M, K) of every client."""

    @property
    def set_rows(self) -> Index:
        """Number of training rows in every set, one client after another (S,)."""

    @property
    def stacked_priors(self) -> Matrix:
        """Class priors of every set, one client after another (S, K)."""

    @property
    def class_mix(self) -> Matrix:
        """Class mix (K,) of the training rows of all clients."""

    @property
    def labelled_rows(self) -> int:
        """Number of rows whose label is known."""

    def named(self, name: str) -> UnlabeledSets:
        """Return the client with this name."""

    def moved(self, move: Move) -> Clients:
        """Return the clients with their inputs moved; the same object if nothing changes."""

    def with_priors(self, priors: Matrix, noise: float) -> Clients:
        """Return the clients with other class priors (S, K), whose class counts have noise of this deviation."""

    def digest_parts(self) -> Iterator[bytes]:
        """Yield the bytes of all clients, sorted by name, for a fingerprint."""


class ClientList(tuple[UnlabeledSets, ...]):
    """Clients as objects. Inputs over the same memory are the same tensor.

    Code that converts, moves or hashes inputs then recognises by the tensor what it has done already.
    """

    def __new__(cls, clients: Iterable[UnlabeledSets]) -> ClientList:
        return super().__new__(cls, _with_shared_inputs(clients))

    @property
    def names(self) -> Sequence[str]:
        return [client.name for client in self]

    @property
    def sources(self) -> Sequence[Tensor]:
        return list({id(client.inputs): client.inputs for client in self}.values())

    @property
    def train_rows(self) -> Index:
        return np.array([len(client.train) for client in self])

    @property
    def held_out_rows(self) -> Index:
        return np.array([len(client.held_out) for client in self])

    @property
    def priors(self) -> Sequence[Matrix]:
        return [client.priors for client in self]

    @property
    def set_rows(self) -> Index:
        return np.concatenate([np.bincount(c.train.sets.numpy(), minlength=len(c.priors)) for c in self])

    @property
    def stacked_priors(self) -> Matrix:
        return np.concatenate(self.priors)

    @property
    def class_mix(self) -> Matrix:
        return pooled_class_mix(self)

    @property
    def labelled_rows(self) -> int:
        return sum(client.labelled_rows for client in self)

    @cached_property
    def _by_name(self) -> dict[str, UnlabeledSets]:
        return {client.name: client for client in self}

    def named(self, name: str) -> UnlabeledSets:
        return self._by_name[name]

    def moved(self, move: Move) -> ClientList:
        inputs = {id(source): move(source) for source in self.sources}
        if all(inputs[id(client.inputs)] is client.inputs for client in self):
            return self
        return ClientList(_with_inputs(client, inputs[id(client.inputs)]) for client in self)

    def with_priors(self, priors: Matrix, noise: float) -> ClientList:
        ends = np.cumsum([len(client.priors) for client in self])
        parts = np.split(priors, ends[:-1])
        return ClientList(
            replace(client, priors=part, prior_scope=replace(client.prior_scope, noise=noise))
            for client, part in zip(self, parts, strict=True)
        )

    def digest_parts(self) -> Iterator[bytes]:
        hashed = {id(source): inputs_digest(source) for source in self.sources}
        for client in sorted(self, key=lambda client: client.name):
            yield repr((client.name, client.inputs.shape, client.inputs.dtype)).encode()
            yield hashed[id(client.inputs)]
            for rows in (client.train, client.held_out):
                yield repr(len(rows)).encode()
                yield rows.index.numpy().tobytes()
                yield rows.sets.numpy().tobytes()
            yield client.priors.tobytes()
            if client.prior_scope != PriorScope():  # the fingerprint of earlier versions otherwise
                yield repr(client.prior_scope).encode()


def _with_shared_inputs(clients: Iterable[UnlabeledSets]) -> Iterator[UnlabeledSets]:
    known: dict[tuple[Any, ...], Tensor] = {}
    for client in clients:
        shared = known.setdefault(memory_key(client.inputs), client.inputs)
        yield client if shared is client.inputs else _with_inputs(client, shared)


def _with_inputs(client: UnlabeledSets, inputs: Tensor) -> UnlabeledSets:
    client = copy.copy(client)  # not `replace`, which would check all its rows once more
    object.__setattr__(client, "inputs", inputs)
    return client
