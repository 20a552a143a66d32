"""Sites train with private rows as clients in process do, with noise that nobody can repeat."""

from __future__ import annotations

from pathlib import Path

import pytest

import fedul
from fedul.engines.flower.protocol.documents import TrainReply
from fedul.engines.flower.protocol.message import Message
from fedul.engines.flower.server.coordinator import read_settings, run_coordinator
from fedul.errors import EnvironmentFailure, InputError

from .test_parity import assert_same, settings
from .wire import Wire, digits_sites


class RecordingWire(Wire):
    """A wire that remembers the documents of all updates."""

    replies: list[TrainReply]

    def request_one(self, kind: str, node: int, message: Message):  # type: ignore[no-untyped-def]
        reply = super().request_one(kind, node, message)
        if kind == "train" and isinstance(reply, Message):
            self.replies = [*getattr(self, "replies", []), reply.read(TrainReply)]
        return reply


@pytest.mark.parametrize("algorithm", ["fedavg", "scaffold", "fedprox"])
def test_without_noise_sites_end_as_clients_in_process_do(tmp_path: Path, algorithm: str) -> None:
    private = {"dp_noise": 0.0, "dp_clip": 0.3, "batch_size": "all", "algorithm": algorithm, "epochs": 2}
    sites = digits_sites(tmp_path, 2, rows=300)
    for file in sites.values():
        file.write_text(file.read_text() + "sets-overlap = false\n")  # a row in several sets would have a random one
    wire = RecordingWire(sites)
    found = run_coordinator(wire, settings(tmp_path, 2, **private))
    study = fedul.load("digits", clients=2, rows=300, sets_overlap=False)
    expected = fedul.train(study, method="fedul", rounds=3, **private)
    assert [metrics.loss for metrics in found.history] == [None] * 3
    assert {reply.loss for reply in wire.replies} == {None}
    for run in (found, expected):  # which have no losses to compare
        none = {"loss": 0.0, "held_out_loss": 0.0}
        run.history[:] = [metrics.__class__(**{**vars(metrics), **none}) for metrics in run.history]
    assert_same(found, expected)


def test_noise_at_sites_is_never_the_same(tmp_path: Path) -> None:
    private = {"dp_noise": 1.0, "rounds": 1}
    digests = set()
    for name in "ab":
        folder = tmp_path / name
        folder.mkdir()
        run = run_coordinator(Wire(digits_sites(folder, 2, rows=300)), settings(folder, 2, **private))
        digests.add(run.result.weights_sha256)
    assert len(digests) == 2


def test_seeded_noise_is_refused_by_the_coordinator(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="dp-seeded: is for simulations"):
        read_settings(settings(tmp_path, 2, dp_noise=1.0, dp_seeded=True))


def test_seeded_noise_is_refused_by_sites(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedul.engines.flower.server.coordinator.refuse_seeded_noise", lambda training: None)
    with pytest.raises(EnvironmentFailure, match="0 sites can take part"):
        run_coordinator(Wire(digits_sites(tmp_path, 2)), settings(tmp_path, 2, dp_noise=1.0, dp_seeded=True))
    assert "noise that others can repeat (dp-seeded) is for simulations" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changed", "message"), [({"model": "paper-cnn"}, "has batch norm"), ({"method": "fedllp"}, "")]
)
def test_what_cannot_be_private_is_refused(tmp_path: Path, changed: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message or "mean predictions over whole sets"):
        run_coordinator(Wire(digits_sites(tmp_path, 2)), settings(tmp_path, 2, dp_noise=1.0, **changed))


def test_the_coordinator_expects_the_steps_of_private_sites(tmp_path: Path) -> None:
    """Plain steps avoid a last batch of one row, so there is one less than with private rows."""
    rows = fedul.load("digits", clients=2, rows=300).federation.columns.train_rows[0]
    changed = {"dp_noise": 1.0, "batch_size": int(rows) - 1, "rounds": 1}
    run = run_coordinator(Wire(digits_sites(tmp_path, 2, rows=300)), settings(tmp_path, 2, **changed))
    assert run.history[0].site_errors == {}
