"""The scripts in examples/ run and print what they promise."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from .places import ROOT

FOLDER = ROOT / "examples"
PRINTED = {
    "custom_method": r"fedul: test error .*%, 0 labels used\nwith the penalty: test error .*%, 0 labels used",
    "many_clients": r"\d+ of 10,000 clients a round; error on new rows \d+\.\d%",
    "sites_that_differ": r"=off: .*between sites: assay\n.*=on: .*between sites: none",
    "table_to_report": r"Enough: .*\nestimated accuracy .* without any label\n1,500 new patients; report: ",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.py")))
def test_an_example_runs(name: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(FOLDER / f"{name}.py")],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert re.search(PRINTED[name], done.stdout), done.stdout
    assert "Traceback" not in done.stderr


def test_every_example_says_how_it_is_run() -> None:
    for path in FOLDER.glob("*.py"):
        assert f"    python examples/{path.name}" in path.read_text(encoding="utf-8")
