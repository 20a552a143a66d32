"""A model card says what a classifier is for, what it was made from and where its limits are, and shows no data."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedul
from fedul.classifier import Classifier
from fedul.errors import InputError
from fedul.export.card import as_markdown, is_card, model_card
from fedul.federation import Federation, UnlabeledSets
from fedul.files import tensors_digest, write_json
from fedul.models.weights import weights_of
from fedul.runs import RunFolder
from fedul.schema.table import Boolean, Category, Number, TableSchema

CLASSES = ("flu", "cold")
SCHEMA = TableSchema(
    (
        Number("age | years", 40.0, 12.0, missing=True),
        Category("ward", ("Secret Wing",), others=True, missing=False),
        Boolean("cough", 0.3, missing=False),
    )
)
EVALUATION = {
    "estimated_accuracy": 0.912,
    "interval": [0.88, 0.94],
    "accuracy": 0.9,
    "recall": [
        {"class": "flu", "value": 0.85, "low": 0.8, "high": 0.9},
        {"class": "cold", "value": 0.95, "low": 0.9, "high": 0.97},
    ],
    "precision": [{"class": "flu", "value": 0.875, "low": 0.8, "high": 0.9}],
    "assumption": {"p_value": 0.004, "misfits": [{"client": "Northern Hospital", "set": "m1"}]},
    "calibration": [
        {"client": "Northern Hospital", "set": "m1", "stated": 0.8125, "predicted": 0.7, "standard_error": 0.02},
        {"client": "Northern Hospital", "set": "m2", "stated": 0.25, "predicted": 0.26, "standard_error": 0.02},
    ],
}
CHECK = {
    "identifiable": False,
    "summary": "Not enough: with these class priors, the classes cannot be told apart.",
    "advice": ["Split set 'm1' of Northern Hospital."],
    "clients": [{"name": "Northern Hospital", "priors": [[0.8125, 0.1875]]}, {"name": "South"}],
    "forecast": {"accuracy": 0.8, "interval": [0.7, 0.9]},
}


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


def with_findings(run: RunFolder, evaluation: Any = EVALUATION, check: Any = CHECK) -> dict[str, Any]:
    write_json(run.path / "evaluation.json", evaluation)
    write_json(run.path / "check.json", check)
    return model_card(run)


def test_a_card_says_what_was_trained_and_on_how_much(run: RunFolder) -> None:
    card = model_card(run)
    assert card["model"]["classes"] == ["flu", "cold"]
    assert card["model"]["settings"]["method"] == "fedul"
    assert card["model"]["settings"]["algorithm"] == "fedavg"
    assert (card["model"]["rounds"], card["model"]["labels_used"]) == (2, 0)
    assert card["model"]["software"]["fedul"] == fedul.__version__
    counts = {name: card["training_data"][name] for name in ("clients", "sets", "rows", "held_out_rows")}
    assert counts == {"clients": 3, "sets": 6, "rows": 96, "held_out_rows": 24}
    assert [column["name"] for column in card["training_data"]["columns"]] == SCHEMA.names


def test_the_digest_is_that_of_the_delivered_weights(run: RunFolder) -> None:
    delivered = Classifier.load(run.path / "model")
    assert model_card(run)["model"]["weights_sha256"] == tensors_digest(weights_of(delivered.module))


def test_the_population_is_that_of_the_classifier(run: RunFolder) -> None:
    moved = model_card(run, run.load_classifier().with_prior([0.1, 0.9]))["intended_use"]
    assert moved["class_mix"] == {"flu": 0.1, "cold": 0.9}
    assert moved["trained_class_mix"] == model_card(run)["intended_use"]["class_mix"] == {"flu": 0.4, "cold": 0.6}


def test_without_evaluation_and_check_the_card_says_that_there_is_none(run: RunFolder) -> None:
    card = model_card(run)
    assert card["diagnosis"] is card["figures_without_labels"] is card["figures_with_labels"] is None
    text = as_markdown(card)
    assert "None was made." in text
    assert "None were estimated." in text
    assert "No accuracy was estimated without labels." in text


def test_figures_and_diagnosis_of_the_run_are_told(run: RunFolder) -> None:
    card = with_findings(run)
    figures = card["figures_without_labels"]
    assert (figures["estimated_accuracy"], figures["interval"]) == (0.912, [0.88, 0.94])
    assert figures["precision"] == {"flu": {"value": 0.875, "low": 0.8, "high": 0.9}}
    assert figures["calibration"] == {"shares": 2, "more_than_two_standard_errors_off": 1}
    assert figures["assumption"] == {"p_value": 0.004, "misfits": 1}
    assert card["figures_with_labels"] == {"accuracy": 0.9}
    assert card["diagnosis"]["clients"] == 2
    text = as_markdown(card)
    assert "91.2%" in text
    assert "88.0% to 94.0%" in text
    assert "| flu | 85.0% (80.0% to 90.0%) | 87.5% (80.0% to 90.0%) |" in text
    assert "Not enough: with these class priors" in text
    assert "The training data speak against that assumption (p = 0.004)." in text
    assert "do not determine the classifier" in text


def test_no_site_no_word_no_priors_and_no_path_are_in_the_card(run: RunFolder) -> None:
    card = with_findings(run)
    for text in (json.dumps(card), as_markdown(card)):
        for secret in ("Hospital", "Secret Wing", "0.8125", "81.2", str(run.path)):
            assert secret not in text


def test_the_card_warns_of_what_the_model_itself_holds(run: RunFolder) -> None:
    assert any("words of categories" in sentence for sentence in model_card(run)["limits"])


def test_everything_in_the_json_is_in_the_markdown(run: RunFolder) -> None:
    card = with_findings(run)
    text = as_markdown(card)
    for sentence in (*card["limits"], card["diagnosis"]["summary"], card["intended_use"]["purpose"]):
        assert sentence in text
    for name, value in card["model"].items():
        if isinstance(value, str):
            assert f"{name.replace('_', ' ')}: {value}" in text
    assert "age \\| years" in text


def test_a_run_from_before_counts_were_kept_has_a_card_too(run: RunFolder) -> None:
    result = run.path / "result.json"
    before = result.read_bytes()
    try:
        write_json(result, {name: value for name, value in json.loads(before).items() if name != "data"})
        assert "- rows: not known" in as_markdown(model_card(run))
    finally:
        result.write_bytes(before)


def test_figures_that_are_not_finite_are_left_out(run: RunFolder) -> None:
    (run.path / "evaluation.json").write_text(
        '{"estimated_accuracy": NaN, "recall": [{"class": "flu", "value": Infinity}]}'
    )
    card = model_card(run)
    json.dumps(card, allow_nan=False)
    figures = card["figures_without_labels"]
    assert figures["estimated_accuracy"] is None
    assert figures["recall"] == {"flu": {"value": None, "low": None, "high": None}}


@pytest.mark.parametrize("content", ["[1, 2]", "{"])
def test_a_damaged_evaluation_is_refused(run: RunFolder, content: str) -> None:
    (run.path / "evaluation.json").write_text(content)
    with pytest.raises(InputError, match=r"evaluation\.json"):
        model_card(run)


def test_a_folder_without_a_run_has_no_card(run: RunFolder) -> None:
    with pytest.raises(InputError, match="holds no run"):
        model_card(RunFolder(run.path / "model"))


def test_a_card_is_known_from_other_files(run: RunFolder, tmp_path: Path) -> None:
    write_json(tmp_path / "card.json", model_card(run))
    assert is_card(tmp_path / "card.json")
    assert not is_card(run.path / "config.json")
    assert not is_card(tmp_path / "absent.json")
