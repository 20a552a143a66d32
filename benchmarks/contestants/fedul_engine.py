"""fedul's in-process engine, by the rules of `fedul.train`, without its evaluation and files."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import torch

from contestants.turns import Turns, arguments
from fedul import priors
from fedul.algorithms.base import Weights
from fedul.algorithms.fedavg import FedAvg
from fedul.config import TrainConfig
from fedul.engines.inprocess import InProcess
from fedul.engines.local import Broadcast
from fedul.errors import InputError
from fedul.federation import Federation, Rows, Scaling, UnlabeledSets
from fedul.hardware import arithmetic_threads, good_threads
from fedul.methods.fedul import FedUL
from fedul.methods.supervised import Supervised
from fedul.models.weights import load_weights, weights_of
from fedul.randomness import numpy_generator
from fedul.truth import Truth
from work import CLASSES, SEED, Data, Work, make_data, network, training_loss


class Contestant:
    """Rounds as fedul computes them."""

    def __init__(self, work: Work, rows: Data, engine_settings: dict[str, Any]) -> None:
        self._work, self._algorithm = work, FedAvg()
        config = TrainConfig(
            batch_size=work.batch,
            optimizer=work.optimizer,
            learning_rate=work.rate,
            participation=work.a_round / work.clients,
            seed=SEED,
            **engine_settings,
        )
        federation, truth = federation_of(work, rows)
        method = FedUL() if work.sets else Supervised(truth=truth)
        module = network(work)
        self.engine = InProcess(federation, method, self._algorithm, module, config)
        self._threads = good_threads(module)
        # After the engine is made, which may lay out the weights in memory as it likes them.
        self.weights: Weights = {name: tensor.clone() for name, tensor in weights_of(module).items()}

    def round(self, number: int) -> None:
        names = [self._work.name_of(client) for client in self._work.cohort_of(number)]
        with arithmetic_threads(self._threads):
            updates = self.engine.train(Broadcast(number, self.weights), names)
            self.weights = self._algorithm.aggregate(self.weights, {}, updates, self._work.clients)[0]


def federation_of(work: Work, rows: Data) -> tuple[Federation, Truth]:
    """The data as fedul holds it: one tensor that all clients index, labels apart from it."""
    within = torch.arange(work.rows)
    nothing = torch.zeros(0, dtype=torch.int64)
    clients, labels = [], {}
    for client, of_client in enumerate(rows.labels.split(work.rows)):
        name = work.name_of(client)
        train = Rows(within + client * work.rows, within % max(work.sets, 1))
        clients.append(UnlabeledSets(name, rows.inputs, train, Rows(nothing, nothing), _class_priors(work, client)))
        labels[name] = of_client.numpy()
    none = np.zeros(0, dtype=np.int64)
    truth = Truth(rows.inputs[:0], none, none, labels, dict.fromkeys(labels, none))
    return Federation(clients, "0123456789", scaling=Scaling(rows.scale)), truth


def _class_priors(work: Work, client: int) -> priors.Matrix:
    if not work.sets:
        return np.full((1, CLASSES), 1 / CLASSES)
    return priors.sample("boosted", work.sets, CLASSES, numpy_generator(SEED, "priors", client))


def engine_settings(mode: str, workers: int) -> dict[str, Any]:
    """The settings that this version of fedul has; refused if it lacks one that is asked for."""
    known = {field.name for field in fields(TrainConfig)}
    asked = {"engine_mode": mode, "workers": workers}
    lacking = [name for name in asked if name not in known]
    if lacking and mode != "auto":
        raise InputError(f"this version of fedul has no setting {lacking[0]}")
    return {name: value for name, value in asked.items() if name in known}


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--mode", default="auto", choices=("auto", "loop", "stacked"))
    parser.add_argument("--workers", type=int, default=0, help="0 leaves it to fedul")
    told = parser.parse_args()
    turns = Turns()
    rows = make_data(told.work)
    try:
        contestant = Contestant(told.work, rows, engine_settings(told.mode, told.workers))
    except InputError as problem:
        turns.unavailable(str(problem))
    if told.mode == "stacked" and (remarks := getattr(contestant.engine, "remarks", ())):
        turns.unavailable(remarks[0])  # it would be the loop once more
    while turns.go_on():
        contestant.round(turns.number)
    judge = network(told.work)
    load_weights(judge, contestant.weights)
    turns.finish(training_loss(told.work, rows, judge), data=rows.source)


if __name__ == "__main__":
    main()
