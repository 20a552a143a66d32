"""The code on the page about trackers runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ..places import ROOT

PAGE = (ROOT / "docs" / "guide" / "trackers.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_a_block_of_code_runs(
    block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "trackers.md", "exec"), {})
    promised = re.findall(r"print\(.*\)  # (.*)", block)
    assert all(text in capsys.readouterr().out for text in promised)
