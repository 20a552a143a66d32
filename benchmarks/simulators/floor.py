"""The arithmetic of a round and nothing else: the batched products of all local steps of a network of two dense layers.

Forward and backward of every step with the shapes of the workload, in the arrangement of fedul's engine. Rows are read
where they are, results are written to the same tensors every time, and there is no loss, no bias, no activation, no
optimizer and no aggregation. Each thread has its part of the clients. The weights do not change.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import torch

from fedul.methods.task import step_sizes
from simulators.protocol import RoundTimer, make_parser
from workload import CLASSES, Data, Workload, make_data

CHUNK = 100
"""Clients of a product, at most."""


class Products:
    """The products of the local steps of some clients.

    Parameters
    ----------
    workload : Workload
        The shapes.
    data : Data
        The rows of all clients.
    first, last : int
        The clients, without the last.
    """

    def __init__(self, workload: Workload, data: Data, first: int, last: int) -> None:
        clients, width, columns = last - first, workload.width, workload.shape[0]
        rows = data.inputs[first * workload.rows : last * workload.rows].view(clients, workload.rows, columns)
        self._steps = [
            (inputs, torch.randn(clients, CLASSES, inputs.shape[1]))  # with gradients of the logits
            for inputs in rows.split(list(step_sizes(workload.rows, workload.batch)), dim=1)
        ]
        self._first, self._second = torch.randn(clients, width, columns), torch.randn(clients, CLASSES, width)
        self._of_first, self._of_second = torch.empty_like(self._first), torch.empty_like(self._second)
        shapes = {inputs.shape[1] for inputs, _ in self._steps}
        self._hidden = {n: torch.empty(clients, n, width) for n in shapes}
        self._of_hidden = {n: torch.empty(clients, n, width) for n in shapes}
        self._logits = {n: torch.empty(clients, CLASSES, n) for n in shapes}

    def run(self) -> None:
        """Compute the products of all steps."""
        torch.set_num_threads(1)  # of this thread
        for inputs, gradient in self._steps:
            n = inputs.shape[1]
            hidden, of_hidden = self._hidden[n], self._of_hidden[n]
            torch.bmm(inputs, self._first.mT, out=hidden)
            torch.bmm(self._second, hidden.mT, out=self._logits[n])
            torch.bmm(gradient, hidden, out=self._of_second)
            torch.bmm(gradient.mT, self._second, out=of_hidden)
            torch.bmm(of_hidden.mT, inputs, out=self._of_first)


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--threads", type=int, required=True, help="threads, each with a part of the clients")
    arguments = parser.parse_args()
    workload, timer = arguments.workload, RoundTimer()
    if workload.network != "mlp":
        timer.unavailable("the floor is that of a network of two dense layers")
    data, clients = make_data(workload), workload.clients_per_round
    # The same number of parts for each thread.
    parts = min(math.ceil(clients / CHUNK / arguments.threads) * arguments.threads, clients)
    bounds = [round(i * clients / parts) for i in range(parts + 1)]
    products = [Products(workload, data, *pair) for pair in pairwise(bounds)]
    with ThreadPoolExecutor(arguments.threads) as pool:
        while timer.next_round():
            list(pool.map(Products.run, products))
    timer.finish(data.source)


if __name__ == "__main__":
    main()
