"""Messages as bytes: what is read is what was written, and anything else is refused."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedul.privacy.secure_aggregation.messages import (
    EncryptedShares,
    KeyAdvertisement,
    KeyList,
    MaskedVector,
    RoundTerms,
    names_digest,
)
from fedul.privacy.secure_aggregation.problems import Refusal
from fedul.privacy.secure_aggregation.site_state import RoundSecrets, SiteState

from ...worlds import repeatable
from .protocol import Protocol, terms_for

text = st.text(max_size=20)
data = st.binary(max_size=40)
advertisements = st.builds(KeyAdvertisement, text, data, data, data, data, data)
terms = st.builds(
    RoundTerms, text, text, st.integers(1, 10**6), st.integers(1, 99), st.floats(0.5, 1), st.integers(1, 99), data
)


@repeatable
@given(
    st.one_of(
        terms,
        advertisements,
        st.builds(KeyList, terms, st.lists(advertisements, max_size=4).map(tuple)),
        st.builds(EncryptedShares, text, data, st.dictionaries(text, data, max_size=4)),
        st.builds(MaskedVector, text, data, data, data),
    )
)
def test_a_message_is_read_as_it_was_written(message: RoundTerms | KeyList | EncryptedShares) -> None:
    assert type(message).from_bytes(message.to_bytes()) == message


def test_the_state_of_a_site_is_read_as_it_was_written() -> None:
    protocol = Protocol(5)
    protocol.vectors()
    protocol.unmasked(protocol.attempt.unmask_request())
    state = protocol.site(0).state
    assert SiteState.from_bytes(state.to_bytes()).to_bytes() == state.to_bytes()
    secrets = state.find(protocol.terms.digest)
    assert RoundSecrets.from_bytes(secrets.to_bytes()) == secrets


@repeatable
@given(st.binary(max_size=60))
def test_arbitrary_bytes_are_refused(junk: bytes) -> None:
    for kind in (KeyList, MaskedVector, SiteState):
        with pytest.raises(Refusal, match=f"not a {kind.__name__}"):
            kind.from_bytes(junk)


def header(values: object, blob: bytes = b"") -> bytes:
    encoded = json.dumps(values).encode()
    return len(encoded).to_bytes(4, "big") + encoded + blob


@pytest.mark.parametrize(
    "wrong",
    [
        header(["a", 4, 0, 0], b"abc"),
        header(["a", 1, 0, 0], b"abc"),
        header(["a", -1, 0, 0]),
        header(["a", True, 0, 0], b"a"),
        header([1, 0, 0, 0]),
        header(["a", 0, 0]),
        header({"site": "a"}),
        header(["a", 0, 0, 0])[:-1],
        b"",
    ],
)
def test_messages_of_another_form_are_refused(wrong: bytes) -> None:
    with pytest.raises(Refusal, match="a message is not a MaskedVector"):
        MaskedVector.from_bytes(wrong)


def test_numbers_that_are_not_finite_are_refused() -> None:
    layout = Protocol(3).layout
    stored = terms_for(layout).to_bytes().replace(b"0.7", b"NaN")
    with pytest.raises(Refusal, match="not a RoundTerms"):
        RoundTerms.from_bytes(stored)


def test_digests_depend_on_where_one_part_ends() -> None:
    assert names_digest(("ab", "c")) != names_digest(("a", "bc"))
    assert names_digest(("ab",)) != names_digest(("ab", ""))


@pytest.mark.parametrize(("sites", "share", "minimum", "needed"), [(5, 0.7, 3, 4), (10, 0.7, 3, 7), (4, 0.5, 3, 3)])
def test_the_threshold_is_a_share_and_above_half(sites: int, share: float, minimum: int, needed: int) -> None:
    assert RoundTerms("r", "p", 1, 1, share, minimum, b"").threshold(sites) == needed
    assert RoundTerms("r", "p", 1, 1, share, 9, b"").threshold(sites) >= 9
