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


def test_the_last_lines_say_what_is_guaranteed(fedul: Fedul) -> None:
    outcome = fedul(f"{DIGITS} --dp-noise 0 --model linear --method fedul")
    assert outcome.code == 0
    assert "privacy: no row is protected" in outcome.out
    private = fedul(f"{DIGITS} --dp-epsilon 3 --model linear --method fedul --force".replace("RUN", "OTHER"))
    assert "privacy: each row is protected with epsilon 3 at delta 1e-05" in private.out


def test_a_table_trains_with_private_rows(fedul: Fedul, trained_hospitals: Path) -> None:
    outcome = fedul(f"{HOSPITALS} --dp-noise 1")
    assert outcome.code == 0, outcome.err


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("--dp-noise 1 --method fedllp", "method fedllp: it fits mean predictions over whole sets"),
        ("--dp-noise 1 --model paper-cnn", "model 'paper-cnn': has batch norm"),
        ("--dp-noise 1 --precision bfloat16", "precision bfloat16: is too coarse"),
        ("--dp-epsilon -1", "dp-epsilon: must be above 0"),
        ("--dp-epsilon nan", "dp-epsilon: expected a number"),
        ("--dp-epsilon 3 --dp-delta 2", "dp-delta: must be at most 0.1"),
        ("--dp-epsilon 3 --dp-noise 2", "dp-noise: follows from dp-epsilon"),
        ("--dp-epsilon 3 --dp-clip 1e300", "dp-clip: must be at most 1e+06"),
        ("--dp-clip 0.5", "dp-clip: protects nothing without --dp-epsilon or --dp-noise"),
        ("--dp-delta 1e-6", "dp-delta: protects nothing without --dp-epsilon or --dp-noise"),
        ("--client-dp-clip 2", "client-dp-clip: protects nothing without --client-dp-epsilon"),
        ("--aggregation-range 3", "aggregation-range: protects nothing without --secure-aggregation"),
        ("--prior-epsilon 1e-300", "prior-epsilon: must be at least 1e-06"),
        ("--secure-aggregation --participation 0.1", "a sum over 1 client hides no single one"),
        ("--secure-aggregation --algorithm median", "algorithm median needs every single update"),
        ("--client-dp-epsilon 3 --algorithm fednova", "changes updates after they are clipped"),
        ("--public-columns nothere.toml", "public-columns: is for files and DataFrames"),
    ],
)
def test_what_cannot_be_private_is_refused_in_one_sentence(
    fedul: Fedul, tmp_path: Path, options: str, reason: str
) -> None:
    refuses(fedul, tmp_path, f"{DIGITS} {options}", reason)
