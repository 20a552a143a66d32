"""The simulation engine of fedul as `fedul.train` uses it, without evaluation and files."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from fedul._utils.hardware import default_threads, torch_threads
from fedul._utils.randomness import numpy_generator
from fedul.algorithms.fedavg import FedAvg
from fedul.config import TrainConfig
from fedul.core import Federation, Rows, Scaling, Truth, UnlabeledSets, Weights, priors
from fedul.engines.base import Broadcast
from fedul.engines.simulation.engine import SimulationEngine
from fedul.errors import InputError
from fedul.methods.fedul import FedUL
from fedul.methods.supervised import Supervised
from fedul.models.weights import load_weights, weights_of
from simulators.protocol import RoundTimer, make_parser
from workload import CLASSES, SEED, Data, Workload, build_network, check_outputs, make_data


class FedulSimulator:
    """Rounds as fedul computes them.

    Parameters
    ----------
    workload : Workload
        The rounds to run.
    data : Data
        The rows of all clients.
    engine_mode : {"auto", "loop", "vectorized"}
        How clients train.
    workers : int
        Parallel workers; 0 chooses automatically.
    precision : str
        Precision of training.
    """

    def __init__(
        self, workload: Workload, data: Data, engine_mode: str = "auto", workers: int = 0, precision: str = "float32"
    ) -> None:
        self._workload, self._algorithm = workload, FedAvg()
        config = TrainConfig(
            batch_size=workload.batch,
            optimizer=workload.optimizer,
            learning_rate=workload.rate,
            participation=workload.clients_per_round / workload.clients,
            seed=SEED,
            engine_mode=engine_mode,
            workers=workers,
            precision=precision,
        )
        federation, truth = make_federation(workload, data)
        method = FedUL() if workload.sets else Supervised(truth=truth)
        module = build_network(workload)
        self.engine = SimulationEngine(federation, method, self._algorithm, module, config)
        self._threads = default_threads(module)
        # After the engine is built, because it may change the memory layout of the weights.
        self.weights: Weights = {name: tensor.clone() for name, tensor in weights_of(module).items()}

    def run_round(self, number: int) -> None:
        """Run one round."""
        names = [self._workload.client_name(client) for client in self._workload.participants_of(number)]
        with torch_threads(self._threads):
            updates = self.engine.train(Broadcast(number, self.weights), names)
            self.weights = self._algorithm.aggregate(self.weights, {}, updates, self._workload.clients)[0]


def make_federation(workload: Workload, data: Data) -> tuple[Federation, Truth]:
    """Return the data as fedul holds it: one tensor that all clients index, and the labels in a `Truth`."""
    positions = torch.arange(workload.rows)
    empty = torch.zeros(0, dtype=torch.int64)
    clients, labels = [], {}
    for client, client_labels in enumerate(data.labels.split(workload.rows)):
        name = workload.client_name(client)
        train = Rows(positions + client * workload.rows, positions % max(workload.sets, 1))
        clients.append(UnlabeledSets(name, data.inputs, train, Rows(empty, empty), _class_priors(workload, client)))
        labels[name] = client_labels.numpy()
    no_labels = np.zeros(0, dtype=np.int64)
    truth = Truth(data.inputs[:0], no_labels, no_labels, labels, dict.fromkeys(labels, no_labels))
    return Federation(clients, "0123456789", scaling=Scaling(data.scale)), truth


def _class_priors(workload: Workload, client: int) -> priors.Matrix:
    if not workload.sets:
        return np.full((1, CLASSES), 1 / CLASSES)
    return priors.sample_priors("boosted", workload.sets, CLASSES, numpy_generator(SEED, "priors", client))


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--mode", default="auto", choices=("auto", "loop", "vectorized"))
    parser.add_argument("--workers", type=int, default=0, help="0 chooses automatically")
    parser.add_argument("--precision", default="float32", choices=("float32", "bfloat16"))
    arguments = parser.parse_args()
    workload, timer = arguments.workload, RoundTimer()
    data = make_data(workload)
    try:
        simulator = FedulSimulator(workload, data, arguments.mode, arguments.workers, arguments.precision)
    except InputError as problem:
        timer.unavailable(str(problem))
    if arguments.mode == "vectorized" and simulator.engine.warnings:
        timer.unavailable(simulator.engine.warnings[0])  # it would run the loop again

    def global_model() -> nn.Module:
        module = build_network(workload)
        load_weights(module, simulator.weights)
        return module

    timer.outputs = lambda: check_outputs(data, global_model())
    while timer.next_round():
        simulator.run_round(timer.round)
    timer.finish(data.source)


if __name__ == "__main__":
    main()
