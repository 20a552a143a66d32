from __future__ import annotations

import csv
import json
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from ..runs import contents
from .checks import leftovers, refuses
from .command import Fedul, Outcome, Warm

SMALL = "--clients 3 --held-out 0.6 --rounds 2 --model mlp --threads 1"
COMPARE = f"compare --methods fedul,supervised:labels=0.1 --seeds 2 {SMALL} --out C"
RUNS = [
    f"C/runs/{name}_under_fedavg/seed-{seed}" for seed in (0, 1) for name in ("fedul", "supervised_labels=0.1")
]  # in the order in which they are done


@pytest.fixture(scope="module")
def compared(warm: Warm, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Outcome]:
    folder = tmp_path_factory.mktemp("compared")
    return folder, warm.run(f"{COMPARE} --json", folder)


@pytest.fixture
def comparison(compared: tuple[Path, Outcome], tmp_path: Path) -> Path:
    return Path(shutil.copytree(compared[0] / "C", tmp_path / "C"))


def written(folder: Path) -> dict[str, int]:
    """Return when every file below a folder was last written."""
    return {str(path): path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def without_time(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [{name: v for name, v in result.items() if name != "seconds"} for result in document["results"]]


def test_a_comparison_prints_exactly_one_json_document(compared: tuple[Path, Outcome]) -> None:
    _, outcome = compared
    assert (outcome.code, outcome.err) == (0, "")
    assert {name: outcome.document[name] for name in ("comparison", "csv", "plot")} == {
        "comparison": "C",
        "csv": "C/runs.csv",
        "plot": "C/error-by-round.svg",
    }
    fedul, supervised = outcome.document["results"]
    assert (fedul["method"], fedul["algorithm"], fedul["labels_used"]) == ("fedul", "fedavg", 0)
    assert (supervised["method"], supervised["algorithm"]) == ("supervised labels=0.1", "fedavg")
    assert supervised["labels_used"] > 50
    assert (fedul["best"], supervised["best"]) == (True, False)
    assert (fedul["p_value"], supervised["p_value"]) == (None, None)
    for result in (fedul, supervised):
        assert len(result["errors"]) == 2
        assert result["mean_error"] == pytest.approx(sum(result["errors"]) / 2)
        assert 0 < result["mean_error"] < 0.9


def test_a_comparison_is_a_folder_of_runs_like_any_other(
    comparison: Path, compared: tuple[Path, Outcome], tmp_path: Path, fedul: Fedul
) -> None:
    assert {path.name for path in comparison.iterdir()} == {
        "comparison.json",
        "runs",
        "runs.csv",
        "error-by-round.svg",
    }
    assert sorted(str(p.parent.relative_to(tmp_path)) for p in comparison.rglob("result.json")) == sorted(RUNS)
    alone = fedul(f"train --resume --out {RUNS[2]} --json").document
    assert alone["test_error"] == compared[1].document["results"][0]["errors"][1]
    assert leftovers(comparison) == []


def test_a_run_of_a_comparison_is_what_train_makes_of_the_same_options(
    compared: tuple[Path, Outcome], fedul: Fedul
) -> None:
    alone = fedul(f"train --method fedul --seed 1 {SMALL} --out RUN --json").document
    stored = json.loads((compared[0] / RUNS[2] / "result.json").read_text())
    assert alone["weights_sha256"] == stored["weights_sha256"]


def test_concurrent_runs_give_the_same_results(compared: tuple[Path, Outcome], fedul: Fedul) -> None:
    again = fedul(f"{COMPARE} --jobs 2 --json")
    assert again.code == 0, again.err
    assert without_time(again.document) == without_time(compared[1].document)


def test_the_csv_has_a_line_for_each_run(compared: tuple[Path, Outcome]) -> None:
    folder, outcome = compared
    with (folder / "C/runs.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert [(line["method"], line["seed"]) for line in lines] == [
        (method, seed) for method in ("fedul", "supervised labels=0.1") for seed in ("0", "1")
    ]
    errors = [error for result in outcome.document["results"] for error in result["errors"]]
    assert [float(line["test_error"]) for line in lines] == errors


def test_without_json_a_table_is_printed_with_methods_without_labels_first(comparison: Path, fedul: Fedul) -> None:
    turned = COMPARE.replace("fedul,supervised:labels=0.1", "supervised:labels=0.1,fedul")
    outcome = fedul(f"{turned} --resume")
    assert (outcome.code, outcome.err) == (0, "")
    rows = [line.split("  ")[1] for line in outcome.out.splitlines() if "(" in line and "." in line][:2]
    assert rows == ["fedul", "supervised labels=0.1"]
    assert "error % (std)" in outcome.out
    assert "paired t-test" in outcome.out
    assert "comparison C; plot C/error-by-round.svg" in outcome.out


def test_table_and_plot_go_where_they_are_asked_to(comparison: Path, fedul: Fedul, tmp_path: Path) -> None:
    (tmp_path / "tables").mkdir()
    outcome = fedul(f"{COMPARE} --resume --csv tables/all.csv --plot x.png --json")
    assert (outcome.document["csv"], outcome.document["plot"]) == ("tables/all.csv", "x.png")
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert (tmp_path / "tables/all.csv").read_bytes() == (comparison / "runs.csv").read_bytes()


def test_the_plot_is_an_svg_unless_another_is_asked_for(compared: tuple[Path, Outcome]) -> None:
    text = (compared[0] / "C/error-by-round.svg").read_text()
    assert "<svg" in text
    assert "supervised labels=0.1" in text


def test_every_method_is_compared_under_every_algorithm(fedul: Fedul) -> None:
    line = f"compare --methods fedul,fedllp --algorithms fedavg,fedprox:mu=0.1 --seeds 1 {SMALL} --out C"
    results = fedul(f"{line} --json").document["results"]
    assert [(result["method"], result["algorithm"]) for result in results] == [
        ("fedul", "fedavg"),
        ("fedllp", "fedavg"),
        ("fedul", "fedprox mu=0.1"),
        ("fedllp", "fedprox mu=0.1"),
    ]
    assert len({result["mean_error"] for result in results}) == 4
    table = fedul(f"{line} --resume").out
    assert "algorithm" in table
    assert table.count("fedprox mu=0.1") == 2
    assert "t-test" not in table


@pytest.mark.parametrize(("rounds", "note"), [(2, "in 2 rounds refinement does not start"), (8, "did not start")])
def test_refinement_that_does_not_start_is_one_warning(fedul: Fedul, rounds: int, note: str) -> None:
    line = f"compare --methods fedul,fedul-refined --seeds 2 --jobs 1 {SMALL} --out C"
    outcome = fedul(line.replace("--rounds 2", f"--rounds {rounds}"))
    assert outcome.code == 0
    assert outcome.err.count("note: ") == 1
    assert note in outcome.err


def test_seeds_and_methods_can_be_added_without_repeating_finished_runs(
    comparison: Path, compared: tuple[Path, Outcome], fedul: Fedul
) -> None:
    before = written(comparison / "runs")
    more = COMPARE.replace("--seeds 2", "--seeds 3").replace("fedul,", "fedllp,fedul,")
    outcome = fedul(f"{more} --resume --json")
    assert outcome.code == 0
    assert written(comparison / "runs").items() > before.items()
    for old, new in zip(compared[1].document["results"], outcome.document["results"][1:], strict=True):
        assert new["method"] == old["method"]
        assert new["errors"][:2] == old["errors"]
        assert len(new["errors"]) == 3


def test_a_finished_comparison_can_be_printed_again(
    comparison: Path, compared: tuple[Path, Outcome], fedul: Fedul
) -> None:
    before = contents(comparison)
    assert fedul(f"{COMPARE} --resume --json").document == compared[1].document
    assert contents(comparison) == before


@pytest.mark.parametrize("finished", [1, 3])
def test_a_killed_comparison_resumes_without_repeating_finished_runs(
    warm: Warm, compared: tuple[Path, Outcome], tmp_path: Path, finished: int
) -> None:
    running = warm.start(f"{COMPARE} --checkpoint-every 1", tmp_path)
    under_way = tmp_path / RUNS[finished] / "config.json"
    running.wait_until(under_way.exists)
    running.send(signal.SIGKILL)
    assert running.outcome().code == -signal.SIGKILL
    done = [folder for folder in RUNS if (tmp_path / folder / "result.json").exists()]
    assert done[:finished] == RUNS[:finished]
    before = {folder: written(tmp_path / folder) for folder in done}

    outcome = warm.run(f"{COMPARE} --resume --json", tmp_path)
    assert without_time(outcome.document) == without_time(compared[1].document)
    assert {folder: written(tmp_path / folder) for folder in done} == before
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ("", "already holds this comparison; add --resume"),
        ("--clients 4 --resume", "holds a different comparison (clients is 3 there, 4 here)"),
        ("--seed 1 --resume", "holds a different comparison (seed is 0 there, 1 here)"),
        ("--learning-rate 0.5 --resume", "holds a different comparison (learning-rate is not given there, 0.5 here)"),
        ("--averaging 0 --resume", "holds a different comparison (averaging is 0.5 there, 0.0 here)"),
        ("--rounds 1 --resume", "already has 2 rounds"),
    ],
)
def test_a_comparison_that_does_not_fit_the_folder_is_refused(
    comparison: Path, fedul: Fedul, tmp_path: Path, change: str, complaint: str
) -> None:
    refuses(fedul, tmp_path, f"{COMPARE} {change}", complaint)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("--methods fedull", "unknown method 'fedull': did you mean 'fedul'?"),
        ("--methods fedul,fedul", "'fedul' is named twice"),
        ("--methods fedul:x", "methods: expected NAME or NAME:NAME=VALUE, got 'fedul:x'"),
        ("--methods ''", "methods: expected text"),
        ("--methods ,", "methods: names none"),
        ("--algorithms fedporx", "did you mean 'fedprox'?"),
        ("--seeds 0", "seeds: must be at least 1"),
        ("--plot x.gif", "plot: 'x.gif' is neither .svg nor .png"),
        ("--csv .", "csv: '.' is a folder"),
        ("--csv none/all.csv", "csv: there is no folder 'none'; make it"),
        ("--out C --csv C/comparison.json", "belongs to the comparison itself"),
        ("--out C --plot C/runs/x.svg", "belongs to the comparison itself"),
        ("--csv x.svg --plot x.svg", "csv and plot: both are 'x.svg'"),
        ("--methods fedul:score=log:score=brier", "methods: expected NAME or NAME:one value for score"),
        ("--methods fedul:score=brier --loss log", "but the method's score is 'brier'; give one of them"),
        ("--resume", "--resume needs --out"),
        ("--method fedul", "--method"),
        ("--split nonsense", "iid, noniid, noniid-text"),
        ("--config none.toml", "none.toml: there is no such file"),
    ],
)
def test_a_wrong_call_is_refused_before_anything_is_written(
    fedul: Fedul, tmp_path: Path, line: str, complaint: str
) -> None:
    refuses(fedul, tmp_path, f"compare {line}", complaint)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("--methods fedul:nonsense=1", "unknown option of method fedul 'nonsense'"),
        ("--methods fedul,supervised:labels=2", "labels: must be at most 1"),
        ("--methods fedul --algorithms fedavg,fedprox:mu=-1", "mu: must be at least 0"),
        ("--methods fedul,fedpl --loss brier", "method fedpl has its own"),
        ("--methods fedul --data nonsense", "unknown data set 'nonsense'"),
        ("--methods fedul --model nonsense", "unknown model 'nonsense'"),
        ("--methods fedul --sets 1", "cannot tell the classes apart"),
    ],
)
def test_variants_that_cannot_run_are_refused_before_anything_is_written(
    fedul: Fedul, tmp_path: Path, line: str, complaint: str
) -> None:
    refuses(fedul, tmp_path, f"compare {line} --seeds 1 --clients 3 --rounds 1 --out C", complaint)


