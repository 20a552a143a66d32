"""Ctrl-C while modules are imported, and output that is closed or that nobody reads."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ..end_to_end.command import environment

INTERRUPT = """
import sys

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == "{module}":
            sys.meta_path.remove(self)
            {action}

sys.meta_path.insert(0, Interrupt())
sys.argv = ["fedul", *{words}]
from fedul.cli.app import main
main()
"""
RAISE = "raise KeyboardInterrupt"
SIGNAL = "import os, signal; signal.signal(2, signal.default_int_handler); os.kill(os.getpid(), 2)"
EXTENSION = """
            try:
                raise KeyboardInterrupt
            except KeyboardInterrupt:
                raise ImportError("initialization of an extension failed")"""


@pytest.mark.parametrize("action", [RAISE, SIGNAL, EXTENSION], ids=["raise", "signal", "extension"])
@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("typer", ["methods"]),
        ("fedul.cli.commands", ["train", "--rounds", "1"]),
        ("rich.console", ["datasets"]),
        ("fedul.data", ["datasets"]),
    ],
)
def test_ctrl_c_during_an_import_is_one_sentence(tmp_path: Path, module: str, words: list[str], action: str) -> None:
    program = INTERRUPT.format(module=module, action=action, words=words)
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 130, done.stderr
    assert done.stderr.startswith("fedul: stopped; ")
    assert done.stderr.count("\n") == 1


COMMAND = [sys.executable, "-m", "fedul"]
LINES = [["methods"], ["methods", "--json"], ["train", "--help"], ["--version"], ["datasets"]]


@pytest.mark.parametrize("words", LINES, ids=" ".join)
def test_a_reader_that_is_gone_is_no_error_message(tmp_path: Path, words: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [*COMMAND, *words],
        cwd=tmp_path,
        env=environment(),
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writing)
    assert done.stderr == ""
    assert done.returncode in (0, 1)


@pytest.mark.parametrize("words", LINES, ids=" ".join)
def test_closed_output_is_no_error(tmp_path: Path, words: list[str]) -> None:
    closing = "import os, sys; os.close(1); os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    done = subprocess.run(
        [sys.executable, "-c", closing, "-m", "fedul", *words],
        cwd=tmp_path,
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
