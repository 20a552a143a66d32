"""The held-out rows that the simulation evaluates after every round.

If all clients take part in every round, all their held-out rows are evaluated. Otherwise a fixed sample may do, as many
rows as a round trains on and at least `FEWEST_EVALUATED`: a round of few clients of very many then costs the same
however many there are. Rounds are still compared on the same rows, by paired differences. Their standard error is that
of the sample: with 40,000 rows 1/200 of the deviation of a single difference.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from fedul._utils.randomness import torch_generator
from fedul.config import TrainConfig
from fedul.core import Federation, Index, Rows, compute_dtype
from fedul.core.client_table import ClientTable
from fedul.engines.held_out_rows import HeldOutRows, spread
from fedul.methods.fedul import set_task

FEWEST_EVALUATED = 40_000
"""Held-out rows that are evaluated in any case, if there are as many."""


def held_out_rows(federation: Federation, config: TrainConfig) -> HeldOutRows:
    """Return the held-out rows to evaluate, of clients in the order of their names."""
    clients = federation.clients
    order = np.array(sorted(range(len(clients)), key=federation.columns.names.__getitem__))
    ends = federation.columns.held_out_rows[order].cumsum()
    total, share = int(ends[-1]), config.participants(len(clients)) / len(clients)
    count = total if share == 1 else min(total, max(FEWEST_EVALUATED, int(share * federation.columns.train_rows.sum())))
    places = np.arange(total)
    if count < total:
        places = spread(total, count, torch_generator(config.seed, "evaluated rows")).numpy()
    owner = np.searchsorted(ends, places, side="right")
    places -= np.append(0, ends)[owner]  # in the held-out rows of the client
    if isinstance(clients, ClientTable):
        return _of_table(clients, federation, order[owner], places)
    chosen, first = np.unique(owner, return_index=True)
    tasks = []
    for c, some in zip(order[chosen].tolist(), np.split(places, first[1:]), strict=False):
        client, at = clients[c], torch.from_numpy(some)
        tasks.append(set_task(client, Rows(client.held_out.index[at], client.held_out.sets[at]), federation.spec))
    return HeldOutRows.of_tasks(tasks)


def _of_table(clients: ClientTable, federation: Federation, owner: Index, places: Index) -> HeldOutRows:
    """Return held-out rows of a table: the client (n,) of each row, and its place in the client's held-out rows."""
    at = torch.from_numpy(clients.held_out_starts[owner] + places)
    chosen, number = np.unique(owner, return_inverse=True)
    starts = clients.set_starts[chosen]
    counts = clients.set_starts[chosen + 1] - starts
    first = np.append(0, counts.cumsum())
    sets = np.arange(first[-1]) + np.repeat(starts - first[:-1], counts)  # all sets of these clients
    train = clients.train_rows[chosen].repeat(counts)
    joint, marginal = _stacked_transition(
        torch.from_numpy(clients.stacked_priors[sets]),
        torch.from_numpy(clients.set_rows[sets] / train),
        torch.from_numpy(federation.test_prior),
        torch.from_numpy(np.repeat(np.arange(len(chosen)), counts)),
    )
    device, dtype = clients.inputs.device, compute_dtype(clients.inputs)
    return HeldOutRows(
        [(clients.inputs, clients.held_out.index[at].to(device))] if len(at) else [],
        (clients.held_out.sets[at] + torch.from_numpy(first[number])).to(device),
        joint.to(device, dtype),
        marginal.to(device, dtype),
        federation.scaling,
    )


def _stacked_transition(
    priors: Tensor, set_priors: Tensor, test_prior: Tensor, client: Tensor
) -> tuple[Tensor, Tensor]:
    """Return `Transition.joint` and `Transition.marginal` (S, K) of the sets of many clients, in float64."""
    weighted = set_priors[:, None] * priors
    totals = weighted.new_zeros(int(client[-1]) + 1 if len(client) else 0, priors.shape[1]).index_add_(
        0, client, weighted
    )
    log_test = test_prior.log()
    return weighted.log() - log_test, (totals.log() - log_test)[client]
