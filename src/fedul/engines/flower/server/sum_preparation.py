"""Preparation of secure sums at the coordinator: keys and shares of sites, and the exchanges that carry them."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from fedul.core import Weights
from fedul.engines.flower.identity.roster import Roster
from fedul.engines.flower.protocol.documents import SumsReply, SumsRequest
from fedul.engines.flower.protocol.message import Message, UnreadableMessage, printable
from fedul.engines.flower.secure import blobs
from fedul.engines.flower.secure.identity import aggregation_run, verifies
from fedul.engines.flower.server.transport import NoReply, Reply
from fedul.privacy.secure_aggregation.codec import Encoded
from fedul.privacy.secure_aggregation.coordinator import AggregationRound
from fedul.privacy.secure_aggregation.layout import VectorLayout
from fedul.privacy.secure_aggregation.messages import (
    EncryptedShares,
    KeyAdvertisement,
    RevealedShares,
    RoundTerms,
    SurvivorSignature,
)
from fedul.privacy.secure_aggregation.problems import Refusal, TooFewSites

E = TypeVar("E", bound=Encoded)
T = TypeVar("T")

SendAll = Callable[[str, Mapping[str, Message]], Mapping[str, Reply]]
"""Sends messages of one kind to sites by name, and returns their replies."""


@dataclass(eq=False)
class _Preparation:
    """An aggregation that is being prepared.

    Parameters
    ----------
    round : AggregationRound
        The coordinator's side of the protocol.
    keyed, shared : set of str
        Sites whose keys, and whose shares, have arrived.
    """

    round: AggregationRound
    keyed: set[str] = field(default_factory=set)
    shared: set[str] = field(default_factory=set)
    has_key_list: bool = False


class SumPreparation:
    """Keys and shares of the sums of a run, and the exchanges with its sites.

    Parameters
    ----------
    send : callable
        Sends messages of one kind to sites by name, and returns their replies.
    wait : callable
        Waits for sites that do not reply.
    run : str
        Identifier of the run.
    resumption : int
        How often it has been resumed.
    roster : Roster
        Public keys of the sites.
    share : float
        Share of the sites of a sum that must stay to its end.
    minimum : int
        Sites that must stay to the end, whatever the share is.
    attempts : int
        Requests for the shares that unmask a sum, if sites do not reply.

    Attributes
    ----------
    errors : dict of str to str
        Sites that failed since `errors` was last cleared, with the reason.
    """

    def __init__(
        self,
        send: SendAll,
        wait: Callable[[], object],
        run: str,
        resumption: int,
        roster: Roster,
        *,
        share: float,
        minimum: int,
        attempts: int,
    ) -> None:
        self._send, self._wait, self._run, self._resumption = send, wait, run, resumption
        self._roster, self._share, self._minimum, self._attempts = roster, share, minimum, attempts
        self._layouts: dict[str, VectorLayout] = {}
        self._numbers: dict[str, int] = {}  # number of the last sum by purpose
        self._open: dict[str, _Preparation] = {}
        self._known: dict[str, set[tuple[str, ...]]] = {}  # by topic, the sites whose sum is known
        self.errors: dict[str, str] = {}

    @property
    def most_sites(self) -> int:
        """Sites of the roster."""
        return len(self._roster.keys)

    def declare(self, purpose: str, layout: VectorLayout) -> None:
        """State what is summed for a purpose; needed before anything else with it."""
        self._layouts[purpose] = layout

    def key_requests(self, sites: Mapping[str, Collection[str]]) -> dict[str, dict[str, Weights]]:
        """Return by site the group of tensors with which any request asks for keys for the next sums.

        Parameters
        ----------
        sites : mapping of str to collection of str
            Sites by purpose.
        """
        terms = {p: (self._prepare(p, len(names)).round.terms, names) for p, names in sites.items()}
        return by_site(terms, blobs.ADVERTISE)

    def take_keys(self, name: str, reply: Message) -> None:
        """Take the keys for the next sums from any reply."""
        for purpose, content in blobs.blobs_in(reply, blobs.KEYS).items():
            preparation = self._open.get(purpose)
            if preparation is None or preparation.has_key_list:
                continue
            if self._take(name, content, KeyAdvertisement, preparation.round.add_keys):
                preparation.keyed.add(name)

    def ready(self, purpose: str) -> set[str]:
        """Return the sites that are ready for the next sum of a purpose."""
        preparation = self._open.get(purpose)
        return set() if preparation is None else set(preparation.shared)

    def forget(self, purpose: str) -> None:
        """Give up the sum that is prepared; the next one has fresh keys."""
        self._open.pop(purpose, None)

    def ensure(self, sites: Mapping[str, Collection[str]]) -> None:
        """Prepare the next sums, by purpose with these sites, unless they are prepared with enough of them.

        Raises
        ------
        TooFewSites
            If too few sites send keys or shares.
        """
        without_shares = []
        for purpose, names in sites.items():
            preparation = self._open.get(purpose)
            if preparation is not None and self._is_enough(preparation.shared, names):
                continue
            without_shares.append(purpose)
            if preparation is None or preparation.has_key_list or not self._is_enough(preparation.keyed, names):
                self.forget(purpose)
        if without_keys := {purpose: sites[purpose] for purpose in without_shares if purpose not in self._open}:
            self._exchange(self.key_requests(without_keys))
        if without_shares:
            self._exchange(self._share_requests(without_shares))
        for purpose in without_shares:
            preparation = self._open[purpose]
            if len(preparation.shared) < preparation.round.threshold:
                raise TooFewSites("shares", len(preparation.shared), preparation.round.threshold)

    def _exchange(
        self,
        requests: Mapping[str, Mapping[str, Weights]],
        running: Mapping[str, AggregationRound] | None = None,
    ) -> None:
        """Send parts of sums that need no data of sites, and take the replies."""
        document = SumsRequest(self._run, self._resumption)
        messages = {name: Message.of(document, **groups) for name, groups in sorted(requests.items())}
        for name, reply in self._send("aggregate", messages).items():
            message = self._read(name, reply)
            if message is None:
                continue
            self.take_keys(name, message)
            for purpose, content in blobs.blobs_in(message, blobs.SHARES).items():
                preparation = self._open.get(purpose)
                if preparation and self._take(name, content, EncryptedShares, preparation.round.add_shares):
                    preparation.shared.add(name)
            signatures, revealed = (blobs.blobs_in(message, group) for group in (blobs.SIGNATURES, blobs.REVEALED))
            for purpose, each in (running or {}).items():
                if purpose in signatures:
                    self._take(name, signatures[purpose], SurvivorSignature, each.add_signature)
                if purpose in revealed:
                    self._take(name, revealed[purpose], RevealedShares, each.add_revealed)

    def _share_requests(self, purposes: Collection[str]) -> dict[str, dict[str, Weights]]:
        """Return the lists of keys by site: the next exchange of the sums of these purposes."""
        lists = {}
        for purpose in purposes:
            key_list = self._open[purpose].round.key_list()
            self._open[purpose].has_key_list = True
            lists[purpose] = key_list, key_list.sites
        return by_site(lists, blobs.KEY_LIST)

    def _has_enough_keys(self, purpose: str) -> bool:
        preparation = self._open[purpose]
        return not preparation.has_key_list and len(preparation.keyed) >= preparation.round.threshold

    def _is_enough(self, found: Collection[str], wanted: Collection[str]) -> bool:
        """Return whether a sum over the sites that were found can do for the sites that are wanted."""
        needed = max(self._minimum, math.ceil(self._share * len(wanted)))
        return set(found) <= set(wanted) and len(found) >= needed

    def _prepare(self, purpose: str, asked: int) -> _Preparation:
        """Return the preparation of the next sum of a purpose."""
        if purpose not in self._open:
            number = self._numbers[purpose] = self._numbers.get(purpose, 0) + 1
            layout, run = self._layouts[purpose], aggregation_run(self._run, self._resumption)
            terms = RoundTerms(run, purpose, number, 1, self._share, self._minimum, layout.digest)
            self._open[purpose] = _Preparation(AggregationRound(terms, asked, layout, b"", self._verify))
        return self._open[purpose]

    def _verify(self, name: str, statement: bytes, signature: bytes) -> bool:
        return verifies(self._roster, name, statement, signature)

    def _read(self, name: str, reply: Reply) -> Message | None:
        """Return a reply; note why there is none, or what the site refuses."""
        if isinstance(reply, NoReply):
            self.errors[name] = reply.reason
            return None
        try:
            refusals = reply.read(SumsReply).refusals
        except UnreadableMessage as problem:
            self.errors[name] = str(problem)
            return None
        for what, reason in refusals.items():
            self.errors[name] = printable(f"{what}: {reason}", 300)
        return reply

    def _take(self, name: str, content: bytes, kind: type[E], accept: Callable[[E], object]) -> bool:
        """Let an aggregation accept a message of a site; note why it does not."""
        try:
            message = kind.from_bytes(content)
            if getattr(message, "site", name) != name:
                raise Refusal("it sent a message of another site")
            accept(message)
        except Refusal as problem:
            self.errors[name] = printable(str(problem).rstrip("."), 300)
            return False
        return True


def by_site(requests: Mapping[str, tuple[Encoded, Collection[str]]], group: str) -> dict[str, dict[str, Weights]]:
    """Return requests by purpose, each with its sites, as groups of tensors by site."""
    found: dict[str, dict[str, Weights]] = {}
    for purpose, (request, names) in requests.items():
        blob = blobs.to_blob(request)
        for name in names:
            found.setdefault(name, {}).setdefault(group, {})[purpose] = blob
    return found
