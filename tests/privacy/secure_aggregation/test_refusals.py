"""What a site refuses: a coordinator that lies, fake sites, a man in the middle, another model for each site."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fedul.privacy.secure_aggregation.messages import KeyAdvertisement, KeyList, SurvivorRequest, UnmaskRequest
from fedul.privacy.secure_aggregation.pairwise import neighbourhoods
from fedul.privacy.secure_aggregation.primitives import fresh_secret, public_key
from fedul.privacy.secure_aggregation.problems import Refusal, TooFewSites
from fedul.privacy.secure_aggregation.site import SecureSite, SitePolicy

from .protocol import RECEIVED, Protocol, names, shares_of, without


def everyone_but(count: int, *lost: int) -> tuple[str, ...]:
    return tuple(name for number, name in enumerate(names(count)) if number not in lost)


def test_a_coordinator_that_asks_one_site_for_both_shares_of_another_gets_one() -> None:
    protocol = Protocol(5)
    protocol.vectors()
    victim, site = names(5)[4], protocol.site(0)
    site.reveal(protocol.attempt.unmask_request())  # the victim survived: shares of its self mask
    lie = SurvivorRequest(protocol.terms.digest, everyone_but(5, 4))
    with pytest.raises(Refusal, match="a second list of survivors"):
        site.agree(lie)
    signatures = {name: protocol.federation.sites[name].agree(lie).signature for name in names(5)[1:4]}
    with pytest.raises(Refusal, match="another list of survivors"):
        site.reveal(UnmaskRequest(lie.terms, lie.sites, signatures))
    assert victim not in lie.sites


def test_a_coordinator_that_shows_sites_different_survivors_gets_the_secrets_of_no_one() -> None:
    """The sites sign either "all survived" or "all but one did"; no list gets enough of both."""
    protocol = Protocol(10)
    protocol.vectors()
    victim, lie = names(10)[9], SurvivorRequest(protocol.terms.digest, everyone_but(10, 9))
    truth = protocol.attempt.unmask_request()
    sites = protocol.federation.sites
    replies = [sites[name].reveal(truth) for name in names(10)[:3]]
    signatures = {name: sites[name].agree(lie).signature for name in names(10)[3:9]}
    for name in names(10)[3:9]:
        with pytest.raises(TooFewSites, match="6 of at least 7 sites sent signatures"):
            protocol.federation.sites[name].reveal(UnmaskRequest(lie.terms, lie.sites, signatures))
        with pytest.raises(Refusal, match="another list of survivors"):
            protocol.federation.sites[name].reveal(truth)
    seeds, keys = shares_of(replies, victim)
    assert (seeds, keys) == (3, 0), "fewer than the threshold of 7 of the one, and none of the other"


@pytest.mark.parametrize("seed", range(4))
def test_a_coordinator_that_lies_to_neighbours_gets_one_secret_even_if_a_fifth_colludes(seed: int) -> None:
    """Neighbour graph: honest sites that did not sign the lie reveal for the truth; colluding ones reveal both."""
    count, generator = 25, np.random.default_rng(seed)
    protocol = Protocol(count)
    protocol.vectors()
    graph = neighbourhoods(protocol.attempt.key_list())
    shuffled = [names(count)[number] for number in generator.permutation(count)]
    victim, colluding, honest = shuffled[0], set(shuffled[1:6]), shuffled[6:]
    truth = protocol.attempt.unmask_request()
    lie = SurvivorRequest(protocol.terms.digest, tuple(name for name in names(count) if name != victim))
    signers = honest[: protocol.attempt.threshold - len(colluding)]
    sites = protocol.federation.sites
    signatures = {name: sites[name].agree(lie).signature for name in [*signers, *colluding]}
    replies = [sites[name].reveal(truth) for name in {victim, *honest} - set(signers)]
    replies += [sites[name].reveal(UnmaskRequest(lie.terms, lie.sites, signatures)) for name in signers]
    both = len(colluding & set(graph.neighbours(victim)))
    seeds, keys = (each + both for each in shares_of(replies, victim))
    assert keys > both
    assert seeds > both
    assert min(seeds, keys) < graph.size.threshold


def test_signatures_of_other_survivors_are_not_accepted() -> None:
    protocol = Protocol(5)
    truth = protocol.vectors()
    lie = everyone_but(5, 4)
    signed_for_all = dict(list(protocol.attempt.unmask_request().signatures.items())[:4])
    assert set(signed_for_all) == set(lie)
    for name in lie:
        with pytest.raises(Refusal, match="has not signed the same survivors"):
            protocol.federation.sites[name].reveal(UnmaskRequest(truth.terms, lie, signed_for_all))


def test_another_attempt_after_shares_were_revealed_is_refused() -> None:
    """Else the difference of the sums of two attempts would be the vector of a site that is in only one of them."""
    protocol = Protocol(5)
    protocol.vectors()
    protocol.unmasked(protocol.attempt.unmask_request())
    with pytest.raises(Refusal, match=r"round 1 again, after this site revealed"):
        protocol.site(0).advertise(protocol.terms.next_attempt())
    assert protocol.site(0).advertise(protocol.terms.next_round()).site == names(5)[0]


def test_keys_of_the_next_attempt_made_early_cannot_be_used_after_a_reveal() -> None:
    protocol = Protocol(5)
    first = protocol.terms
    protocol.start(first.next_attempt()).keys()
    masks = protocol.shares()
    second = protocol.terms
    protocol.start(first).vectors()
    protocol.unmasked(protocol.attempt.unmask_request())
    with pytest.raises(Refusal, match="round 1 again"):
        protocol.start(second).site(0).mask(masks[names(5)[0]], protocol.words(names(5)[0]), RECEIVED)


def test_an_attempt_that_is_over_is_not_taken_up_again() -> None:
    protocol = Protocol(5)
    protocol.vectors()
    old = protocol.attempt.unmask_request()
    first = protocol.terms
    protocol.start(first.next_attempt()).vectors()
    with pytest.raises(Refusal, match="does not know, or has deleted"):
        protocol.site(0).reveal(old)
    with pytest.raises(Refusal, match="attempt 1 at round 1 is over"):
        protocol.site(0).advertise(first)


def test_other_weights_at_one_site_are_refused_by_all() -> None:
    protocol = Protocol(5)
    requests = protocol.shares()
    replies = {}
    for name in names(5):
        received = b"a model for this site alone" if name == names(5)[0] else RECEIVED
        site = protocol.federation.sites[name]
        replies[name] = site.mask(requests[name], protocol.words(name), received)
    signatures = {name: reply.signature for name, reply in replies.items()}
    for name in names(5):
        with pytest.raises(Refusal, match="has not signed the same survivors, weights and settings"):
            protocol.federation.sites[name].reveal(UnmaskRequest(protocol.terms.digest, tuple(names(5)), signatures))
    with pytest.raises(Refusal, match="its identity key has not made"):
        protocol.attempt.add_vector(replies[names(5)[0]])


def test_masks_of_sites_with_other_weights_do_not_cancel() -> None:
    """Even without signatures, the sum with a site that received another model is noise."""
    protocol = Protocol(3)
    requests = protocol.shares()
    sums = []
    for other in (RECEIVED, b"another model"):
        words = protocol.words(names(3)[0]).copy()
        words.narrow[:] = 0
        for name in names(3):
            site = SecureSite(
                name,
                "in process",
                lambda statement: b"",
                protocol.federation.verify,
                state=type(protocol.site(0).state).from_bytes(protocol.federation.sites[name].state.to_bytes()),
            )
            reply = site.mask(requests[name], protocol.words(name), other if name == names(3)[0] else RECEIVED)
            words.narrow[:] += np.frombuffer(reply.words, "<u4")
            secrets = site.state.find(protocol.terms.digest)
            words.add_mask(secrets.seed, sign=-1)
        sums.append(protocol.layout.decode(words)["delta"])
    assert np.abs(sums[0] - protocol.total(names(3))).max() <= protocol.tolerance
    assert np.abs(sums[1]).max() > 1  # eight values below 1 by chance: less than 1 in 10 million


def replaced(request: KeyList, name: str, **changes: object) -> KeyList:
    return replace(
        request,
        keys=tuple(replace(key, **changes) if key.site == name else key for key in request.keys),  # type: ignore[arg-type]
    )


TAMPERED: dict[str, tuple[Callable[[Protocol, KeyList], KeyList], str]] = {
    "a key of the man in the middle": (
        lambda protocol, request: replaced(request, names(5)[2], share_key=public_key(fresh_secret())),
        "keys of site 'site002' are not signed",
    ),
    "no signature": (
        lambda protocol, request: replaced(request, names(5)[2], signature=b""),
        "keys of site 'site002' are not signed",
    ),
    "the keys of another site": (
        lambda protocol, request: replaced(
            request, names(5)[2], mask_key=request.keys[3].mask_key, share_key=request.keys[3].share_key
        ),
        "two advertised keys are the same",
    ),
    "without this site": (lambda protocol, request: without(request, names(5)[0]), "without the keys of this site"),
    "not in order": (
        lambda protocol, request: replace(request, keys=request.keys[::-1]),
        "not in order",
    ),
}


@pytest.mark.parametrize(("tamper", "complaint"), TAMPERED.values(), ids=TAMPERED)
def test_tampered_keys_are_refused(tamper: Callable[[Protocol, KeyList], KeyList], complaint: str) -> None:
    protocol = Protocol(5)
    with pytest.raises(Refusal, match=complaint):
        protocol.site(0).share(tamper(protocol, protocol.keys()))


def test_keys_of_an_earlier_attempt_are_refused() -> None:
    protocol = Protocol(5)
    old = protocol.keys()
    protocol.start(protocol.terms.next_attempt())
    request = protocol.keys()
    mixed = replace(request, keys=(*request.keys[:4], old.keys[4]))
    with pytest.raises(Refusal, match="keys of site 'site004' are not signed for this aggregation"):
        protocol.site(0).share(mixed)
    forged = replace(old.keys[4], terms=request.terms.digest)
    with pytest.raises(Refusal, match="keys of site 'site004' are not signed for this aggregation"):
        protocol.site(0).share(replace(request, keys=(*request.keys[:4], forged)))


def test_a_fake_site_that_is_not_in_the_roster_is_refused() -> None:
    protocol = Protocol(5)
    request = protocol.keys()
    own = Ed25519PrivateKey.generate()
    fake = KeyAdvertisement(
        "zero", protocol.terms.digest, public_key(fresh_secret()), public_key(fresh_secret()), bytes(32)
    )
    fake = replace(fake, signature=own.sign(fake.signed))
    with pytest.raises(Refusal, match="keys of site 'zero' are not signed"):
        protocol.site(0).share(replace(request, keys=(*request.keys, fake)))


def test_fake_sites_do_not_count_for_the_minimum() -> None:
    protocol = Protocol(5)
    site = protocol.site(0)
    site.policy = SitePolicy(minimum=4)
    with pytest.raises(Refusal, match="this site demands 4"):
        site.advertise(protocol.terms)
    terms = replace(protocol.terms, minimum=4)
    protocol.start(terms)
    request = protocol.keys()
    few = replace(request, keys=request.keys[:3])
    with pytest.raises(TooFewSites, match="3 of at least 4 sites sent keys"):
        site.share(few)


def test_a_second_list_of_keys_is_refused() -> None:
    protocol = Protocol(5)
    request = protocol.keys()
    site = protocol.site(0)
    site.share(request)
    with pytest.raises(Refusal, match="a second list of keys"):
        site.share(without(request, names(5)[4]))


def test_the_same_masks_for_another_vector_are_refused() -> None:
    protocol = Protocol(5)
    requests = protocol.shares()
    site, name = protocol.site(0), names(5)[0]
    site.mask(requests[name], protocol.words(name), RECEIVED)
    for words, received in (
        (protocol.words(names(5)[1]), RECEIVED),
        (protocol.words(name), b"other weights"),
    ):
        with pytest.raises(Refusal, match="the same masks for another vector"):
            site.mask(requests[name], words, received)


def test_the_secrets_that_undo_a_mask_are_gone_after_shares_were_revealed() -> None:
    protocol = Protocol(5)
    requests = protocol.shares()
    site, name = protocol.site(0), names(5)[0]
    before = protocol.site(0).state.find(protocol.terms.digest)
    protocol.vectors()
    protocol.unmasked(protocol.attempt.unmask_request())
    stored = site.state.to_bytes()
    for secret in (before.seed, before.mask_secret):
        assert len(secret) == 32
        assert secret not in stored
    with pytest.raises(Refusal, match="after shares were revealed"):
        site.mask(requests[name], protocol.words(name), RECEIVED)


def test_shares_that_changed_on_their_way_are_left_out() -> None:
    protocol = Protocol(5)
    requests = protocol.shares()
    name = names(5)[0]
    changed = {other: bytes(len(share)) for other, share in requests[name].shares.items()}
    requests[name] = replace(requests[name], shares=changed)
    for each in names(5):
        site = protocol.federation.sites[each]
        protocol.attempt.add_vector(site.mask(requests[each], protocol.words(each), RECEIVED))
    request = protocol.attempt.unmask_request()
    assert set(protocol.site(0).reveal(request).seeds) == {name}, "its own share only"
    protocol.unmasked(request)
    assert np.abs(protocol.found() - protocol.total(names(5))).max() <= protocol.tolerance


def test_shares_for_another_site_cannot_be_read() -> None:
    protocol = Protocol(5)
    sent = protocol.site(1).share(protocol.keys()).shares
    requests = protocol.shares()
    one, other = names(5)[0], names(5)[2]
    swapped = {**requests[one].shares, names(5)[1]: sent[other]}
    protocol.vectors()
    protocol.site(0).state.put(replace(protocol.site(0).state.find(protocol.terms.digest), shares=swapped))
    assert names(5)[1] not in protocol.site(0).reveal(protocol.attempt.unmask_request()).seeds


@pytest.mark.parametrize("key", [bytes(32), b"short", (1).to_bytes(32, "little")])
def test_a_key_that_is_no_point_of_the_curve_is_refused_by_the_coordinator(key: bytes) -> None:
    protocol = Protocol(5)
    honest = protocol.site(0).advertise(protocol.terms)
    forged = replace(honest, mask_key=key)
    forged = replace(forged, signature=protocol.site(0)._sign(forged.signed))
    with pytest.raises(Refusal, match="not a valid X25519 key"):
        protocol.attempt.add_keys(forged)


def test_terms_that_a_site_does_not_accept_are_refused() -> None:
    protocol = Protocol(5)
    for terms, complaint in (
        (replace(protocol.terms, minimum=1), "sums over 1 sites are too few"),
        (replace(protocol.terms, share=0.51), "aggregation-threshold of 0.51 is below"),
        (replace(protocol.terms, run="another"), "another run"),
    ):
        with pytest.raises(Refusal, match=complaint):
            protocol.site(0).advertise(terms)
    protocol.keys()
    with pytest.raises(Refusal, match="other terms for the same attempt"):
        protocol.site(0).advertise(replace(protocol.terms, share=0.9))


def test_steps_out_of_order_are_refused() -> None:
    protocol = Protocol(5)
    request = SurvivorRequest(protocol.terms.digest, tuple(names(5)))
    for step in (protocol.site(0).agree, protocol.site(0).reveal):
        with pytest.raises(Refusal, match="does not know"):
            step(request)  # type: ignore[operator]
    protocol.shares()
    with pytest.raises(Refusal, match="before the masked vector of this site"):
        protocol.site(0).agree(request)


def test_survivors_without_this_site_or_with_unknown_ones_are_refused() -> None:
    protocol = Protocol(5)
    protocol.vectors()
    for sites in (everyone_but(5, 0), (*names(5), "zero"), tuple(names(5)[::-1])):
        with pytest.raises(Refusal, match="a list of sites is not in order, has unknown sites, or lacks this one"):
            protocol.site(0).agree(SurvivorRequest(protocol.terms.digest, sites))
    with pytest.raises(TooFewSites, match="3 of at least 4 sites"):
        protocol.site(0).agree(SurvivorRequest(protocol.terms.digest, tuple(names(5)[:3])))
