"""A manual federated loop: what a careful engineer writes in plain torch for this task.

With `--precision bfloat16` it uses torch.autocast and channels last. With `--fault` it does the work wrongly, once: so
the benchmark knows how far a faulty simulator is from the others, and that its check finds one.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from simulators.protocol import RoundTimer, make_parser
from workload import Data, Workload, build_network, check_outputs, make_data

FAULTS = ("skip", "order", "rate")
"""A client is skipped, rows are in another order, or the learning rate is a quarter too large."""


def local_epoch(
    workload: Workload, module: nn.Module, inputs: Tensor, labels: Tensor, precision: str = "float32"
) -> None:
    """Run the local steps of one client, from the weights in the module."""
    optimizer = workload.make_optimizer(module)
    for x, y in zip(inputs.split(workload.batch), labels.split(workload.batch), strict=True):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
            logits = module(x)
        functional.cross_entropy(logits.float(), y).backward()
        optimizer.step()


def federated_round(
    workload: Workload, data: Data, module: nn.Module, number: int, precision: str = "float32", fault: str = ""
) -> None:
    """Train every participant from the weights of the module, and set the module to their mean."""
    module.train()
    live = {name: tensor for name, tensor in module.state_dict().items() if tensor.is_floating_point()}
    start = {name: tensor.clone() for name, tensor in live.items()}
    total = {name: torch.zeros_like(tensor) for name, tensor in live.items()}
    participants = workload.participants_of(number)[1 if fault == "skip" else 0 :]
    order_of = number + 1 if fault == "order" else number
    if fault == "rate":
        workload = replace(workload, rate=1.25 * workload.rate)
    for client in participants:
        for name, tensor in live.items():
            tensor.copy_(start[name])
        rows = data.client_rows(workload, client, workload.row_order(order_of, client))
        local_epoch(workload, module, *rows, precision)
        for name, tensor in live.items():
            total[name] += tensor
    for name, tensor in live.items():
        tensor.copy_(total[name] / len(participants))


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--threads", type=int, required=True, help="threads of an operation")
    parser.add_argument("--precision", default="float32", choices=("float32", "bfloat16"))
    parser.add_argument("--fault", default="", choices=FAULTS, help="run one round with this fault")
    arguments = parser.parse_args()
    workload = arguments.workload
    timer = RoundTimer(warm_up_rounds=1) if arguments.fault else RoundTimer()
    torch.set_num_threads(arguments.threads)
    data, module = make_data(workload), build_network(workload)
    if arguments.precision == "bfloat16":
        module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    timer.outputs = lambda: check_outputs(data, module)
    while timer.next_round():
        federated_round(workload, data, module, timer.round, arguments.precision, arguments.fault)
    timer.finish(data.source)


if __name__ == "__main__":
    main()
