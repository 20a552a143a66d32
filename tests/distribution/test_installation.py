"""fedul installs from a folder of wheels without an index, and works outside the repository.

The wheels are collected once, with an index or from pip's cache; everything after that has none. `FEDUL_WHEELHOUSE`
names a folder that `tools/wheelhouse.py` has already written.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import fedul

from ..places import ROOT

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("installation")]
OFFLINE = {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull, "no_proxy": "", "OMP_NUM_THREADS": "1"}
"""No index, no configuration that names one; set beside an environment without variables of pip and Python."""


def run(*command: str | Path, at: Path, **names: str) -> str:
    """Run a program that must succeed, and return its standard output."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("PIP_", "PYTHON", "FEDUL_"))}
    ended = subprocess.run(
        [str(word) for word in command],
        cwd=at,
        env={**inherited, **names},
        text=True,
        capture_output=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert ended.returncode == 0, f"{command}\n{ended.stdout}\n{ended.stderr}"
    return ended.stdout


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with an sdist, and with the wheel that was built from it."""
    folder = tmp_path_factory.mktemp("distributions")
    # Not isolated: the build tool is installed with the other tools, and building needs no index.
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(command, cwd=folder, capture_output=True, check=True)
    return folder


@pytest.fixture(scope="module")
def wheelhouse(distributions: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the wheels of fedul and of all that it needs."""
    if ready := os.environ.get("FEDUL_WHEELHOUSE"):
        return Path(ready).absolute()
    folder = tmp_path_factory.mktemp("wheelhouse")
    (wheel,) = distributions.glob("*.whl")
    script = [sys.executable, str(ROOT / "tools/wheelhouse.py"), str(folder), "--wheel", str(wheel)]
    subprocess.run(script, check=True)
    return folder


@pytest.fixture(scope="module")
def installed(wheelhouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of programs of a new environment with fedul, installed as the air-gapped guide describes."""
    folder = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", folder / "venv", at=folder)
    programs = folder / "venv" / "bin"
    install = ["install", "--quiet", "--no-index", "--find-links", wheelhouse, "--require-hashes"]
    run(programs / "pip", *install, "--requirement", wheelhouse / "requirements.txt", at=folder, **OFFLINE)
    return programs


def test_the_distributions_are_ready_to_be_published(distributions: Path) -> None:
    files = sorted(map(str, distributions.iterdir()))
    assert len(files) == 2
    subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *files], check=True)


def test_the_source_distribution_has_what_is_built_and_tested_and_no_leftovers(distributions: Path) -> None:
    (archive,) = distributions.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        names = {name.partition("/")[2] for name in tar.getnames()}
    assert {"LICENSE", "README.md", "CHANGELOG.md", "pyproject.toml", "constraints.txt", "Makefile"} <= names
    assert {"src/fedul/data/digits.npz", "tests/conftest.py", "tools/wheelhouse.py"} <= names
    assert any(name.startswith("docs/") for name in names)
    assert [name for name in names if "__pycache__" in name or name.startswith((".venv", ".git/", "dist/"))] == []


def test_the_wheel_of_the_source_distribution_is_that_of_the_repository(distributions: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    (ours,), (built,) = tmp_path.glob("*.whl"), distributions.glob("*.whl")
    assert sorted(zipfile.ZipFile(ours).namelist()) == sorted(zipfile.ZipFile(built).namelist())


def test_the_sums_of_the_wheelhouse_are_those_of_its_files(wheelhouse: Path) -> None:
    run("sha256sum", "--check", "--strict", "SHA256SUMS", at=wheelhouse)
    listed = {line.split("  ")[1] for line in (wheelhouse / "SHA256SUMS").read_text().splitlines()}
    assert listed == {file.name for file in wheelhouse.iterdir()} - {"SHA256SUMS"}


def test_a_wheel_that_was_altered_is_refused(wheelhouse: Path, installed: Path, tmp_path: Path) -> None:
    altered = tmp_path / "wheelhouse"
    altered.mkdir()
    for file in wheelhouse.iterdir():
        if file.name.startswith(("pooch", "requirements")):
            shutil.copy(file, altered)
    (wheel,) = altered.glob("pooch*.whl")
    wheel.write_bytes(wheel.read_bytes() + b"\0")
    lines = [each for each in (altered / "requirements.txt").read_text().splitlines() if each.startswith("pooch")]
    (altered / "requirements.txt").write_text("\n".join(lines))
    options = ["--no-index", "--find-links", ".", "--require-hashes", "--requirement", "requirements.txt"]
    ended = subprocess.run(
        [installed / "pip", "install", *options, "--target", "new"],
        cwd=altered,
        env={**os.environ, **OFFLINE},
        text=True,
        capture_output=True,
        check=False,
    )
    assert ended.returncode != 0
    assert "DO NOT MATCH THE HASHES" in ended.stderr


def test_the_installed_command_works_outside_the_repository(installed: Path, tmp_path: Path) -> None:
    assert run(installed / "fedul", "--version", at=tmp_path) == f"fedul {fedul.__version__}\n"
    report = json.loads(run(installed / "fedul", "doctor", "--json", at=tmp_path))
    assert report["works"], report["issues"]
    assert {extra["state"] for extra in report["extras"]} <= {"missing", "installed"}
    assert all(package["accepted"] for package in report["packages"])
    place = run(installed / "python", "-c", "import fedul; print(fedul.__file__)", at=tmp_path)
    assert Path(place.strip()).is_relative_to(installed.parent)


def test_the_demo_needs_nothing_else(installed: Path, tmp_path: Path) -> None:
    results = json.loads(run(installed / "fedul", "demo", "--rounds", "1", "--json", at=tmp_path))["results"]
    assert len(results) == 8
    assert all(0 < result["test_error"] < 1 for result in results)


def test_a_table_becomes_a_report(installed: Path, tmp_path: Path) -> None:
    columns = ["--client-column", "hospital", "--set-column", "month"]
    data = ["--data", "hospitals/patients.csv", "--priors", "hospitals/prevalence.csv", *columns]
    run(installed / "fedul", "example", "hospitals", at=tmp_path)
    run(installed / "fedul", "train", *data, "--method", "fedul", "--rounds", "2", "--out", "RUN", at=tmp_path)
    run(installed / "fedul", "report", "RUN", at=tmp_path)
    assert "<html" in (tmp_path / "RUN/report.html").read_text()
