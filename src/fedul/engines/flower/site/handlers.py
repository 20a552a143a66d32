"""Replies of a site, one handler per kind of request.

docs/privacy/threat-model.md lists what each reply discloses. Rows, class priors and paths are in none of them. Errors
go to the site's log. The coordinator receives the text of a `PublicError`, and of other errors only that there was one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from fedul._utils.documents import to_document
from fedul._utils.files import write_json
from fedul.core import Update, Weights, prior_ranks
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
from fedul.engines.flower.protocol.message import ErrorReply, Message, UnreadableMessage, WireMessage, printable
from fedul.engines.flower.secure.contributions import EVALUATE
from fedul.engines.flower.site.local_evaluation import LOCAL_REPORT, evaluate_locally
from fedul.engines.flower.site.public_error import PublicError
from fedul.engines.flower.site.row_budget import refuse_evaluation, refuse_unprotected
from fedul.engines.flower.site.secure_handlers import (
    aggregate,
    greet,
    masked_estimate,
    masked_held_out,
    masked_update,
    send_statistics,
)
from fedul.engines.flower.site.site_data import EMPTY, SiteData, log_info, log_warning
from fedul.engines.flower.site.site_file import site_name_in
from fedul.engines.flower.site.site_run import SiteRun, check_rows, check_security
from fedul.engines.held_out import HeldOutSums
from fedul.engines.simulation.local_steps import ClientJob, LoopWorker
from fedul.errors import FedulError
from fedul.methods.checked import checked_task
from fedul.privacy.statement import finite
from fedul.privacy.update_chain import UpdateContext, build_update_chain


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
    check_rows(data, data.rows)
    hello = request.read(HelloRequest)
    if sorted(hello.classes) != sorted(data.classes):
        raise PublicError(f"its classes are {', '.join(data.classes)}, not {', '.join(hello.classes)}")
    check_security(data, secure=hello.secure)
    if hello.secure:
        return greet(data, request, hello)
    return Message.of(HelloReply(data.config.name, data.signature()))


def _join(data: SiteData, message: Message) -> Message:
    """Encode the rows, which may fail, before the first round; return how many there are."""
    run = SiteRun.of(data, message.read(RunRequest), joins=True)
    refuse_unprotected(data, run.request.training)
    if run.budget is not None:
        run.budget.check_run()
    _ = run.precision  # one that this hardware does not have is refused before the first round
    client, spec = run.client, run.request.spec
    log_info(run.describe())
    if run.sums is not None:
        return run.sums.answer(message).to_message()
    reply = JoinReply(
        rows=len(checked_task(run.method, client, spec)),
        held_out_rows=len(client.held_out),
        sets=len(client.priors),
        labelled_rows=client.labelled_rows,
        identifies_classes=int(prior_ranks([client.priors])[0]) == len(spec.classes),
    )
    return Message.of(reply)


def _train(data: SiteData, message: Message) -> Message:
    """Return an update from local steps, the same as in process."""
    request = message.read(TrainRequest)
    run = SiteRun.of(data, request)
    evaluated = message.group("evaluate") if run.is_asked_for(EVALUATE, message) else {}
    if evaluated:
        refuse_evaluation(request.training)
    with data.explain_state_errors():
        digest = run.guard.check_training(request, message)
        if evaluated:
            run.guard.check_evaluation(request, message, "evaluate")
    budget = run.budget
    update = None if budget is None else budget.stored_update(digest)
    held_out = None
    if update is None:
        if budget is None:  # else the refusal would tell about rows
            run.refuse_degenerate(message.group("weights"))
        else:
            budget.charge(request.round)
        update, held_out = _local_update(run, data, message, evaluated)
        if budget is not None:
            with data.explain_state_errors():
                budget.store_update(digest, update)
    if request.round == request.training.rounds:
        log_info(f"has trained the last round ({request.round}) of run {printable(request.run, 40)}.")
    if run.sums is not None:
        return masked_update(run, message, update, held_out)
    epsilon = None if budget is None else finite(budget.epsilon)
    reply = TrainReply(update.rows, update.steps, update.loss, held_out, epsilon)
    return Message.of(reply, delta=update.delta, buffers=update.buffers, message=update.message)


def _local_update(
    run: SiteRun, data: SiteData, message: Message, evaluated: Weights
) -> tuple[Update, HeldOutSums | None]:
    """Train a round; return the update as it leaves the site, and the held-out sums of the weights to evaluate."""
    request = message.read(TrainRequest)
    client, config, method, accepted = run.client, request.training, run.method, request.accepted
    with data.explain_state_errors():
        store = data.store(request.run)
        store.rewind(accepted)  # the state after an update that was not accepted is dropped
        store.checkpointed(request.checkpointed, accepted)
        before = {name: tensor for name, tensor in store.read(client.name).items() if name not in EMPTY}
    lost = accepted > 0 and accepted not in store.versions(accepted).values()
    broadcast = Broadcast(request.round, message.group("weights"), message.group("received"), request.directive)
    task = checked_task(method, client, request.spec)
    job = ClientJob(client.name, task, before, privacy=None if run.budget is None else run.budget.plan)
    with run.threads:
        reference = message.group("reference"), request.reference_temperature
        held_out = run.evaluate_held_out(evaluated, *reference) if evaluated else None
        worker = LoopWorker(run.module, method, run.recipe.make_algorithm(), config, run.precision)
        update, after = worker.train([job], broadcast, lambda: False)[0]
    update = build_update_chain(config).apply(
        update, UpdateContext(client.name, request.round, config.seed, request.clips)
    )
    with data.explain_state_errors():
        store.write(client.name, request.round, after or EMPTY)
    if lost and after:
        log_warning(f"the state of round {accepted} is missing in {data.config.state}; the site continues without it.")
    return update, held_out


def _evaluate_held_out(data: SiteData, message: Message) -> Message:
    """Return the held-out sums of the weights of a round."""
    request = message.read(HeldOutRequest)
    refuse_evaluation(request.training)
    run = SiteRun.of(data, request)
    with data.explain_state_errors():
        run.guard.check_evaluation(request, message, "weights")
    with run.threads:
        groups = message.group("weights"), message.group("reference")
        held_out = run.evaluate_held_out(*groups, request.reference_temperature)
    if run.sums is not None:
        return masked_held_out(run, message, held_out)
    return Message.of(held_out)


def _evaluate_locally(data: SiteData, message: Message) -> Message:
    """Return the site's accuracy estimate of the classifier."""
    request = message.read(LocalEvaluationRequest)
    refuse_evaluation(request.training)
    run = SiteRun.of(data, request)
    with data.explain_state_errors():
        run.guard.check_delivered(message)
    run.refuse_degenerate(message.group("weights"))  # and leaves them in the module
    estimate = evaluate_locally(run.client, request.spec, run.module, request.temperature)
    with data.explain_state_errors():
        write_json(data.run_folder(request.run) / LOCAL_REPORT, to_document(estimate))
    log_info(f"has evaluated the delivered classifier of run {printable(request.run, 40)}; the run ends.")
    if run.sums is not None:
        return masked_estimate(run, message, estimate)
    return Message.of(estimate)


HANDLERS: dict[str, Callable[[SiteData, Message], Message]] = {
    "hello": _hello,
    "statistics": send_statistics,
    "aggregate": aggregate,
    "join": _join,
    "train": _train,
    "evaluate_held_out": _evaluate_held_out,
    "evaluate_locally": _evaluate_locally,
}
