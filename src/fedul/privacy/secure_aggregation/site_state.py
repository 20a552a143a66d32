"""What a site stores between two messages: the secrets of open aggregations, and what it may not do again.

The secrets of a round can undo its masks, so the stored bytes are as confidential as the rows: a file that only the
site's account can read. Those that undo this site's masks are deleted when shares are revealed, the others when the
next round is masked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from fedul.privacy.secure_aggregation.codec import Encoded
from fedul.privacy.secure_aggregation.messages import KeyAdvertisement, KeyList, RoundTerms
from fedul.privacy.secure_aggregation.primitives import fresh_secret
from fedul.privacy.secure_aggregation.problems import Refusal

NO_KEYS = KeyAdvertisement("", b"", b"", b"", b"")


@dataclass(frozen=True)
class RoundSecrets(Encoded):
    """A site in one aggregation.

    Parameters
    ----------
    terms : RoundTerms
        The terms.
    mask_secret, share_secret : bytes
        X25519 secret keys (s^SK and c^SK); that of masks is deleted when shares are revealed.
    seed : bytes
        Seed of the self mask (b); deleted when shares are revealed.
    advertisement : KeyAdvertisement
        The signed public keys.
    key_list : KeyList or None
        Keys of all sites, once they were received.
    sent : mapping of str to bytes
        Encrypted shares that this site made, by holder.
    seed_share : bytes
        This site's share of its seed.
    sites : tuple of str
        U2, once this site has masked a vector.
    shares : mapping of str to bytes
        Encrypted shares that the neighbours made for this site.
    context : bytes
        The digest that masks and signatures depend on.
    masked : bytes
        Digest of the vector that was masked; empty for none.
    signed, revealed : tuple of str
        Survivors that this site has signed on request, and for which it has revealed shares; empty for none.
    """

    terms: RoundTerms
    mask_secret: bytes
    share_secret: bytes
    seed: bytes
    advertisement: KeyAdvertisement = NO_KEYS
    key_list: KeyList | None = None
    sent: Mapping[str, bytes] = field(default_factory=dict)
    seed_share: bytes = b""
    sites: tuple[str, ...] = ()
    shares: Mapping[str, bytes] = field(default_factory=dict)
    context: bytes = b""
    masked: bytes = b""
    signed: tuple[str, ...] = ()
    revealed: tuple[str, ...] = ()

    @classmethod
    def fresh(cls, terms: RoundTerms) -> Self:
        """Return new secrets."""
        return cls(terms, fresh_secret(), fresh_secret(), fresh_secret())

    def need_key_list(self) -> KeyList:
        """Return the keys of all sites; Refusal if they were not received."""
        if self.key_list is None:
            raise Refusal("shares before the list of keys; nothing was sent.")
        return self.key_list

    def need_masked(self) -> KeyList:
        """Return the keys of all sites; Refusal if this site has not sent a masked vector."""
        if not self.masked:
            raise Refusal("survivors before the masked vector of this site; nothing was sent.")
        return self.need_key_list()


@dataclass(frozen=True)
class Progress(Encoded):
    """The last aggregation of one purpose in which a site sent a masked vector, and the last round it revealed."""

    round: int = 0
    attempt: int = 0
    revealed: int = 0


@dataclass
class SiteState(Encoded):
    """Everything that a site stores. `to_bytes` and `from_bytes` store and restore it.

    Parameters
    ----------
    secrets : mapping of str to RoundSecrets
        Open aggregations, by the digest of their terms.
    progress : mapping of str to Progress
        By purpose.
    """

    secrets: Mapping[str, RoundSecrets] = field(default_factory=dict)
    progress: Mapping[str, Progress] = field(default_factory=dict)

    def find(self, terms: bytes) -> RoundSecrets:
        """Return the secrets of an aggregation; Refusal if there are none (any more)."""
        found = self.secrets.get(terms.hex())
        if found is None:
            raise Refusal("an aggregation that this site does not know, or has deleted its keys of; nothing was sent.")
        return found

    def put(self, secrets: RoundSecrets) -> None:
        """Store the secrets of an aggregation."""
        self.secrets = {**self.secrets, secrets.terms.digest.hex(): secrets}

    def check_new(self, terms: RoundTerms) -> None:
        """Refuse terms of an attempt that is over, or that has other terms already."""
        self.check_mask(terms, again=False)
        for each in self.secrets.values():
            if each.terms.purpose == terms.purpose and each.terms.position == terms.position:
                raise Refusal("other terms for the same attempt; nothing was sent.")

    def check_mask(self, terms: RoundTerms, *, again: bool = True) -> None:
        """Refuse an attempt that is over, and another attempt at a round for which shares were revealed."""
        last = self.progress.get(terms.purpose, Progress())
        same = again and terms.position == (last.round, last.attempt)
        if terms.position <= (last.round, last.attempt) and not same:
            raise Refusal(f"attempt {terms.attempt} at round {terms.round} is over; nothing was sent.")
        if terms.round <= last.revealed and not same:
            raise Refusal(f"round {terms.round} again, after this site revealed shares for it; nothing was sent.")

    def forget_before(self, terms: RoundTerms) -> None:
        """Delete the secrets of all earlier attempts and rounds of this purpose: they are over at this site."""
        last = self.progress.get(terms.purpose, Progress())
        self.progress = {**self.progress, terms.purpose: Progress(terms.round, terms.attempt, last.revealed)}
        self.secrets = {
            key: each
            for key, each in self.secrets.items()
            if each.terms.purpose != terms.purpose or each.terms.position >= terms.position
        }

    def note_revealed(self, terms: RoundTerms) -> None:
        """Note that shares of a round were revealed."""
        last = self.progress.get(terms.purpose, Progress())
        revealed = max(last.revealed, terms.round)
        self.progress = {**self.progress, terms.purpose: Progress(last.round, last.attempt, revealed)}
