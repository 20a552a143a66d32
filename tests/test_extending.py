"""Methods and algorithms from outside the package: as objects, and by name through entry points."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import fedul
from fedul.algorithms import ALGORITHMS
from fedul.core import Study
from fedul.methods import METHODS, bind_run
from fedul.methods.fedul import FedUL

from .factories import digits

SOURCE = '''
"""A method and an algorithm of another package."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import fedul
from fedul.core import Study
from fedul.core.transition import set_loss
from fedul.core.update import TensorSpec
from fedul.methods.fedul import set_task


@dataclass(frozen=True)
class Smoothed(fedul.Method):
    """FedUL with logits divided by a temperature."""

    temperature: float = fedul.option(2.0, "Divisor of the logits.", above=0)
    vectorized: ClassVar[bool] = True

    def task(self, client, spec):
        return set_task(client, client.train, spec)

    def loss(self, predict, step):
        logits = predict(step.inputs) / self.temperature
        return step.mean(set_loss(logits, step.targets["joint"], step.shared["marginal"]))


@dataclass(frozen=True)
class Inertial(fedul.Algorithm):
    """FedAvg with momentum, and with client states that count participations."""

    inertia: float = fedul.option(0.5, "Share of the last step that is repeated.", low=0, high=1)

    def message_spec(self, parameters):
        return {f"rounds/{name}": spec for name, spec in parameters.items()}

    def finish(self, trained, received, client_state):
        names = [name for name in trained.weights]
        count = {n: client_state.get(n, 0 * trained.weights[n]) + 1 for n in names}
        return {f"rounds/{name}": value for name, value in count.items()}, count

    def advance(self, weights, server_state, mean, clients):
        moved, _ = super().advance(weights, {}, mean, clients)
        change = {n: moved[n] - w + self.inertia * server_state.get(n, 0 * w) for n, w in weights.items()}
        return {n: w + change[n] for n, w in weights.items()}, change
