"""Sites charge themselves for private rows, whatever the coordinator repeats, resumes or starts again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import fedul
from fedul.engines.flower.protocol.documents import HeldOutRequest, LocalEvaluationRequest, RunRequest, TrainRequest
from fedul.engines.flower.protocol.message import Message
from fedul.engines.flower.protocol.run_plan import RunPlan
from fedul.engines.flower.server.coordinator import read_settings, run_coordinator
from fedul.engines.flower.site.handlers import handle
from fedul.engines.flower.site.public_error import PublicError
from fedul.engines.flower.site.row_budget import LEDGER
from fedul.engines.flower.site.site_data import SiteData
from fedul.errors import EnvironmentFailure, InputError
from fedul.privacy.ledger import Ledger
from fedul.training import RunFolder

from .secure_sites import secure_digits_sites, secure_settings
from .test_parity import settings, weights
from .test_plan import Recorder, changed
from .wire import Wire, digits_sites

ROUNDS = 3
PRIVATE = {"dp-epsilon": 4.0, "model": "linear", "rounds": ROUNDS, "resumptions": 9, "max-rounds": 9}


def private_run(wire: Wire, folder: Path, **given: Any) -> fedul.Run:
    return run_coordinator(wire, settings(folder, len(wire.settings), **{**PRIVATE, **given}))


def state_of(wire: Wire, node: int = 1) -> Path:
    return wire.settings[node].parent / "state"


def charges(wire: Wire, node: int = 1) -> list[int]:
    return [charge.round for charge, _ in Ledger(state_of(wire, node) / LEDGER).entries()]


@pytest.fixture
def finished(tmp_path: Path) -> tuple[Recorder, dict[str, Message]]:
    """A wire after a private run of two sites, and the last request of each kind to the first one."""
    wire = Recorder(digits_sites(tmp_path, 2, rows=300))
    private_run(wire, tmp_path)
    return wire, dict(wire.sent)


def site(wire: Wire) -> SiteData:
    return SiteData.read(str(wire.settings[1]))


def test_every_site_states_its_epsilon_in_metrics_and_result(tmp_path: Path) -> None:
    wire = Wire(digits_sites(tmp_path, 2, rows=300))
    run = private_run(wire, tmp_path)
    study = fedul.load("digits", clients=2, rows=300)
    expected = fedul.train(study, method="fedul", dp_epsilon=4.0, model="linear", rounds=ROUNDS)
    assert run.result.epsilon == expected.result.epsilon
    assert charges(wire) == charges(wire, 2) == [1, 2, 3]
    history = RunFolder(tmp_path / "run").history()
    assert [line.epsilon_by_client for line in history] == [line.epsilon_by_client for line in expected.history]
    assert run.result.privacy[0].headline == "each row is protected with epsilon 4 at delta 1e-05"


def test_a_request_that_is_repeated_gets_the_same_noise_and_costs_nothing(
    finished: tuple[Recorder, dict[str, Message]],
) -> None:
    wire, requests = finished
    first, again = (handle("train", site(wire), requests["train"]) for _ in range(2))
    assert charges(wire) == [1, 2, 3]
    assert all(torch.equal(again.tensors[name], tensor) for name, tensor in first.tensors.items())


def test_a_round_that_is_repeated_from_other_weights_is_charged_and_refused_beyond_the_budget(
    finished: tuple[Recorder, dict[str, Message]],
) -> None:
    wire, requests = finished
    other = {name: tensor + 0.01 for name, tensor in requests["train"].tensors.items()}
    repeated = changed(requests["train"], TrainRequest, other, resumption=1)
    with pytest.raises(PublicError, match=r"its privacy budget \(dp-epsilon\) does not suffice"):
        handle("train", site(wire), repeated)
    assert charges(wire) == [1, 2, 3]
    more = replace(requests["train"].read(TrainRequest).training, dp_epsilon=5.0)
    reply = handle("train", site(wire), changed(repeated, TrainRequest, other, training=more))
    assert charges(wire) == [1, 2, 3, 3]
    assert 4.0 < reply.document["epsilon"] < 5.0


def test_further_rounds_need_a_larger_budget_and_keep_their_noise(tmp_path: Path) -> None:
    wire = Wire(digits_sites(tmp_path, 2, rows=300))
    private_run(wire, tmp_path)
    with pytest.raises(InputError, match=r"budget of client-1, client-2 is spent .* or deliver .* --rounds 3"):
        private_run(wire, tmp_path, rounds=5, resume=True)
    run = private_run(wire, tmp_path, rounds=5, resume=True, **{"dp-epsilon": 8.0})
    assert charges(wire) == [1, 2, 3, 4, 5]
    assert len({charge.mechanism for charge, _ in Ledger(state_of(wire) / LEDGER).entries()}) == 1
    assert all(4.0 < epsilon < 8.0 for epsilon in run.result.epsilon.values() if epsilon is not None)


def test_a_site_without_the_ledger_of_a_run_does_not_continue_it(
    finished: tuple[Recorder, dict[str, Message]],
) -> None:
    wire, requests = finished
    (state_of(wire) / LEDGER).unlink()
    with pytest.raises(PublicError, match="the ledger of its privacy is missing"):
        handle("train", site(wire), requests["train"])


def test_a_site_with_a_budget_for_all_runs_joins_no_other_run_without_its_ledger(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wire = limited(tmp_path, 50.0)
    private_run(wire, tmp_path / "first")
    for node in wire.settings:
        (state_of(wire, node) / LEDGER).unlink()
    with pytest.raises(EnvironmentFailure, match="0 sites can take part"):
        private_run(wire, tmp_path / "second")
    assert "site 'client-1' is refused: the ledger of its privacy is missing." in capsys.readouterr().err


def limited(folder: Path, epsilon: float) -> Wire:
    """Two sites whose rows may spend this much in all runs."""
    sites = digits_sites(folder, 2, rows=300)
    for file in sites.values():
        file.write_text(f"row-epsilon = {epsilon}\n{file.read_text()}")
    return Wire(sites)


def test_a_site_with_a_budget_for_all_runs_refuses_one_that_it_does_not_suffice_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wire = limited(tmp_path, 5.0)
    private_run(wire, tmp_path / "first")
    for given, reason in (
        ({}, r"its privacy budget (row-epsilon) does not suffice"),
        ({"dp-epsilon": None, "dp-noise": 0.0}, r"its privacy budget (row-epsilon) does not suffice"),
        ({"dp-epsilon": None}, "it takes part in runs with private rows only (row-epsilon)"),
    ):
        given = {name: value for name, value in {**PRIVATE, **given}.items() if value is not None}
        with pytest.raises(EnvironmentFailure, match="0 sites can take part"):
            run_coordinator(wire, settings(tmp_path / "second", 2, **given))
        assert reason in capsys.readouterr().err
        assert charges(wire) == [1, 2, 3]
    private_run(wire, tmp_path / "third", **{"dp-epsilon": 1.0})
    assert charges(wire) == [1, 2, 3, 1, 2, 3]


@pytest.mark.parametrize("protection", [{}, {"dp-epsilon": None, "client-dp-noise": 1.0}])
def test_a_site_evaluates_nothing_in_a_private_run_even_if_the_plan_says_so(
    tmp_path: Path, protection: dict[str, Any]
) -> None:
    given = {name: value for name, value in {**PRIVATE, **protection}.items() if value is not None}
    wire = Recorder(digits_sites(tmp_path, 2, rows=300))
    run_coordinator(wire, settings(tmp_path, 2, **given))
    assert set(wire.kinds(1)) == {"hello", "join", "train"}
    train = dict(wire.sent)["train"]
    request = replace(train.read(TrainRequest), plan=RunPlan(9), run="another")
    shared = {name: getattr(request, name) for name in RunRequest.__dataclass_fields__}
    held_out = HeldOutRequest(**shared, evaluated=1, reference=0, reference_temperature=None)
    weights_only = {name: tensor for name, tensor in train.tensors.items() if name.startswith("weights/")}
    evaluate = {name.replace("weights/", "evaluate/"): tensor for name, tensor in weights_only.items()}
    for kind, document, tensors in (
        ("evaluate_held_out", held_out, weights_only),
        ("evaluate_locally", LocalEvaluationRequest(**shared, temperature=1.0), weights_only),
        ("train", replace(request, evaluated=3, round=4), {**weights_only, **evaluate}),
    ):
        with pytest.raises(PublicError, match="so nothing is evaluated on them"):
            handle(kind, site(wire), Message(Message.of(document).document, tensors))


def test_with_secure_aggregation_every_site_keeps_the_epsilon_of_the_run(tmp_path: Path) -> None:
    wire = Wire(secure_digits_sites(tmp_path, 3, rows=300))
    run = run_coordinator(wire, secure_settings(tmp_path, 3, **PRIVATE))
    assert run.result.epsilon == {f"client-{number}": 4.0 for number in (1, 2, 3)}
    assert charges(wire) == [1, 2, 3]
    assert torch.isfinite(weights(run)).all()
    assert run.result.secure_aggregation is not None
    assert run.history[-1].loss is None
    with pytest.raises(InputError, match="dp-noise: with secure-aggregation, sites do not state what their rows pay"):
        read_settings(secure_settings(tmp_path, 3, **{"dp-noise": 1.0}))


def test_with_secure_aggregation_and_protected_clients_the_sum_is_clipped_and_noisy(tmp_path: Path) -> None:
    given = {"client-dp-noise": 0.0, "client-dp-clip": 0.05, "rounds": 2}
    found = run_coordinator(
        Wire(secure_digits_sites(tmp_path / "a", 3, rows=300)), secure_settings(tmp_path / "a", 3, **given)
    )
    plain = run_coordinator(Wire(digits_sites(tmp_path / "b", 3, rows=300)), settings(tmp_path / "b", 3, **given))
    assert float((weights(found) - weights(plain)).abs().max()) < 1e-5
    noisy = run_coordinator(
        Wire(secure_digits_sites(tmp_path / "c", 3, rows=300)),
        secure_settings(tmp_path / "c", 3, **{**given, "client-dp-noise": 1.0}),
    )
    assert noisy.result.privacy[0].unit == "client"
    assert float((weights(noisy) - weights(plain)).abs().max()) > 1e-4
