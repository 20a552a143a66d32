from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fedul.config import CompareConfig
from fedul.experiments.variants import parse_variants

from ..runs import contents
from .checks import is_one_sentence, refuses
from .command import Fedul, Outcome, Warm

METHODS = [
    "fedul-combined",
    "fedul",
    "fedul-refined",
    "fedpl",
    "fedllp",
    "fedllp-vat",
    "supervised",
    "supervised labels=0.1",
]


def test_the_demo_compares_methods_in_one_json_document(fedul: Fedul, tmp_path: Path) -> None:
    outcome = fedul("demo --json --rounds 1")
    assert outcome.code == 0
    results = {result["method"]: result for result in outcome.document["results"]}
    assert list(results) == METHODS
    assert [name for name, result in results.items() if result["labels_used"]] == METHODS[-2:]
    assert results["supervised"]["labels_used"] > 1000
    assert 0.09 < results["supervised labels=0.1"]["labels_used"] / results["supervised"]["labels_used"] < 0.11
    assert all(0 <= result["test_error"] <= 1 and result["seconds"] > 0 for result in results.values())
    folders = [c.folder for c in parse_variants(CompareConfig().methods, CompareConfig().algorithms)]
    runs = tmp_path / outcome.document["run"] / "runs"
    assert sorted(folder.name for folder in runs.iterdir()) == sorted(folders)
    assert all((runs / name / "seed-0/model/classifier.json").exists() for name in folders)


@pytest.fixture(scope="module")
def shown(warm: Warm, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Outcome]:
    folder = tmp_path_factory.mktemp("shown")
    return folder, warm.run("demo --rounds 1 --seed 3 --out demo --plot demo.svg", folder)


def test_the_demo_prints_a_table_and_a_summary(shown: tuple[Path, Outcome]) -> None:
    folder, outcome = shown
    assert outcome.code == 0
    assert "fedul-combined (0 labels)" in (folder / "demo.svg").read_text()
    rows = [line for line in outcome.out.splitlines() if "%" in line]
    assert [row.strip().split("  ")[0] for row in rows] == METHODS
    assert "labels used" in outcome.out
    assert "What was shown" in outcome.out
    assert "runs: demo" in outcome.out


def test_the_runs_of_a_demo_are_a_comparison_that_can_be_continued(
    shown: tuple[Path, Outcome], fedul: Fedul, tmp_path: Path
) -> None:
    shutil.copytree(shown[0] / "demo", tmp_path / "demo")
    outcome = fedul("compare --methods fedul --seeds 2 --seed 3 --rounds 1 --out demo --resume --json")
    assert outcome.code == 0
    assert len(outcome.document["results"][0]["errors"]) == 2


def test_a_plot_that_cannot_be_written_is_refused_before_training(fedul: Fedul, tmp_path: Path) -> None:
    refuses(fedul, tmp_path, "demo --plot demo.gif", "plot: 'demo.gif' is neither .svg nor .png")


def test_the_demo_does_not_write_into_a_folder_that_is_in_use(fedul: Fedul, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/notes.txt").write_text("mine")
    before = contents(tmp_path)
    outcome = fedul("demo --out mine")
    assert outcome.code == 2
    assert is_one_sentence(outcome.err)
    assert contents(tmp_path) == before
