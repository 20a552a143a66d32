"""A shell completes commands, options and the names of components, as the user presses Tab."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from fedul.data import SOURCES
from fedul.experiments.paper import experiment_names
from fedul.models import MODELS

from .command import SCRIPT, Fedul, environment


def completed(fedul: Fedul, line: str) -> list[str]:
    """Return what bash is offered for the last word of a line."""
    words = line.split(" ")
    names = {"_FEDUL_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    outcome = fedul("", names=names)
    assert (outcome.code, outcome.err) == (0, "")
    return outcome.out.split()


@pytest.mark.parametrize(
    ("line", "answers"),
    [
        ("fedul tra", ["train"]),
        ("fedul federation ro", ["roster"]),
        ("fedul train --method fedul-", ["fedul-combined", "fedul-refined"]),
        ("fedul train --algorithm feda", ["fedavg", "fedavgm", "fedadam"]),
        ("fedul train --model res", ["resnet9", "resnet18"]),
        ("fedul train --optimizer s", ["sgd"]),
        ("fedul compare --methods supervised,fedul-c", ["supervised,fedul-combined"]),
        ("fedul compare --algorithms fedavg,med", ["fedavg,median"]),
        ("fedul federation new X --precision b", ["bfloat16"]),
        ("fedul federation demo --algorithm sc", ["scaffold"]),
        ("fedul export RUN --format ", ["onnx", "card"]),
        ("fedul reproduce --scale s", ["smoke"]),
        ("fedul train --data patients", []),
    ],
)
def test_names_are_completed(fedul: Fedul, line: str, answers: list[str]) -> None:
    assert completed(fedul, line) == answers


def test_all_models_data_sets_and_tables_are_offered(fedul: Fedul) -> None:
    assert completed(fedul, "fedul train --model ") == ["auto", *MODELS]
    assert completed(fedul, "fedul train --data ") == list(SOURCES)
    assert completed(fedul, "fedul datasets fetch ") == list(SOURCES)
    assert completed(fedul, "fedul reproduce ") == experiment_names()


def test_options_are_offered_with_their_help_in_zsh_and_fish(fedul: Fedul) -> None:
    zsh = fedul("", names={"_FEDUL_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": "fedul train --rou"})
    assert '"--rounds":"Global rounds' in zsh.out
    words = {"_TYPER_COMPLETE_ARGS": "fedul predict RUN --cov", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    fish = fedul("", names={"_FEDUL_COMPLETE": "complete_fish", **words})
    assert fish.out.startswith("--coverage\t")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_for_a_shell_is_printed(fedul: Fedul, shell: str) -> None:
    outcome = fedul("", names={"_FEDUL_COMPLETE": f"source_{shell}"})
    assert (outcome.code, outcome.err) == (0, "")
    assert "fedul" in outcome.out
    assert f"_FEDUL_COMPLETE=complete_{shell}" in outcome.out


@pytest.mark.skipif(shutil.which("bash") is None or not SCRIPT.exists(), reason="needs bash and the command")
def test_bash_completes_with_the_printed_script(fedul: Fedul, tmp_path: Path) -> None:
    (tmp_path / "fedul.sh").write_text(fedul("", names={"_FEDUL_COMPLETE": "source_bash"}).out)
    program = (
        "source fedul.sh; COMP_WORDS=(fedul train --method easy); COMP_CWORD=3; _fedul_completion fedul; "
        'printf "%s\\n" "${COMPREPLY[@]}"; complete -p fedul'
    )
    path = f"{SCRIPT.parent}:/usr/bin:/bin"
    ended = subprocess.run(
        ["bash", "--norc", "-c", program],
        cwd=tmp_path,
        env=environment(PATH=path),
        text=True,
        capture_output=True,
        check=True,
    )
    assert ended.stdout.splitlines() == ["easyllp", "complete -o default -F _fedul_completion fedul"]
