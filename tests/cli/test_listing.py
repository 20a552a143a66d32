"""`fedul methods` and `fedul algorithms` with components of other packages."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedul.algorithms import ALGORITHMS
from fedul.methods import METHODS

from ..end_to_end.command import environment, run

MODULE = '''
from dataclasses import dataclass

from fedul._utils.settings import option
from fedul.algorithms.fedavg import FedAvg


@dataclass(frozen=True)
class Halved(FedAvg):
    """Average the updates and take half a step.

    More about it.
    """

    depth: int = option(3, "How deep [sic].", low=1)
'''
ENTRY_POINTS = """
[fedul.algorithms]
halved = other_package.algorithms:Halved
fedavg = other_package.algorithms:Halved
broken = other_package.broken:Broken
absent = other_package.algorithms:Absent
"""


@pytest.fixture
def package(tmp_path: Path) -> dict[str, str]:
    """Install a package with algorithms, one of which cannot be imported; returns the environment to use it."""
    (tmp_path / "other_package").mkdir()
    (tmp_path / "other_package/algorithms.py").write_text(MODULE)
    (tmp_path / "other_package/broken.py").write_text("raise RuntimeError('no licence')")
    metadata = tmp_path / "other_package-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: other-package\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS)
    return {"PYTHONPATH": f"{environment()['PYTHONPATH']}:{tmp_path}"}


def test_algorithms_of_other_packages_are_listed_with_their_package(tmp_path: Path, package: dict[str, str]) -> None:
    listed = run("algorithms", tmp_path, names=package)
    assert listed.code == 0
    assert "halved (package other-package)  Average the updates and take half a step." in listed.out
    assert "depth=3" in listed.out
    assert "How deep [sic]." in listed.out
    assert "More about it" not in listed.out

    document = run("algorithms --json", tmp_path, names=package).document["algorithms"]
    assert document["halved"]["package"] == "other-package"
    assert document["fedavg"]["package"] == "fedul"
    assert [*document] == [*ALGORITHMS, "halved"]


def test_a_package_that_cannot_be_loaded_is_a_note(tmp_path: Path, package: dict[str, str]) -> None:
    listed = run("algorithms --json", tmp_path, names=package)
    notes = listed.err.splitlines()
    assert listed.code == 0
    assert [note.startswith("note: algorithm '") for note in notes] == [True, True]
    assert any("other_package.broken:Broken (no licence)" in note for note in notes)
    assert any("'absent'" in note for note in notes)


def test_an_algorithm_of_another_package_trains(tmp_path: Path, package: dict[str, str]) -> None:
    line = "train --clients 2 --rounds 1 --algorithm halved --algorithm-option depth=2 --out RUN --json"
    assert run(line, tmp_path, names=package).document["rounds"] == 1


def test_every_built_in_component_is_listed_with_its_settings(tmp_path: Path) -> None:
    methods = run("methods --json", tmp_path)
    assert methods.err == ""
    assert [*methods.document["methods"]] == [*METHODS]
    assert methods.document["methods"]["fedllp"]["settings"]["mean"]["choices"] == ["full", "batch"]
    assert all(method["summary"].endswith(".") for method in methods.document["methods"].values())
