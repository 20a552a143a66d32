"""The messages between coordinator and sites, in the order of a round.

docs/privacy/secure-aggregation.md explains each.

Round numbers in brackets are those of Bonawitz et al., CCS 2017, figure 4; U1, U2, U3 are its sets of sites.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from fedul.privacy.secure_aggregation.codec import Encoded

VERSION = b"fedul secure aggregation 1"


def digest(label: str, *parts: bytes) -> bytes:
    """Return SHA-256 of a label and parts, whose lengths are part of the input."""
    state = hashlib.sha256(VERSION)
    for part in (label.encode(), *parts):
        state.update(len(part).to_bytes(8, "big") + part)
    return state.digest()


def names_digest(names: tuple[str, ...]) -> bytes:
    """Return a digest of names of sites, which are in ascending order."""
    return digest("sites", *(name.encode() for name in names))


@dataclass(frozen=True)
class RoundTerms(Encoded):
    """What all sites of one aggregation agree on before any key is made. A site signs its digest with its keys.

    Parameters
    ----------
    run : str
        Identifier of the run. A run that is resumed is another one.
    purpose : str
        What is summed, for example "train"; every purpose has rounds of its own.
    round, attempt : int
        Number of the round, and of the attempt at it, each from 1.
    share : float
        Share of the sites with keys (U1) that must stay to the end, above 0.5.
    minimum : int
        Sites that must stay to the end, whatever the share is.
    layout : bytes
        `VectorLayout.digest` of what is summed.
    """

    run: str
    purpose: str
    round: int
    attempt: int
    share: float
    minimum: int
    layout: bytes

    @cached_property
    def digest(self) -> bytes:
        """Digest that stands for these terms in all other messages."""
        return digest("terms", self.to_bytes())

    @property
    def position(self) -> tuple[int, int]:
        """Round and attempt, in their order of time."""
        return self.round, self.attempt

    def threshold(self, sites: int) -> int:
        """Return the number of sites that must stay, of those with keys (T in the documentation)."""
        return max(self.minimum, math.ceil(self.share * sites - 1e-9), sites // 2 + 1)

    def next_round(self) -> RoundTerms:
        """Return the terms of the first attempt at the next round."""
        return replace(self, round=self.round + 1, attempt=1)

    def next_attempt(self) -> RoundTerms:
        """Return the terms of another attempt at this round."""
        return replace(self, attempt=self.attempt + 1)


@dataclass(frozen=True)
class KeyAdvertisement(Encoded):
    """[Round 0, reply] Fresh public keys of a site, signed by its identity key.

    Parameters
    ----------
    site : str
        Name of the site in the roster.
    terms : bytes
        Digest of the terms.
    mask_key, share_key : bytes
        X25519 keys for pairwise masks (s^PK) and for the encryption of shares (c^PK).
    commitment : bytes
        Digest of the seed of the self mask, by which wrong shares are noticed.
    signature : bytes
        The site's identity key over everything above.
    """

    site: str
    terms: bytes
    mask_key: bytes
    share_key: bytes
    commitment: bytes
    signature: bytes = b""

    @property
    def signed(self) -> bytes:
        """What the identity key signs."""
        parts = (self.site.encode(), self.terms, self.mask_key, self.share_key, self.commitment)
        return digest("keys", *parts)


@dataclass(frozen=True)
class KeyList(Encoded):
    """[Round 1, request] The keys of all sites that sent some (U1), in ascending order of their names."""

    terms: RoundTerms
    keys: tuple[KeyAdvertisement, ...]

    @cached_property
    def sites(self) -> tuple[str, ...]:
        """Names of the sites."""
        return tuple(key.site for key in self.keys)

    @cached_property
    def digest(self) -> bytes:
        """Digest of terms and keys; neighbours and masks depend on it."""
        return digest("key list", self.terms.digest, *(key.to_bytes() for key in self.keys))


@dataclass(frozen=True)
class EncryptedShares(Encoded):
    """[Round 1, reply] Shares of a site's two secrets, each encrypted for the neighbour that holds it."""

    site: str
    terms: bytes
    shares: Mapping[str, bytes]


@dataclass(frozen=True)
class MaskRequest(Encoded):
    """[Round 2, request] The sites whose shares arrived (U2), and the shares that the neighbours made for this site.

    It is sent together with the weights to train from.
    """

    terms: bytes
    sites: tuple[str, ...]
    shares: Mapping[str, bytes]


@dataclass(frozen=True)
class MaskedVector(Encoded):
    """[Round 2, reply] The masked vector (y_u), and a signature in case all of U2 send one.

    The signature is that of `SurvivorSignature` for U3 = U2, so that a round without dropouts needs no request for it.
    """

    site: str
    terms: bytes
    words: bytes
    signature: bytes


@dataclass(frozen=True)
class SurvivorRequest(Encoded):
    """[Round 3, request] The sites whose masked vector arrived (U3). Sent only if some of U2 dropped out."""

    terms: bytes
    sites: tuple[str, ...]


@dataclass(frozen=True)
class SurvivorSignature(Encoded):
    """[Round 3, reply] A site's signature of U3 together with everything it received and sent in this round."""

    site: str
    terms: bytes
    signature: bytes


@dataclass(frozen=True)
class UnmaskRequest(Encoded):
    """[Round 4, request] U3 and the signatures of at least T of its sites."""

    terms: bytes
    sites: tuple[str, ...]
    signatures: Mapping[str, bytes]


@dataclass(frozen=True)
class RevealedShares(Encoded):
    """[Round 4, reply] For each neighbour one share: of its self mask if it is in U3, else of its mask key."""

    site: str
    terms: bytes
    seeds: Mapping[str, bytes]
    keys: Mapping[str, bytes]


def transcript(key_list: KeyList, sites: tuple[str, ...], received: bytes) -> bytes:
    """Return the digest of what a site received before it masks; masks and signatures of survivors depend on it.

    Parameters
    ----------
    key_list : KeyList
        Terms and keys.
    sites : tuple of str
        U2.
    received : bytes
        Digest of weights, settings and everything else that decides what the site computes.
    """
    return digest("transcript", key_list.digest, names_digest(sites), received)


def survivors_statement(context: bytes, sites: tuple[str, ...]) -> bytes:
    """Return what sites sign about U3; `context` is the result of `transcript`."""
    return digest("survivors", context, names_digest(sites))
