"""Aggregations in one process: for the simulation, tests and benchmarks. Sites and coordinator exchange bytes only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fedul.privacy.secure_aggregation.codec import Encoded
from fedul.privacy.secure_aggregation.coordinator import AggregationRound
from fedul.privacy.secure_aggregation.layout import VectorLayout
from fedul.privacy.secure_aggregation.masks import Words
from fedul.privacy.secure_aggregation.messages import (
    EncryptedShares,
    KeyAdvertisement,
    KeyList,
    MaskedVector,
    MaskRequest,
    RevealedShares,
    RoundTerms,
    SurvivorRequest,
    SurvivorSignature,
    UnmaskRequest,
    digest,
)
from fedul.privacy.secure_aggregation.site import SecureSite, SitePolicy

PHASES = ("keys", "shares", "vector", "signature", "reveal")
"""Replies of a site, in their order."""

Kind = TypeVar("Kind", bound=Encoded)


class LocalFederation:
    """Sites with identity keys of their own, and a coordinator.

    Parameters
    ----------
    names : iterable of str
        Names of the sites.
    run : str
        Identifier of the run.
    policy : SitePolicy, optional
        What every site demands.

    Attributes
    ----------
    sites : dict of str to SecureSite
        The sites.
    traffic : Counter
        Bytes by phase, and by direction: ("vector", "up") is what sites sent.
    """

    def __init__(self, names: Iterable[str], run: str = "in process", policy: SitePolicy | None = None) -> None:
        keys = {name: Ed25519PrivateKey.generate() for name in names}
        self._roster = {name: key.public_key() for name, key in keys.items()}
        self.sites = {
            name: SecureSite(name, run, key.sign, self.verify, policy or SitePolicy()) for name, key in keys.items()
        }
        self.run = run
        self._verified: dict[tuple[str, bytes, bytes], bool] = {}
        self.traffic: Counter[tuple[str, str]] = Counter()

    def verify(self, name: str, statement: bytes, signature: bytes) -> bool:
        """Return whether the identity key of a site made a signature; it is verified once for all sites."""
        asked = name, statement, signature
        if asked not in self._verified:
            try:
                self._roster[name].verify(signature, statement)
                self._verified[asked] = True
            except (InvalidSignature, KeyError):
                self._verified[asked] = False
        return self._verified[asked]

    def aggregate(
        self,
        terms: RoundTerms,
        layout: VectorLayout,
        vectors: Mapping[str, Words | Callable[[], Words]],
        received: bytes = b"",
        lost: Mapping[str, Sequence[str]] | None = None,
    ) -> tuple[Words, tuple[str, ...]]:
        """Run one attempt and return the sum and the names of the sites in it.

        Parameters
        ----------
        terms : RoundTerms
            The terms.
        layout : VectorLayout
            What is summed.
        vectors : mapping of str to Words or callable
            The vector of each site that takes part, or what computes it.
        received : bytes
            Stands for weights and settings.
        lost : mapping of str to sequence of str, optional
            By phase of `PHASES`, the sites that drop out before they send it.
        """
        received, lost = digest("received", received), lost or {}
        self._verified.clear()
        present = sorted(vectors)
        attempt = AggregationRound(terms, len(present), layout, received, self.verify)

        def remain(phase: str) -> list[str]:
            present[:] = [name for name in present if name not in lost.get(phase, ())]
            return present

        for name in remain("keys"):
            attempt.add_keys(self._move("keys", KeyAdvertisement, self.sites[name].advertise(terms)))
        request = attempt.key_list()
        for name in remain("shares"):
            arrived = self._move("shares", KeyList, request, down=True)
            attempt.add_shares(self._move("shares", EncryptedShares, self.sites[name].share(arrived)))
        masks = attempt.mask_requests()
        for name in remain("vector"):
            vector = vectors[name]
            words = vector if isinstance(vector, Words) else vector()
            asked = self._move("vector", MaskRequest, masks[name], down=True)
            attempt.add_vector(self._move("vector", MaskedVector, self.sites[name].mask(asked, words, received)))
        survivors = attempt.survivor_request()
        if survivors is not None:
            for name in remain("signature"):
                listed = self._move("signature", SurvivorRequest, survivors, down=True)
                attempt.add_signature(self._move("signature", SurvivorSignature, self.sites[name].agree(listed)))
        unmask = attempt.unmask_request()
        for name in remain("reveal"):
            signed = self._move("reveal", UnmaskRequest, unmask, down=True)
            attempt.add_revealed(self._move("reveal", RevealedShares, self.sites[name].reveal(signed)))
        return attempt.sums()

    def _move(self, phase: str, kind: type[Kind], message: Kind, *, down: bool = False) -> Kind:
        """Return a message after its way as bytes."""
        data = message.to_bytes()
        self.traffic[phase, "down" if down else "up"] += len(data)
        return kind.from_bytes(data)
