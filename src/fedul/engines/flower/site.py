"""What a site answers: its form, an update, how held-out rows are judged, and what it thinks of the classifier.

docs/security.md lists what each answer contains. Rows, class priors and paths are in none of them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from fedul import models
from fedul.algorithms import make_algorithm
from fedul.algorithms.base import Weights
from fedul.config import TrainConfig
from fedul.engines.flower.agreement import Agreement
from fedul.engines.flower.letters import Letter, grouped
from fedul.engines.flower.own import Own, warn
from fedul.engines.layout import put_channels_last
from fedul.engines.local import Broadcast, Job, Worker
from fedul.errors import InputError
from fedul.federation import UnlabeledSets
from fedul.hardware import arithmetic_threads, good_threads
from fedul.methods import make_method
from fedul.methods.base import Method
from fedul.methods.fedul import HeldOutRows, set_task
from fedul.models.weights import load_weights
from fedul.priors import ranks
from fedul.settings import make

NOTHING = {"nothing": torch.zeros(1)}
"""Kept where neither method nor algorithm keeps anything, so that what is gone differs from what never was."""


class Told(InputError):
    """A problem that the coordinator may know of. All others stay at the site: they may quote what is in a file."""


def answered(kind: str, own: Own, asked: Letter) -> Letter:
    """The answer to a question of this kind."""
    if kind not in ANSWERS:
        raise Told(f"a question '{kind[:40]}' is not known here; coordinator and sites need the same fedul")
    return ANSWERS[kind](own, asked)


def told(problem: Exception) -> str:
    """What the coordinator is told of a problem."""
    return (
        str(problem) if isinstance(problem, Told) else "its settings or its data have a fault, which its own log tells"
    )


def _hello(own: Own, asked: Letter) -> Letter:
    """Who this is, how much it has, and what its rows look like."""
    _check_rows(own, own.rows)
    wanted, here = list(map(str, asked.notes["classes"])), own.classes
    if sorted(wanted) != sorted(here):
        raise Told(f"its classes are {', '.join(here)}, not {', '.join(wanted)}")
    return Letter({"name": own.config.name, "form": own.form().plain()})


def _check_rows(own: Own, rows: int) -> None:
    """Before anything is told of them: moments of a handful of rows would tell of single ones."""
    if rows < own.config.min_rows:
        raise Told(f"it has {rows} rows to train on, fewer than its min-rows {own.config.min_rows}")


@dataclass(frozen=True, eq=False)
class _Work:
    """A site's part in a run: its client, its model and how it is trained."""

    client: UnlabeledSets
    agreement: Agreement
    config: TrainConfig
    module: nn.Module

    @classmethod
    def of(cls, own: Own, asked: Letter, *, joins: bool = False) -> _Work:
        notes = asked.notes
        agreement, config = Agreement.from_plain(notes["agreement"]), make(TrainConfig, notes["training"])
        if config.model not in models.MODELS:  # "package.module:factory" would run code that the coordinator names
            raise Told(f"model '{config.model[:40]}': sites take models by name only ({', '.join(models.MODELS)}).")
        client = own.client(agreement, notes["run"], joins=joins)
        _check_rows(own, len(client.train))
        module = models.build(config.model, agreement.input_shape, len(agreement.classes), config.seed)
        put_channels_last(module, agreement.input_shape)
        return cls(client, agreement, config, module)

    @property
    def method(self) -> Method:
        config = self.config
        return make_method(config.method, config.method_option, None, config.seed, config.loss)

    @property
    def threads(self) -> Any:
        return arithmetic_threads(good_threads(self.module))  # its own business, whatever the coordinator would like


def _join(own: Own, asked: Letter) -> Letter:
    """That the site can take part, and with how much: makes its rows inputs, which may fail, before the first round."""
    work = _Work.of(own, asked, joins=True)
    client = work.client
    work.method.task(client, work.agreement)
    return Letter(
        {
            "rows": len(client.train),
            "held_out_rows": len(client.held_out),
            "sets": len(client.priors),
            "alone": int(ranks([client.priors])[0]) == len(work.agreement.classes),
        }
    )


def _train(own: Own, asked: Letter) -> Letter:
    """An update from local steps, as in process."""
    work, notes = _Work.of(own, asked), asked.notes
    client, config = work.client, work.config
    method, algorithm = work.method, make_algorithm(config.algorithm, config.algorithm_option)
    accepted = int(notes["accepted"])
    with own.writable():
        store = own.store(notes["run"])
        store.rewind(accepted)  # what it kept after an update that never arrived is not to be gone on from
        store.checkpointed(int(notes["safe"]), accepted)
        before = {name: tensor for name, tensor in store.read(client.name).items() if name not in NOTHING}
    lost = accepted > 0 and accepted not in store.versions(accepted).values()
    broadcast = Broadcast(int(notes["round"]), asked.group("weights"), asked.group("sent"), dict(notes["directive"]))
    job = Job(client.name, method.task(client, work.agreement), before)
    with work.threads:
        judged = _judged(work, asked.group("judged")) if asked.group("judged") else None
        update, kept = Worker(work.module, method, algorithm, config).train([job], broadcast, lambda: False)[0]
    with own.writable():
        store.write(client.name, broadcast.round, kept or NOTHING)
    if lost and kept:
        warn(f"what was kept here after round {accepted} is gone from {own.config.state}; the site goes on without it.")
    tensors = grouped(delta=update.delta, buffers=update.buffers, message=update.message)
    return Letter({"rows": update.rows, "steps": update.steps, "loss": update.loss, "judged": judged}, tensors)


def _judge(own: Own, asked: Letter) -> Letter:
    """How its held-out rows judge a round."""
    work = _Work.of(own, asked)
    with work.threads:
        return Letter({"judged": _judged(work, asked.group("weights"))})


@torch.no_grad()
def _judged(work: _Work, weights: Weights) -> dict[str, Any]:
    """Sums of -log Q over held-out rows, at each temperature."""
    module = copy.deepcopy(work.module)
    load_weights(module, weights)
    module.eval()
    if not len(work.client.held_out):
        return {"rows": 0}
    found = HeldOutRows([set_task(work.client, work.client.held_out, work.agreement)]).judged(module)
    sums = {"losses": list(found.losses), "squares": list(found.squares), "changes": list(found.changes)}
    if not np.isfinite(list(sums.values())).all():
        raise Told("its held-out rows have no finite loss")
    return {"rows": found.rows, **sums}


def _evaluate(own: Own, asked: Letter) -> Letter:
    """What the site thinks of the classifier: an accuracy with its standard error, solved here from its own priors."""
    from fedul.engines.flower.opinion import opinion

    work = _Work.of(own, asked)
    load_weights(work.module, asked.group("weights"))
    return Letter(opinion(work.client, work.agreement, work.module, float(asked.notes["temperature"])))


ANSWERS: dict[str, Callable[[Own, Letter], Letter]] = {
    "hello": _hello,
    "join": _join,
    "train": _train,
    "judge": _judge,
    "evaluate": _evaluate,
}
