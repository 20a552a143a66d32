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


@pytest.mark.parametrize(
    "command",
    [None, ["--help"], ["--version"], ["train", "--help"], ["compare", "--help"], ["federation", "new", "--help"]],
    ids=lambda command: "import" if command is None else " ".join(command),
)
def test_no_heavy_module_is_imported(command: list[str] | None) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(command)],
        env={"PYTHONPATH": str(Path(fedul.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=True,
    )
    imported = {name.partition(".")[0] for name in json.loads(done.stderr.splitlines()[-1])}
    assert "fedul" in imported
    assert imported & HEAVY == set()
