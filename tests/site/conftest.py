from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..end_to_end.browser import Page, browser
from ..places import ROOT


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The documentation site, built once for all test processes."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "site"
    log = folder.with_suffix(".log")
    with open(folder.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not log.exists():
            command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
            names = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
            ended = subprocess.run(command, cwd=ROOT, env=names, text=True, capture_output=True, check=False)
            log.write_text(f"{ended.returncode}\n{ended.stdout}{ended.stderr}")
    code, _, text = log.read_text().partition("\n")
    assert code == "0", text
    return folder


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened
