"""Apple's pfl: FederatedAveraging on its simulated backend, in one process or in two that torchrun starts.

pfl evaluates users before and after training in every n-th iteration, and always in the first. Here it evaluates only
in the first one, which is part of the warm-up. pfl takes rows in the order of the user's data set, so they are shuffled
when it is built. It gets a fused optimizer, and tensors that need no conversion.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from simulators.protocol import RoundTimer, make_parser
from workload import Data, Workload, build_network, check_outputs, make_data


class PflModel(nn.Module):
    """A network with the methods that pfl requires."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def loss(self, inputs: Tensor, labels: Tensor) -> Tensor:
        return functional.cross_entropy(self.inner(inputs), labels)

    def metrics(self, inputs: Tensor, labels: Tensor) -> dict[str, Any]:
        from pfl.metrics import Weighted

        return {"rows": Weighted(len(labels), 1)}


class SharedTimer:
    """The round timer of rank 0, whose requests all ranks follow.

    Parameters
    ----------
    timer : RoundTimer or None
        The timer in rank 0; None in other ranks.
    """

    def __init__(self, timer: RoundTimer | None) -> None:
        self._timer = timer
        self.round = 0

    def next_round(self) -> bool:
        """Return whether there is another round, the same in all ranks."""
        request = torch.tensor([int(self._timer.next_round()) if self._timer else 0])
        if torch.distributed.is_initialized():
            torch.distributed.broadcast(request, 0)
        self.round += 1
        return bool(request)

    def report(self, data: Data, module: nn.Module) -> None:
        """Let rank 0 report the outputs of the module."""
        if self._timer:
            self._timer.outputs = lambda: check_outputs(data, module)

    def finish(self, data: Data) -> None:
        """Report the source of the data, in rank 0."""
        if self._timer:
            self._timer.finish(data.source)


def run_pfl(workload: Workload, data: Data, inner: nn.Module, timer: SharedTimer) -> None:
    """Run pfl's own loop, which waits for a request between two iterations."""
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
            return not timer.next_round(), Metrics()

    users = _UserSampler(workload, timer)

    def user_data(client: int) -> Dataset:
        order = workload.row_order(timer.round, client)
        return Dataset(data.client_rows(workload, client, order), user_id=workload.client_name(client))

    net = PflModel(inner).train()
    optimizer = torch.optim.SGD if workload.optimizer == "sgd" else torch.optim.Adam
    model = PyTorchModel(
        net,
        local_optimizer_create=functools.partial(optimizer, fused=True),
        central_optimizer=torch.optim.SGD(net.parameters(), lr=1.0),
    )
    backend = SimulatedBackend(training_data=FederatedDataset(user_data, users), val_data=None)
    parameters = NNAlgorithmParams(
        central_num_iterations=2**31,
        evaluation_frequency=2**31,
        train_cohort_size=workload.clients_per_round,
        val_cohort_size=None,
    )
    local = NNTrainHyperParams(local_batch_size=workload.batch, local_num_epochs=1, local_learning_rate=workload.rate)
    timer.next_round()
    FederatedAveraging().run(parameters, backend, model, local, callbacks=[Wait()], send_metrics_to_platform=False)


class _UserSampler:
    """Returns the next participant of the round, for pfl.

    With two processes, both sample all users and use every other one. With an odd number of participants one process
    samples more than the other, so the sampler restarts in every round.
    """

    def __init__(self, workload: Workload, timer: SharedTimer) -> None:
        self._workload, self._timer = workload, timer
        self._round = 0
        self._remaining: Iterator[int] = iter(())

    def __call__(self) -> int:
        if self._round != self._timer.round:
            self._round = self._timer.round
            self._remaining = iter(self._workload.participants_of(self._round))
        return next(self._remaining, 0)


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--threads", type=int, default=1, help="threads of an operation")
    arguments = parser.parse_args()
    workload = arguments.workload
    timer = SharedTimer(RoundTimer() if os.environ.get("RANK", "0") == "0" else None)
    torch.set_num_threads(arguments.threads)
    data, module = make_data(workload), build_network(workload)
    timer.report(data, module)
    run_pfl(workload, data, module, timer)
    timer.finish(data)


if __name__ == "__main__":
    main()
