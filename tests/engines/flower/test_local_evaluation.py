"""Accuracy of a classifier without labels, estimated by each site and combined by the coordinator."""

from __future__ import annotations

from pathlib import Path

import pytest

import fedul
from fedul._utils.files import read_json
from fedul.engines.flower.protocol.documents import LocalEvaluation
from fedul.engines.flower.server.coordinator import run_coordinator
from fedul.engines.flower.server.local_evaluation import combine_local_evaluations, combine_totals, is_plausible
from fedul.evaluation.assumption import AssumptionTest
from fedul.evaluation.document import Evaluation
from fedul.evaluation.sentences import assumption_verdict

from .test_parity import settings
from .wire import Wire, digits_sites

CLASSES = ("a", "b")


def local(accuracy: float, error: float = 0.03, rows: int = 150, p_value: float | None = 0.5) -> LocalEvaluation:
    return LocalEvaluation(rows, accuracy, error, p_value)


def combine(**evaluations: LocalEvaluation) -> Evaluation:
    combined = combine_local_evaluations(evaluations, CLASSES)
    assert combined is not None
    return combined


def test_without_an_estimate_there_is_no_evaluation() -> None:
    assert combine_local_evaluations({}, CLASSES) is None


@pytest.mark.parametrize(
    "wrong", [local(0.9, rows=0), local(7.0), local(0.9, error=-1), local(0.9, p_value=3), local(0.9, rows=10**12)]
)
def test_an_implausible_estimate_is_recognized(wrong: LocalEvaluation) -> None:
    assert not is_plausible(wrong, 150)
    assert is_plausible(local(0.9), 150)


def test_a_site_without_errors_does_not_outweigh_the_others() -> None:
    combined = combine(north=local(1.0, error=0.001), south=local(0.8))
    assert combined.estimated_accuracy == pytest.approx(0.9)
    assert combined.interval[0] < 0.85


def test_a_site_that_does_not_fit_is_named_unless_the_number_of_sites_explains_it() -> None:
    sites = {f"site-{number}": local(0.9) for number in range(9)}
    by_chance = combine(**sites, west=local(0.9, p_value=0.01))
    misfit = combine(**sites, west=local(0.9, p_value=0.001))
    assert by_chance.assumption == AssumptionTest(pytest.approx(0.1))
    assert [each.client for each in misfit.assumption.misfits] == ["west"]


def test_the_combined_estimate_is_near_the_truth(tmp_path: Path) -> None:
    run = run_coordinator(Wire(digits_sites(tmp_path, 5)), settings(tmp_path, 5, rounds=15))
    combined = Evaluation.from_dict(read_json(tmp_path / "run" / "evaluation.json"))
    truth = fedul.load("digits", clients=5).truth
    assert truth is not None
    accuracy = (run.classifier.predict_proba(truth.test_inputs).argmax(axis=1) == truth.test_labels).mean()
    assert combined.interval[0] <= accuracy <= combined.interval[1]
    assert abs(combined.estimated_accuracy - accuracy) < 0.05
    assert {site.site for site in combined.sites} == {f"client-{number}" for number in range(1, 6)}


@pytest.mark.parametrize(
    ("tested", "misfits", "said"),
    [
        (3, 0, "was tested at 3 sites, each with its own p-value, and none found sets that do not look like"),
        (3, 1, "and 1 found sets that do not look like mixtures of the same classes; which sites these are stays"),
        (0, 0, "could not be tested: no site could test it."),
    ],
)
def test_sums_over_sites_say_whether_the_assumption_was_tested(tested: int, misfits: int, said: str) -> None:
    totals = {"rows": 300.0, "correct": 270.0, "errors": 5.0, "tested": float(tested), "misfits": float(misfits)}
    combined = combine_totals(totals, CLASSES)
    assert combined is not None
    assert said in assumption_verdict(combined.assumption)


def test_the_page_of_a_coordinator_can_be_written_again(tmp_path: Path) -> None:
    run_coordinator(Wire(digits_sites(tmp_path, 2, rows=300)), settings(tmp_path, 2, rounds=1))
    page = tmp_path / "run" / "report.html"
    written = page.read_bytes()
    assert fedul.report(tmp_path / "run") == page
    assert page.read_bytes() == written
