"""The update of one local step on few rows: what a coordinator sees that plans a run of one step.

The coordinator plans one step of plain gradient descent (SGD, learning rate 1) on the rows of one small batch, under
the network, the method and the protection of the run. The update is then minus the gradient.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from fedul.auditing.observed_run import prepare
from fedul.auditing.protections import Condition
from fedul.auditing.row_gradients import attacked_method
from fedul.core import Federation, RoundSums, Update, Weights
from fedul.engines.base import Broadcast
from fedul.engines.simulation.engine import SimulationEngine
from fedul.engines.simulation.local_steps import ClientJob, LoopWorker
from fedul.methods.task import Targets, Task
from fedul.models.weights import weights_of
from fedul.privacy.row_privacy import RowPrivacy, plan_row_privacy
from fedul.training.prepare import PreparedRun

ONE_STEP: Mapping[str, Any] = {
    "optimizer": "sgd",
    "momentum": 0.0,
    "nesterov": False,
    "learning_rate": 1.0,
    "schedule": "constant",
    "epochs": 1,
    "batch_size": 0,
    "l1": 0.0,
    "l2": 0.0,
    "augment": "none",
}


@dataclass(frozen=True, eq=False)
class SmallBatch:
    """Rows of one step, and the gradient that the coordinator sees.

    Parameters
    ----------
    rows : Tensor of shape (n, ...)
        Rows of all clients in the sum, as the network receives them: what the attack is to find.
    gradient : dict of str to Tensor
        Sum of the mean gradients of the clients.
    clients : int
        Clients in the sum.
    """

    rows: Tensor
    gradient: Weights
    clients: int


class SmallBatches:
    """Draws small batches of the clients of a run.

    Parameters
    ----------
    federation : Federation
        The clients.
    condition : Condition
        How they train.
    """

    def __init__(self, federation: Federation, condition: Condition) -> None:
        self._condition, self._federation = condition, federation
        config = replace(condition.config, **ONE_STEP)
        method = attacked_method(condition.recipe.make_method(None))
        self.run: PreparedRun = prepare(federation, replace(condition.recipe, config=config, method=method))
        self._worker = LoopWorker(self.run.context.module, self.run.context.method, self.run.context.algorithm, config)
        self._drawn = 0
        self.weights = {name: t.clone() for name, t in weights_of(self.run.context.module).items()}

    def draw(self, batch: int, generator: torch.Generator) -> SmallBatch:
        """Return the step of a random client on a random batch; under secure aggregation, that of all clients."""
        names = sorted(self._federation.columns.names)
        summed = self._condition.config.secure_aggregation
        chosen = names if summed else [names[int(torch.randint(len(names), (), generator=generator))]]
        self._drawn += 1  # a site answers a round once
        broadcast = Broadcast(self._drawn, self.weights)
        engine = self.run.context.engine
        assert isinstance(engine, SimulationEngine)
        tasks = {name: self._small_task(name, batch, generator) for name in chosen}
        updates = [self._update(name, task, broadcast, engine) for name, task in tasks.items()]
        answer = engine.answer(iter(updates), broadcast, len(updates))
        if isinstance(answer, RoundSums):
            change: Weights = {name: t * answer.clients for name, t in answer.mean.delta.items()}
        else:
            (update,) = answer
            change = update.delta
        rows = torch.cat([task.scaling(task.inputs[task.index]) for task in tasks.values()])
        return SmallBatch(rows, {name: -t.clone() for name, t in change.items()}, len(chosen))

    def _small_task(self, name: str, batch: int, generator: torch.Generator) -> Task:
        """Return the task of a client with a random batch of its rows."""
        context = self.run.context
        task = context.method.task(self._federation.columns.named(name), context.spec)
        at = torch.randperm(len(task), generator=generator)[:batch]
        if context.method.needs_logits({}):
            with torch.no_grad():
                logits = context.module(task.scaling(task.inputs[task.index]))
            targets, _ = context.method.begin_round(task.targets, logits, {}, {})
            task = replace(task, targets=targets)
        rows = {key: values[at] for key, values in task.targets.rows.items()}
        targets = Targets(rows, task.targets.sets, task.targets.client, padding=task.targets.padding)
        return replace(task, index=task.index[at], targets=targets, trained=None)

    def _update(self, name: str, task: Task, broadcast: Broadcast, engine: SimulationEngine) -> Update:
        (outcome,) = self._worker.train(
            [ClientJob(name, task, {}, None, self._privacy(name))], broadcast, lambda: False
        )
        return engine.finish(outcome, broadcast)

    def _privacy(self, name: str) -> RowPrivacy | None:
        """Return one step with the noise of a step of the run, in which every row takes part."""
        config = self._condition.config
        if not config.protects_rows:
            return None
        rows = len(self._federation.columns.named(name).train)
        plan = plan_row_privacy(config, rows, config.rounds, name)
        return replace(plan, rate=1.0, steps=1)
