"""With secure aggregation, sites refuse a coordinator that departs from the protocol, and say so in their log."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedul._utils.files import read_json
from fedul.engines.flower.identity.proof import take_challenge
from fedul.engines.flower.protocol.documents import HelloRequest, RunRequest, StatisticsRequest
from fedul.engines.flower.protocol.message import Message
from fedul.engines.flower.secure import blobs
from fedul.engines.flower.server.coordinator import read_settings, run_coordinator
from fedul.engines.flower.site.handlers import handle
from fedul.engines.flower.site.public_error import PublicError
from fedul.engines.flower.site.site_data import SiteData
from fedul.errors import EnvironmentFailure, InputError
from fedul.privacy.secure_aggregation.messages import UnmaskRequest

from .secure_sites import secure_digits_sites, secure_settings
from .test_plan import changed
from .test_secure_dropouts import has
from .wire import ChangingWire, Wire


class Recorder(Wire):
    """A wire that records the requests to all nodes and their replies."""

    def __init__(self, sites: dict[int, Path]) -> None:
        super().__init__(sites)
        self.sent: list[tuple[int, str, Message]] = []
        self.replies: list[tuple[str, Message]] = []

    def request_one(self, kind: str, node: int, message: Message) -> Any:
        self.sent.append((node, kind, message))
        reply = super().request_one(kind, node, message)
        if isinstance(reply, Message):
            self.replies.append((kind, reply))
        return reply


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Recorder:
    """A run of two rounds with four sites."""
    folder = tmp_path_factory.mktemp("finished")
    wire = Recorder(secure_digits_sites(folder, 4, rows=400))
    run_coordinator(wire, secure_settings(folder, 4, rounds=2))
    return wire


def first(wire: Recorder, kind: str, node: int = 1) -> Message:
    """The first request of a kind to a node, without its challenge."""
    return take_challenge(next(message for to, what, message in wire.sent if (to, what) == (node, kind)))[0]


def site(wire: Recorder, node: int = 1) -> SiteData:
    return SiteData.read(str(wire.settings[node]))


def test_no_number_of_a_site_is_in_its_replies(finished: Recorder) -> None:
    for kind, reply in finished.replies:
        groups = {key.partition("/")[0] for key in reply.tensors}
        assert groups <= {blobs.KEYS, blobs.SHARES, blobs.VECTORS, blobs.SIGNATURES, blobs.REVEALED}
        fields = set(reply.document) - {"proof"}
        assert fields == ({"name", "signature"} if kind == "hello" else {"refusals"})


def test_masked_vectors_of_a_site_look_random(finished: Recorder) -> None:
    vectors = [reply for kind, reply in finished.replies if kind == "train"]
    content = np.concatenate([reply.group(blobs.VECTORS)["train"].numpy()[-4096:-512] for reply in vectors])
    counts = np.bincount(content, minlength=256)
    expected = len(content) / 256
    statistic = float(((counts - expected) ** 2 / expected).sum())
    assert statistic < 255 + 5 * np.sqrt(2 * 255)  # chi-squared; false alarm with probability below 1e-5


def test_a_site_that_demands_secure_aggregation_takes_no_part_in_another_run(finished: Recorder) -> None:
    hello = first(finished, "hello").read(HelloRequest)
    with pytest.raises(PublicError, match="in runs with secure-aggregation only"):
        handle("hello", site(finished), Message.of(replace(hello, secure=False)))
    join = first(finished, "join")
    training = replace(join.read(RunRequest).training, secure_aggregation=False)
    with pytest.raises(PublicError, match="in runs with secure-aggregation only"):
        handle("join", site(finished), changed(join, RunRequest, run="another", training=training))


@pytest.mark.parametrize("kind", ["train", "evaluate_held_out", "evaluate_locally"])
def test_a_site_replies_to_no_request_outside_secure_aggregation(finished: Recorder, kind: str) -> None:
    message = next(each for to, what, each in reversed(finished.sent) if (to, what) == (1, kind))
    in_the_open = {key: tensor for key, tensor in message.tensors.items() if not key.startswith(blobs.MASK)}
    with pytest.raises(PublicError, match="it takes part in secure sums only, and the message asks for none"):
        handle(kind, site(finished), Message(message.document, in_the_open))


def test_a_site_answers_one_question_about_its_statistics(finished: Recorder) -> None:
    asked = first(finished, "statistics")
    other = replace(asked.read(StatisticsRequest), words={"x": ("yes",)})
    with pytest.raises(PublicError, match="it has answered another request for statistics in this run"):
        handle("statistics", site(finished), Message(Message.of(other).document, asked.tensors))


def lying(folder: Path, change: Callable[[str, Mapping[int, Message]], Any], **settings: Any) -> Any:
    """Run four sites under a coordinator that changes its messages."""
    sites = secure_digits_sites(folder, 4, rows=400)
    return run_coordinator(ChangingWire(sites, change), secure_settings(folder, 4, rounds=1, **settings))


def test_other_weights_for_one_site_gain_nothing(tmp_path: Path) -> None:
    def other_weights(kind: str, messages: Mapping[int, Message]) -> None:
        if kind == "train":
            tensors = messages[1].tensors
            for name in [each for each in tensors if each.startswith("weights/")]:
                tensors[name] = tensors[name] + 0.01  # type: ignore[index]

    # The three others agree, and their sum is over three sites, as they demand; client-1 has no part in it.
    found = lying(tmp_path, other_weights, **{"aggregation-threshold": 0.6})
    assert found.history[0].clients == 3
    assert "has not made for this" in found.history[0].site_errors["client-1"]


def test_a_coordinator_that_names_other_survivors_to_some_sites_learns_no_sum(tmp_path: Path) -> None:
    def two_stories(kind: str, messages: Mapping[int, Message]) -> None:
        for node, message in messages.items():
            if has(blobs.UNMASK, "train")(kind, message) and node > 2:
                request = UnmaskRequest.from_bytes(blobs.blobs_in(message, blobs.UNMASK)["train"])
                others = tuple(name for name in request.sites if name != "client-1")
                signatures = {name: each for name, each in request.signatures.items() if name in others}
                lie = replace(request, sites=others, signatures=signatures)
                message.tensors["unmask/train"] = blobs.to_blob(lie)  # type: ignore[index]

    with pytest.raises(EnvironmentFailure, match="no sum of updates"):
        lying(tmp_path, two_stories)


def test_a_round_is_not_summed_again_over_other_sites(tmp_path: Path) -> None:
    """The difference of both sums would be the update of one site."""
    sites = secure_digits_sites(tmp_path, 5, rows=400)
    given = secure_settings(tmp_path, 5, rounds=1)
    recorder = Recorder(sites)

    class Twice(Exception):
        pass

    class Stopping(Recorder):
        def request(self, kind: str, messages: Any, seconds: float) -> Any:
            found = super().request(kind, messages, seconds)
            if any(has(blobs.UNMASK, "train")(kind, message) for message in messages.values()):
                raise Twice
            return found

    with pytest.raises(Twice):  # the sum is known, and the coordinator claims that it was lost
        run_coordinator(Stopping(sites), given)
    without = {node: file for node, file in sites.items() if node != 5}
    with pytest.raises(EnvironmentFailure, match="would disclose that of 1 site"):
        run_coordinator(Recorder(without), {**given, "resume": True, "sites": 4})
    found = run_coordinator(recorder, {**given, "resume": True})  # with all of them it is the same sum
    assert found.history[0].clients == 5


def test_the_ledger_of_a_site_lists_the_sums_that_it_revealed(finished: Recorder) -> None:
    file = next(Path(site(finished).config.state).rglob("sums.json"))
    everyone = [f"client-{number}" for number in range(1, 5)]
    revealed = read_json(file)["revealed"]
    assert revealed == {topic: [everyone] for topic in ("statistics", "round 1", "round 2", "evaluate", "local")}


@pytest.mark.parametrize(
    ("changed_settings", "problem"),
    [
        ({"algorithm": "median"}, "algorithm median needs every single update"),
        ({"algorithm": "trimmed-mean"}, "algorithm trimmed-mean needs every single update"),
        ({"min-sites": 2}, "sums over 2 sites hide no single one; give at least 3"),
        ({"roster": ""}, "secure-aggregation needs the file with the public keys of the sites"),
        ({"words": "smoker"}, r"words: 'smoker' is not COLUMN=WORD\|WORD"),
        ({"secure-aggregation": False, "test-prior": "natural"}, "the class mix of all rows is not known here"),
    ],
)
def test_settings_that_do_not_fit_secure_aggregation_are_refused(
    tmp_path: Path, changed_settings: dict[str, Any], problem: str
) -> None:
    with pytest.raises(InputError, match=problem):
        read_settings(secure_settings(tmp_path, 4, **changed_settings))


def test_a_site_with_a_larger_min_cohort_refuses(tmp_path: Path) -> None:
    sites = secure_digits_sites(tmp_path, 4, rows=400, **{"min-cohort": 4})
    with pytest.raises(EnvironmentFailure, match="sums over 3 sites are too few; this site demands 4"):
        run_coordinator(Wire(sites), secure_settings(tmp_path, 4, rounds=1))


def test_a_vector_of_updates_is_not_the_update(finished: Recorder) -> None:
    """The first words of a masked vector would be the change of the first weights."""
    vector = next(reply for kind, reply in finished.replies if kind == "train").group(blobs.VECTORS)["train"]
    assert torch.unique(vector).numel() > 250
