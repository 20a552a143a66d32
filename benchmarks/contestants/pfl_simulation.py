"""Apple's pfl: FederatedAveraging on its simulated backend, in one process or in two that torchrun starts.

pfl evaluates users before and after training in every n-th iteration, and always in the first: here in that one only,
which is part of the warm-up. It takes rows as the user's data set yields them, so they are shuffled where that is made.
It is given a fused optimiser, and tensors, of which it need not convert anything.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from contestants.turns import Turns, arguments
from work import Data, Work, make_data, network, training_loss


class Net(nn.Module):
    """A network with the methods that pfl asks of it."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def loss(self, inputs: Tensor, labels: Tensor) -> Tensor:
        return functional.cross_entropy(self.inner(inputs), labels)

    def metrics(self, inputs: Tensor, labels: Tensor) -> dict[str, Any]:
        from pfl.metrics import Weighted

        return {"rows": Weighted(len(labels), 1)}


class Line:
    """Turns of one process, or of several that do what the first is told."""

    def __init__(self, turns: Turns | None) -> None:
        self._turns = turns
        self.number = 0

    def go_on(self) -> bool:
        """Whether there is another round, in all processes alike."""
        word = torch.tensor([int(self._turns.go_on()) if self._turns else 0])
        if torch.distributed.is_initialized():
            torch.distributed.broadcast(word, 0)
        self.number += 1
        return bool(word)

    def finish(self, work: Work, rows: Data, module: nn.Module) -> None:
        if self._turns:
            self._turns.finish(training_loss(work, rows, module), data=rows.source)


def federate(work: Work, rows: Data, inner: nn.Module, line: Line) -> None:
    """pfl's own loop, which waits for its turn between two iterations."""
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.callback.base import TrainingProcessCallback
    from pfl.data.dataset import Dataset
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.hyperparam import NNTrainHyperParams
    from pfl.metrics import Metrics
    from pfl.model.pytorch import PyTorchModel

    class Wait(TrainingProcessCallback):
        def after_central_iteration(self, *_: Any, **__: Any) -> tuple[bool, Any]:
            return not line.go_on(), Metrics()

    users = _Cohorts(work, line)

    def user_data(client: int) -> Dataset:
        order = work.order(line.number, client)
        return Dataset(rows.rows_of(work, client, order), user_id=work.name_of(client))

    net = Net(inner).train()
    maker = torch.optim.SGD if work.optimizer == "sgd" else torch.optim.Adam
    model = PyTorchModel(
        net,
        local_optimizer_create=functools.partial(maker, fused=True),
        central_optimizer=torch.optim.SGD(net.parameters(), lr=1.0),
    )
    backend = SimulatedBackend(training_data=FederatedDataset(user_data, users), val_data=None)
    parameters = NNAlgorithmParams(
        central_num_iterations=2**31,
        evaluation_frequency=2**31,
        train_cohort_size=work.a_round,
        val_cohort_size=None,
    )
    local = NNTrainHyperParams(local_batch_size=work.batch, local_num_epochs=1, local_learning_rate=work.rate)
    line.go_on()
    FederatedAveraging().run(parameters, backend, model, local, callbacks=[Wait()], send_metrics_to_platform=False)


class _Cohorts:
    """pfl's user sampler: the next client of the round's cohort.

    With two processes both draw all users and take every other one; where the cohort is odd one has drawn more than the
    other, so every round begins anew.
    """

    def __init__(self, work: Work, line: Line) -> None:
        self._work, self._line = work, line
        self._round = 0
        self._left: Iterator[int] = iter(())

    def __call__(self) -> int:
        if self._round != self._line.number:
            self._round = self._line.number
            self._left = iter(self._work.cohort_of(self._round))
        return next(self._left, 0)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--threads", type=int, default=1, help="threads inside an operation")
    told = parser.parse_args()
    turns = Turns() if os.environ.get("RANK", "0") == "0" else None
    torch.set_num_threads(told.threads)
    rows, inner = make_data(told.work), network(told.work)
    line = Line(turns)
    federate(told.work, rows, inner, line)
    line.finish(told.work, rows, inner)


if __name__ == "__main__":
    main()
