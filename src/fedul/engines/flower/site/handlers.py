"""Replies of a site, one handler per kind of request.

docs/security.md lists what each reply discloses. Rows, class priors and paths are in none of them. Errors go to the
site's log. The coordinator receives the text of a `PublicError`, and of other errors only that there was one.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import nn

from fedul import models
from fedul._utils.display import counted
from fedul._utils.hardware import default_threads, torch_threads
from fedul.algorithms import ALGORITHMS
from fedul.core import UnlabeledSets, Weights, prior_ranks
from fedul.engines.base import Broadcast
from fedul.engines.flower.identity.proof import prove, take_challenge
from fedul.engines.flower.protocol.documents import (
    HeldOutRequest,
    HelloReply,
    HelloRequest,
    JoinReply,
    LocalEvaluationRequest,
    RunRequest,
    TrainReply,
    TrainRequest,
)
from fedul.engines.flower.protocol.message import ErrorReply, Message, UnreadableMessage, WireMessage
from fedul.engines.flower.site.local_evaluation import evaluate_locally
from fedul.engines.flower.site.site_data import SiteData, log_warning
from fedul.engines.flower.site.site_file import site_name_in
from fedul.engines.held_out import HeldOutSums
from fedul.engines.held_out_evaluator import HeldOutEvaluator
from fedul.engines.simulation.layout import use_channels_last
from fedul.engines.simulation.local_steps import ClientJob, LoopWorker
from fedul.engines.simulation.precision import run_precision
from fedul.errors import FedulError, InputError
from fedul.methods import METHODS
from fedul.methods.base import Method
from fedul.methods.fedul import set_task
from fedul.models.mixed_precision import in_precision
from fedul.models.weights import load_weights
from fedul.privacy.dp_sgd.network_check import check_network
from fedul.privacy.row_privacy import plan_row_privacy
from fedul.privacy.update_chain import UpdateContext, build_update_chain
from fedul.training import Recipe

EMPTY_STATE = {"nothing": torch.zeros(1)}
"""Stored where neither method nor algorithm has a state, so that a lost state differs from one that never existed."""


class PublicError(InputError):
    """An error whose text the coordinator receives. The texts of all others stay at the site: they may quote data."""


def reply_to(kind: str, settings: str, wire: WireMessage) -> WireMessage:
    """Return the serialized reply of the site with this settings file; an `ErrorReply` if anything fails."""
    try:
        data = SiteData.read(settings)
        if len(wire.tensors) > (limit := data.config.max_message_mb * 2**20):
            raise PublicError(f"a message of {len(wire.tensors):,} bytes is more than its max-message-mb ({limit:,})")
        return handle(kind, data, Message.deserialize(wire)).serialize()
    except Exception as problem:  # Flower would send the text of any exception
        logging.getLogger("flwr").error("fedul: %s", problem, exc_info=not isinstance(problem, FedulError))
        return ErrorReply(public_text(problem), site_name_in(settings)).serialize()


def handle(kind: str, data: SiteData, request: Message) -> Message:
    """Return the reply to a request of this kind."""
    if kind not in HANDLERS:
        raise PublicError(f"requests '{kind[:40]}' are unknown here; coordinator and sites need the same fedul")
    request, challenge = take_challenge(request)
    identity = data.identity  # a key or a roster that cannot be used is an error before anything is disclosed
    reply = HANDLERS[kind](data, request)
    return prove(reply, kind, challenge, identity) if challenge and identity else reply


def public_text(problem: Exception) -> str:
    """Return what the coordinator receives about an error."""
    if isinstance(problem, UnreadableMessage):
        return f"the request cannot be read: {problem}"
    return str(problem) if isinstance(problem, PublicError) else "its settings or its data have an error; see its log"


def _hello(data: SiteData, request: Message) -> Message:
    """Return the name of the site and the form of its data."""
    _check_rows(data, data.rows)
    wanted = request.read(HelloRequest).classes
    if sorted(wanted) != sorted(data.classes):
        raise PublicError(f"its classes are {', '.join(data.classes)}, not {', '.join(wanted)}")
    return Message.of(HelloReply(data.config.name, data.signature()))


def _check_rows(data: SiteData, rows: int) -> None:
    """Refuse to disclose anything about a handful of rows: their moments would disclose single ones."""
    if rows < data.config.min_rows:
        raise PublicError(f"it has {counted(rows, 'row')} to train on, fewer than its min-rows {data.config.min_rows}")


@dataclass(frozen=True, eq=False)
class _SiteRun:
    """A site's part in a run."""

    request: RunRequest
    client: UnlabeledSets
    module: nn.Module
    recipe: Recipe

    @classmethod
    def of(cls, data: SiteData, request: RunRequest, *, joins: bool = False) -> _SiteRun:
        config, spec = request.training, request.spec
        if config.model not in models.MODELS:  # "package.module:factory" would run code that the coordinator names
            raise PublicError(f"model '{config.model[:40]}': sites take models by name ({', '.join(models.MODELS)})")
        for registry, name in ((METHODS, config.method), (ALGORITHMS, config.algorithm_name)):
            if name not in registry:
                raise PublicError(f"{registry.kind} '{name[:40]}' is not installed here")
            if not (registry.is_builtin(name) or name in data.config.allow_methods):
                raise PublicError(f"{registry.kind} '{name}' is of another package, and not in its allow-methods")
        client = data.client(spec, request.run, joins=joins)
        _check_rows(data, len(client.train))
        module = models.build(config.model, spec.input_shape, len(spec.classes), config.seed)
        if config.dp_seeded:
            raise PublicError("noise that others can repeat (dp-seeded) is for simulations")
        if config.protects_rows:
            check_network(module, config.model, spec.input_shape)
        use_channels_last(module, spec.input_shape)
        return cls(request, client, module, Recipe(config))

    @property
    def method(self) -> Method:
        return self.recipe.make_method(None)

    @property
    def threads(self) -> AbstractContextManager[None]:
        """The site chooses its number of threads; the coordinator's setting is ignored."""
        return torch_threads(default_threads(self.module))

    @cached_property
    def precision(self) -> str:
        """The precision that the coordinator asks for; "auto" follows the hardware of the site."""
        try:
            return run_precision(self.request.training, self.module, self.request.spec.input_shape)
        except InputError as problem:
            raise PublicError(str(problem).rstrip(".")) from None

    @torch.no_grad()
    def evaluate_held_out(self, weights: Weights, reference: Weights, temperature: float | None) -> HeldOutSums:
        """Return sums of -log Q over held-out rows, at each temperature, and of its difference from the reference."""
        module = copy.deepcopy(self.module)
        predict = in_precision(module, self.precision).eval()
        evaluator = HeldOutEvaluator([set_task(self.client, self.client.held_out, self.request.spec)])
        if not len(self.client.held_out):
            return HeldOutSums()
        compared = None
        if temperature is not None:
            load_weights(module, reference)
            compared = evaluator.predictions(predict, temperature)
        load_weights(module, weights)
        sums = evaluator.compare(evaluator.predictions(predict), compared, temperature or 1.0)
        if not np.isfinite(sums.numbers).all():
            raise PublicError("the loss of its held-out rows is not finite")
        return sums


