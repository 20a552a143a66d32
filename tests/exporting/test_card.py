"""A model card says what a classifier is for, what it was made from and where its limits are, and shows no data."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedul
from fedul._utils.files import tensors_digest, write_json
from fedul.classifier import Classifier
from fedul.core import Federation, UnlabeledSets
from fedul.data.files.schema.table import Boolean, Category, Number, TableSchema
from fedul.errors import InputError
from fedul.evaluation.assumption import AssumptionTest, Misfit
from fedul.evaluation.check_result import CheckResult, ClientCheck, FederationTotals, Forecast, PairCheck
from fedul.evaluation.document import (
    MAJORITY,
    SOFT_SETS,
    TOP_CLASS,
    Baseline,
    ClassEstimate,
    Evaluation,
    SetCalibration,
)
from fedul.evaluation.sentences import CANNOT_SEE, LABELS_USED
from fedul.exporting.card import ModelCard, is_card, model_card
from fedul.models.weights import weights_of
from fedul.training import RunFolder

from ..factories import gaussian_study

CLASSES = ("flu", "cold")
SCHEMA = TableSchema(
    (
        Number("age | years", 40.0, 12.0, missing=True),
        Category("ward", ("Secret Wing",), others=True, missing=False),
        Boolean("cough", 0.3, missing=False),
    )
)
EVALUATION = Evaluation(
    estimated_accuracy=0.912,
    interval=(0.88, 0.94),
    rows=120,
    width_with_labels=0.1,
    classes=CLASSES,
    accuracy=0.9,
    recall=(ClassEstimate("flu", 0.85, 0.8, 0.9), ClassEstimate("cold", 0.95, 0.9, 0.97)),
    precision=(ClassEstimate("flu", 0.875, 0.8, 0.9), ClassEstimate("cold", 0.5, 0.4, 0.6)),
    assumption=AssumptionTest(0.04, (Misfit("Northern Hospital", "m1", 0.04, "its rows differ"),)),
    calibration=(
        SetCalibration("Northern Hospital", "m1", "flu", 0.8125, 0.7, 0.02),
        SetCalibration("Northern Hospital", "m2", "flu", 0.25, 0.26, 0.02),
    ),
    baselines=(Baseline(MAJORITY, 0.6), Baseline(TOP_CLASS, 0.7), Baseline(SOFT_SETS, 0.85, (0.8, 0.9))),
)
REFUSED = replace(
    EVALUATION,
    estimated_accuracy=None,
    interval=None,
    reason="the sets differ in other ways too",
    remedies=("Form sets in another way (--set-column).", "Label about 100 rows (--truth-column)."),
    accuracy=None,
    recall=(),
    precision=(),
    baselines=(Baseline(MAJORITY, 0.6), Baseline(SOFT_SETS, None)),
)
CHECK = CheckResult(
    verdict="not enough",
    summary="Not enough: with these class priors, the classes cannot be told apart.",
    advice=("Split set 'm1' of Northern Hospital.",),
    identifiable=False,
    totals=FederationTotals(clients=2, rows=120, sets=2, rank=0, classes=2),
    forecast=Forecast(120, 0, 0, 0.0, 0.0),
    clients=(
        ClientCheck("Northern Hospital", 60, 1, 1, None, 0.0, 0.0),
        ClientCheck("Southern Hospital", 60, 1, 1, None, 0.0, 0.0),
    ),
    pairs=(PairCheck("flu", "cold", 0.0, 0.0, 0.0),),
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("card") / "RUN"
    generator = np.random.default_rng(0)
    clients = [
        UnlabeledSets.from_arrays(
            name,
            generator.normal(size=(40, SCHEMA.shape[0])).astype(np.float32),
            np.repeat([0, 1], 20),
            [[0.8125, 0.1875], [0.25, 0.75]],
        )
        for name in ("Northern Hospital", "Southern Hospital", "Western Hospital")
    ]
    fedul.train(Federation(clients, CLASSES, np.array([0.4, 0.6]), schema=SCHEMA), rounds=2, model="linear", out=folder)
    return folder


@pytest.fixture
def run(trained: Path) -> Iterator[RunFolder]:
    yield RunFolder(trained)
    for name in ("evaluation.json", "check.json"):
        (trained / name).unlink(missing_ok=True)


def card_of(run: RunFolder) -> dict[str, Any]:
    return model_card(run, run.load_classifier()).to_dict()


def with_evaluation(run: RunFolder) -> ModelCard:
    write_json(run.path / "evaluation.json", EVALUATION.to_dict())
    write_json(run.path / "check.json", CHECK.to_dict())
    return model_card(run, run.load_classifier())


def test_a_card_says_what_was_trained_and_on_how_much(run: RunFolder) -> None:
    card = card_of(run)
    assert card["model"]["classes"] == ["flu", "cold"]
    assert card["model"]["settings"]["method"] == "fedul-combined"
    assert card["model"]["settings"]["algorithm"] == "fedadam"
    assert (card["model"]["rounds"], card["model"]["labels_used"]) == (2, 0)
    assert card["model"]["software"]["fedul"] == fedul.__version__
    counts = {name: card["training_data"][name] for name in ("clients", "sets", "rows", "held_out_rows")}
    assert counts == {"clients": 3, "sets": 6, "rows": 96, "held_out_rows": 24}
    assert [column["name"] for column in card["training_data"]["columns"]] == SCHEMA.names


def test_the_digest_is_that_of_the_delivered_weights(run: RunFolder) -> None:
    delivered = Classifier.load(run.path / "model")
    assert card_of(run)["model"]["weights_sha256"] == tensors_digest(weights_of(delivered.module))


def test_the_population_is_that_of_the_classifier(run: RunFolder) -> None:
    moved = model_card(run, run.load_classifier().with_prior([0.1, 0.9])).to_dict()["intended_use"]
    assert moved["class_mix"] == {"flu": 0.1, "cold": 0.9}
    assert moved["trained_class_mix"] == card_of(run)["intended_use"]["class_mix"] == {"flu": 0.4, "cold": 0.6}


def test_without_evaluation_and_check_the_card_says_that_there_is_none(run: RunFolder) -> None:
    card = card_of(run)
    assert card["diagnosis"] is card["figures_without_labels"] is card["figures_with_labels"] is None
    text = model_card(run, run.load_classifier()).to_markdown()
    assert text.count("None were made.") == 2
    assert "No labels were available." in text
    assert "**The accuracy of this classifier is not known.**" in text
    assert "No accuracy was estimated without labels." in text


def test_a_card_has_the_metrics_and_the_check_of_the_run(run: RunFolder) -> None:
    card = with_evaluation(run).to_dict()
    figures = card["figures_without_labels"]
    assert (figures["estimated_accuracy"], figures["interval"]) == (0.912, [0.88, 0.94])
    assert figures["precision"]["flu"] == {"value": 0.875, "low": 0.8, "high": 0.9}
    assert figures["calibration"] == {"shares": 2, "more_than_two_standard_errors_off": 1}
    verdict = "The sets contradict the assumption that cases of a class look alike in every set (p = 0.040)."
    assert figures["assumption"] == {"verdict": verdict, "p_value": 0.04, "misfits": 1}
    assert (figures["reason"], figures["remedies"]) == (None, [])
    assert figures["baselines"][0] == {"name": "majority class", "estimated_accuracy": 0.6, "interval": None}
    assert card["figures_with_labels"] == {"accuracy": 0.9}
    assert card["diagnosis"]["clients"] == 2
    text = with_evaluation(run).to_markdown()
    assert "91.2%" in text
    assert "88.0% to 94.0%" in text
    assert "| flu | 85.0% (80.0% to 90.0%) | 87.5% (80.0% to 90.0%) |" in text
    assert "Not enough: with these class priors" in text
    assert verdict in text
    assert "| soft-set logistic regression | 85.0% | 80.0% to 90.0% |" in text
    assert "| majority class | 60.0% | follows from the priors |" in text
    assert "The class priors cannot tell the classes apart" in text


def opening(card: ModelCard) -> str:
    """What stands between the title and the purpose."""
    return card.to_markdown().removeprefix("# Model card\n\n").partition("\n\nGives a row")[0]


def test_the_first_lines_have_warnings_the_estimate_and_what_it_cannot_see(run: RunFolder) -> None:
    assert opening(with_evaluation(run)) == (
        "**Caution: the sets differ by more than the class mix explains, so the accuracy may be lower than "
        "estimated.** Estimated accuracy 91.2% (95 % interval 88.0% to 94.0%), from 120 rows and no label. "
        f"{CANNOT_SEE} Measured with labels: 90.0%."
    )


def test_a_classifier_no_better_than_a_naive_one_is_called_so_first(run: RunFolder) -> None:
    evaluation = replace(EVALUATION, baselines=(Baseline(MAJORITY, 0.89),))
    card = model_card(run, run.load_classifier(), evaluation)
    assert opening(card).startswith("**Not clearly better than the majority class (89.0%).**")
    assert card.to_dict()["summary"][0] == "Not clearly better than the majority class (89.0%)."


def test_an_accuracy_that_cannot_be_estimated_comes_first_with_its_reason_and_remedies(run: RunFolder) -> None:
    card = model_card(run, run.load_classifier(), REFUSED)
    assert opening(card) == (
        "**The accuracy cannot be estimated without labels, because the sets differ in other ways too.**\n\n"
        "What would help:\n\n"
        "- Form sets in another way (--set-column).\n- Label about 100 rows (--truth-column)."
    )
    figures = card.to_dict()["figures_without_labels"]
    assert figures["estimated_accuracy"] is figures["interval"] is None
    assert figures["reason"] == REFUSED.reason
    assert figures["remedies"] == list(REFUSED.remedies)
    text = card.to_markdown()
    assert "- estimated accuracy: cannot be estimated, because the sets differ in other ways too\n" in text
    assert "| soft-set logistic regression | cannot be estimated | none |" in text
    assert "No accuracy was estimated without labels." in text
    assert len(card.limits) == len(set(card.limits))


def test_the_card_says_what_counts_as_a_label(run: RunFolder) -> None:
    assert LABELS_USED in model_card(run, run.load_classifier()).to_markdown()


def test_no_site_no_word_no_priors_and_no_path_are_in_the_card(run: RunFolder) -> None:
    card = with_evaluation(run)
    for text in (json.dumps(card.to_dict()), card.to_markdown()):
        for secret in ("Hospital", "Secret Wing", "0.8125", "81.2", str(run.path)):
            assert secret not in text


def test_the_card_warns_of_what_the_model_itself_holds(run: RunFolder) -> None:
    assert any("values of categories" in sentence for sentence in card_of(run)["limits"])


def test_everything_in_the_json_is_in_the_markdown(run: RunFolder) -> None:
    text, card = with_evaluation(run).to_markdown(), card_of(run)
    for sentence in (*card["summary"], *card["limits"], card["diagnosis"]["summary"], card["intended_use"]["purpose"]):
        assert sentence in text
    for name, value in card["model"].items():
        if isinstance(value, str):
            assert f"{name.replace('_', ' ')}: {value}" in text
    assert "age \\| years" in text


def test_the_card_states_the_guarantee_without_names_of_clients(tmp_path: Path) -> None:
    study = gaussian_study()
    private = fedul.train(study, method="fedul", rounds=1, dp_epsilon=2.0, out=tmp_path / "RUN")
    card = model_card(private, private.classifier)
    (stated,) = card.to_dict()["privacy"]
    low, high = stated["epsilon_of_clients"]
    assert low == min(private.result.epsilon.values())
    assert high == max(private.result.epsilon.values()) <= 2.0
    text = card.to_markdown()
    for sentence in (stated["headline"], stated["meaning"], stated["trust"], *stated["covers"], *stated["not_covered"]):
        assert sentence.partition("(")[0] in text.replace("\\", "")
    assert "was not measured" not in text
    assert not any(client.name in text for client in study.federation.clients)


def test_a_card_of_a_run_without_protection_says_so(run: RunFolder) -> None:
    assert card_of(run)["privacy"] == []
    assert "Nothing bounds what the classifier tells about single rows" in with_evaluation(run).to_markdown()


@pytest.mark.parametrize("content", ["[1, 2]", "{", '{"estimated_accuracy": NaN}'])
def test_a_damaged_evaluation_is_refused(run: RunFolder, content: str) -> None:
    (run.path / "evaluation.json").write_text(content)
    with pytest.raises(InputError, match=r"evaluation\.json: damaged"):
        card_of(run)


def test_a_folder_without_a_run_has_no_card(run: RunFolder) -> None:
    with pytest.raises(InputError, match="holds no run"):
        card_of(RunFolder(run.path / "model"))


def test_a_card_is_known_from_other_files(run: RunFolder, tmp_path: Path) -> None:
    write_json(tmp_path / "card.json", card_of(run))
    assert is_card(tmp_path / "card.json")
    assert not is_card(run.path / "config.json")
    assert not is_card(tmp_path / "absent.json")


def test_a_run_in_memory_has_a_card_with_its_check_and_the_evaluation_that_is_given(tmp_path: Path) -> None:
    run = fedul.train(fedul.load("digits", clients=2, rows=400), rounds=1, seed=0)
    file = fedul.export(run, tmp_path / "card.md", evaluation=EVALUATION)
    card = json.loads(file.read_text())
    assert card["version"] == 2
    assert card["figures_without_labels"]["estimated_accuracy"] == 0.912
    assert card["diagnosis"]["identifiable"] is True
    assert (tmp_path / "card.md").read_text().startswith("# Model card\n")