'''

ENTRY_POINTS = """
[fedul.methods]
smoothed = outside_of_fedul:Smoothed
fedul = outside_of_fedul:Smoothed
unimportable = outside_of_fedul.nowhere:Smoothed
raising = outside_that_raises:Smoothed
not-a-method = outside_of_fedul:Inertial
a-function = outside_of_fedul:dataclass

[fedul.algorithms]
inertial = outside_of_fedul:Inertial
not-there = outside_of_fedul:Nothing
"""

SETTINGS: dict[str, Any] = {"rounds": 3, "model": "linear", "threads": 1}


def three_clients() -> Study:
    """Return 600 digits of three clients."""
    return digits(3, sets=10, rows=600)


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The module of another package."""
    folder = tmp_path / "packages"
    folder.mkdir()
    (folder / "outside_of_fedul.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(folder)
    yield import_module("outside_of_fedul")
    del sys.modules["outside_of_fedul"]


@pytest.mark.parametrize("engine_mode", ["loop", "vectorized"])
def test_objects_of_other_packages_train_in_both_engine_modes(outside: ModuleType, engine_mode: str) -> None:
    run = fedul.train(
        three_clients(),
        method=outside.Smoothed(temperature=1.5),
        algorithm=outside.Inertial(),
        engine_mode=engine_mode,
        **SETTINGS,
    )
    assert [metrics.round for metrics in run.history] == [1, 2, 3]
    assert run.history[2].loss < run.history[0].loss
    assert run.labels_used == 0


def test_an_object_trains_as_the_method_that_it_equals(outside: ModuleType) -> None:
    run = fedul.train(
        three_clients(),
        method=outside.Smoothed(temperature=1.0),
        algorithm=outside.Inertial(inertia=0),
        **SETTINGS,
    )
    assert run.weights_sha256 != fedul.train(three_clients(), method=outside.Smoothed(), **SETTINGS).weights_sha256
    expected = fedul.train(three_clients(), method="fedul", **SETTINGS)
    assert [m.loss for m in run.history] == pytest.approx([m.loss for m in expected.history], rel=1e-4)


def test_a_run_with_objects_resumes_when_they_are_passed_again(outside: ModuleType, tmp_path: Path) -> None:
    whole = fedul.train(three_clients(), method=outside.Smoothed(), algorithm=outside.Inertial(), **SETTINGS)
    for rounds in (1, 3):
        resumed = fedul.train(
            three_clients(),
            method=outside.Smoothed(),
            algorithm=outside.Inertial(),
            out=tmp_path / "run",
            resume=True,
            **{**SETTINGS, "rounds": rounds},
        )
    assert resumed.weights_sha256 == whole.weights_sha256
    stored = json.loads((tmp_path / "run" / "config.json").read_text())["training"]
    assert stored["method"] == "custom:outside_of_fedul.Smoothed"
    assert stored["method_option"] == {"temperature": 2.0}


@pytest.fixture
def stopped(outside: ModuleType, tmp_path: Path) -> Path:
    """A run with a method object that has one round of three."""
    fedul.train(three_clients(), method=outside.Smoothed(), out=tmp_path / "run", **{**SETTINGS, "rounds": 1})
    return tmp_path / "run"


def test_a_run_with_an_object_does_not_resume_without_it(stopped: Path) -> None:
    with pytest.raises(fedul.InputError, match=r"holds a different run \(method.*custom:outside_of_fedul\.Smoothed"):
        fedul.train(three_clients(), out=stopped, resume=True, **SETTINGS)
    with pytest.raises(
        fedul.InputError, match=r"holds a different run \(method is custom.* there, fedul-combined here\)"
    ):
        fedul.train(three_clients(), out=stopped, resume=True, **{**SETTINGS, "model": "mlp"})
    with pytest.raises(fedul.InputError, match=r"was passed as an object; pass it again from Python \(method=\.\.\.\)"):
        fedul.train(
            three_clients(),
            method="custom:outside_of_fedul.Smoothed",
            out=stopped,
            resume=True,
            **SETTINGS,
        )


def test_a_run_with_an_object_does_not_resume_with_other_options(outside: ModuleType, stopped: Path) -> None:
    with pytest.raises(fedul.InputError, match=r"holds a different run .*temperature"):
        fedul.train(three_clients(), method=outside.Smoothed(temperature=3), out=stopped, resume=True, **SETTINGS)


def test_fields_without_a_help_text_are_part_of_the_record(outside: ModuleType, tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Sharpened(outside.Smoothed):  # type: ignore[name-defined, misc]
        factor: float = 1.0

    settings = {**SETTINGS, "rounds": 1, "out": tmp_path / "run"}
    fedul.train(three_clients(), method=Sharpened(factor=0.5), **settings)
    fedul.train(three_clients(), method=Sharpened(factor=0.5), resume=True, **settings)
    with pytest.raises(fedul.InputError, match=r"holds a different run .*factor"):
        fedul.train(three_clients(), method=Sharpened(factor=0.6), resume=True, **settings)


def test_a_method_without_fields_need_not_be_a_dataclass(outside: ModuleType) -> None:
    class Plain(fedul.Method):
        task, loss = FedUL.task, FedUL.loss
        score, score_logits = "log", FedUL.score_logits

    run = fedul.train(three_clients(), method=Plain(), engine_mode="loop", **SETTINGS)
    expected = fedul.train(three_clients(), method="fedul", engine_mode="loop", **SETTINGS)
    assert run.weights_sha256 == expected.weights_sha256


def test_a_method_that_does_not_need_the_truth_does_not_receive_it(outside: ModuleType) -> None:
    @dataclass(frozen=True)
    class Curious(outside.Smoothed):  # type: ignore[name-defined, misc]
        truth: object = None
        seed: int = 0

    assert three_clients().truth is not None
    bound = bind_run(Curious(), three_clients().truth, 7)
    assert (bound.truth, bound.seed) == (None, 7)


def test_a_method_that_needs_the_truth_must_count_labels(outside: ModuleType) -> None:
    class Labelled(outside.Smoothed):  # type: ignore[name-defined, misc]
        needs_truth = True

    with pytest.raises(NotImplementedError, match="Labelled needs the truth and does not define labels_used"):
        fedul.train(three_clients(), method=Labelled(), **SETTINGS)


@pytest.mark.parametrize("part", ["method", "algorithm"])
def test_an_object_of_another_type_is_refused(outside: ModuleType, part: str) -> None:
    wrong = {"method": outside.Inertial(), "algorithm": outside.Smoothed()}[part]
    given = type(wrong).__name__
    with pytest.raises(
        fedul.InputError,
        match=rf"^{part}: expected a name or an object of fedul\.\w+, got an object of type {given}\.$",
    ):
        fedul.train(three_clients(), **{part: wrong}, **SETTINGS)


def test_a_class_in_place_of_an_object_is_refused(outside: ModuleType) -> None:
    with pytest.raises(fedul.InputError, match=r"^method: expected a name or an object of fedul\.Method, got "):
        fedul.train(three_clients(), method=outside.Smoothed, **SETTINGS)


def test_options_beside_an_object_are_refused(outside: ModuleType) -> None:
    with pytest.raises(fedul.InputError, match=r"^method-option: set the options on the method object itself"):
        fedul.train(three_clients(), method=outside.Smoothed(), method_option={"temperature": 1.0}, **SETTINGS)


def test_an_option_of_an_object_is_validated(outside: ModuleType) -> None:
    with pytest.raises(fedul.InputError, match=r"^temperature: must be above 0"):
        outside.Smoothed(temperature=-1)


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the other package is installed."""
    packages = tmp_path_factory.mktemp("packages")
    (packages / "outside_of_fedul.py").write_text(SOURCE)
    (packages / "outside_that_raises.py").write_text("raise ValueError('no license')\n")
    information = packages / "outside_of_fedul-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: outside-of-fedul\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(ENTRY_POINTS)
    return packages


@pytest.fixture
def command(packages: Path, tmp_path: Path) -> Callable[[str], subprocess.CompletedProcess[str]]:
    """The command line in an environment with the other package."""
    paths = [str(packages), str(Path(fedul.__file__).parents[1])]

    def run(line: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "fedul", *line.split()],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run


@pytest.fixture
def installed(packages: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """This process in an environment with the other package."""
    monkeypatch.syspath_prepend(packages)
    for registry in (METHODS, ALGORITHMS):
        vars(registry).pop("_installed", None)
    yield import_module("outside_of_fedul")
    for registry in (METHODS, ALGORITHMS):
        vars(registry).pop("_installed", None)
    del sys.modules["outside_of_fedul"]


NAMES: dict[str, Any] = {
    "method": "smoothed",
    "method_option": {"temperature": 1.5},
    "algorithm": "inertial",
    "algorithm_option": {"inertia": 0.2},
}
TRAIN = "train --data digits --clients 3 --sets 10 --rows 600 --model linear --threads 1"
OPTIONS = "--method smoothed --method-option temperature=1.5 --algorithm inertial --algorithm-option inertia=0.2"


def test_registered_components_work_by_name_and_as_objects(
    installed: ModuleType, command: Callable[[str], subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    whole = fedul.train(three_clients(), **NAMES, **SETTINGS).weights_sha256
    started = command(f"{TRAIN} {OPTIONS} --rounds 1 --out run")
    assert started.returncode == 0, started.stderr
    study = fedul.load("digits", clients=3, sets=10, rows=600)
    objects = {"method": installed.Smoothed(temperature=1.5), "algorithm": installed.Inertial(inertia=0.2)}
    second = fedul.train(study, **objects, out=tmp_path / "run", resume=True, **{**SETTINGS, "rounds": 2})
    assert len(second.history) == 2
    third = command(f"{TRAIN} {OPTIONS} --rounds 3 --out run --resume --json")
    assert third.returncode == 0, third.stderr
    assert json.loads(third.stdout)["weights_sha256"] == whole


def test_registered_components_are_listed_and_broken_ones_are_reported(
    command: Callable[[str], subprocess.CompletedProcess[str]],
) -> None:
    listed = command("methods --json")
    assert listed.returncode == 0
    methods = json.loads(listed.stdout)["methods"]
    assert {"fedul", "smoothed"} <= methods.keys()
    assert methods["smoothed"]["package"] == "outside-of-fedul"
    assert methods["smoothed"]["settings"]["temperature"]["default"] == 2.0
    assert methods["fedul"]["package"] == "fedul", "a built-in name cannot be replaced"
    assert "method 'raising': cannot be loaded" in " ".join(listed.stderr.split())


def test_a_broken_component_ends_the_command_with_one_sentence(
    command: Callable[[str], subprocess.CompletedProcess[str]],
) -> None:
    outcome = command(f"{TRAIN} --method raising")
    assert (outcome.returncode, outcome.stdout) == (2, "")
    assert "method 'raising': cannot be loaded from" in " ".join(outcome.stderr.split())
    assert "Traceback" not in outcome.stderr


BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "no module": (
        {"method": "unimportable"},
        "method 'unimportable': cannot be loaded from outside_of_fedul.nowhere:Smoothed",
    ),
    "an error": (
        {"method": "raising"},
        "method 'raising': cannot be loaded from outside_that_raises:Smoothed (no license); reinstall the package",
    ),
    "another class": (
        {"method": "not-a-method"},
        "method 'not-a-method': outside_of_fedul:Inertial is not a dataclass derived from fedul.Method; "
        "ask the author of package outside-of-fedul.",
    ),
    "a function": (
        {"method": "a-function"},
        "method 'a-function': outside_of_fedul:dataclass is not a dataclass derived from fedul.Method",
    ),
    "no class": ({"algorithm": "not-there"}, "algorithm 'not-there': cannot be loaded from outside_of_fedul:Nothing"),
    "misspelled name": ({"method": "smoothd"}, "unknown method 'smoothd': did you mean 'smoothed'?"),
    "misspelled option": (
        {"method": "smoothed", "method_option": {"temprature": 1}},
        "unknown option of method smoothed 'temprature': did you mean 'temperature'?",
    ),
    "value out of range": (
        {"method": "smoothed", "method_option": {"temperature": 0}},
        "method smoothed: temperature: must be above 0",
    ),
}


@pytest.mark.parametrize(("settings", "message"), BROKEN.values(), ids=BROKEN)
def test_a_component_that_cannot_be_built_is_refused(
    installed: ModuleType, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(fedul.InputError) as refusal:
        fedul.train(three_clients(), **settings, **SETTINGS)
    assert message in str(refusal.value)


def test_a_built_in_name_cannot_be_replaced(installed: ModuleType) -> None:
    assert METHODS.load("fedul").__module__ == "fedul.methods.fedul"