def _join(data: SiteData, request: Message) -> Message:
    """Encode the rows, which may fail, before the first round; return how many there are."""
    run = _SiteRun.of(data, request.read(RunRequest), joins=True)
    _ = run.precision  # one that this hardware does not have is refused before the first round
    client, spec = run.client, run.request.spec
    reply = JoinReply(
        rows=len(run.method.task(client, spec)),
        held_out_rows=len(client.held_out),
        sets=len(client.priors),
        labelled_rows=client.labelled_rows,
        identifies_classes=int(prior_ranks([client.priors])[0]) == len(spec.classes),
    )
    return Message.of(reply)


def _train(data: SiteData, message: Message) -> Message:
    """Return an update from local steps, the same as in process."""
    request = message.read(TrainRequest)
    run = _SiteRun.of(data, request)
    client, config, method, accepted = run.client, request.training, run.method, request.accepted
    with data.explain_state_errors():
        store = data.store(request.run)
        store.rewind(accepted)  # the state after an update that was not accepted is dropped
        store.checkpointed(request.checkpointed, accepted)
        before = {name: tensor for name, tensor in store.read(client.name).items() if name not in EMPTY_STATE}
    lost = accepted > 0 and accepted not in store.versions(accepted).values()
    broadcast = Broadcast(request.round, message.group("weights"), message.group("received"), request.directive)
    task = method.task(client, request.spec)
    privacy = plan_row_privacy(config, len(task), config.rounds) if config.protects_rows else None
    job = ClientJob(client.name, task, before, privacy=privacy)
    with run.threads:
        weights = message.group("evaluate")
        reference = message.group("reference"), request.reference_temperature
        held_out = run.evaluate_held_out(weights, *reference) if weights else None
        worker = LoopWorker(run.module, method, run.recipe.make_algorithm(), config, run.precision)
        update, after = worker.train([job], broadcast, lambda: False)[0]
    update = build_update_chain(config).apply(
        update, UpdateContext(client.name, request.round, config.seed, request.clips)
    )
    with data.explain_state_errors():
        store.write(client.name, request.round, after or EMPTY_STATE)
    if lost and after:
        log_warning(f"the state of round {accepted} is missing in {data.config.state}; the site continues without it.")
    reply = TrainReply(update.rows, update.steps, update.loss, held_out)
    return Message.of(reply, delta=update.delta, buffers=update.buffers, message=update.message)


def _evaluate_held_out(data: SiteData, message: Message) -> Message:
    """Return the held-out sums of the weights of a round."""
    request = message.read(HeldOutRequest)
    run = _SiteRun.of(data, request)
    with run.threads:
        groups = message.group("weights"), message.group("reference")
        return Message.of(run.evaluate_held_out(*groups, request.reference_temperature))


def _evaluate_locally(data: SiteData, message: Message) -> Message:
    """Return the site's accuracy estimate of the classifier."""
    request = message.read(LocalEvaluationRequest)
    run = _SiteRun.of(data, request)
    load_weights(run.module, message.group("weights"))
    return Message.of(evaluate_locally(run.client, request.spec, run.module, request.temperature))


HANDLERS: dict[str, Callable[[SiteData, Message], Message]] = {
    "hello": _hello,
    "join": _join,
    "train": _train,
    "evaluate_held_out": _evaluate_held_out,
    "evaluate_locally": _evaluate_locally,
}
