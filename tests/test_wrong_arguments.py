"""Arguments of the public functions that are of a wrong type are refused with one sentence."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from torch import nn

import fedul
from fedul.methods.fedul import FedUL

from .factories import digits, random_federation


@cache
def finished_run() -> fedul.Run:
    return fedul.train(digits(), rounds=1)


def train(**options: Any) -> fedul.Run:
    return fedul.train(digits(), **{"rounds": 1, **options})


CASES: list[tuple[Callable[[], object], str]] = [
    (lambda: fedul.load(config=5), "^config: expected a fedul.BenchmarkDataConfig .* type int"),
    (lambda: fedul.load(5), "^data: expected a path or a DataFrame, got an object of type int"),
    (lambda: fedul.load(["a.csv"]), "^data: expected a path or a DataFrame"),
    (lambda: fedul.load("nope", client_column="a"), "^data: there is no file, folder or data set 'nope'"),
    (lambda: fedul.load("a.csv", "b.csv", set_column="a", client_column="a"), "both are 'a'; name two columns"),
    (lambda: fedul.check("study"), "^data: expected a Federation or what fedul.load returns, got .* type str"),
    (lambda: fedul.train("study"), "^data: expected a Federation"),
    (lambda: train(out=5), "^run folder: expected a path, got an object of type int"),
    (lambda: train(out=""), "^run folder: is empty"),
    (lambda: train(resume=True), "^resume: needs out"),
    (lambda: train(callbacks=None), "^callbacks: expected a list .* type NoneType"),
    (lambda: train(callbacks=fedul.Callback()), "^callbacks: expected a list .* type Callback"),
    (lambda: train(callbacks=[fedul.Callback]), "^callbacks: .* got the class Callback"),
    (lambda: train(callbacks="print"), "^callbacks: .* type str"),
    (lambda: train(method=FedUL), "^method: .* got the class FedUL"),
    (lambda: train(method="FedUL"), "did you mean 'fedul'"),
    (lambda: train(model=5), "model 'int' is of type int: it must be a torch.nn.Module, or a function"),
    (lambda: train(model=nn.Linear), "give a network, not its class"),
    (lambda: fedul.evaluate(5), "^run folder: expected a path"),
    (lambda: fedul.evaluate(None), "^run folder: expected a path"),
    (lambda: fedul.evaluate(finished_run(), folds="5"), "^folds: expected a whole number from 2 to 1,000, got '5'"),
    (lambda: fedul.evaluate(finished_run(), folds=10**30), "^folds: expected a whole number"),
    (lambda: fedul.evaluate(finished_run(), study="study"), "^data: expected a Federation"),
    (lambda: fedul.report(5, "x.html"), "^run folder: expected a path"),
    (lambda: fedul.report(finished_run(), 5), "^out: expected a path"),
    (lambda: fedul.export(finished_run(), 5), "^out: expected a path"),
    (lambda: fedul.export(finished_run(), ""), "^out: is empty"),
    (lambda: fedul.export(finished_run(), "x.onnx", format=5), "^unknown format '5'"),
    (lambda: fedul.compare(methods=5), "^methods: expected names, as text or as a list, got an object of type int"),
    (lambda: fedul.compare(methods=[FedUL()]), "^methods: expected names"),
    (lambda: fedul.Classifier.load(5), "^folder: expected a path"),
    (lambda: finished_run().classifier.save(5), "^folder: expected a path"),
    (lambda: fedul.Federation(random_federation().clients, 5), "^classes: expected a list of names"),
]


@pytest.mark.parametrize(("call", "complaint"), CASES, ids=range(len(CASES)))
def test_an_argument_of_a_wrong_type_is_refused(
    call: Callable[[], object], complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(fedul.InputError, match=complaint) as problem:
        call()
    assert "\n" not in str(problem.value)
    assert not list(tmp_path.iterdir())
