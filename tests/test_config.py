"""Configurations bring what they are given to its type, and refuse the rest with a sentence that names it."""

from __future__ import annotations

import json
import math
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from fedul._utils.settings import build_config, read_toml, to_dict
from fedul.config import BenchmarkDataConfig, TrainConfig
from fedul.errors import InputError


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"rounds": "3"}, 3),
        ({"rounds": 3.0}, 3),
        ({"learning_rate": "1e-2"}, 0.01),
        ({"learning_rate": 1}, 1.0),
        ({"seed": 2**53 + 1}, 2**53 + 1),
        ({"seed": str(2**53 + 1)}, 2**53 + 1),
        ({"batch_size": "64"}, 64),
        ({"batch_size": "all"}, 0),
        ({"batch_size": 0}, 0),
        ({"method_option": ["labels=0.1"]}, {"labels": 0.1}),
        ({"method_option": "labels=1"}, {"labels": 1}),
        ({"algorithm_option": {"step": 0.5}}, {"step": 0.5}),
        ({"algorithm_option": ["weighting=rows", "step=1e-1"]}, {"weighting": "rows", "step": 0.1}),
        ({"start_weights": None}, None),
    ],
)
def test_a_training_setting_is_brought_to_its_type(given: dict[str, Any], expected: Any) -> None:
    (name,) = given
    value = getattr(TrainConfig(**given), name)
    assert value == expected
    assert type(value) is type(expected)


@pytest.mark.parametrize(
    ("given", "expected"),
    [("10,20,30,40,50", (10, 20, 30, 40, 50)), ([10, 20, 30, 40, 50], (10, 20, 30, 40, 50)), (7, (7,))],
)
def test_sets_are_one_number_or_one_for_each_client(given: Any, expected: tuple[int, ...]) -> None:
    assert BenchmarkDataConfig(sets=given).sets == expected