def test_a_folder_that_is_not_a_comparison_is_refused(fedul: Fedul, tmp_path: Path) -> None:
    (tmp_path / "C").mkdir()
    (tmp_path / "C/notes.txt").write_text("mine")
    refuses(fedul, tmp_path, COMPARE, "exists already and is not a comparison of fedul")
    refuses(fedul, tmp_path, f"{COMPARE} --resume", "exists already and is not a comparison of fedul")


def test_a_damaged_comparison_is_refused(comparison: Path, fedul: Fedul, tmp_path: Path) -> None:
    (comparison / "comparison.json").write_text("{")
    refuses(fedul, tmp_path, f"{COMPARE} --resume", "comparison.json: not a readable JSON file")
    (comparison / "comparison.json").write_text('{"format": "other"}')
    refuses(fedul, tmp_path, f"{COMPARE} --resume", "comparison.json does not belong to a comparison of fedul")


def test_a_comparison_without_test_errors_by_round_prints_no_note(fedul: Fedul) -> None:
    outcome = fedul(f"compare --methods fedul --seeds 1 --evaluate-every 0 {SMALL} --out C --json")
    assert (outcome.code, outcome.err) == (0, "")


def test_a_comparison_chooses_a_folder_if_none_is_given(comparison: Path, fresh_fedul: Fedul) -> None:
    outcome = fresh_fedul(f"{COMPARE} --resume --json")
    assert (outcome.code, outcome.err) == (0, "")


