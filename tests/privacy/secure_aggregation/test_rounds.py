"""Rounds of secure aggregation: the sum of the survivors, dropouts in every phase, repetitions."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from fedul.privacy.secure_aggregation.in_process import PHASES, LocalFederation
from fedul.privacy.secure_aggregation.messages import RoundTerms, UnmaskRequest
from fedul.privacy.secure_aggregation.problems import Refusal, TooFewSites
from fedul.privacy.secure_aggregation.site_state import SiteState

from .protocol import RECEIVED, Protocol, names, one_field, terms_for


def run(count: int, lost: dict[str, list[str]], terms: RoundTerms | None = None) -> tuple[float, list[str], float]:
    """Return the largest error of the sum, the sites in it, and the largest error that rounding explains."""
    layout, generator = one_field(count, 50), np.random.default_rng(count)
    values = {name: generator.uniform(-1, 1, 50) for name in names(count)}
    vectors = {name: layout.encode({"delta": each}).words for name, each in values.items()}
    sums, survivors = LocalFederation(names(count)).aggregate(
        terms or terms_for(layout), layout, vectors, RECEIVED, lost
    )
    expected = np.sum([values[name] for name in survivors], axis=0)
    error = np.abs(layout.decode(sums)["delta"] - expected).max()
    return float(error), list(survivors), count / 2 * layout.step(layout.fields[0])


@pytest.mark.parametrize("count", [3, 5, 10, 20, 25])
def test_without_dropouts_the_sum_is_that_of_all_sites(count: int) -> None:
    error, survivors, rounding = run(count, {})
    assert survivors == names(count)
    assert error <= rounding


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("count", [5, 10, 25])
def test_a_round_completes_when_a_fifth_of_the_sites_drops_out_in_a_phase(count: int, phase: str) -> None:
    gone = names(count)[1 : 1 + count // 5]
    earlier = {"vector": [names(count)[-1]]} if phase == "signature" and count > 5 else {}  # else nobody is asked
    error, survivors, rounding = run(count, {phase: gone, **earlier})
    assert error <= rounding
    sent_a_vector = phase in ("signature", "reveal")
    assert set(survivors) == set(names(count)) - (set() if sent_a_vector else set(gone)) - set(
        earlier.get("vector", ())
    )


@pytest.mark.parametrize("phase", PHASES)
def test_below_the_threshold_a_round_ends_without_a_sum(phase: str) -> None:
    gone = names(10)[:4]
    with pytest.raises(TooFewSites, match=r"[56] of at least 7 sites|of their neighbours"):
        run(10, {phase: gone, **({"vector": names(10)[9:]} if phase == "signature" else {})})


def test_below_the_threshold_no_site_can_be_made_to_reveal_shares() -> None:
    protocol = Protocol(10)
    requests = protocol.shares()
    for name in names(10)[:6]:  # one less than 0.7 of 10
        site = protocol.federation.sites[name]
        protocol.attempt.add_vector(site.mask(requests[name], protocol.words(name), RECEIVED))
    with pytest.raises(TooFewSites, match="6 of at least 7 sites sent vectors"):
        protocol.attempt.survivor_request()
    present = tuple(names(10)[:6])
    request = UnmaskRequest(protocol.terms.digest, present, dict(protocol.attempt._signatures))
    for name in present:
        with pytest.raises(TooFewSites):
            protocol.federation.sites[name].reveal(request)


def test_a_round_that_failed_is_repeated_with_fresh_keys() -> None:
    protocol = Protocol(10)
    first = protocol.shares()
    old = {name: protocol.federation.sites[name].advertise(protocol.terms) for name in names(10)}
    masked = protocol.site(0).mask(first[names(10)[0]], protocol.words(names(10)[0]), RECEIVED)
    protocol.start(protocol.terms.next_attempt())
    new = {key.site: key for key in protocol.keys().keys}
    for name in names(10):
        assert new[name].mask_key != old[name].mask_key
        assert new[name].share_key != old[name].share_key
        assert new[name].commitment != old[name].commitment
    request = protocol.vectors()
    protocol.unmasked(protocol.attempt.unmask_request())
    assert np.abs(protocol.found() - protocol.total(request.sites)).max() <= protocol.tolerance
    assert len(masked.words) == 32


def test_many_rounds_leave_no_secrets_of_earlier_ones() -> None:
    protocol = Protocol(5)
    for _ in range(4):
        protocol.vectors()
        protocol.unmasked(protocol.attempt.unmask_request())
        protocol.start(protocol.terms.next_round())
        protocol.keys()  # of the next round, before this one is over
    assert {len(site.state.secrets) for site in protocol.federation.sites.values()} == {2}


def test_a_site_that_was_restarted_goes_on_from_what_it_stored() -> None:
    protocol = Protocol(5)
    for phase in (protocol.keys, protocol.shares, protocol.vectors):
        phase()
        for site in protocol.federation.sites.values():
            site.state = SiteState.from_bytes(site.state.to_bytes())
        protocol.start(protocol.terms)
    protocol.vectors()
    protocol.unmasked(protocol.attempt.unmask_request())
    assert np.abs(protocol.found() - protocol.total(names(5))).max() <= protocol.tolerance


def test_a_request_that_is_repeated_gets_the_same_answer() -> None:
    protocol = Protocol(5)
    site, name = protocol.site(0), names(5)[0]
    assert site.advertise(protocol.terms) == site.advertise(protocol.terms)
    request = protocol.keys()
    assert site.share(request) == site.share(request)
    masks = protocol.shares()
    answers = [site.mask(masks[name], protocol.words(name), RECEIVED) for _ in range(2)]
    assert answers[0] == answers[1]
    protocol.vectors()
    unmask = protocol.attempt.unmask_request()
    assert site.reveal(unmask) == site.reveal(unmask)


def test_a_wrong_share_of_a_malicious_site_is_noticed_and_left_out() -> None:
    protocol = Protocol(10)
    protocol.vectors()
    request = protocol.attempt.unmask_request()
    for name in names(10):
        reply = protocol.federation.sites[name].reveal(request)
        if name == names(10)[2]:
            reply = type(reply)(reply.site, reply.terms, {each: bytes(33) for each in reply.seeds}, {})
        protocol.attempt.add_revealed(reply)
    assert np.abs(protocol.found() - protocol.total(names(10))).max() <= protocol.tolerance


def test_wrong_shares_of_too_many_sites_give_no_sum() -> None:
    protocol = Protocol(5)
    protocol.vectors()
    request = protocol.attempt.unmask_request()
    for name in names(5):
        reply = protocol.federation.sites[name].reveal(request)
        if name in names(5)[:2]:
            reply = type(reply)(reply.site, reply.terms, {each: bytes(33) for each in reply.seeds}, {})
        protocol.attempt.add_revealed(reply)
    with pytest.raises(Refusal, match="do not match"):
        protocol.attempt.sums()


def test_traffic_is_counted_by_phase_and_direction() -> None:
    layout = one_field(5, 1000)
    federation = LocalFederation(names(5))
    federation.aggregate(terms_for(layout), layout, dict.fromkeys(names(5), layout.encode({}).words))
    assert isinstance(federation.traffic, Counter)
    assert federation.traffic["vector", "up"] > 5 * 4000
    assert ("signature", "up") not in federation.traffic
