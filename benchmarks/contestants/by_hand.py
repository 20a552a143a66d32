"""A federated loop written by hand: what a careful engineer writes in plain torch for this one task."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from contestants.turns import Turns, arguments
from work import Data, Work, make_data, network, training_loss


def local_epoch(work: Work, module: nn.Module, inputs: Tensor, labels: Tensor) -> None:
    """One client's steps, from the weights that are in the module."""
    optimizer = work.optimizer_for(module)
    for x, y in zip(inputs.split(work.batch), labels.split(work.batch), strict=True):
        optimizer.zero_grad()
        functional.cross_entropy(module(x), y).backward()
        optimizer.step()


def federated_round(work: Work, rows: Data, module: nn.Module, number: int) -> None:
    """Every client of the cohort trains from the module's weights; then the module has their mean."""
    module.train()
    live = {name: tensor for name, tensor in module.state_dict().items() if tensor.is_floating_point()}
    start = {name: tensor.clone() for name, tensor in live.items()}
    total = {name: torch.zeros_like(tensor) for name, tensor in live.items()}
    cohort = work.cohort_of(number)
    for client in cohort:
        for name, tensor in live.items():
            tensor.copy_(start[name])
        local_epoch(work, module, *rows.rows_of(work, client, work.order(number, client)))
        for name, tensor in live.items():
            total[name] += tensor
    for name, tensor in live.items():
        tensor.copy_(total[name] / len(cohort))


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--threads", type=int, required=True, help="threads inside an operation")
    told = parser.parse_args()
    turns = Turns()
    torch.set_num_threads(told.threads)
    rows, module = make_data(told.work), network(told.work)
    while turns.go_on():
        federated_round(told.work, rows, module, turns.number)
    turns.finish(training_loss(told.work, rows, module), data=rows.source)


if __name__ == "__main__":
    main()
