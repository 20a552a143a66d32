"""Engine that trains at real sites: each round sends one request to each site, and records the sites that fail."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fedul.algorithms.base import effective_steps
from fedul.classifier import Classifier
from fedul.core import RoundSums, Update, UpdateSpec, Weights
from fedul.engines.base import Broadcast, EngineMetrics
from fedul.engines.flower.protocol.documents import (
    HeldOutRequest,
    LocalEvaluation,
    LocalEvaluationRequest,
    TrainReply,
    TrainRequest,
)
from fedul.engines.flower.protocol.message import Message, UnreadableMessage
from fedul.engines.flower.protocol.spent_budget import raise_if_all_spent
from fedul.engines.flower.server.local_evaluation import combine_local_evaluations, is_plausible
from fedul.engines.flower.server.site_epsilon import SiteEpsilon
from fedul.engines.flower.server.site_registry import SiteRegistry
from fedul.engines.flower.server.transport import NoReply, Reply
from fedul.engines.flower.server.update_checks import RejectedReply, UpdateChecks, find_oversized, update_norm
from fedul.engines.flower.settings import CoordinatorConfig
from fedul.engines.held_out import TEMPERATURES, HeldOutSums, Reference
from fedul.engines.simulation.private_client import count_local_steps
from fedul.errors import EnvironmentFailure
from fedul.evaluation.document import Evaluation
from fedul.models.weights import weights_of

MAX_ROW_LOSS = 1e12
"""Upper bound of -log Q of a row, and of its square; sums above it are rejected."""


class SiteStateVersions:
    """A `ClientStore` that holds only the version of each site's client state: the round whose update was accepted."""

    def __init__(self) -> None:
        self._accepted: dict[str, list[int]] = {}  # site -> rounds whose update was accepted
        self._checkpointed = 0

    def read(self, client: str) -> dict[str, Any]:
        return {}  # it stays at the site

    def write(self, client: str, round_number: int, state: Mapping[str, Any]) -> None:
        self._accepted.setdefault(client, []).append(round_number)

    def rewind(self, round_number: int, versions: Mapping[str, int] | None = None) -> None:
        self._checkpointed = round_number
        self._accepted = {site: [version] for site, version in (versions or {}).items()}

    def versions(self, round_number: int) -> Mapping[str, int]:
        known = {site: [each for each in rounds if each <= round_number] for site, rounds in self._accepted.items()}
        return {site: max(rounds) for site, rounds in known.items() if rounds}

    def checkpointed(self, *round_numbers: int) -> None:
        self._checkpointed = min(round_numbers)

    def versions_of(self, site: str) -> dict[str, int]:
        """Return the fields `accepted` and `checkpointed` of a `TrainRequest` to this site."""
        rounds = self._accepted.get(site, [0])
        checkpointed = max((each for each in rounds if each <= self._checkpointed), default=0)
        return {"accepted": max(rounds), "checkpointed": checkpointed}


