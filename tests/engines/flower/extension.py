"""A package with a method and an algorithm that register as entry points, for runs on sites."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from fedul.algorithms import ALGORITHMS
from fedul.methods import METHODS

SOURCE = '''
"""A method that trains on a subset of the rows, and an algorithm that sends another tensor."""

from dataclasses import dataclass

import fedul
import torch
from fedul.core.unlabeled_sets import Rows
from fedul.core.update import TensorSpec
from fedul.methods.fedul import FedUL, set_task


@dataclass(frozen=True)
class EveryThirdRow(FedUL):
    """FedUL on every third row."""

    def task(self, client, spec):
        return set_task(client, Rows(client.train.index[::3], client.train.sets[::3]), spec)


@dataclass(frozen=True)
class Counting(fedul.Algorithm):
    """FedAvg whose clients also send how often they took part."""

    def message_spec(self, parameters):
        return {"count": TensorSpec((1,), torch.float64)}

    def finish(self, trained, received, client_state):
        count = {"count": client_state.get("count", torch.zeros(1, dtype=torch.float64)) + 1}
        return count, count
'''
ENTRY_POINTS = """
[fedul.methods]
every-third-row = fedul_test_extension:EveryThirdRow

[fedul.algorithms]
counting = fedul_test_extension:Counting
"""


def forget_installed() -> None:
    """Let the registries look for installed packages again."""
    for registry in (METHODS, ALGORITHMS):
        vars(registry).pop("_installed", None)


@contextmanager
def installed_extension(packages: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """Context in which the package is installed for this process and those that it starts."""
    information = packages / "fedul_test_extension-1.0.dist-info"
    information.mkdir(parents=True)
    (packages / "fedul_test_extension.py").write_text(SOURCE)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: fedul-test-extension\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(packages)
    monkeypatch.setenv("PYTHONPATH", f"{packages}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    forget_installed()
    yield import_module("fedul_test_extension")
    forget_installed()
    del sys.modules["fedul_test_extension"]
