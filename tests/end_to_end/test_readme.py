from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from fedul import __version__
from fedul.data import SOURCES, found

from .command import COMMAND, Fedul, environment

README = Path(__file__).parents[2] / "README.md"
GUIDES = [README, README.parent / "docs/guide.md", README.parent / "docs/sklearn.md"]
FENCED = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
ABSENT = [name for name in SOURCES if found(name) is None]


def as_script(readme: str, absent: list[str]) -> str:
    """The Python blocks and the `fedul` commands of a text, in its order, as one script.

    What names a data set that is not on this machine is left out.
    """
    pieces = ["import subprocess"]
    for language, body in FENCED.findall(readme):
        if language == "python":
            pieces.append(body)
        elif language in ("console", "sh", "bash"):
            prompt = "$ " if language == "console" else ""
            lines = body.replace("\\\n", " ").splitlines()
            typed = [line.removeprefix(prompt) for line in lines if line.startswith(f"{prompt}fedul ")]
            pieces += [f"subprocess.run({line!r}, shell=True, check=True)" for line in typed]
    return "\n".join(piece for piece in pieces if not any(name in piece for name in absent))


def executed(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    shim = folder / "bin/fedul"
    shim.parent.mkdir()
    quoted = " ".join(f"'{word}'" for word in COMMAND)
    shim.write_text(f'#!/bin/sh\nexec {quoted} "$@"\n')
    shim.chmod(shim.stat().st_mode | stat.S_IXUSR)
    here = folder / "here"
    here.mkdir()
    names = {"PATH": f"{shim.parent}{os.pathsep}{os.environ['PATH']}"}
    kept = {name: os.environ[name] for name in ("FEDUL_DATA", "XDG_CACHE_HOME") if name in os.environ}
    own = environment(**names)
    del own["XDG_CACHE_HOME"]
    return subprocess.run(
        [sys.executable, "-c", script], cwd=here, env={**own, **kept}, text=True, capture_output=True, check=False
    )


@pytest.mark.parametrize("guide", GUIDES, ids=lambda path: path.name)
def test_every_example_of_the_guides_runs(tmp_path: Path, guide: Path) -> None:
    script = as_script(guide.read_text(encoding="utf-8"), ABSENT)
    assert "fedul" in script
    done = executed(script, tmp_path)
    assert done.returncode == 0, done.stderr


def test_examples_are_taken_in_the_order_of_the_text_and_absent_data_is_left_out() -> None:
    text = (
        "```python\nx = 1\n```\nwords\n```console\n$ fedul datasets \\\n    --json\nfedul prints this\n"
        "$ pip install fedul\n$ fedul datasets fetch mnist\n```\n```sh\nfedul demo\n```\n```python\nx\n```\n"
    )
    assert as_script(text, ["mnist"]).splitlines() == [
        "import subprocess",
        "x = 1",
        "",
        "subprocess.run('fedul datasets      --json', shell=True, check=True)",
        "subprocess.run('fedul demo', shell=True, check=True)",
        "x",
    ]


@pytest.mark.parametrize("example", ["```python\nimport fedul\nfedul.nonsense\n```\n", "```sh\nfedul nonsense\n```\n"])
def test_an_example_that_fails_is_noticed(tmp_path: Path, example: str) -> None:
    assert executed(as_script(example, ABSENT), tmp_path).returncode != 0


@pytest.mark.parametrize(
    "command",
    ["", "demo", "example", "check", "train", "evaluate", "predict", "export", "report", "datasets", "datasets fetch"],
)
def test_the_help_of_every_command_shows_an_example(fresh_fedul: Fedul, command: str) -> None:
    outcome = fresh_fedul(f"{command} --help")
    assert (outcome.code, outcome.err) == (0, "")
    assert f"Example:  fedul {command}" in outcome.out


def test_the_version_is_told(fresh_fedul: Fedul) -> None:
    outcome = fresh_fedul("--version")
    assert (outcome.code, outcome.out, outcome.err) == (0, f"fedul {__version__}\n", "")