def test_options_of_a_comparison_may_come_from_a_toml_file(fedul: Fedul, tmp_path: Path) -> None:
    (tmp_path / "options.toml").write_text('methods = "fedul"\nseeds = 1\nclients = 3\nrounds = 5\nout = "C"\n')
    outcome = fedul(f"compare --config options.toml {SMALL} --json")
    assert (outcome.code, outcome.document["comparison"]) == (0, "C")
    assert len((tmp_path / "C/runs/fedul_under_fedavg/seed-0/metrics.jsonl").read_text().splitlines()) == 2


def test_a_loss_can_be_chosen_by_name(fedul: Fedul) -> None:
    lines = {loss: f"train --loss {loss} {SMALL} --out {loss} --json" for loss in ("log", "brier", "authors")}
    found = {loss: fedul(line).document["weights_sha256"] for loss, line in lines.items()}
    assert len(set(found.values())) == 3
    assert fedul(f"train {SMALL} --out plain --json").document["weights_sha256"] == found["log"]


def test_a_loss_that_the_method_does_not_have_is_refused(fedul: Fedul, tmp_path: Path) -> None:
    refuses(fedul, tmp_path, f"train --method fedpl --loss brier {SMALL} --out RUN", "method fedpl has its own")


@pytest.mark.parametrize("method", ["fedul-refined", "fedpl", "fedllp", "fedllp-vat"])
def test_every_method_can_be_trained_by_name(fedul: Fedul, tmp_path: Path, method: str) -> None:
    outcome = fedul(f"train --method {method} {SMALL} --out RUN --json")
    notes = [line for line in outcome.err.splitlines() if line.startswith("note: ")]  # a slow machine prints rounds too
    told = "note: fedul-refined: in 2 rounds refinement does not start, so this is fedul; add rounds."
    assert (outcome.code, notes) == (0, [told] if method == "fedul-refined" else [])
    assert outcome.document["labels_used"] == 0
    assert json.loads((tmp_path / "RUN/config.json").read_text())["training"]["method"] == method


