from __future__ import annotations

import json
import math
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import save_file

from fedul.config import BenchmarkDataConfig, TrainConfig
from fedul.models import build

from ..data_files import class_priors
from .checks import is_one_sentence, leftovers
from .command import CANONICAL, Fedul, Outcome

FIVE_CLIENTS = {f"client-{c + 1}": 10 for c in range(5)}


def without_seconds(outcome: Outcome) -> dict[str, Any]:
    return {key: value for key, value in outcome.document.items() if key != "seconds"}


def test_train_prints_exactly_one_json_document_that_sums_up_the_run(canonical: tuple[Path, Outcome]) -> None:
    _, outcome = canonical
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.document["run"] == "RUN"
    assert outcome.document["rounds"] == 3
    assert outcome.document["selected_round"] in (1, 2, 3)
    assert 0 < outcome.document["test_error"] < 0.5
    assert outcome.document["held_out_loss"] > 0
    assert outcome.document["labels_used"] == 0
    assert len(bytes.fromhex(outcome.document["weights_sha256"])) == 32


def test_a_run_is_a_folder_of_known_files(canonical: tuple[Path, Outcome]) -> None:
    folder, _ = canonical
    assert {path.name for path in folder.iterdir()} == {
        "config.json",
        "metrics.jsonl",
        "checkpoint",
        "model",
        "result.json",
        "status.json",
    }
    assert leftovers(folder) == []


def test_config_json_names_its_format_and_every_option(canonical: tuple[Path, Outcome]) -> None:
    stored = json.loads((canonical[0] / "config.json").read_text())
    assert (stored["format"], stored["version"]) == ("fedul-run", 3)
    assert set(stored["data"]) == {f.name for f in fields(BenchmarkDataConfig)}
    assert set(stored["training"]) == {f.name for f in fields(TrainConfig)}


def test_metrics_have_one_readable_line_for_each_round(canonical: tuple[Path, Outcome]) -> None:
    lines = [json.loads(line) for line in (canonical[0] / "metrics.jsonl").read_text().splitlines()]
    assert [line["round"] for line in lines] == [1, 2, 3]
    assert all(math.isfinite(line[figure]) for line in lines for figure in ("loss", "held_out_loss", "test_error"))


def test_the_result_has_the_metrics_of_the_selected_round(canonical: tuple[Path, Outcome]) -> None:
    folder, outcome = canonical
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    chosen = lines[outcome.document["selected_round"] - 1]
    assert chosen["held_out_loss"] == outcome.document["held_out_loss"] == min(x["held_out_loss"] for x in lines)
    assert chosen["test_error"] == outcome.document["test_error"]


def test_the_same_command_gives_the_same_weights_again(canonical: tuple[Path, Outcome], fedul: Fedul) -> None:
    assert without_seconds(fedul(CANONICAL)) == without_seconds(canonical[1])


def test_the_seed_changes_the_weights(canonical: tuple[Path, Outcome], fedul: Fedul) -> None:
    other = fedul(CANONICAL.replace("--seed 0", "--seed 1")).document
    assert other["weights_sha256"] != canonical[1].document["weights_sha256"]


