"""FedUL: a client predicts which of its sets a row is in, by a fixed transition layer behind the shared classifier.

Lu et al., Federated Learning from Only Unlabeled Data with Class-Conditional-Sharing Clients, ICLR 2022. With identity
priors it is supervised learning on z + log(pibar / pi).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from fedul.federation import Federation, Rows, UnlabeledSets, float_type
from fedul.methods.base import Method, Predict, Step, Task
from fedul.transition import Transition, set_loss


@dataclass(frozen=True)
class FedUL(Method):
    """Minimise -log Q of the set each row is in."""

    def task(self, client: UnlabeledSets, federation: Federation) -> Task:
        return set_task(client, client.train, federation)

    def labels_used(self, federation: Federation) -> int:
        return 0

    def loss(self, predict: Predict, step: Step) -> Tensor:
        return step.mean(set_loss(predict(step.inputs), step.targets["joint"], step.targets["marginal"]))


def set_task(client: UnlabeledSets, rows: Rows, federation: Federation) -> Task:
    """Some rows of a client with their set as the target; the held-out ones measure any method without a label."""
    device = client.inputs.device
    transition = Transition(client.priors, client.set_priors, federation.test_prior)
    transition.to(device, float_type(client.inputs))
    joint, marginal = transition.joint, transition.marginal
    sets = rows.sets.to(device)

    def targets(at: Tensor) -> Mapping[str, Tensor]:
        return {"joint": joint[sets[at]], "marginal": marginal.expand(len(at), -1)}

    return Task(client.inputs, rows.index.to(device), targets, federation.scaling)


TEMPERATURES = tuple(2 ** (j / 4) for j in range(-4, 17))
"""Temperatures 0.5..16 at which held-out rows are judged. One grid for all, so that clients' sums can be added."""


def held_out_losses(predict: Predict, task: Task, batch_size: int = 1024) -> list[float]:
    """The sum of -log Q over the task's rows, with logits divided by each of the temperatures.

    A network becomes too sure of itself long before it stops learning to tell classes apart. Judged at its best
    temperature, a round is chosen for what it knows; and since -log Q is proper, that temperature calibrates it.
    """
    total = torch.zeros(len(TEMPERATURES), dtype=torch.float64)
    for step in task.in_order(batch_size):
        logits = predict(step.inputs)
        # (T, n, K): all temperatures at once, since with many small clients each operation costs more than its sums.
        scaled = logits / logits.new_tensor(TEMPERATURES)[:, None, None]
        total += set_loss(scaled, step.targets["joint"], step.targets["marginal"]).double().sum(-1).cpu()
    return total.tolist()
