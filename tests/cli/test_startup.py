"""Starting fedul imports no heavy library: `import fedul` and help pages stay quick."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import fedul

HEAVY = {"torch", "numpy", "pandas", "cattrs", "jinja2", "matplotlib", "scipy", "sklearn", "flwr", "pyarrow", "PIL"}
PROGRAM = """
import json, sys
command = json.loads(sys.argv.pop())
import fedul
if command is not None:
    from fedul.cli.app import main
    sys.argv = ["fedul", *command]
    try:
        main()
    except SystemExit as exit:
        assert not exit.code, exit.code
print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""


COMPLETION = {"_FEDUL_COMPLETE": "complete_bash", "COMP_WORDS": "fedul compare --methods fe", "COMP_CWORD": "3"}


def modules_of(command: list[str] | None, **names: str) -> set[str]:
    """Return the packages that a new process has imported when the command has ended."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(command)],
        env={"PYTHONPATH": str(Path(fedul.__file__).parents[1]), **names},
        capture_output=True,
        text=True,
        check=True,
    )
    return {name.partition(".")[0] for name in json.loads(done.stderr.splitlines()[-1])}


@pytest.mark.parametrize(
    "command",
    [
        None,
        ["--help"],
        ["--version"],
        ["train", "--help"],
        ["compare", "--help"],
        ["federation", "new", "--help"],
        ["doctor", "--help"],
    ],
    ids=lambda command: "import" if command is None else " ".join(command),
)
def test_no_heavy_module_is_imported(command: list[str] | None) -> None:
    imported = modules_of(command)
    assert "fedul" in imported
    assert imported & HEAVY == set()


def test_completing_a_name_imports_no_heavy_module() -> None:
    imported = modules_of([], **COMPLETION)
    assert "fedul" in imported
    assert imported & HEAVY == set()