ALL_OPTIONS: dict[str, object] = {
    "data": "digits",
    "data-dir": ".",
    "clients": 2,
    "sets": [12, 12],
    "split": "noniid-text",
    "prior-recipe": "text",
    "priors": "priors.csv",
    "prior-source": "realised",
    "prior-noise": 0.1,
    "noise-formula": "intended",
    "sets-overlap": False,
    "held-out": 0.25,
    "rows": 3000,
    "test-prior": "natural",
    "seed": 7,
    "method": "fedul-refined",
    "method-option": {"trust": 0.5},
    "algorithm": "fedavg",
    "algorithm-option": {},
    "model": "mlp",
    "start-weights": "start.safetensors",
    "rounds": 2,
    "patience": 9,
    "epochs": 2,
    "batch-size": 64,
    "optimizer": "sgd",
    "learning-rate": 0.02,
    "l2": 0.001,
    "choose": "off",
    "momentum": 0.5,
    "nesterov": True,
    "schedule": "cosine",
    "l1": 1e-5,
    "averaging": 0.3,
    "loss": "brier",
    "augment": "rotate",
    "participation": 0.5,
    "select": "held-out-error",
    "evaluate-every": 2,
    "checkpoint-every": 1,
    "device": "cpu",
    "precision": "bfloat16",
    "threads": 1,
    "engine-mode": "vectorized",
    "workers": 2,
}
PRIVATE_ROWS: dict[str, object] = {
    "method": "fedul",
    "sets-overlap": False,
    "rounds": 2,
    "dp-epsilon": 50.0,
    "dp-delta": 1e-6,
    "dp-clip": 0.5,
    "dp-seeded": True,
    "prior-epsilon": 4.0,
    "secure-aggregation": True,
    "aggregation-range": 3.0,
    "aggregation-threshold": 0.8,
}
PRIVATE_CLIENTS: dict[str, object] = {
    "method": "fedul",
    "rounds": 2,
    "participation": 0.8,
    "client-dp-epsilon": 50.0,
    "client-dp-delta": 1e-6,
    "client-dp-clip": 0.5,
    "client-dp-quantile": 0.5,
    "dp-seeded": True,
}
NOISE: dict[str, object] = {"method": "fedul", "sets-overlap": False, "rounds": 1, "dp-noise": 1.0, "dp-seeded": True}
CLIENT_NOISE: dict[str, object] = {"method": "fedul", "rounds": 1, "client-dp-noise": 1.0, "dp-seeded": True}
SPELLED = {
    "sets": "--sets 12,12",
    "sets-overlap": "--sets-disjoint",
    "method-option": "--method-option trust=0.5",
    "algorithm-option": "",
}


def test_every_option_is_in_a_list_of_this_file() -> None:
    known = {f.name.replace("_", "-") for config in (BenchmarkDataConfig, TrainConfig) for f in fields(config)}
    assert {*ALL_OPTIONS, *PRIVATE_ROWS, *PRIVATE_CLIENTS, *NOISE, *CLIENT_NOISE} == known


@pytest.mark.parametrize("options", [ALL_OPTIONS, PRIVATE_ROWS, PRIVATE_CLIENTS, NOISE, CLIENT_NOISE])
def test_every_option_has_the_same_effect_in_a_toml_file_as_on_the_command_line(
    fedul: Fedul, tmp_path: Path, options: dict[str, object]
) -> None:
    (tmp_path / "priors.csv").write_text(class_priors({"client-1": 12, "client-2": 12}))
    save_file(build("mlp", (1, 8, 8), 10, seed=5).state_dict(), tmp_path / "start.safetensors")
    tables = [
        f"[{k}]\n" + "".join(f"{n} = {v}\n" for n, v in t.items()) for k, t in options.items() if isinstance(t, dict)
    ]
    lines = [f"{name} = {json.dumps(value)}\n" for name, value in options.items() if not isinstance(value, dict)]
    (tmp_path / "options.toml").write_text("".join(lines + tables))

    flags = fedul("train --json --out A " + " ".join(SPELLED.get(n, spelled(n, v)) for n, v in options.items()))
    file = fedul("train --json --out B --config options.toml")

    assert (flags.code, file.code) == (0, 0), flags.err + file.err
    assert {**without_seconds(file), "run": "A"} == without_seconds(flags)
    assert (tmp_path / "A/config.json").read_bytes() == (tmp_path / "B/config.json").read_bytes()
    stored = json.loads((tmp_path / "A/config.json").read_text())
    absolute = {"data-dir": str(tmp_path), "priors": str(tmp_path / "priors.csv")}
    given = {name.replace("-", "_"): absolute.get(name, value) for name, value in options.items()}
    assert given.items() <= {**stored["data"], **stored["training"]}.items()


