"""A comparison on a user's own table, by true classes or by sets left out, as a user types it."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import pytest

from ..data_files import write_hospitals
from ..runs import contents
from .checks import leftovers, refuses
from .command import Fedul, Outcome, Warm

DATA = "--data patients.csv --priors prevalence.csv --client-column hospital --set-column month"
SMALL = "--seeds 2 --rounds 2 --model linear --threads 1"
METHODS = "--methods fedul,soft-labels"
WITH_TRUTH = f"compare {DATA} --truth-column truth {METHODS} {SMALL} --out C"
WITHOUT_TRUTH = f"compare {DATA} --ignore-columns truth {METHODS} {SMALL} --out C"
LINES = {"held_out_error": WITH_TRUTH, "left_out_loss": WITHOUT_TRUTH}


@pytest.fixture(scope="module")
def compared(warm: Warm, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Outcome]]:
    outcomes = {}
    for measure, line in LINES.items():
        folder = tmp_path_factory.mktemp(measure)
        write_hospitals(folder)
        outcomes[measure] = folder, warm.run(f"{line} --json", folder)
    return outcomes


@pytest.fixture
def files(compared: dict[str, tuple[Path, Outcome]], tmp_path: Path) -> Path:
    """A copy of the tables and of the comparison without true classes, which records where its tables are."""
    original = compared["left_out_loss"][0]
    shutil.copytree(original, tmp_path, dirs_exist_ok=True)
    record = tmp_path / "C/comparison.json"
    record.write_text(record.read_text().replace(str(original), str(tmp_path)))
    return tmp_path


@pytest.mark.parametrize(
    ("measure", "quantity", "plural"), [("held_out_error", "error", "errors"), ("left_out_loss", "loss", "losses")]
)
def test_json_and_csv_name_what_was_measured(
    compared: dict[str, tuple[Path, Outcome]], measure: str, quantity: str, plural: str
) -> None:
    folder, outcome = compared[measure]
    assert outcome.code == 0, outcome.err
    assert outcome.document["measure"] == measure
    assert outcome.document["plot"] == "C/comparison.svg"
    results = outcome.document["results"]
    assert [result["method"] for result in results] == ["fedul", "soft-labels"]
    assert sum(result["best"] for result in results) >= 1
    for result in results:
        assert len(set(result[plural])) == 2
        assert result[f"mean_{quantity}"] == pytest.approx(sum(result[plural]) / 2)
        assert -1 < result[f"mean_{quantity}"] < 1
    with (folder / "C/runs.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert [float(line[measure]) for line in lines] == [value for r in results for value in r[plural]]
    assert "soft-labels" in (folder / "C/comparison.svg").read_text()
    assert leftovers(folder) == []


def test_with_true_classes_a_run_is_what_train_makes_of_the_same_options(
    compared: dict[str, tuple[Path, Outcome]], tmp_path: Path, fedul: Fedul
) -> None:
    write_hospitals(tmp_path)
    options = "--truth-column truth --method fedul --rounds 2 --model linear --threads 1 --seed 1"
    alone = fedul(f"train {DATA} {options} --out RUN --json").document
    stored = json.loads((compared["held_out_error"][0] / "C/runs/fedul_under_fedavg/seed-1/result.json").read_text())
    assert alone["weights_sha256"] == stored["weights_sha256"]


def test_without_true_classes_every_set_of_a_client_with_three_is_left_out_once(files: Path) -> None:
    parts = sorted((files / "C/runs/fedul_under_fedavg/seed-0").iterdir())
    assert [part.name for part in parts] == ["part-1", "part-2", "part-3"]
    measured = [json.loads((part / "measurement.json").read_text()) for part in parts]
    assert [each["rows"] for each in measured] == [[150]] * 3  # the sets of South; North has two
    counts = [json.loads((part / "result.json").read_text())["data"] for part in parts]
    assert [(each["sets"], each["rows"] + each["held_out_rows"]) for each in counts] == [(4, 600)] * 3


def test_a_comparison_that_leaves_out_few_sets_says_so(compared: dict[str, tuple[Path, Outcome]]) -> None:
    assert "note: only 3 sets can be left out" in compared["left_out_loss"][1].err
    assert compared["held_out_error"][1].err == ""


def test_a_finished_comparison_is_printed_again_from_its_folder_alone(
    files: Path, compared: dict[str, tuple[Path, Outcome]], fedul: Fedul
) -> None:
    before = contents(files / "C")
    assert fedul("compare --resume --out C --json").document == compared["left_out_loss"][1].document
    table = fedul(f"{WITHOUT_TRUTH} --resume")
    assert "patients.csv: 2 seeds, 2 rounds" in table.out
    assert "loss on sets left out (std)" in table.out
    assert contents(files / "C") == before


def test_missing_parts_are_trained_and_unmeasured_runs_are_measured(
    files: Path, compared: dict[str, tuple[Path, Outcome]], fedul: Fedul
) -> None:
    runs = files / "C/runs/fedul_under_fedavg"
    shutil.rmtree(runs / "seed-0/part-2")
    (runs / "seed-1/part-3/measurement.json").unlink()
    again = fedul("compare --resume --out C --json").document["results"]
    before = compared["left_out_loss"][1].document["results"]
    assert [each["losses"] for each in again] == [each["losses"] for each in before]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (f"{WITHOUT_TRUTH}", "already holds this comparison; add --resume"),
        (f"{WITHOUT_TRUTH} --resume --held-out 0.3", "holds a different comparison (held-out is 0.2 there, 0.3 here)"),
        (
            "compare --resume --out C --truth-column truth",
            "comparison (truth-column is not given there, truth",
        ),
        ("compare --resume --out C --data digits", "patients.csv there, digits here"),
    ],
)
def test_a_comparison_that_does_not_fit_the_folder_is_refused(
    files: Path, fedul: Fedul, line: str, complaint: str
) -> None:
    refuses(fedul, files, line, complaint)


def test_a_comparison_whose_data_has_changed_is_refused(files: Path, fedul: Fedul) -> None:
    rows = (files / "patients.csv").read_text().splitlines(keepends=True)
    (files / "patients.csv").write_text("".join(rows[:-1]))
    refuses(fedul, files, "compare --resume --out C", "its data has changed since")


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (f"{DATA} --methods fedul,supervised", "methods: 'supervised' trains on true labels"),
        (f"{DATA} --methods fedul --truth-column nonsense", "nonsense"),
        (f"{DATA} --methods fedul --truth-column truth --held-out 0 --select last", "raise --held-out"),
        (f"{DATA} --methods fedul --clients 3", "clients: is for data sets by name"),
        ("--data patients.csv", "needs --priors"),
        ("--data none.csv --priors prevalence.csv", "none.csv"),
        ("--truth-column truth", "truth-column: is for files and DataFrames, not for digits"),
    ],
)
def test_a_wrong_call_is_refused_before_anything_is_written(
    fedul: Fedul, tmp_path: Path, options: str, complaint: str
) -> None:
    write_hospitals(tmp_path)
    refuses(fedul, tmp_path, f"compare {options} {SMALL} --out NEW", complaint)