class FlowerEngine:
    """Engine that trains clients at their sites.

    Parameters
    ----------
    registry : SiteRegistry
        The sites of the run.
    update_spec : UpdateSpec
        Names, shapes and dtypes of the tensors that sites send.
    config : CoordinatorConfig
        Time limits and the number of sites that a round needs.
    store : SiteStateVersions
        Records which updates were accepted.
    epsilon : mapping of str to float
        What the rows of sites had paid when the run was stopped; empty for a new one.
    """

    piggybacks_evaluation = True
    warnings: Sequence[str] = ()

    def __init__(
        self,
        registry: SiteRegistry,
        update_spec: UpdateSpec,
        config: CoordinatorConfig,
        store: SiteStateVersions,
        epsilon: Mapping[str, float],
    ) -> None:
        self._epsilon = SiteEpsilon(registry.training, epsilon)
        self._registry, self._config, self._store = registry, config, store
        self._update_spec = update_spec
        self._mean_norm: float | None = None  # of the updates of the previous round
        self._errors: dict[str, str] = {}  # sites that failed since the round began, with the reason
        self._reported: set[str] = set()  # the failed sites that `collect_metrics` has returned
        self._traffic = self._total_traffic()  # bytes sent and received at the last `collect_metrics`
        self._held_out: dict[str, HeldOutSums] = {}  # by site, received with updates
        self._evaluated_by: tuple[str, ...] = ()  # empty if all sites with held-out rows evaluated
        self._last_trained = 0  # round
        self._evaluates_ahead = False  # whether the round before it is the one to evaluate next

    @property
    def names(self) -> Sequence[str]:
        return sorted(self._registry.sites)

    @property
    def epsilon(self) -> Mapping[str, float]:
        return self._epsilon.by_site

    def begin_round(self, number: int, clients: Sequence[str]) -> None:
        """Do nothing: every site charges itself before it replies."""

    def train(self, broadcast: Broadcast, clients: Sequence[str]) -> Iterator[Update] | RoundSums:
        return self._single_updates(broadcast, clients)

    def _single_updates(self, broadcast: Broadcast, clients: Sequence[str]) -> Iterator[Update]:
        self._errors, self._reported, self._held_out = {}, set(), {}
        self._last_trained, self._evaluates_ahead = broadcast.round, bool(broadcast.evaluate)
        checks = UpdateChecks(broadcast.weights, self._update_spec)
        self._registry.transport.max_bytes = checks.max_bytes
        updates: dict[str, Update] = {}
        needed = min(self._config.min_sites, len(clients))
        for attempt in range(self._config.attempts):
            if attempt:
                self._registry.admit(needed, self._config.round_seconds)
            updates |= self._request_updates(broadcast, [name for name in clients if name not in updates], checks)
            if len(updates) >= needed:
                break
        else:
            raise_if_all_spent({name: self._errors.get(name, "") for name in clients if name not in updates})
            raise EnvironmentFailure(
                f"round {broadcast.round}: {len(updates)} of {needed} required updates arrived in "
                f"{self._config.attempts} attempts ({self._list_errors()}); check the sites, then resume the run."
            )
        self._mean_norm = sum(update_norm(update.delta) for update in updates.values()) / len(updates)
        for name in clients:  # a fixed order, independent of which site replied first
            if name in updates:
                self._store.write(name, broadcast.round, {})
                yield updates[name]

    def evaluate_held_out(self, weights: Weights, reference: Reference | None = None) -> Mapping[str, HeldOutSums]:
        """Request held-out sums from the sites that have not sent them with an update and have not just failed."""
        evaluators = sorted(name for name, site in self._registry.sites.items() if site.held_out_rows)
        missing = [name for name in evaluators if name not in {*self._held_out, *self._errors}]
        numbers, tensors = self._evaluation(self._last_trained - self._evaluates_ahead, reference)
        self._evaluates_ahead = False
        request = Message.of(self._registry.request(HeldOutRequest, **numbers), weights=weights, reference=tensors)
        for name, reply in self._request("evaluate_held_out", dict.fromkeys(missing, request)).items():
            try:
                self._accept_held_out(name, _require_message(reply).read(HeldOutSums))
            except (RejectedReply, UnreadableMessage) as problem:
                self._errors[name] = str(problem)
        sums, self._held_out = {name: self._held_out[name] for name in evaluators if name in self._held_out}, {}
        if evaluators and not sums:
            raise EnvironmentFailure(
                f"no site evaluated the round ({self._list_errors()}); check the sites, then resume the run."
            )
        self._evaluated_by = tuple(sums) if len(sums) < len(evaluators) else ()
        return sums

    def collect_metrics(self) -> EngineMetrics:
        (sent, received), self._traffic = self._traffic, self._total_traffic()
        errors = {name: reason for name, reason in sorted(self._errors.items()) if name not in self._reported}
        total = (self._traffic[0] - sent, self._traffic[1] - received)
        metrics = EngineMetrics(errors, self._evaluated_by, *total, self._registry.collect_traffic())
        self._reported, self._evaluated_by = set(self._errors), ()
        return metrics

    def evaluate_locally(self, classifier: Classifier) -> Evaluation | None:
        """Return the accuracy of a delivered classifier as the sites estimate it; None without an estimate."""
        evaluations: dict[str, LocalEvaluation] = {}
        message = self._local_request(classifier)
        for name, reply in self._request("evaluate_locally", dict.fromkeys(self.names, message)).items():
            try:
                evaluation = _require_message(reply).read(LocalEvaluation)
            except (RejectedReply, UnreadableMessage) as problem:
                self._warn(f"site '{name}' does not evaluate the classifier: {problem}.")
                continue
            if is_plausible(evaluation, self._registry.sites[name].held_out_rows):
                evaluations[name] = evaluation
        return combine_local_evaluations(evaluations, classifier.classes)

    def _local_request(self, classifier: Classifier) -> Message:
        request = self._registry.request(LocalEvaluationRequest, temperature=classifier.temperature)
        return Message.of(request, weights=weights_of(classifier.module))

    def _warn(self, message: str) -> None:
        self._registry.callback.on_warning(message)

    def _request_updates(self, broadcast: Broadcast, clients: Sequence[str], checks: UpdateChecks) -> dict[str, Update]:
        """Return the updates of the sites that reply with a usable one."""
        self._registry.admit(0, 0)  # sites that have connected since the last request
        numbers, tensors = self._evaluation(broadcast.round - 1 if broadcast.evaluate else 0, broadcast.reference)
        groups = {"weights": broadcast.weights, "received": broadcast.received, "evaluate": broadcast.evaluate}
        groups["reference"] = tensors
        numbers |= {"round": broadcast.round, "directive": broadcast.directive, "clips": broadcast.clips}
        messages = {
            name: Message.of(self._registry.request(TrainRequest, **numbers, **self._store.versions_of(name)), **groups)
            for name in clients
        }
        updates: dict[str, Update] = {}
        self._epsilon.ask(clients)
        for name, reply in self._request("train", messages).items():
            self._errors.pop(name, None)
            try:
                self._epsilon.note(name, _require_message(reply).read(TrainReply).epsilon)
                rows = self._registry.sites[name].rows
                updates[name] = checks.read_update(name, _require_message(reply), rows, self._expected_steps(rows))
                if broadcast.evaluate:
                    self._accept_held_out(name, _require_message(reply).read(TrainReply).held_out)
            except (RejectedReply, UnreadableMessage) as problem:
                self._errors[name] = str(problem)
        # Whether an update is rejected must not depend on those of other clients; clipped ones are not too large.
        compared = [] if self._registry.training.protects_clients else list(updates.values())
        for name, reason in find_oversized(compared, self._mean_norm).items():
            del updates[name]
            self._errors[name] = reason
        return updates

    def _expected_steps(self, rows: int) -> float:
        """Return the effective local steps of a site that trains on this many rows."""
        training = self._registry.training
        steps = count_local_steps(training, rows)
        return effective_steps(training.optimizer_name, training.momentum, steps, training.nesterov)

    def _accept_held_out(self, name: str, sums: HeldOutSums | None) -> None:
        rows = self._registry.sites[name].held_out_rows
        limit = MAX_ROW_LOSS * rows
        series = () if sums is None else (sums.losses, sums.squared_differences)
        complete = all(len(each) == len(TEMPERATURES) for each in series)
        if sums is None or sums.rows != rows or not complete or not all(0 <= v <= limit for v in sums.numbers):
            raise RejectedReply("its held-out losses are not plausible")
        self._held_out[name] = sums

    def _request(self, kind: str, messages: Mapping[str, Message]) -> dict[str, Reply]:
        """Send messages to sites and return the replies by name; `NoReply` for a site that is not connected."""
        return self._registry.send(kind, messages, self._config.round_seconds)

    def _evaluation(self, number: int, reference: Reference | None) -> tuple[dict[str, Any], Weights]:
        """Return the fields of a `HeldOutRequest` about the evaluation of a round, and the weights of the reference."""
        fields: dict[str, Any] = {"evaluated": number}
        if reference is None:
            return {**fields, "reference": 0, "reference_temperature": None}, {}
        fields |= {"reference": reference.round, "reference_temperature": reference.temperature}
        return fields, dict(reference.weights)

    def _total_traffic(self) -> tuple[int, int]:
        return self._registry.transport.bytes_sent, self._registry.transport.bytes_received

    def _list_errors(self) -> str:
        return "; ".join(f"{name}: {why}" for name, why in sorted(self._errors.items())) or "no site was connected"


def _require_message(reply: Reply) -> Message:
    """Return a reply; raise RejectedReply if it is missing."""
    if isinstance(reply, NoReply):
        raise RejectedReply(reply.reason)
    return reply
