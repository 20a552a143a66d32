"""The inputs of a federation on the device of a run and in one tensor, made once for all runs on the same inputs."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from fedul.core import Federation, Rows, compute_dtype

POOL_BYTES = 2**28
"""Largest size of inputs that are copied into one tensor: gathering rows from many tensors is slower than training."""


class SharedInputs:
    """Remembers what was made from inputs, so that federations with the same inputs share it."""

    def __init__(self) -> None:
        self._made: dict[Hashable, tuple[Sequence[Tensor], Tensor]] = {}  # with the inputs, so that ids stay theirs

    def pool(self, federation: Federation) -> Federation:
        """Return the federation with the inputs of all clients in one tensor, if they are small."""
        tensors = list(federation.columns.sources)
        if len(tensors) == 1 or sum(t.nbytes for t in tensors) > POOL_BYTES or len({t.dtype for t in tensors}) > 1:
            return federation
        sources = tuple(map(id, tensors))
        pooled = self._make(sources, tensors, lambda: torch.cat(tensors))
        starts = dict(zip(sources, accumulate((len(t) for t in tensors), initial=0), strict=False))
        clients = []
        for client in federation.clients:
            start = starts[id(client.inputs)]
            train, held_out = (Rows(rows.index + start, rows.sets) for rows in (client.train, client.held_out))
            clients.append(replace(client, inputs=pooled, train=train, held_out=held_out))
        return replace(federation, clients=clients)

    def move(self, federation: Federation, device: torch.device, precision: torch.dtype) -> Federation:
        """Return the federation with its inputs on a device, in a dtype that scales to the precision of the network.

        Inputs that clients share stay shared. If nothing has to be moved, the result is the federation itself, so that
        a memory-mapped file is not read.
        """

        def moved(inputs: Tensor) -> Tensor:
            dtype = inputs.dtype if compute_dtype(inputs) == precision else precision
            if inputs.device == device and inputs.dtype == dtype:
                return inputs
            return self._make((id(inputs), device, dtype), [inputs], lambda: inputs.to(device, dtype))

        clients: Any = federation.columns.moved(moved)
        return federation if clients is federation.clients else replace(federation, clients=clients)

    def _make(self, key: Hashable, sources: Sequence[Tensor], make: Callable[[], Tensor]) -> Tensor:
        if key not in self._made:
            self._made[key] = sources, make()
        return self._made[key][1]
