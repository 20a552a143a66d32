"""A run on sites ends with the same result as a run in process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import fedul
from fedul.algorithms import ALGORITHMS
from fedul.engines.flower.server.coordinator import run_coordinator
from fedul.errors import EnvironmentFailure, InputError
from fedul.training import RunFolder

from .wire import Wire, digits_sites

CLASSES = ",".join("0123456789")
COMPARED = ("round", "loss", "clients", "held_out_loss", "temperature")


def settings(folder: Path, sites: int, **changed: Any) -> dict[str, Any]:
    given = {
        "out": str(folder / "run"),
        "classes": CLASSES,
        "sites": sites,
        "method": "fedul",
        "rounds": 3,
        "round-seconds": 1.0,
    }
    return {**given, **changed}


def weights(run: fedul.Run) -> torch.Tensor:
    return torch.cat([value.double().flatten() for value in run.classifier.module.state_dict().values()])


def assert_same(found: fedul.Run, expected: fedul.Run) -> None:
    here, there = weights(found), weights(expected)
    assert float((here - there).norm() / there.norm()) < 1e-5
    for line, other in zip(found.history, expected.history, strict=True):
        assert [getattr(line, name) for name in COMPARED] == pytest.approx(
            [getattr(other, name) for name in COMPARED], rel=1e-4
        )
    assert found.selected_round == expected.selected_round


@pytest.mark.parametrize("algorithm", [name for name in ALGORITHMS if name != "fedbn"])
def test_sites_end_with_the_weights_and_metrics_of_a_run_in_process(tmp_path: Path, algorithm: str) -> None:
    options = {"trim": 0.4} if algorithm == "trimmed-mean" else {}
    changed = {"algorithm": algorithm, "algorithm-option": [f"{name}={value}" for name, value in options.items()]}
    found = run_coordinator(Wire(digits_sites(tmp_path, 3)), settings(tmp_path, 3, **changed))
    study = fedul.load("digits", clients=3)
    assert_same(found, fedul.train(study, method="fedul", rounds=3, algorithm=algorithm, algorithm_option=options))


def test_batch_norm_stays_at_its_site_as_it_does_in_process(tmp_path: Path) -> None:
    training = {"method": "fedul", "algorithm": "fedbn", "model": "paper-cnn", "rounds": 2, "epochs": 1}
    found = run_coordinator(Wire(digits_sites(tmp_path, 2, rows=300)), settings(tmp_path, 2, **training))
    study = fedul.load("digits", clients=2, rows=300)
    assert_same(found, fedul.train(study, **training, engine_mode="loop", workers=1))


def test_sites_train_in_bfloat16_as_a_run_in_process_does(tmp_path: Path) -> None:
    training = {"method": "fedul", "model": "small-cnn", "precision": "bfloat16", "rounds": 2}
    found = run_coordinator(Wire(digits_sites(tmp_path, 2, rows=300)), settings(tmp_path, 2, **training))
    study = fedul.load("digits", clients=2, rows=300)
    expected = fedul.train(study, **training, engine_mode="loop", workers=1)
    here, there = weights(found), weights(expected)
    exact = weights(fedul.train(study, **{**training, "precision": "float32"}, engine_mode="loop", workers=1))
    rounding = float((exact - there).norm())
    assert float((here - there).norm()) < 0.1 * rounding  # other layouts in memory may be rounded in another way


def test_sites_without_a_gpu_refuse_float16_when_they_join(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(EnvironmentFailure, match="0 sites can take part"):
        run_coordinator(Wire(digits_sites(tmp_path, 2)), settings(tmp_path, 2, precision="float16"))
    reason = "precision float16: is for GPUs; use bfloat16 or auto on a CPU"
    assert f"site 'client-1' is refused: {reason}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("method", "options"),
    [("fedul-refined", {"earliest": 1, "latest": 2}), ("fedul-combined", {}), ("fedllp", {}), ("fedpl", {})],
)
def test_every_method_runs_at_sites(tmp_path: Path, method: str, options: dict[str, Any]) -> None:
    changed = {"method-option": [f"{name}={value}" for name, value in options.items()]} if options else {}
    found = run_coordinator(Wire(digits_sites(tmp_path, 3)), settings(tmp_path, 3, method=method, **changed))
    study = fedul.load("digits", clients=3)
    assert_same(found, fedul.train(study, rounds=3, method=method, method_option=options, engine_mode="loop"))


def test_the_rate_of_a_round_at_sites_follows_the_schedule_as_in_process(tmp_path: Path) -> None:
    training = {"optimizer": "sgd", "momentum": 0.9, "learning-rate": 0.1, "schedule": "triangular", "nesterov": True}
    found = run_coordinator(Wire(digits_sites(tmp_path, 2)), settings(tmp_path, 2, **training))
    here = {name.replace("-", "_"): value for name, value in training.items()}
    study = fedul.load("digits", clients=2)
    assert_same(found, fedul.train(study, method="fedul", rounds=3, **here, engine_mode="loop"))
    constant = fedul.train(study, method="fedul", rounds=3, **{**here, "schedule": "constant"}, engine_mode="loop")
    assert not torch.allclose(weights(found), weights(constant), rtol=1e-3)


def test_a_run_whose_coordinator_was_lost_resumes_to_the_same_result(tmp_path: Path) -> None:
    class Lost(Exception):
        pass

    class Losing(Wire):
        def request(self, kind: str, *others: Any) -> Any:
            found = super().request(kind, *others)
            if kind == "train" and sum(1 for _, what in self.requests if what == "train") == 3 * 3:
                raise Lost  # the sites have trained round three; the coordinator does not know
            return found

    sites = digits_sites(tmp_path, 3)
    with pytest.raises(Lost):
        run_coordinator(Losing(sites), settings(tmp_path, 3, algorithm="scaffold"))
    assert len(RunFolder(tmp_path / "run").history()) == 1  # round two was not evaluated yet
    found = run_coordinator(Wire(sites), settings(tmp_path, 3, algorithm="scaffold", resume=True))
    assert_same(found, fedul.train(fedul.load("digits", clients=3), method="fedul", rounds=3, algorithm="scaffold"))


def test_a_round_is_evaluated_by_the_sites_that_train_the_next(tmp_path: Path) -> None:
    wire = Wire(digits_sites(tmp_path, 2))
    run_coordinator(wire, settings(tmp_path, 2))
    assert wire.kinds(1) == [
        "hello", "join", "train", "train", "train", "evaluate_held_out", "evaluate_locally",
    ]  # fmt: skip


def test_the_traffic_of_the_last_evaluation_is_counted(tmp_path: Path) -> None:
    wire = Wire(digits_sites(tmp_path, 2))
    found = run_coordinator(wire, settings(tmp_path, 2, rounds=2))
    model = 4 * len(weights(found))
    # Sites get the weights; then those of the next round and those to evaluate; then the last ones to evaluate, with
    # those of the best round to compare with.
    assert [line.bytes_sent for line in found.history] == [2 * model, 2 * (2 + 2) * model]


def test_the_report_says_what_sites_do_not_disclose(tmp_path: Path) -> None:
    run_coordinator(Wire(digits_sites(tmp_path, 2)), settings(tmp_path, 2, rounds=1))
    assert "Not known: only the accuracy as a whole was estimated." in (tmp_path / "run" / "report.html").read_text()


def test_a_run_waits_for_the_configured_number_of_sites(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFailure, match=r"2 of 3 sites connected within 0.1 s \(client-1, client-2\)"):
        run_coordinator(Wire(digits_sites(tmp_path, 2)), settings(tmp_path, 3, **{"start-seconds": 0.1}))


def test_sites_learn_from_how_they_differ_if_they_know_the_class_mix_of_all_rows(tmp_path: Path) -> None:
    training = {"method": "fedul-combined", "rounds": 2}
    options = {"common_mix": True, "proportion_weight": 1.0}
    study = fedul.load("digits", clients=3)
    mix = study.federation.spec.class_mix
    assert mix is not None
    text = ",".join(f"{name}={share!r}" for name, share in zip(CLASSES.split(","), mix.tolist(), strict=True))
    changed = {**training, "method-option": ["common_mix=true", "proportion_weight=1"]}
    given = settings(tmp_path, 3, **changed, **{"class-mix": text})
    wire = Wire(digits_sites(tmp_path, 3))
    found = run_coordinator(wire, given)
    expected = fedul.train(study, **training, method_option=options, engine_mode="loop")
    assert_same(found, expected)
    with pytest.raises(InputError, match="another class-mix"):
        run_coordinator(wire, settings(tmp_path, 3, resume=True, **changed))
