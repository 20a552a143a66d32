"""An aggregation step by step, so that tests can change what one side sends to the other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from fedul.privacy.secure_aggregation.coordinator import AggregationRound
from fedul.privacy.secure_aggregation.in_process import LocalFederation
from fedul.privacy.secure_aggregation.layout import Field, VectorLayout
from fedul.privacy.secure_aggregation.masks import Words
from fedul.privacy.secure_aggregation.messages import (
    KeyList,
    MaskRequest,
    RevealedShares,
    RoundTerms,
    SurvivorRequest,
    UnmaskRequest,
)
from fedul.privacy.secure_aggregation.site import SecureSite

RECEIVED = b"weights and settings"


def names(count: int) -> list[str]:
    """Return names of sites."""
    return [f"site{number:03}" for number in range(count)]


def one_field(count: int, size: int = 8, bits: int = 32) -> VectorLayout:
    """Return a layout with one field of numbers up to 4."""
    return VectorLayout((Field("delta", size, 4.0, 4.0 * count, bits),), count)


def terms_for(layout: VectorLayout, share: float = 0.7, minimum: int = 3) -> RoundTerms:
    """Return the terms of a first attempt."""
    return RoundTerms("in process", "train", 1, 1, share, minimum, layout.digest)


@dataclass
class Protocol:
    """Sites, a coordinator and what they have exchanged."""

    count: int
    share: float = 0.7
    federation: LocalFederation = field(init=False)
    terms: RoundTerms = field(init=False)
    values: dict[str, np.ndarray[tuple[int], np.dtype[np.float64]]] = field(init=False)
    attempt: AggregationRound = field(init=False)

    def __post_init__(self) -> None:
        self.federation = LocalFederation(names(self.count))
        self.layout = one_field(self.count)
        generator = np.random.default_rng(self.count)
        self.values = {name: generator.uniform(-1, 1, 8) for name in names(self.count)}
        self.start(terms_for(self.layout, self.share))

    def start(self, terms: RoundTerms) -> Protocol:
        """Begin an attempt at the coordinator."""
        self.terms = terms
        self.attempt = AggregationRound(terms, self.count, self.layout, RECEIVED, self.federation.verify)
        return self

    def site(self, number: int) -> SecureSite:
        """Return a site."""
        return self.federation.sites[names(self.count)[number]]

    def words(self, name: str) -> Words:
        """Return the vector of a site."""
        return self.layout.encode({"delta": self.values[name]}).words

    def keys(self, present: Iterable[int] | None = None) -> KeyList:
        """Collect keys, and return the list of them."""
        for number in range(self.count) if present is None else present:
            self.attempt.add_keys(self.site(number).advertise(self.terms))
        return self.attempt.key_list()

    def shares(self, present: Iterable[int] | None = None) -> dict[str, MaskRequest]:
        """Collect keys and shares, and return the requests for vectors."""
        request = self.keys()
        for number in range(self.count) if present is None else present:
            self.attempt.add_shares(self.site(number).share(request))
        return self.attempt.mask_requests()

    def vectors(self, present: Sequence[int] | None = None) -> SurvivorRequest:
        """Collect everything up to masked vectors, and return the list of survivors."""
        requests = self.shares()
        chosen = [names(self.count)[number] for number in (range(self.count) if present is None else present)]
        for name in chosen:
            site = self.federation.sites[name]
            self.attempt.add_vector(site.mask(requests[name], self.words(name), RECEIVED))
        self.attempt.survivor_request()
        return SurvivorRequest(self.terms.digest, tuple(chosen))

    def signatures(self, request: SurvivorRequest) -> UnmaskRequest:
        """Let all survivors sign the list, and return the request for shares."""
        replies = {name: self.federation.sites[name].agree(request).signature for name in request.sites}
        return UnmaskRequest(request.terms, request.sites, replies)

    def unmasked(self, request: UnmaskRequest, lost: Iterable[int] = ()) -> None:
        """Let survivors reveal shares."""
        for name in set(request.sites) - {names(self.count)[number] for number in lost}:
            self.attempt.add_revealed(self.federation.sites[name].reveal(request))

    def total(self, survivors: Iterable[str]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """Return the sum that the coordinator may learn."""
        return np.sum([self.values[name] for name in survivors], axis=0)

    def found(self) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """Return the sum that the coordinator learned."""
        return self.layout.decode(self.attempt.sums()[0])["delta"]

    @property
    def tolerance(self) -> float:
        """Largest rounding error of a sum."""
        return self.count / 2 * self.layout.step(self.layout.fields[0])


def shares_of(replies: Iterable[RevealedShares], name: str) -> tuple[int, int]:
    """Return how many shares of a site's self mask, and of its mask key, were revealed."""
    given = list(replies)
    return sum(name in reply.seeds for reply in given), sum(name in reply.keys for reply in given)


def without(request: KeyList, name: str) -> KeyList:
    """Return a list of keys without those of a site."""
    return replace(request, keys=tuple(key for key in request.keys if key.site != name))