@pytest.mark.parametrize(
    ("kind", "given", "complaint"),
    [
        (TrainConfig, {"rounds": -1}, "rounds: must be at least 0, got -1"),
        (TrainConfig, {"rounds": "three"}, "rounds: expected a whole number, got 'three'"),
        (TrainConfig, {"rounds": 2.5}, "rounds: expected a whole number, got '2.5'"),
        (TrainConfig, {"rounds": "2.5"}, "rounds: expected a whole number"),
        (TrainConfig, {"rounds": True}, "rounds: expected a whole number, got 'True'"),
        (TrainConfig, {"rounds": None}, "rounds: expected a whole number, got 'None'"),
        (TrainConfig, {"rounds": [3]}, "rounds: expected a whole number"),
        (TrainConfig, {"rounds": math.inf}, "rounds: expected a whole number, got 'inf'"),
        (TrainConfig, {"rounds": math.nan}, "rounds: expected a whole number, got 'nan'"),
        (TrainConfig, {"learning_rate": math.nan}, "learning-rate: expected a number, got 'nan'"),
        (TrainConfig, {"learning_rate": "inf"}, "learning-rate: expected a number, got 'inf'"),
        (TrainConfig, {"learning_rate": 10**400}, "learning-rate: expected a number"),
        (TrainConfig, {"learning_rate": False}, "learning-rate: expected a number, got 'False'"),
        (TrainConfig, {"learning_rate": -1e-3}, "learning-rate: must be at least 0, got -0.001"),
        (TrainConfig, {"momentum": 0.9}, "momentum: is for sgd, not for adam; add --optimizer sgd, or leave it out"),
        (TrainConfig, {"optimizer": "sgd", "nesterov": True}, "nesterov: is a form of momentum, which is 0; add --mom"),
        (TrainConfig, {"schedule": "step"}, "schedule: 'step' is not one of constant, triangular, cosine"),
        (TrainConfig, {"participation": 0}, "participation: must be above 0, got 0"),
        (TrainConfig, {"momentum": 1}, "momentum: must be at most 0.999, got 1"),
        (TrainConfig, {"participation": 0}, "participation: must be above 0"),
        (TrainConfig, {"participation": 1.01}, "participation: must be at most 1, got 1.01"),
        (TrainConfig, {"seed": -1}, "seed: must be at least 0"),
        (TrainConfig, {"optimizer": "adamw"}, "optimizer: 'adamw' is not one of adam, sgd"),
        (TrainConfig, {"select": ""}, "select: expected text, got ''"),
        (TrainConfig, {"model": 3}, "model: expected text, got '3'"),
        (TrainConfig, {"start_weights": ""}, "start-weights: expected text"),
        (TrainConfig, {"batch_size": -1}, "batch-size: expected a number of rows, at least 1, or 'all', got '-1'"),
        (TrainConfig, {"batch_size": "many"}, "batch-size: expected a number of rows"),
        (TrainConfig, {"batch_size": 2.5}, "batch-size: expected a number of rows"),
        (TrainConfig, {"batch_size": math.inf}, "batch-size: expected a number of rows"),
        (TrainConfig, {"batch_size": True}, "batch-size: expected a number of rows"),
        (TrainConfig, {"batch_size": False}, "batch-size: expected a number of rows"),
        (TrainConfig, {"method_option": ["labels"]}, "method-option: expected NAME=VALUE"),
        (TrainConfig, {"method_option": "=3"}, "method-option: expected NAME=VALUE"),
        (TrainConfig, {"method_option": 3}, "method-option: expected NAME=VALUE, got '3'"),
        (TrainConfig, {"algorithm_option": None}, "algorithm-option: expected NAME=VALUE"),
        (BenchmarkDataConfig, {"clients": 0}, "clients: must be at least 1"),
        (BenchmarkDataConfig, {"sets": "10,x"}, "sets: expected whole numbers, separated by commas, got '10,x'"),
        (BenchmarkDataConfig, {"sets": 2.5}, "sets: expected whole numbers"),
        (BenchmarkDataConfig, {"sets": [True] * 5}, "sets: expected whole numbers"),
        (BenchmarkDataConfig, {"sets": ()}, "sets: expected whole numbers"),
        (BenchmarkDataConfig, {"sets": ""}, "sets: expected whole numbers"),
        (BenchmarkDataConfig, {"sets": 0}, "sets: a client needs at least one set"),
        (BenchmarkDataConfig, {"sets": [10, 20]}, "sets: 2 numbers for 5 clients"),
        (BenchmarkDataConfig, {"sets_overlap": 1}, "sets-overlap: expected true or false, got '1'"),
        (BenchmarkDataConfig, {"sets_overlap": "yes"}, "sets-overlap: expected true or false"),
        (BenchmarkDataConfig, {"split": "non-iid"}, "split: 'non-iid' is not one of iid, noniid, noniid-text"),
        (BenchmarkDataConfig, {"held_out": 0.95}, "held-out: must be at most 0.9"),
        (BenchmarkDataConfig, {"prior_noise": -0.1}, "prior-noise: must be at least 0"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_by_its_name_on_the_command_line(
    kind: type[Any], given: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(InputError, match=f"^{complaint}"):
        kind(**given)


@pytest.mark.parametrize("name", ["rouns", "round", "learning-rte"])
def test_an_unknown_name_is_refused_with_the_nearest_known_one(name: str) -> None:
    nearest = {"rouns": "rounds", "round": "rounds", "learning-rte": "learning_rate"}[name]
    with pytest.raises(InputError, match=f"unknown option '{name.replace('-', '_')}': did you mean '{nearest}'"):
        build_config(TrainConfig, {name: 3})


def test_names_may_be_written_as_on_the_command_line() -> None:
    assert build_config(TrainConfig, {"batch-size": "8"}).batch_size == 8


def test_a_configuration_survives_json() -> None:
    config = BenchmarkDataConfig(clients=3, sets=[1, 2, 3], sets_overlap=False, test_prior="natural")
    assert build_config(BenchmarkDataConfig, json.loads(json.dumps(to_dict(config)))) == config


@pytest.mark.parametrize("kind", [BenchmarkDataConfig, TrainConfig])
def test_every_default_passes_its_own_check_unchanged(kind: type[Any]) -> None:
    config = kind()
    unset = {"method_option", "algorithm_option"}
    assert all(getattr(config, f.name) == f.default for f in fields(config) if f.name not in unset)


def test_a_toml_file_gives_its_values_by_name(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text("rounds = 3\nsets = [1, 2]\nlearning-rate = 1e-3\nmethod-option = {labels = 0.1}\n")
    expected = {"rounds": 3, "sets": [1, 2], "learning-rate": 1e-3, "method-option": {"labels": 0.1}}
    assert read_toml(str(file)) == expected


@pytest.mark.parametrize("content", [b"rounds = ", b"rounds = 3\nrounds = 4\n", b"\xff\xfe", b"PK\x03\x04\x00"])
def test_a_file_that_is_not_toml_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "run.toml"
    file.write_bytes(content)
    with pytest.raises(InputError, match=r"run\.toml: not a readable TOML file \("):
        read_toml(str(file))


def test_a_toml_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.toml: there is no such file"):
        read_toml(str(tmp_path / "none.toml"))


@pytest.mark.parametrize("path", [".", "a\0b"])
def test_a_path_that_cannot_be_a_file_is_refused(path: str) -> None:
    with pytest.raises(InputError, match="not a readable TOML file"):
        read_toml(path)
