from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import pytest

from fedul import __version__
from fedul.data import SOURCES, find_source
from fedul.data.source import user_cache

from ..places import ROOT
from .command import Fedul, Outcome, Warm, environment

TEXTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCED = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMANDS = ["", "demo", "example", "check", "train", "compare", "evaluate", "predict", "export", "report", "reproduce"]
COMMANDS += ["methods", "algorithms", "datasets", "datasets fetch", "doctor", "watch"]
COMMANDS += ["federation new", "federation keys", "federation site", "federation demo", "federation audit"]
COMMANDS += ["federation roster new", "federation roster show", "federation roster verify"]
ABSENT = [name for name in SOURCES if find_source(name) is None]


def steps(text: str, absent: list[str]) -> list[tuple[str, str]]:
    """Return the programs and commands of a text in order; consecutive Python blocks are one program.

    Steps that name a data set which is not on this machine are left out.
    """
    found: list[tuple[str, str]] = []
    for language, body in FENCED.findall(text):
        if language == "python":
            found.append(("program", body))
        elif language in ("console", "sh", "bash"):
            prompt = "$ " if language == "console" else ""
            lines = [
                line.removeprefix(prompt) for line in body.replace("\\\n", " ").splitlines() if line.startswith(prompt)
            ]
            found += [("command", line) for line in lines if line.startswith("fedul ")]
    there = [(kind, step) for kind, step in found if not any(name in step for name in absent)]
    runs = [(kind, [step for _, step in run]) for kind, run in groupby(there, key=itemgetter(0))]
    return [(kind, step) for kind, run in runs for step in (["\n".join(run)] if kind == "program" else run)]


def done(kind: str, step: str, warm: Warm, folder: Path) -> Outcome:
    names = {"XDG_CACHE_HOME": str(user_cache().parent)}
    names |= {"FEDUL_DATA": os.environ["FEDUL_DATA"]} if "FEDUL_DATA" in os.environ else {}
    if kind == "command":
        words = list(shlex.shlex(step, posix=True, punctuation_chars=True))
        assert not any(word and set(word) <= set("();<>|&") for word in words), "this needs a shell"
        return warm.run(step.removeprefix("fedul "), folder, names=names)
    python = [sys.executable, "-c", step]
    ended = subprocess.run(python, cwd=folder, env=environment(**names), text=True, capture_output=True, check=False)
    return Outcome(ended.returncode, ended.stdout, ended.stderr)


EXAMPLES = {
    str(path.relative_to(ROOT)): found for path in TEXTS if (found := steps(path.read_text(encoding="utf-8"), ABSENT))
}


def test_the_guides_have_examples() -> None:
    pages = {
        "guide/own-data.md",
        "guide/python.md",
        "guide/command-line.md",
        "guide/scikit-learn.md",
        "federations/coordinator.md",
        "extending/method.md",
    }
    assert {"README.md", *(f"docs/{page}" for page in pages)} <= EXAMPLES.keys()


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_of_readme_and_documentation_runs(warm: Warm, tmp_path: Path, name: str) -> None:
    for kind, step in EXAMPLES[name]:
        outcome = done(kind, step, warm, tmp_path)
        assert outcome.code == 0, f"{step}\n{outcome.err}"


def test_examples_are_taken_in_the_order_of_the_text_and_absent_data_is_left_out() -> None:
    text = (
        "```python\nx = 1\n```\nwords\n```python\nx\n```\n```console\n$ fedul datasets \\\n    --json\n"
        "fedul prints this\n$ pip install fedul\n$ fedul datasets fetch mnist\n```\n"
        "```sh\nfedul demo\n```\n```python\ny\n```\n"
    )
    assert steps(text, ["mnist"]) == [
        ("program", "x = 1\n\nx\n"),
        ("command", "fedul datasets      --json"),
        ("command", "fedul demo"),
        ("program", "y\n"),
    ]


@pytest.mark.parametrize("example", ["```python\nimport fedul\nfedul.nonsense\n```\n", "```sh\nfedul nonsense\n```\n"])
def test_an_example_that_fails_is_noticed(warm: Warm, tmp_path: Path, example: str) -> None:
    (step,) = steps(example, ABSENT)
    assert done(*step, warm, tmp_path).code != 0


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_every_command_shows_an_example(fedul: Fedul, command: str) -> None:
    outcome = fedul(f"{command} --help")
    assert (outcome.code, outcome.err) == (0, "")
    assert f"Example:  fedul {command}" in outcome.out


def test_only_commands_that_read_tables_offer_them(fedul: Fedul) -> None:
    offered = {command: "your own table" in " ".join(fedul(f"{command} --help").out.split()) for command in COMMANDS}
    assert {command for command, offers in offered.items() if offers} == {
        "train",
        "check",
        "compare",
        "federation audit",
    }


def test_the_version_is_printed(fresh_fedul: Fedul) -> None:
    outcome = fresh_fedul("--version")
    assert (outcome.code, outcome.out, outcome.err) == (0, f"fedul {__version__}\n", "")


def test_help_works_in_a_new_process(fresh_fedul: Fedul) -> None:
    outcome = fresh_fedul("--help")
    assert (outcome.code, outcome.err) == (0, "")
    assert "Example:  fedul demo" in outcome.out
