"""Engine that trains at real sites under secure aggregation: it learns sums over sites, and no update of a single one.

A round is one secure sum of the updates, and one of the held-out sums of the round before, on the same two exchanges.
The updates of a round may be summed over any sites that stay. Held-out sums depend on weights and rows only, so two of
them over sets that differ in one site would disclose what that site holds: they are always over the same sites, those
of the first evaluation, or a round is not evaluated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fedul.classifier import Classifier
from fedul.core import RoundSums, UpdateSpec, Weights
from fedul.engines.base import Broadcast, EngineMetrics
from fedul.engines.flower.protocol.documents import HeldOutRequest, TrainRequest
from fedul.engines.flower.protocol.message import Message
from fedul.engines.flower.protocol.spent_budget import raise_if_all_spent
from fedul.engines.flower.secure.contributions import (
    EVALUATE,
    LOCAL,
    TRAIN,
    evaluation_layout,
    local_layout,
    read_local,
)
from fedul.engines.flower.server.engine import FlowerEngine, SiteStateVersions
from fedul.engines.flower.server.local_evaluation import combine_totals
from fedul.engines.flower.server.secure_sums import SecureSum, SecureSums
from fedul.engines.flower.server.site_registry import SiteRegistry
from fedul.engines.flower.settings import CoordinatorConfig
from fedul.engines.held_out import HeldOutSums, Reference
from fedul.engines.secure_sums import held_out_sums
from fedul.errors import EnvironmentFailure
from fedul.evaluation.document import Evaluation
from fedul.privacy.secure_aggregation.problems import Refusal, TooFewSites
from fedul.privacy.secure_aggregation.update_layout import UpdateLayout

ALL = "all sites"
"""Name of the evaluator whose held-out sums are those of all sites."""


class SecureEngine(FlowerEngine):
    """Engine whose sites send masked vectors.

    Parameters
    ----------
    registry, update_spec, config, store, epsilon
        As of `FlowerEngine`.
    sums : SecureSums
        The secure sums of the run.
    layout : UpdateLayout
        How updates are summed.
    evaluators : sequence of str
        Sites that evaluated earlier rounds of a resumed run; empty for a new one.
    """

    def __init__(
        self,
        registry: SiteRegistry,
        update_spec: UpdateSpec,
        config: CoordinatorConfig,
        store: SiteStateVersions,
        epsilon: Mapping[str, float],
        sums: SecureSums,
        layout: UpdateLayout,
        evaluators: Sequence[str] = (),
    ) -> None:
        super().__init__(registry, update_spec, config, store, epsilon)
        self._sums, self._layout = sums, layout
        self._evaluators = tuple(evaluators)
        self._total: HeldOutSums | None = None  # of the round that was evaluated with the last updates
        sums.declare(TRAIN, layout.vector)
        sums.declare(EVALUATE, evaluation_layout(sums.most_sites))
        sums.declare(LOCAL, local_layout(sums.most_sites))
        if self._evaluators:
            sums.note_sum(EVALUATE, self._evaluators)

    def train(self, broadcast: Broadcast, clients: Sequence[str]) -> RoundSums:
        self._errors, self._reported, self._total = {}, set(), None
        self._last_trained, self._evaluates_ahead = broadcast.round, bool(broadcast.evaluate)
        self._registry.transport.max_bytes = 2 * self._update_spec.nbytes + 2**20 + 4096 * self._sums.most_sites
        for attempt in range(self._config.attempts):
            self._registry.admit(*((self._config.min_sites, self._config.round_seconds) if attempt else (0, 0)))
            try:
                return self._sum_updates(broadcast, clients)
            except (TooFewSites, Refusal) as caught:
                problem = str(caught).rstrip(".")
                self._collect_errors()
        raise_if_all_spent(self._errors)
        raise EnvironmentFailure(
            f"round {broadcast.round}: no sum of updates in {self._config.attempts} attempts: {problem} "
            f"({self._list_errors()}); check the sites, then resume the run."
        )

    def evaluate_held_out(self, weights: Weights, reference: Reference | None = None) -> Mapping[str, HeldOutSums]:
        """Return the held-out sums over all sites; empty if the sites of the earlier rounds are not all there."""
        number = self._last_trained - self._evaluates_ahead
        self._evaluates_ahead = False
        total, self._total = self._total, None
        sites = self._evaluation_sites()
        if total is None and sites:
            fields, tensors = self._evaluation(number, reference)
            document = self._registry.request(HeldOutRequest, **fields)
            message = Message.of(document, weights=weights, reference=tensors)
            if found := self._try_sum("evaluate_held_out", EVALUATE, dict.fromkeys(sites, message)):
                total = self._read_held_out(found)
        if total is None:
            missing = ", ".join(sorted(set(self._evaluators) - set(self._registry.present))) or "some sites"
            self._warn(
                f"round {number} is not evaluated: {missing} did not take part, and a sum over the others would "
                "disclose the part of those that are missing."
            )
            return {}
        self._evaluated_by = self._evaluators
        return {ALL: total}

    def evaluate_locally(self, classifier: Classifier) -> Evaluation | None:
        messages = dict.fromkeys(self._registry.present, self._local_request(classifier))
        found = self._try_sum("evaluate_locally", LOCAL, messages)
        if found is None:
            self._collect_errors()
            self._warn(f"there is no estimate of the accuracy, because too few sites sent one ({self._list_errors()}).")
            return None
        totals = read_local(local_layout(self._sums.most_sites).decode(found.words))
        return combine_totals(totals, classifier.classes)

    def collect_metrics(self) -> EngineMetrics:
        self._collect_errors()
        return super().collect_metrics()

    def _sum_updates(self, broadcast: Broadcast, clients: Sequence[str]) -> RoundSums:
        """Return the sums over the updates of a round."""
        connected = tuple(self._registry.present)
        present = [name for name in clients if name in connected]
        wanted: dict[str, Sequence[str]] = {TRAIN: present}
        evaluators = self._evaluation_sites() if broadcast.evaluate else ()
        self._sums.ensure(wanted)
        if evaluators and self._prepares(EVALUATE, evaluators):
            wanted[EVALUATE] = evaluators
        fields, tensors = self._evaluation(broadcast.round - 1 if broadcast.evaluate else 0, broadcast.reference)
        groups = {"weights": broadcast.weights, "received": broadcast.received, "evaluate": broadcast.evaluate}
        fields |= {"round": broadcast.round, "directive": broadcast.directive, "clips": broadcast.clips}
        messages = {
            name: Message.of(
                self._registry.request(TrainRequest, **fields, **self._store.versions_of(name)),
                **groups,
                reference=tensors,
            )
            for name in present
        }
        topics = {TRAIN: f"round {broadcast.round}", EVALUATE: EVALUATE}
        self._epsilon.ask(present)
        found = self._sums.collect(
            "train",
            messages,
            {purpose: topics[purpose] for purpose in wanted},
            {TRAIN: connected, EVALUATE: self._evaluation_sites() or present} if self._prepares_ahead else {},
        )
        for name in found[TRAIN].sites:
            self._store.write(name, broadcast.round, {})
        if EVALUATE in found:
            self._total = self._read_held_out(found[EVALUATE])
        for name in set(clients) - set(found[TRAIN].sites):
            self._errors.setdefault(name, "it has no keys for this round" if name in present else "not connected")
        return self._layout.decode(found[TRAIN].words, len(found[TRAIN].sites))

    @property
    def _prepares_ahead(self) -> bool:
        """Whether the sites of the next round are known, so that their keys can travel with this one."""
        return self._registry.training.participation == 1

    def _evaluation_sites(self) -> Sequence[str]:
        """Return the sites that can evaluate a round; empty if those of the earlier rounds are not all there."""
        present = self._registry.present
        sites = self._evaluators or tuple(present)
        return sites if all(name in present for name in sites) else ()

    def _read_held_out(self, found: SecureSum) -> HeldOutSums:
        self._evaluators = found.sites
        return held_out_sums(evaluation_layout(self._sums.most_sites).decode(found.words))

    def _prepares(self, purpose: str, sites: Sequence[str]) -> bool:
        """Prepare a sum over these sites, and return whether enough are ready; of rounds, all evaluators must be."""
        exact = purpose == EVALUATE and bool(self._evaluators)
        if exact and self._sums.ready(purpose) != set(sites):
            self._sums.forget(purpose)
        try:
            self._sums.ensure({purpose: sites})
        except (TooFewSites, Refusal):
            return False
        return not exact or self._sums.ready(purpose) == set(sites)

    def _try_sum(self, kind: str, purpose: str, messages: Mapping[str, Message]) -> SecureSum | None:
        """Return a sum of its own; None if too few sites take part."""
        for _ in range(self._config.attempts):
            try:
                if messages and self._prepares(purpose, sorted(messages)):
                    # The estimate of the accuracy follows the last evaluation.
                    ahead = {LOCAL: list(messages)} if purpose == EVALUATE else {}
                    return self._sums.collect(kind, messages, {purpose: purpose}, ahead)[purpose]
            except (TooFewSites, Refusal):
                continue
        return None

    def _collect_errors(self) -> None:
        self._errors |= self._sums.errors
        self._sums.errors.clear()
