"""Methods, algorithms and callbacks that do something wrong: one sentence names the class and what to correct."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

import fedul
from fedul._utils.extensions import explanation
from fedul.core import RoundMetrics, Study, TaskSpec, UnlabeledSets
from fedul.engines.flower.server.coordinator import run_coordinator
from fedul.methods.fedul import FedUL
from fedul.methods.task import Predict, Step, Task
from fedul.training import RunInfo

from .engines.flower.test_parity import settings
from .engines.flower.wire import Wire, digits_sites
from .factories import digits

SETTINGS: dict[str, Any] = {"rounds": 2, "model": "linear", "threads": 1}
COMMAND = "--data digits --clients 3 --sets 10 --rows 600 --model linear --threads 1 --rounds 1"


def study() -> Study:
    return digits(3, sets=10, rows=600)


@dataclass(frozen=True)
class WrongLoss(FedUL):
    """FedUL with a loss that a test chooses."""

    vectorized: ClassVar[bool] = True
    what: str = "value per row"

    def loss(self, predict: Predict, step: Step) -> Tensor:
        logits = predict(step.inputs)
        wrong: dict[str, Any] = {
            "value per row": lambda: logits.logsumexp(-1),
            "one for all": lambda: logits.mean(),
            "detached": lambda: step.mean(logits.logsumexp(-1)).detach(),
            "float": lambda: 0.5,
            "None": lambda: None,
            "NaN": lambda: super(WrongLoss, self).loss(predict, step) * float("nan"),
            "KeyError": lambda: step.targets["labels"],
        }
        found: Tensor = wrong[self.what]()
        return found


VECTORIZED = "expected one value for each of the 3 clients, since `vectorized` is True, made from the predictions"
LOOP = "expected a scalar, made from the predictions so that it can be differentiated"


@pytest.mark.parametrize(
    ("engine_mode", "what", "returned"),
    [
        ("vectorized", "value per row", r"a tensor of shape \(3, \d+\)"),
        ("vectorized", "one for all", "a scalar tensor"),
        ("vectorized", "detached", r"a tensor of shape \(3,\) without a gradient"),
        ("vectorized", "None", "None"),
        ("loop", "value per row", r"a tensor of shape \(\d+,\)"),
        ("loop", "detached", "a scalar tensor without a gradient"),
        ("loop", "float", "an object of type float"),
        ("loop", "None", "None"),
    ],
)
def test_a_loss_of_the_wrong_kind_is_refused_in_the_first_step(engine_mode: str, what: str, returned: str) -> None:
    expected = VECTORIZED if engine_mode == "vectorized" else LOOP
    with pytest.raises(
        fedul.InputError, match=rf"^method WrongLoss \(package tests\): loss returned {returned}; {expected}"
    ):
        fedul.train(study(), method=WrongLoss(what=what), engine_mode=engine_mode, **SETTINGS)


def test_a_task_of_the_wrong_kind_is_refused() -> None:
    class NoTask(FedUL):
        def task(self, client: UnlabeledSets, spec: TaskSpec) -> Task:
            return None  # type: ignore[return-value]

    with pytest.raises(fedul.InputError, match=r"^method NoTask .*: task returned None; expected a Task\.$"):
        fedul.train(study(), method=NoTask(), **SETTINGS)


def test_a_loss_that_is_not_finite_names_its_method() -> None:
    with pytest.raises(
        fedul.FedulError, match=r"finite in round 1 of method WrongLoss \(package tests\); correct its loss, use a sm"
    ):
        fedul.train(study(), method=WrongLoss(what="NaN"), **SETTINGS)


@pytest.mark.parametrize("engine_mode", ["vectorized", "loop"])
def test_an_error_of_a_method_stays_what_it_is_and_is_explained(tmp_path: Path, engine_mode: str) -> None:
    with pytest.raises(KeyError) as caught:
        fedul.train(
            study(), method=WrongLoss(what="KeyError"), engine_mode=engine_mode, out=tmp_path / "run", **SETTINGS
        )
    sentence = "method WrongLoss (package tests) raised KeyError: 'labels' in loss"
    assert explanation(caught.value) == sentence
    assert json.loads((tmp_path / "run" / "status.json").read_text())["problem"] == f"{sentence}."


def test_an_error_of_an_algorithm_is_explained() -> None:
    class Failing(fedul.Algorithm):
        def advance(self, *_: object, **__: object) -> Any:
            return [][1]

    with pytest.raises(IndexError) as caught:
        fedul.train(study(), algorithm=Failing(), **SETTINGS)
    assert explanation(caught.value).startswith("algorithm Failing (package tests) raised IndexError: list index out")
    assert explanation(caught.value).endswith(" in advance")


@pytest.mark.parametrize("hook", ["on_run_start", "on_round_end", "on_run_end"])
def test_an_error_of_a_callback_names_its_class_and_its_hook(hook: str) -> None:
    def fail(self: fedul.Callback, *_: object) -> None:
        raise RuntimeError("boom")

    fail.__code__ = fail.__code__.replace(co_name=hook)
    failing = type("Failing", (fedul.Callback,), {hook: fail, "__module__": "elsewhere.callbacks"})
    with pytest.raises(RuntimeError, match="boom") as caught:
        fedul.train(study(), callbacks=[failing()], **SETTINGS)
    assert explanation(caught.value) == f"callback Failing (package elsewhere) raised RuntimeError: boom in {hook}"


class FailAfterRound(fedul.Callback):
    """Raises an error after the first round."""

    def on_round_end(self, run: RunInfo, metrics: RoundMetrics) -> fedul.StopRun | None:
        raise OSError("no such disk")


NO_DISK = "callback FailAfterRound (package tests) raised OSError: no such disk in on_round_end"


def test_an_error_of_a_callback_of_a_run_on_sites_is_explained(tmp_path: Path) -> None:
    wire = Wire(digits_sites(tmp_path, 2, rows=300))
    with pytest.raises(OSError, match="no such disk") as caught:
        run_coordinator(wire, settings(tmp_path, 2, rounds=2), [FailAfterRound()])
    assert explanation(caught.value) == NO_DISK


def test_an_error_of_a_callback_of_an_evaluation_is_explained() -> None:
    run = fedul.train(study(), **SETTINGS)
    with pytest.raises(OSError, match="no such disk") as caught:
        fedul.evaluate(run, folds=2, callbacks=[FailAfterRound()])
    assert explanation(caught.value) == NO_DISK


def test_an_error_that_no_extension_raised_is_not_explained() -> None:
    def network(shape: tuple[int, ...], classes: int) -> torch.nn.Module:
        raise ZeroDivisionError("of the user")

    with pytest.raises(Exception, match="of the user") as caught:
        fedul.train(study(), rounds=1, model=network)
    assert explanation(caught.value) == ""


@pytest.mark.parametrize("methods", [["fedul", WrongLoss()], WrongLoss()], ids=["in a list", "alone"])
def test_a_comparison_says_that_an_object_must_be_registered(methods: Any) -> None:
    with pytest.raises(
        fedul.InputError,
        match=r"^methods: expected names, as text or as a list, got an object of type WrongLoss; to compare your own "
        r"method, register it as an entry point and give its name \(docs/extending/README\.md",
    ):
        fedul.compare("digits", methods=methods)


SOURCE = '''
from dataclasses import dataclass

import fedul
from fedul.methods.fedul import FedUL


@dataclass(frozen=True)
class Raising(FedUL):
    """Reads a target that there is not."""

    def loss(self, predict, step):
        return step.mean(step.targets["labels"])


@dataclass(frozen=True)
class PerRow(FedUL):
    """Returns one value per row."""

    def loss(self, predict, step):
        return predict(step.inputs).logsumexp(-1)


@dataclass(frozen=True)
class NoLoss(fedul.Method):
    """Has no loss."""

    def task(self, client, spec):
        return None
'''
ENTRY_POINTS = """
[fedul.methods]
raising = wrongset.methods:Raising
per-row = wrongset.methods:PerRow
no-loss = wrongset.methods:NoLoss
"""


@pytest.fixture
def command(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """The command line where a package with wrong methods is installed."""
    package = tmp_path / "packages" / "wrongset"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "methods.py").write_text(SOURCE)
    information = package.parent / "wrongset-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: wrongset\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(ENTRY_POINTS)
    paths = [str(package.parent), str(Path(fedul.__file__).parents[1])]

    def run(line: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "fedul", *line.split()],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), **variables},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run


RAISED = "method Raising (package wrongset) raised KeyError: 'labels' in loss"


def last_line(outcome: subprocess.CompletedProcess[str]) -> str:
    return outcome.stderr.strip().splitlines()[-1]


def test_the_command_line_says_which_class_of_which_package_raised(
    command: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    outcome = command(f"train {COMMAND} --method raising --out run")
    assert outcome.returncode == 1
    assert last_line(outcome).startswith(f"fedul: {RAISED}; set FEDUL_DEBUG=1 for a traceback")
    assert "Traceback" not in outcome.stderr
    assert json.loads((tmp_path / "run" / "status.json").read_text())["problem"] == f"{RAISED}."
    assert "Traceback" in command(f"train {COMMAND} --method raising", FEDUL_DEBUG="1").stderr


def test_the_command_line_refuses_a_method_without_a_loss(
    command: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    outcome = command(f"train {COMMAND} --method no-loss")
    assert outcome.returncode == 2
    assert last_line(outcome) == (
        "fedul: method 'no-loss': NoLoss of package wrongset does not define loss; ask its author."
    )


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_comparison_names_the_run_that_failed(
    command: Callable[..., subprocess.CompletedProcess[str]], jobs: int
) -> None:
    outcome = command(f"compare {COMMAND} --methods fedul,raising --seeds 2 --seed 7 --jobs {jobs} --out compared")
    assert outcome.returncode == 1
    assert last_line(outcome).startswith("fedul: raising, seed ")
    assert RAISED in last_line(outcome)
    refused = command(f"compare {COMMAND} --methods per-row --seeds 1 --seed 7 --out refused")
    assert refused.returncode == 2
    assert last_line(refused).startswith("fedul: per-row, seed 7: method PerRow (package wrongset): loss returned a t")