def test_a_setting_of_a_method_can_be_given_by_name(fedul: Fedul, tmp_path: Path) -> None:
    options = "--method-option earliest=1 --method-option latest=1 --method-option trust=0.5"
    outcome = fedul(f"train --method fedul-refined {options} {SMALL} --out RUN --json")
    assert outcome.code == 0
    lines = [json.loads(line) for line in (tmp_path / "RUN/metrics.jsonl").read_text().splitlines()]
    assert ["refine" in line.get("directive", {}) for line in lines] == [False, True]


def test_resume_needs_no_other_option_than_the_folder_of_a_comparison(comparison: Path, fedul: Fedul) -> None:
    whole = fedul(f"{COMPARE} --resume --json").document
    assert without_time(fedul("compare --out C --resume --json").document) == without_time(whole)


@pytest.mark.parametrize("key", ["method", "algorithm", "method-option"])
def test_options_that_a_comparison_varies_are_refused_in_its_file(fedul: Fedul, tmp_path: Path, key: str) -> None:
    (tmp_path / "options.toml").write_text(f'{key} = "fedul"\n')
    refuses(fedul, tmp_path, "compare --config options.toml", f"unknown key in options.toml '{key}'")


@pytest.mark.parametrize(
    ("command", "name", "setting"), [("methods", "fedul-refined", "trust"), ("algorithms", "fedprox", "mu")]
)
def test_methods_and_algorithms_are_listed_with_their_settings(
    fedul: Fedul, command: str, name: str, setting: str
) -> None:
    listed = fedul(f"{command} --json").document[command]
    assert setting in listed[name]["settings"]
    printed = fedul(command)
    assert printed.code == 0
    assert all(known in printed.out for known in listed)
