"""A manual federated loop: what a careful engineer writes in plain torch for this task."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from simulators.protocol import RoundTimer, make_parser
from workload import Data, Workload, build_network, make_data, training_loss


def local_epoch(workload: Workload, module: nn.Module, inputs: Tensor, labels: Tensor) -> None:
    """Run the local steps of one client, from the weights in the module."""
    optimizer = workload.make_optimizer(module)
    for x, y in zip(inputs.split(workload.batch), labels.split(workload.batch), strict=True):
        optimizer.zero_grad()
        functional.cross_entropy(module(x), y).backward()
        optimizer.step()


def federated_round(workload: Workload, data: Data, module: nn.Module, number: int) -> None:
    """Train every participant from the weights of the module, and set the module to their mean."""
    module.train()
    live = {name: tensor for name, tensor in module.state_dict().items() if tensor.is_floating_point()}
    start = {name: tensor.clone() for name, tensor in live.items()}
    total = {name: torch.zeros_like(tensor) for name, tensor in live.items()}
    participants = workload.participants_of(number)
    for client in participants:
        for name, tensor in live.items():
            tensor.copy_(start[name])
        local_epoch(workload, module, *data.client_rows(workload, client, workload.row_order(number, client)))
        for name, tensor in live.items():
            total[name] += tensor
    for name, tensor in live.items():
        tensor.copy_(total[name] / len(participants))


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--threads", type=int, required=True, help="threads of an operation")
    arguments = parser.parse_args()
    workload, timer = arguments.workload, RoundTimer()
    torch.set_num_threads(arguments.threads)
    data, module = make_data(workload), build_network(workload)
    while timer.next_round():
        federated_round(workload, data, module, timer.round)
    timer.finish(training_loss(workload, data, module), data.source)


if __name__ == "__main__":
    main()
