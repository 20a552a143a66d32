"""The documents of `--json` have the keys that docs/reference/json.md lists."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import pytest

from fedul.engines.flower.deploy.keys import make_keys
from fedul.engines.flower.identity.roster import Roster

from ..places import ROOT
from .command import Fedul, Warm

ROW = re.compile(r"^\| (`[^|]*) \|[^|]*\| (`[^|]*) \|$", re.MULTILINE)
NAMES = re.compile(r"`([^`]+)`")
DATA = "--data patients.csv --priors prevalence.csv --client-column hospital --set-column month --truth-column truth"


def listed() -> dict[str, list[str]]:
    """Return the keys that the documentation lists, by command."""
    rows = ROW.findall((ROOT / "docs/reference/json.md").read_text())
    return {command: NAMES.findall(keys) for commands, keys in rows for command in NAMES.findall(commands)}


@pytest.fixture
def fedul(warm: Warm, trained_hospitals: Path) -> Fedul:
    make_keys(trained_hospitals / "KEYS", sites=["north", "south"])
    Roster.of_files(sorted((trained_hospitals / "KEYS").glob("*.pub"))).write(trained_hospitals / "ROSTER.toml")
    return partial(warm.run, at=trained_hospitals)


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("check", DATA),
        ("train", "--clients 2 --method fedul --rounds 1 --out NEW"),
        ("evaluate", "RUN --folds 2"),
        ("report", "RUN"),
        ("predict", "RUN new.csv"),
        ("predict", "RUN new.csv --out p.csv --coverage 0.9"),
        ("predict", "RUN patients.csv --keep month --coverage 0.9 --estimate-prior"),
        ("export", "RUN --format card"),
        ("compare", "--methods fedul --seeds 1 --clients 2 --rounds 1"),
        ("example", "EXAMPLE"),
        ("federation audit", "RUN --attacks class-priors"),
        ("federation new", "FEDERATION --classes a,b"),
        ("federation roster new", "NEW.toml KEYS/north.pub KEYS/south.pub"),
        ("federation roster show", "ROSTER.toml"),
        ("federation roster verify", "ROSTER.toml KEYS/north.pub"),
        ("methods", ""),
        ("algorithms", ""),
        ("datasets", ""),
        ("reproduce", ""),
        ("doctor", ""),
    ],
)
def test_a_document_has_exactly_the_keys_that_are_documented(fedul: Fedul, command: str, options: str) -> None:
    outcome = fedul(f"{command} {options} --json")
    assert outcome.code == 0, outcome.err
    assert sorted(outcome.document) == sorted(listed()[command])
