"""The coordinator in the secure sums of a run: which sites take part in which sum, and the exchanges with them.

A sum needs keys and shares of its sites before it can start. They are prepared ahead: a request for masked vectors asks
for keys for the next sums too, and the request that unmasks the vectors carries the list of these keys. So a sum costs
two exchanges, as long as no site drops out. A sum that was not prepared, because it is the first one, or too few sites
have keys, is prepared by two exchanges of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TypeVar

from fedul.engines.flower.protocol.message import Message
from fedul.engines.flower.secure import blobs
from fedul.engines.flower.secure.cohorts import smallest_part
from fedul.engines.flower.server.sum_preparation import SumPreparation, by_site
from fedul.privacy.secure_aggregation.coordinator import AggregationRound
from fedul.privacy.secure_aggregation.masks import Words
from fedul.privacy.secure_aggregation.messages import MaskedVector, SurvivorRequest
from fedul.privacy.secure_aggregation.problems import Refusal, TooFewSites

T = TypeVar("T")


@dataclass(frozen=True)
class SecureSum:
    """The sum of one aggregation, and the sites that are in it."""

    words: Words
    sites: tuple[str, ...]


class SecureSums(SumPreparation):
    """Secure sums of a run, by purpose; parameters are those of `SumPreparation`."""

    def note_sum(self, topic: str, sites: tuple[str, ...]) -> None:
        """Note that the sum of a topic over these sites is known, for example before the run was resumed."""
        self._known.setdefault(topic, set()).add(sites)

    def collect(
        self,
        kind: str,
        messages: Mapping[str, Message],
        topics: Mapping[str, str],
        ahead: Mapping[str, Collection[str]] | None = None,
    ) -> dict[str, SecureSum]:
        """Ask sites for masked vectors and return the sums by purpose; on the way the next ones are prepared.

        Parameters
        ----------
        kind : str
            Kind of the request.
        messages : mapping of str to Message
            The request to each site; `received_digest` of all is the same.
        topics : mapping of str to str
            By purpose, what is summed; `ensure` has prepared it. The first is essential, others may be missing in the
            result. Sites refuse sums of one topic over sets of sites that differ in few of them.
        ahead : mapping of str to collection of str
            Purposes whose next sums are prepared, each with these sites.

        Raises
        ------
        TooFewSites
            If too few sites sent vectors, signatures or shares for the first purpose.
        """
        running = {purpose: self._open.pop(purpose).round for purpose in topics}
        received = blobs.received_digest(kind, next(iter(messages.values())))
        for each in running.values():
            each.received = received
        masks = {purpose: each.mask_requests() for purpose, each in running.items()}
        asked = {}
        for name, message in messages.items():
            mine = {purpose: requests[name] for purpose, requests in masks.items() if name in requests}
            if next(iter(topics)) in mine:
                asked[name] = blobs.with_groups(message, {blobs.MASK: blobs.to_blobs(mine)})
        keys = self.key_requests(ahead or {})
        self._exchange({name: groups for name, groups in keys.items() if name not in asked})  # late sites
        sent = {name: blobs.with_groups(message, keys.get(name, {})) for name, message in asked.items()}
        for name, reply in self._send(kind, sent).items():
            answer = self._read(name, reply)
            if answer is None:
                continue
            self.take_keys(name, answer)
            for purpose, content in blobs.blobs_in(answer, blobs.VECTORS).items():
                if purpose in running:
                    self._take(name, content, MaskedVector, running[purpose].add_vector)
        return self._unmask(topics, running, ahead or {})

    def _unmask(
        self, topics: Mapping[str, str], running: dict[str, AggregationRound], ahead: Collection[str]
    ) -> dict[str, SecureSum]:
        """Ask the surviving sites to unmask their sums, after they agreed who these are; share keys for the next."""
        essential = next(iter(topics))

        def attempt(step: Callable[[str, AggregationRound], T]) -> dict[str, T]:
            """Return the results of a step by purpose; a sum that cannot go on is left out, unless it is essential."""
            results = {}
            for purpose in list(running):
                try:
                    results[purpose] = step(purpose, running[purpose])
                except (TooFewSites, Refusal):
                    if purpose == essential:
                        raise
                    del running[purpose]
            return results

        def survivors_of(purpose: str, each: AggregationRound) -> SurvivorRequest | None:
            request = each.survivor_request()
            self._check_parts(topics[purpose], each.survivors)
            return request

        requests = attempt(survivors_of)
        agreements = by_site({p: (each, each.sites) for p, each in requests.items() if each}, blobs.SURVIVORS)
        if agreements:
            self._exchange(agreements, running)
        unmasking = attempt(lambda _, each: each.unmask_request())
        for purpose, each in unmasking.items():
            self.note_sum(topics[purpose], each.sites)
        shares = by_site({purpose: (each, each.sites) for purpose, each in unmasking.items()}, blobs.UNMASK)
        following = self._share_requests([purpose for purpose in ahead if self._has_enough_keys(purpose)])
        everyone = {*shares, *following}
        self._exchange({name: {**shares.get(name, {}), **following.get(name, {})} for name in everyone}, running)
        for _ in range(self._attempts - 1):
            if running[essential].is_complete:
                break
            self._wait()
            self._exchange(shares, running)
        return {purpose: SecureSum(*sums) for purpose, sums in attempt(lambda _, each: each.sums()).items()}

    def _check_parts(self, topic: str, sites: tuple[str, ...]) -> None:
        """Refuse a sum that the sites would refuse: with earlier ones it would disclose a sum over too few."""
        if smallest_part([*self._known.get(topic, ()), sites]) < self._minimum:
            raise Refusal(
                "other sites are in this sum than in an earlier one, and the difference would disclose theirs."
            )
