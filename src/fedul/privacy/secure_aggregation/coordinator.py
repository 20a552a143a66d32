"""The coordinator's side of one aggregation: it relays keys and shares, adds masked vectors, and removes the masks.

Bonawitz et al., CCS 2017, figure 4, with the neighbours of Bell et al., CCS 2020. The coordinator sees public keys,
encrypted shares, masked vectors and, in the end, one share of every site from each of its neighbours. It holds no
secret, so `AggregationRound` needs no protection, and nothing but the sum comes out of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice

from fedul.privacy.secure_aggregation import shamir
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
    survivors_statement,
    transcript,
)
from fedul.privacy.secure_aggregation.neighbours import Neighbourhoods
from fedul.privacy.secure_aggregation.pairwise import neighbourhoods, pair_seed
from fedul.privacy.secure_aggregation.primitives import Verify, agree, fresh_secret, public_key, secret_key
from fedul.privacy.secure_aggregation.problems import Refusal, TooFewSites

TRIES = 50
"""Selections of shares that are tried, if a site sent a wrong one."""


class AggregationRound:
    """One attempt at one aggregation, at the coordinator.

    Call `add_keys` for every site, `key_list`, `add_shares`, `mask_requests`, `add_vector`, then, if
    `survivor_request` is not None, `add_signature`; `unmask_request`, `add_revealed` and `sums`. The methods that close
    a phase raise `TooFewSites` if fewer sites than the threshold took part in it. Nothing has been revealed then before
    `unmask_request`, and the round can be repeated with `RoundTerms.next_attempt`.

    Parameters
    ----------
    terms : RoundTerms
        The terms.
    asked : int
        Sites that were asked to take part; the threshold is a share of them before there are keys.
    layout : VectorLayout
        What is summed; its digest is in the terms.
    received : bytes
        Digest of weights and settings, as the sites compute it.
    verify : callable, optional
        As of `SecureSite`. With it, sites with wrong signatures are refused one by one; without it, the other sites
        notice them and refuse the aggregation.
    """

    def __init__(
        self, terms: RoundTerms, asked: int, layout: VectorLayout, received: bytes, verify: Verify | None = None
    ) -> None:
        self.terms, self.received, self.asked = terms, received, asked
        self._sums = Words.zeros(layout.narrow, layout.wide)
        self._verify = verify
        self._keys: dict[str, KeyAdvertisement] = {}
        self._key_list: KeyList | None = None
        self._graph: Neighbourhoods | None = None
        self._shares: dict[str, Mapping[str, bytes]] = {}
        self._sites: tuple[str, ...] = ()  # U2
        self._arrived: list[str] = []
        self._survivors: tuple[str, ...] = ()  # U3
        self._signatures: dict[str, bytes] = {}
        self._revealed: dict[str, RevealedShares] = {}

    @property
    def threshold(self) -> int:
        """Sites that must stay to the end (T)."""
        return self.terms.threshold(len(self._keys) if self._key_list else self.asked)

    def add_keys(self, reply: KeyAdvertisement) -> None:
        """Take the keys of a site."""
        if self._keys.get(reply.site) == reply:
            return
        if reply.terms != self.terms.digest or self._key_list is not None or reply.site in self._keys:
            raise Refusal(f"site '{reply.site[:80]}' sent keys for another aggregation.")
        self._check_signature(reply.site, reply.signed, reply.signature)
        for key in (reply.mask_key, reply.share_key):  # a key that is not valid would stop all other sites
            agree(secret_key(fresh_secret()), key, b"check")
        self._keys[reply.site] = reply

    def key_list(self) -> KeyList:
        """Return the request for shares, the same for all sites with keys (U1)."""
        if self._key_list is None:
            self._need("keys", len(self._keys))
            self._key_list = KeyList(self.terms, tuple(self._keys[name] for name in sorted(self._keys)))
            self._graph = neighbourhoods(self._key_list)
        return self._key_list

    def add_shares(self, reply: EncryptedShares) -> None:
        """Take the encrypted shares of a site."""
        if self._shares.get(reply.site) == reply.shares:
            return
        if self._sites or reply.terms != self.terms.digest or reply.site not in self._keys:
            raise Refusal(f"site '{reply.site[:80]}' sent shares for another aggregation.")
        if set(reply.shares) != set(self._neighbours(reply.site)):
            raise Refusal(f"site '{reply.site}' has not made a share for each of its neighbours.")
        self._shares[reply.site] = reply.shares

    def mask_requests(self) -> dict[str, MaskRequest]:
        """Return the request for a masked vector by site (U2)."""
        self._need("shares", len(self._shares))
        self._sites = tuple(sorted(self._shares))
        return {
            name: MaskRequest(
                self.terms.digest,
                self._sites,
                {other: self._shares[other][name] for other in self._neighbours(name) if other in self._shares},
            )
            for name in self._sites
        }

    def add_vector(self, reply: MaskedVector) -> None:
        """Take the masked vector of a site; it is added to the sum at once, so that memory does not grow."""
        if self._survivors or reply.terms != self.terms.digest or reply.site not in self._sites:
            raise Refusal(f"site '{reply.site[:80]}' sent a vector for another aggregation.")
        if reply.site in self._arrived:
            return
        self._check_signature(reply.site, self._statement(self._sites), reply.signature)
        self._sums.add(Words.from_bytes(reply.words, len(self._sums.narrow), len(self._sums.wide)))
        self._arrived.append(reply.site)
        self._signatures[reply.site] = reply.signature

    def survivor_request(self) -> SurvivorRequest | None:
        """Return the request for signatures of the survivors (U3), or None if all of U2 survived and have signed."""
        if not self._survivors:
            self._need("vectors", len(self._arrived))
            self._survivors = tuple(sorted(self._arrived))
            if self._survivors != self._sites:
                self._signatures.clear()
        if self._survivors == self._sites:
            return None
        return SurvivorRequest(self.terms.digest, self._survivors)

    @property
    def survivors(self) -> tuple[str, ...]:
        """Sites whose vector arrived (U3), from `survivor_request` on."""
        return self._survivors

    def add_signature(self, reply: SurvivorSignature) -> None:
        """Take a site's signature of the survivors."""
        if reply.terms != self.terms.digest or reply.site not in self._survivors:
            raise Refusal(f"site '{reply.site[:80]}' signed for another aggregation.")
        self._check_signature(reply.site, self._statement(self._survivors), reply.signature)
        self._signatures[reply.site] = reply.signature

    def unmask_request(self) -> UnmaskRequest:
        """Return the request for shares, for all survivors. From now on the attempt cannot be repeated."""
        self.survivor_request()
        self._need("signatures", len(self._signatures))
        chosen = islice(sorted(self._signatures.items()), self.threshold)  # T are enough, and cost least
        return UnmaskRequest(self.terms.digest, self._survivors, dict(chosen))

    def add_revealed(self, reply: RevealedShares) -> None:
        """Take the shares that a site reveals."""
        if reply.terms != self.terms.digest or reply.site not in self._survivors:
            raise Refusal(f"site '{reply.site[:80]}' revealed shares for another aggregation.")
        held = {reply.site, *self._neighbours(reply.site)}
        sizes = {len(share) for group in (reply.seeds, reply.keys) for share in group.values()}
        if not {*reply.seeds, *reply.keys} <= held or not sizes <= {shamir.SHARE_BYTES}:
            raise Refusal(f"site '{reply.site}' revealed shares that it cannot have.")
        self._revealed[reply.site] = reply

    @property
    def is_complete(self) -> bool:
        """Whether the shares that were revealed are enough for the sum."""
        return not self._missing()

    def sums(self) -> tuple[Words, tuple[str, ...]]:
        """Return the sum of the vectors of the survivors, and their names.

        Raises
        ------
        TooFewSites
            If too few sites revealed shares; ask the others again.
        Refusal
            If shares do not match what the sites committed to.
        """
        if missing := self._missing():
            raise TooFewSites("shares of their neighbours", len(self._revealed), len(self._revealed) + missing)
        sums = self._sums.copy()
        for name in self._survivors:
            sums.add_mask(self._recover(name, "seeds"), sign=-1)
        context = transcript(self.key_list(), self._sites, self.received)
        for lost in set(self._sites) - set(self._survivors):
            secret = secret_key(self._recover(lost, "keys"))
            for name in set(self._neighbours(lost)) & set(self._survivors):
                seed = pair_seed(secret, self._keys[name].mask_key, context, lost, name)
                sums.add_mask(seed, sign=1 if lost > name else -1)
        return sums, self._survivors

    def _missing(self) -> int:
        """Return how many shares are missing of the secret that lacks most."""
        found = dict.fromkeys(self._sites, 0)
        for reply in self._revealed.values():
            for name in (*reply.seeds, *reply.keys):
                wanted = reply.seeds if name in self._survivors else reply.keys
                found[name] += name in wanted
        return max((self._size - count for count in found.values() if count < self._size), default=0)

    def _recover(self, name: str, kind: str) -> bytes:
        """Return a site's seed or mask key from shares, and check it against what the site advertised."""
        graph, keys = self._graph, self._keys[name]
        assert graph is not None
        shares = {
            graph.holder(site): group[name]
            for site, reply in sorted(self._revealed.items())
            if name in (group := reply.seeds if kind == "seeds" else reply.keys)
        }
        for holders in _selections(list(shares), self._size):
            try:
                secret = shamir.combine({holder: shares[holder] for holder in holders})
            except Refusal:
                continue
            found = digest("seed", secret) if kind == "seeds" else public_key(secret)
            if found == (keys.commitment if kind == "seeds" else keys.mask_key):
                return secret
        raise Refusal(f"the shares of site '{name}' do not match; it, or some of its neighbours, sent wrong ones.")

    @property
    def _size(self) -> int:
        assert self._graph is not None
        return self._graph.size.threshold

    def _neighbours(self, name: str) -> Sequence[str]:
        assert self._graph is not None
        return self._graph.neighbours(name)

    def _statement(self, sites: tuple[str, ...]) -> bytes:
        return survivors_statement(transcript(self.key_list(), self._sites, self.received), sites)

    def _need(self, phase: str, present: int) -> None:
        needed = self.threshold
        if present < needed:
            raise TooFewSites(phase, present, needed)

    def _check_signature(self, site: str, statement: bytes, signature: bytes) -> None:
        if self._verify is not None and not self._verify(site, statement, signature):
            raise Refusal(f"site '{site[:80]}' sent a signature that its identity key has not made for this.")


def _selections(holders: Sequence[int], count: int) -> list[Sequence[int]]:
    """Return selections of holders that leave out different ones; the first is enough if no share is wrong."""
    turns = min(TRIES, len(holders)) if len(holders) > count else 1
    doubled = [*holders, *holders]
    return [doubled[turn : turn + count] for turn in range(turns)]
