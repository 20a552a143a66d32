"""A site holds a run to the plan that it declared, and refuses weights that give every row the same answer."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fedul.core import Weights
from fedul.engines.flower.protocol.documents import HeldOutRequest, LocalEvaluationRequest, RunRequest, TrainRequest
from fedul.engines.flower.protocol.message import Message
from fedul.engines.flower.protocol.run_plan import RunPlan
from fedul.engines.flower.server.coordinator import run_coordinator
from fedul.engines.flower.site.handlers import handle, reply_to
from fedul.engines.flower.site.public_error import PublicError
from fedul.engines.flower.site.site_data import SiteData
from fedul.errors import EnvironmentFailure, InputError

from .test_parity import settings
from .wire import Wire, digits_sites


class Recorder(Wire):
    """A wire that records what the first node was sent."""

    def __init__(self, sites: dict[int, Path]) -> None:
        super().__init__(sites)
        self.sent: list[tuple[str, Message]] = []

    def request_one(self, kind: str, node: int, message: Message) -> Any:
        if node == 1:
            self.sent.append((kind, message))
        return super().request_one(kind, node, message)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[SiteData, dict[str, Message]]:
    """A site after a run of three rounds that may go on to five, and the last request of each kind."""
    folder = tmp_path_factory.mktemp("finished")
    wire = Recorder(digits_sites(folder, 2, rows=400))
    run_coordinator(wire, settings(folder, 2, rounds=3, **{"max-rounds": 5, "resumptions": 1}))
    return SiteData.read(str(wire.settings[1])), dict(wire.sent)


def changed(message: Message, kind: type[RunRequest], tensors: Weights | None = None, **fields: Any) -> Message:
    """The same request with other fields or tensors."""
    return Message(Message.of(replace(message.read(kind), **fields)).document, tensors or message.tensors)


def moved(message: Message, group: str) -> dict[str, torch.Tensor]:
    """The tensors of a message, those of one group a little different."""
    return {name: t + 1e-3 if name.startswith(group) else t for name, t in message.tensors.items()}


TRAINING: dict[str, tuple[Callable[[Message], Message], str]] = {
    "a round beyond the plan": (
        lambda m: changed(m, TrainRequest, round=6, evaluated=5),
        "round 6 is not one of the 5 that the run declared",
    ),
    "the same round from other weights": (
        lambda m: changed(m, TrainRequest, moved(m, "weights/")),
        "it has trained round 3 from other weights",
    ),
    "an earlier round, which is no longer known": (
        lambda m: changed(m, TrainRequest, round=1, evaluated=0),
        "it has trained round 1 from other weights",
    ),
    "another plan": (
        lambda m: changed(m, TrainRequest, plan=RunPlan(100)),
        "this run declared another plan when it started",
    ),
    "other settings": (
        lambda m: changed(m, TrainRequest, training=replace(m.read(TrainRequest).training, epochs=9)),
        "this run had other settings or another spec",
    ),
    "more rounds in the settings than in the plan": (
        lambda m: changed(m, TrainRequest, training=replace(m.read(TrainRequest).training, rounds=6)),
        "6 rounds are more than the 5 of its plan",
    ),
    "an earlier round of a resumed run": (
        lambda m: changed(m, TrainRequest, round=1, evaluated=0, resumption=1),
        "goes back to round 2 at the earliest, not to 1",
    ),
    "more resumptions than declared": (
        lambda m: changed(m, TrainRequest, round=3, resumption=2),
        "the plan allows 1 resumptions",
    ),
    "evaluation of other weights": (
        lambda m: changed(m, TrainRequest, moved(m, "evaluate/")),
        "it has evaluated round 2 with other weights",
    ),
    "weights that give every row the same answer": (
        lambda m: changed(
            m, TrainRequest, {k: 0 * t for k, t in m.tensors.items() if "weights/" in k}, round=4, evaluated=0
        ),
        "these weights give every row the same answer",
    ),
}
EVALUATION: dict[str, tuple[Callable[[Message], Message], str]] = {
    "other weights": (
        lambda m: changed(m, HeldOutRequest, moved(m, "weights/")),
        "evaluated round 3 with other weights",
    ),
    "a round that was evaluated before": (
        lambda m: changed(m, HeldOutRequest, evaluated=2, reference=1),
        "it has evaluated round 2 with other weights",
    ),
    "a round beyond the plan": (
        lambda m: changed(m, HeldOutRequest, moved(m, "weights/"), evaluated=6),
        "the plan of the run has no evaluation of round 6",
    ),
    "another reference": (
        lambda m: changed(m, HeldOutRequest, moved(m, "reference/")),
        "the reference, had other weights when it was evaluated",
    ),
    "a reference that is not earlier": (
        lambda m: changed(m, HeldOutRequest, reference=3),
        "round 3 cannot be compared with round 3",
    ),
    "a reference without a round": (
        lambda m: changed(m, HeldOutRequest, reference=0),
        "the reference has weights or a round, but not both",
    ),
    "weights that give every row the same answer": (
        lambda m: changed(
            m, HeldOutRequest, {k: 0 * t if "weights/" in k else t for k, t in m.tensors.items()}, evaluated=4
        ),
        "these weights give every row the same answer",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TRAINING)
def test_a_site_refuses_training_that_the_plan_does_not_have(
    finished: tuple[SiteData, dict[str, Message]], name: str
) -> None:
    site, requests = finished
    change, reason = TRAINING[name]
    with pytest.raises(PublicError, match=reason):
        handle("train", site, change(requests["train"]))


@pytest.mark.parametrize("name", EVALUATION)
def test_a_site_refuses_an_evaluation_that_the_plan_does_not_have(
    finished: tuple[SiteData, dict[str, Message]], name: str
) -> None:
    site, requests = finished
    change, reason = EVALUATION[name]
    with pytest.raises(PublicError, match=reason):
        handle("evaluate_held_out", site, change(requests["evaluate_held_out"]))


def test_a_site_evaluates_one_delivered_classifier_and_repeats_that_on_request(
    finished: tuple[SiteData, dict[str, Message]],
) -> None:
    site, requests = finished
    message = requests["evaluate_locally"]
    assert handle("evaluate_locally", site, message).document == handle("evaluate_locally", site, message).document
    with pytest.raises(PublicError, match="it has evaluated the delivered classifier of this run"):
        handle("evaluate_locally", site, changed(message, LocalEvaluationRequest, moved(message, "weights/")))


def test_a_request_that_is_repeated_gets_the_same_reply(finished: tuple[SiteData, dict[str, Message]]) -> None:
    site, requests = finished
    for kind in ("train", "evaluate_held_out"):
        first, again = (handle(kind, site, requests[kind]) for _ in range(2))
        assert first.document == again.document
        assert all(torch.equal(again.tensors[name], tensor) for name, tensor in first.tensors.items())


def test_a_refusal_is_in_the_log_of_the_site_and_reaches_the_coordinator(
    finished: tuple[SiteData, dict[str, Message]], caplog: pytest.LogCaptureFixture
) -> None:
    site, requests = finished
    message = changed(requests["train"], TrainRequest, round=6)
    settings_file = Path(site.config.state).parent / "site.toml"
    with caplog.at_level(logging.ERROR, "flwr"):
        logging.getLogger("flwr").propagate = True
        reply = Message.deserialize(reply_to("train", str(settings_file), message.serialize()))
    reason = "round 6 is not one of the 5 that the run declared"
    assert reply.document == {"error": reason, "site": "client-1", "retry": False}
    assert f"fedul: {reason}" in caplog.text


def test_a_run_continues_up_to_the_rounds_that_it_declared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wire = Wire(digits_sites(tmp_path, 2, rows=400))
    given = {"max-rounds": 3, "resumptions": 2}
    run_coordinator(wire, settings(tmp_path, 2, rounds=1, **given))
    run = run_coordinator(wire, settings(tmp_path, 2, rounds=3, resume=True, **given))
    assert [line.clients for line in run.history] == [2, 2, 2]
    assert wire.kinds(1).count("evaluate_locally") == 2
    assert "does not evaluate the classifier" not in capsys.readouterr().err
    with pytest.raises(InputError, match="4 are more than the 3 that the run declared to its sites"):
        run_coordinator(wire, settings(tmp_path, 2, rounds=4, resume=True, **given))
    run_coordinator(wire, settings(tmp_path, 2, rounds=3, resume=True, **given))
    with pytest.raises(InputError, match="the run declared that it is resumed 2 times"):
        run_coordinator(wire, settings(tmp_path, 2, rounds=3, resume=True, **given))


def test_a_coordinator_that_sends_a_degenerate_model_ends_without_an_update(tmp_path: Path) -> None:
    class Degenerate(Wire):
        def request(self, kind: str, messages: Any, seconds: float) -> Any:
            if kind == "train":
                messages = {
                    n: Message(m.document, {k: 0 * t for k, t in m.tensors.items()}) for n, m in messages.items()
                }
            return super().request(kind, messages, seconds)

    with pytest.raises(EnvironmentFailure, match="these weights give every row the same answer"):
        run_coordinator(Degenerate(digits_sites(tmp_path, 2, rows=400)), settings(tmp_path, 2, rounds=1))
