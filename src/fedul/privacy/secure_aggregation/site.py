"""A site's side of the protocol: what it answers to each request, and what it refuses.

The steps are those of Bonawitz et al., CCS 2017, figure 4, in its variant against a malicious coordinator, with the
neighbours of Bell et al., CCS 2020. `SecureSite` answers one message at a time: its `state` is stored before a reply is
sent, so that a site that was restarted cannot be made to answer twice. A request that is repeated, because its answer
was lost on the way, gets the same answer again (but for the random numbers in a signature).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from fedul.privacy.secure_aggregation import shamir
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
from fedul.privacy.secure_aggregation.pairwise import neighbourhoods, pair_seed, share_context
from fedul.privacy.secure_aggregation.primitives import Sign, Verify, agree, decrypt, encrypt, public_key, secret_key
from fedul.privacy.secure_aggregation.problems import Refusal, TooFewSites
from fedul.privacy.secure_aggregation.site_state import RoundSecrets, SiteState


@dataclass(frozen=True)
class SitePolicy:
    """What a site demands of every aggregation, whatever the coordinator declares.

    Parameters
    ----------
    minimum : int, default=3
        Fewest sites of the roster over which a sum is made.
    share : float, default=0.6
        Lowest share of the sites that must stay to the end; more than half.
    """

    minimum: int = 3
    share: float = 0.6

    def check(self, terms: RoundTerms) -> None:
        """Refuse terms that this site does not accept."""
        if terms.minimum < self.minimum:
            raise Refusal(f"sums over {terms.minimum} sites are too few; this site demands {self.minimum}.")
        if not max(self.share, 0.5) <= terms.share <= 1:
            raise Refusal(f"an aggregation-threshold of {terms.share:g} is below the {self.share:g} of this site.")


class SecureSite:
    """One site in the aggregations of a run.

    Parameters
    ----------
    name : str
        Name of the site in the roster.
    run : str
        Identifier of the run.
    sign : callable
        Signs bytes with the site's identity key.
    verify : callable
        ``verify(name, statement, signature)``: whether the identity key of this name in the site's own roster made the
        signature. It must return False for a name that is not in the roster.
    policy : SitePolicy
        What the site demands.
    state : SiteState, optional
        What it stored after the last message; by default that of a site that has received none.
    """

    def __init__(
        self,
        name: str,
        run: str,
        sign: Sign,
        verify: Verify,
        policy: SitePolicy | None = None,
        state: SiteState | None = None,
    ) -> None:
        self.name, self.run = name, run
        self.policy = policy or SitePolicy()
        self.state = state or SiteState()
        self._sign, self._verify = sign, verify

    def advertise(self, terms: RoundTerms) -> KeyAdvertisement:
        """[Round 0] Make fresh keys for an aggregation and sign them. The same terms give the same keys.

        Raises
        ------
        Refusal
            If the terms are not acceptable, or it is too late for them.
        """
        if terms.run != self.run:
            raise Refusal("the request is for another run; nothing was sent.")
        self.policy.check(terms)
        known = self.state.secrets.get(terms.digest.hex())
        if known is not None:
            return known.advertisement
        self.state.check_new(terms)
        secrets = RoundSecrets.fresh(terms)
        advertisement = KeyAdvertisement(
            self.name,
            terms.digest,
            public_key(secrets.mask_secret),
            public_key(secrets.share_secret),
            digest("seed", secrets.seed),
        )
        advertisement = replace(advertisement, signature=self._sign(advertisement.signed))
        self.state.put(replace(secrets, advertisement=advertisement))
        return advertisement

    def share(self, request: KeyList) -> EncryptedShares:
        """[Round 1] Check the keys of all sites, and encrypt shares of this site's secrets for its neighbours.

        Raises
        ------
        Refusal
            If a key is not signed for these terms by a site of the roster, or keys are not all different.
        TooFewSites
            If there are fewer sites than this one demands.
        """
        secrets = self.state.find(request.terms.digest)
        if secrets.key_list is not None:
            if secrets.key_list != request:
                raise Refusal("a second list of keys for the same aggregation; nothing was sent.")
            return EncryptedShares(self.name, request.terms.digest, dict(secrets.sent))
        self._check_keys(request, secrets)
        graph = neighbourhoods(request)
        holders = {name: graph.holder(name) for name in (self.name, *graph.neighbours(self.name))}
        seed_shares, key_shares = (
            shamir.split(secret, graph.size.threshold, list(holders.values()))
            for secret in (secrets.seed, secrets.mask_secret)
        )
        keys = {key.site: key.share_key for key in request.keys}
        secret, sent = secret_key(secrets.share_secret), {}
        for name, holder in holders.items():
            if name != self.name:
                context = share_context(request, self.name, name)
                sent[name] = encrypt(
                    agree(secret, keys[name], context), seed_shares[holder] + key_shares[holder], context
                )
        own = graph.holder(self.name)
        self.state.put(replace(secrets, key_list=request, sent=sent, seed_share=seed_shares[own]))
        return EncryptedShares(self.name, request.terms.digest, sent)

    def mask(self, request: MaskRequest, words: Words, received: bytes) -> MaskedVector:
        """[Round 2] Mask a vector, once.

        Parameters
        ----------
        request : MaskRequest
            What the coordinator sent.
        words : Words
            The vector of this site, as `VectorLayout.encode` returns it.
        received : bytes
            Digest of weights, settings and everything else that decides what the sites compute. Sites with different
            digests refuse each other's signatures, and their masks do not cancel.

        Raises
        ------
        Refusal, TooFewSites
            If the request does not fit the earlier ones, or there are fewer sites than the threshold.
        """
        secrets = self.state.find(request.terms)
        key_list = secrets.need_key_list()
        graph = neighbourhoods(key_list)
        self._check_subset(request.sites, key_list.sites, key_list, "shares")
        expected = set(graph.neighbours(self.name)) & set(request.sites)
        if set(request.shares) != expected:
            raise Refusal("the encrypted shares are not those of this site's neighbours; nothing was sent.")
        context = transcript(key_list, request.sites, received)
        once = digest("vector", context, words.to_bytes())
        if secrets.revealed:
            raise Refusal("a masked vector after shares were revealed; nothing was sent.")
        if secrets.masked not in (b"", once):
            raise Refusal("the same masks for another vector, which would disclose the difference; nothing was sent.")
        self.state.check_mask(secrets.terms)
        masked = words.copy()
        masked.add_mask(secrets.seed)
        keys = {key.site: key.mask_key for key in key_list.keys}
        secret = secret_key(secrets.mask_secret)
        for name in sorted(expected):
            seed = pair_seed(secret, keys[name], context, self.name, name)
            masked.add_mask(seed, sign=1 if self.name > name else -1)
        signature = self._sign(survivors_statement(context, request.sites))
        self.state.put(replace(secrets, sites=request.sites, shares=dict(request.shares), context=context, masked=once))
        self.state.forget_before(secrets.terms)
        return MaskedVector(self.name, request.terms, masked.to_bytes(), signature)

    def agree(self, request: SurvivorRequest) -> SurvivorSignature:
        """[Round 3] Sign the sites whose vectors arrived, once per aggregation.

        Raises
        ------
        Refusal, TooFewSites
            If this site has signed other ones, is not among them, or they are fewer than the threshold.
        """
        secrets = self.state.find(request.terms)
        key_list = secrets.need_masked()
        self._check_subset(request.sites, secrets.sites, key_list, "vectors")
        settled = secrets.revealed or secrets.signed
        if settled and settled != request.sites:
            raise Refusal("a second list of survivors for the same aggregation; nothing was sent.")
        if not neighbourhoods(key_list).is_safe(request.sites):
            raise Refusal("the sum over these survivors could be split into parts; nothing was sent.")
        self.state.put(replace(secrets, signed=request.sites))
        return SurvivorSignature(
            self.name, request.terms, self._sign(survivors_statement(secrets.context, request.sites))
        )

    def reveal(self, request: UnmaskRequest) -> RevealedShares:
        """[Round 4] Reveal one share of every neighbour: of its self mask if it survived, else of its mask key.

        Raises
        ------
        Refusal, TooFewSites
            If fewer than the threshold of the survivors signed just this list of survivors and what this site received,
            or this site has revealed or signed for other survivors.
        """
        secrets = self.state.find(request.terms)
        key_list = secrets.need_masked()
        self._check_subset(request.sites, secrets.sites, key_list, "vectors")
        settled = secrets.revealed or secrets.signed
        if settled and settled != request.sites:
            raise Refusal("shares for another list of survivors than this site signed; nothing was sent.")
        graph = neighbourhoods(key_list)
        if not graph.is_safe(request.sites):
            raise Refusal("the sum over these survivors could be split into parts; nothing was sent.")
        if not set(request.signatures) <= set(request.sites):
            raise Refusal("a signature of a site that did not survive; nothing was sent.")
        statement = survivors_statement(secrets.context, request.sites)
        for name, signature in request.signatures.items():
            if not self._verify(name, statement, signature):
                raise Refusal(
                    f"site '{name}' has not signed the same survivors, weights and settings; nothing was sent."
                )
        needed = secrets.terms.threshold(len(key_list.keys))
        if len(request.signatures) < needed:
            raise TooFewSites("signatures", len(request.signatures), needed)
        self.state.check_mask(secrets.terms)
        keys = {key.site: key.share_key for key in key_list.keys}
        secret = secret_key(secrets.share_secret)
        seeds, mask_keys = {self.name: secrets.seed_share}, {}
        for name, encrypted in secrets.shares.items():
            context = share_context(key_list, name, self.name)
            try:
                both = decrypt(agree(secret, keys[name], context), encrypted, context)
            except Refusal:
                continue  # changed on its way, or made wrongly: the shares of the other holders may be enough
            if name in request.sites:
                seeds[name] = both[: shamir.SHARE_BYTES]
            else:
                mask_keys[name] = both[shamir.SHARE_BYTES :]
        # The secrets of this site are not needed any more; without them nobody can undo its masks later.
        self.state.put(replace(secrets, revealed=request.sites, mask_secret=b"", seed=b""))
        self.state.note_revealed(secrets.terms)
        return RevealedShares(self.name, request.terms, seeds, mask_keys)

    def _check_keys(self, request: KeyList, secrets: RoundSecrets) -> None:
        sites = request.sites
        needed = request.terms.threshold(len(sites))
        if len(sites) < max(needed, self.policy.minimum):
            raise TooFewSites("keys", len(sites), max(needed, self.policy.minimum))
        if list(sites) != sorted(set(sites)) or secrets.advertisement not in request.keys:
            raise Refusal("the list of keys is not in order, or without the keys of this site; nothing was sent.")
        public = [part for key in request.keys for part in (key.mask_key, key.share_key)]
        if len(set(public)) < len(public):
            raise Refusal("two advertised keys are the same; nothing was sent.")
        for key in request.keys:
            if key.terms != request.terms.digest or not self._verify(key.site, key.signed, key.signature):
                raise Refusal(
                    f"the keys of site '{key.site[:80]}' are not signed for this aggregation by a site of the roster; "
                    "nothing was sent."
                )

    def _check_subset(self, sites: tuple[str, ...], among: tuple[str, ...], key_list: KeyList, phase: str) -> None:
        needed = key_list.terms.threshold(len(key_list.keys))
        if list(sites) != sorted(set(sites)) or not set(sites) <= set(among) or self.name not in sites:
            raise Refusal("a list of sites is not in order, has unknown sites, or lacks this one; nothing was sent.")
        if len(sites) < needed:
            raise TooFewSites(phase, len(sites), needed)
