"""`fedul federation`: files for coordinator and sites."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from .command import Fedul


def test_a_folder_for_flower_is_written(fedul: Fedul, tmp_path: Path) -> None:
    outcome = fedul("federation new lungs --classes flu,cold --sites 3 --algorithm scaffold")
    assert (outcome.code, outcome.err) == (0, "")
    config = tomllib.loads((tmp_path / "lungs" / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    assert (config["classes"], config["sites"], config["algorithm"]) == ("flu,cold", 3, "scaffold")
    assert config["out"] == str(tmp_path / "lungs" / "runs" / "run-1")
    assert "next: read lungs/README.md" in outcome.out
    assert (tmp_path / "lungs" / "site.toml").exists()


def test_a_folder_can_be_written_without_settings(fedul: Fedul, tmp_path: Path) -> None:
    outcome = fedul("federation new lungs --json")
    assert outcome.code == 0
    assert all((tmp_path / file).exists() for file in json.loads(outcome.out)["files"])


def test_keys_and_a_certificate_are_made(fedul: Fedul, tmp_path: Path) -> None:
    outcome = fedul("federation keys keys --host localhost --site north --site south")
    assert (outcome.code, outcome.err) == (0, "")
    names = {"ca.pem", "server.pem", "server.key", "north.key", "north.pub", "south.key", "south.pub"}
    assert {file.name for file in (tmp_path / "keys").iterdir()} == names
    assert outcome.out.count("keep it secret") == 3


@pytest.fixture
def roster(fedul: Fedul, tmp_path: Path) -> str:
    """Fingerprint of ROSTER.toml, which has the keys of the sites north and south."""
    assert fedul("federation keys keys --site north --site south --site west").code == 0
    outcome = fedul("federation roster new ROSTER.toml keys/north.pub keys/south.pub --json")
    assert outcome.code == 0, outcome.err
    return str(outcome.document["fingerprint"])


def test_a_roster_is_made_shown_and_verified(fedul: Fedul, roster: str) -> None:
    shown = fedul("federation roster show ROSTER.toml")
    assert (shown.code, shown.err) == (0, "")
    for part in (roster, "north", "south"):
        assert part in shown.out
    for given in ("keys/south.pub", f"--fingerprint {roster}"):
        verified = fedul(f"federation roster verify ROSTER.toml {given}")
        assert (verified.code, verified.err) == (0, "")
        assert verified.out.endswith("verified\n")


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("verify ROSTER.toml", "nothing to compare with; give public keys NAME.pub, or --fingerprint"),
        ("verify ROSTER.toml keys/west.pub", "ROSTER.toml: has no site 'west'; it has north, south"),
        ("verify ROSTER.toml other/north.pub", "ROSTER.toml: has the key SHA256:"),
        ("verify ROSTER.toml --fingerprint SHA256:x", "not SHA256:x; let all sites use the same file"),
        ("show keys/north.pub", "keys/north.pub: not a readable roster"),
        ("show NONE.toml", "NONE.toml: there is no such file"),
        ("new ROSTER.toml keys/west.pub", "ROSTER.toml: exists; delete it first"),
        ("new NEW.toml keys/none.pub", "none.pub: there is no such file"),
        ("new NEW.toml keys/north.key", "is not a public key file NAME.pub"),
        ("new NEW.toml keys/north.pub other/north.pub", "another file is for site 'north' too"),
        ("new NEW.toml keys/north.pub other/copy.pub", "'north' and 'copy' have the same key"),
    ],
)
def test_a_roster_that_does_not_fit_is_refused(
    fedul: Fedul, tmp_path: Path, roster: str, line: str, problem: str
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "north.pub").write_bytes((tmp_path / "keys" / "west.pub").read_bytes())
    (other / "copy.pub").write_bytes((tmp_path / "keys" / "north.pub").read_bytes())
    outcome = fedul(f"federation roster {line}")
    assert (outcome.code, outcome.out) == (2, "")
    assert problem in outcome.err
    assert not (tmp_path / "NEW.toml").exists()


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("new lungs --classes flu", "classes: give at least two"),
        ("new lungs --sites 2 --min-sites 3", "min-sites: 3 is more than the 2 sites"),
        ("new lungs --out runs/1", "out: 'runs/1' is not an absolute path"),
        ("new lungs --rounds -1", "rounds: must be at least 0"),
        ("new lungs --algorithm nonsense", "unknown algorithm 'nonsense'"),
        ("new lungs --algorithm fedprox --algorithm-option nu=1", "unknown option of algorithm fedprox 'nu'"),
        ("new lungs --method fedul --method-option trust=1", "unknown option of method fedul 'trust'"),
        ("new lungs --model my.module:factory", "sites take models by name only"),
        ("new lungs --classes flu,cold --test-prior flu=1", "test-prior: no share for class 'cold'"),
        ("new lungs --test-prior flu=1", "test-prior: needs the classes too (--classes)"),
        ("new lungs --secure-aggregation --sites 2", "sites: a sum hides no single site of fewer than 3"),
        ("new lungs --secure-aggregation --sites 5 --algorithm median", "algorithm median needs every single update"),
        ("new lungs --secure-aggregation --sites 5 --participation 0.1", "a sum over 1 client hides no single one"),
        ("new lungs --secure-aggregation --sites 5 --dp-noise 1", "give dp-epsilon, which each of them keeps"),
        ("new lungs --dp-epsilon 3 --dp-seeded", "dp-seeded: is for simulations"),
        ("new lungs --dp-epsilon 3 --method fedllp", "mean predictions over whole sets"),
        ("new lungs --prior-epsilon 3", "prior-epsilon: every site decides about its own priors"),
        ("new lungs --sites 5 --client-dp-epsilon 3 --algorithm fednova", "changes updates after they are clipped"),
        ("new .", "exists and is not empty"),
        ("keys keys", "give --host NAME"),
        ("keys keys --site a/b", "'a/b' cannot be a file name"),
        ("keys keys --host localhost --site north --site a/b", "'a/b' cannot be a file name"),
        ("keys keys --site north --site north", "north.key: would be written twice"),
        ("demo --out .", "exists and is not empty"),
        ("demo --algorithm nonsense", "unknown algorithm 'nonsense'"),
        ("demo --secure-aggregation --sites 2", "sites: a sum hides no single site of fewer than 3"),
        ("demo --secure-aggregation --algorithm median", "algorithm median needs every single update"),
    ],
)
def test_wrong_arguments_are_refused_and_nothing_is_written(
    fedul: Fedul, tmp_path: Path, line: str, problem: str
) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    outcome = fedul(f"federation {line}")
    assert (outcome.code, outcome.out) == (2, "")
    assert problem in outcome.err
    assert [file.name for file in tmp_path.iterdir()] == ["mine.txt"]
