"""Rows of a task that are not trained on: `begin_round` receives their logits, and no step has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

import pytest
import torch
from torch import Tensor

from fedul.core import TaskSpec, UnlabeledSets
from fedul.engines.base import Broadcast
from fedul.methods.base import ClientState, Method
from fedul.methods.fedul import log_loss, set_task
from fedul.methods.operations import set_means
from fedul.methods.task import Predict, Step, Targets, Task

from ...factories import random_study
from ...runs import copy_weights
from .comparison import Case, assert_same_result

STUDY = random_study(11, clients=6, rows=(6, 40), held_out=0.4)
"""Clients of different sizes, some with more held-out rows than others have rows."""


@dataclass(frozen=True)
class WholeSets(Method):
    """FedUL with a term that depends on the mean prediction over all rows of the set, held-out ones included."""

    seen: list[Tensor] = field(default_factory=list, compare=False)

    vectorized: ClassVar[bool] = True

    def task(self, client: UnlabeledSets, spec: TaskSpec) -> Task:
        return replace(set_task(client, client.all_rows, spec), trained=len(client.train))

    def needs_logits(self, directive: Mapping[str, float]) -> bool:
        return True

    def begin_round(
        self, targets: Targets, logits: Tensor, directive: Mapping[str, float], client_state: ClientState
    ) -> tuple[Targets, ClientState]:
        means = set_means(logits.softmax(-1), targets, targets.sets["joint"].shape[-2])
        start = {"start": logits.softmax(-1)}
        sets = {**targets.sets, "mean": means}
        return replace(targets, rows={**targets.rows, **start}, sets=sets), {"mean": means.sum((-2, -1))}

    def loss(self, predict: Predict, step: Step) -> Tensor:
        real = torch.ones_like(step.targets["set"]) if step.weight is None else step.weight
        self.seen.append(step.inputs[real > 0])
        logits = predict(step.inputs)
        toward = step.targets["mean"] + step.targets["start"]
        return step.mean(log_loss(logits, step) - (toward * logits.log_softmax(-1)).sum(-1))


@dataclass(frozen=True, eq=False, repr=False)
class WholeSetsCase(Case):
    """Three rounds of one `WholeSets`."""

    whole_sets: WholeSets = field(default_factory=WholeSets)

    def build_method(self) -> Method:
        return self.whole_sets


@pytest.mark.parametrize("batch_size", [1, 4, 7, "all"])
@pytest.mark.parametrize("epochs", [1, 2])
def test_vectorized_clients_give_the_same_result_as_a_loop(batch_size: int | str, epochs: int) -> None:
    case = WholeSetsCase(STUDY, settings={"batch_size": batch_size, "epochs": epochs})
    assert_same_result(case.vectorized(), case.loop())


@pytest.mark.parametrize("mode", ["loop", "vectorized"])
def test_every_row_to_train_on_is_in_a_step_and_no_other_row_is(mode: str) -> None:
    case = WholeSetsCase(STUDY, settings={"batch_size": 4})
    broadcast = Broadcast(1, copy_weights(case.model()))
    updates = list(case.engine(engine_mode=mode).train(broadcast, case.names))
    scaling, clients = STUDY.federation.scaling, {client.name: client for client in STUDY.federation.clients}
    expected = torch.cat([scaling(client.inputs[client.train.index]) for client in clients.values()])
    assert sorted(torch.cat(case.whole_sets.seen).tolist()) == sorted(expected.tolist())
    assert [update.rows for update in updates] == [len(clients[name].train) for name in case.names]
