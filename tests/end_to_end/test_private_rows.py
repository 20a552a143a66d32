"""Training with private rows, as a user types it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .checks import refuses
from .command import Fedul

DIGITS = "train --data digits --clients 5 --rows 900 --rounds 2 --out RUN"
HOSPITALS = (
    "train --data patients.csv --priors prevalence.csv --client-column hospital --set-column month --rounds 2 --out NEW"
)


def test_digits_train_with_private_rows(fedul: Fedul, tmp_path: Path) -> None:
    outcome = fedul(f"{DIGITS} --dp-noise 1 --dp-clip 0.5 --model linear --optimizer sgd --json")
    assert outcome.code == 0, outcome.err
    assert "rows are private, so terms of several rows are left out" in outcome.err
    lines = [json.loads(line) for line in (tmp_path / "RUN" / "metrics.jsonl").read_text().splitlines()]
    assert [line["loss"] for line in lines] == [None, None]
    assert (
        fedul(
            f"{DIGITS.replace('--rounds 2', '--rounds 3')} --resume --dp-noise 1 --dp-clip 0.5 --model linear "
            "--optimizer sgd"
        ).code
        == 0
    )


def test_a_table_trains_with_private_rows(fedul: Fedul, trained_hospitals: Path) -> None:
    outcome = fedul(f"{HOSPITALS} --dp-noise 1")
    assert outcome.code == 0, outcome.err


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("--dp-noise 1 --method fedllp", "method fedllp: it fits mean predictions over whole sets"),
        ("--dp-noise 1 --model paper-cnn", "model 'paper-cnn': has batch norm"),
        ("--dp-noise 1 --precision bfloat16", "precision bfloat16: is too coarse"),
    ],
)
def test_what_cannot_be_private_is_refused_in_one_sentence(
    fedul: Fedul, tmp_path: Path, options: str, reason: str
) -> None:
    refuses(fedul, tmp_path, f"{DIGITS} {options}", reason)