def spelled(name: str, value: object) -> str:
    """Return an option as it is written on the command line."""
    return f"--{name}" if value is True else f"--{name} {value}"


def test_the_command_line_takes_precedence_over_the_toml_file(fedul: Fedul, tmp_path: Path) -> None:
    (tmp_path / "options.toml").write_text("rounds = 5\nseed = 3\n")
    assert fedul("train --config options.toml --rounds 1 --out RUN").code == 0
    stored = json.loads((tmp_path / "RUN/config.json").read_text())
    assert (stored["training"]["rounds"], stored["training"]["seed"], stored["data"]["seed"]) == (1, 3, 3)


def test_an_unknown_key_of_the_toml_file_is_refused_with_the_nearest_name(fedul: Fedul, tmp_path: Path) -> None:
    (tmp_path / "options.toml").write_text("lerning-rate = 0.1\n")
    outcome = fedul("train --config options.toml")
    assert outcome.code == 2
    assert is_one_sentence(outcome.err)
    assert "'lerning-rate'" in outcome.err
    assert "did you mean 'learning-rate'?" in outcome.err


def test_without_json_the_error_and_the_folder_are_printed_as_they_are(fedul: Fedul, tmp_path: Path) -> None:
    outcome = fedul("train --rounds 1 --out 'runs [old]'")
    assert outcome.code == 0
    assert "test error" in outcome.out
    assert "run folder runs [old]; next: fedul evaluate 'runs [old]'" in outcome.out
    assert (tmp_path / "runs [old]/model/classifier.json").exists()


def test_without_out_the_run_goes_to_a_new_folder_under_runs(fedul: Fedul, tmp_path: Path) -> None:
    outcome = fedul("train --rounds 1 --json")
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.glob("runs/*")] == [outcome.document["run"]]


def test_priors_that_cannot_tell_classes_apart_are_refused_unless_forced(fedul: Fedul, tmp_path: Path) -> None:
    refused = fedul("train --sets 1 --rounds 1 --out RUN")
    assert refused.code == 2
    assert is_one_sentence(refused.err)
    assert "--force" in refused.err
    assert list(tmp_path.iterdir()) == []

    forced = fedul("train --sets 1 --rounds 1 --out RUN --force --json")
    assert forced.code == 0
    assert forced.document["rounds"] == 1
    assert "cannot tell the classes apart" in forced.err


def test_one_weak_client_in_a_sufficient_federation_is_a_warning(fedul: Fedul, tmp_path: Path) -> None:
    (tmp_path / "priors.csv").write_text(class_priors({**FIVE_CLIENTS, "client-1": 2}))
    outcome = fedul("train --priors priors.csv --rounds 1 --out RUN --json")
    assert outcome.code == 0
    assert outcome.document["rounds"] == 1
    assert outcome.err.count("\n") == 1
    assert "client-1 could not determine the classifier" in outcome.err


@pytest.mark.parametrize("line", ["datasets --json", "datasets", "--help"])
def test_output_that_cannot_be_written_is_an_environment_failure(fresh_fedul: Fedul, line: str) -> None:
    with open("/dev/full", "w") as full:
        outcome = fresh_fedul(line, out=full)
    assert outcome.code == 1
    assert is_one_sentence(outcome.err)
    assert "No space left on device" in outcome.err
    assert "internal error" not in outcome.err


def test_the_run_folder_itself_may_be_named_in_the_file(fedul: Fedul, tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text('out = "RUN"\nrounds = 2\njson = true\nclients = 2\n')
    assert json.loads(fedul("train --config run.toml").out)["run"] == "RUN"
    (tmp_path / "more.toml").write_text('out = "RUN"\nresume = true\nrounds = 3\njson = true\n')
    assert json.loads(fedul("train --config more.toml").out)["rounds"] == 3
