"""The wheel has every file of the package, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

import fedul

from ..places import ROOT

PACKAGE = ROOT / "src" / "fedul"
UNTRACKED = {".py", ".pyi", ".typed", ".npz", ".md", ".toml", ".conf", ".css", ".j2"}
"""Suffixes of the files of the package, for a copy of the source that is no git repository."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, env={**os.environ, "SOURCE_DATE_EPOCH": "1700000000"}, check=True)
    (file,) = folder.glob("fedul-*.whl")
    return zipfile.ZipFile(file)


def package_files() -> set[str]:
    """Return the files of the package that git does not ignore, by their paths below src."""
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--deduplicate", "src/fedul"]
    found = subprocess.run(listing, cwd=ROOT, text=True, capture_output=True, check=False)
    if found.returncode:
        files = [file for file in PACKAGE.rglob("*") if file.suffix in UNTRACKED]
        return {str(file.relative_to(ROOT / "src")) for file in files}
    return {line.removeprefix("src/") for line in found.stdout.splitlines() if (ROOT / line).exists()}


def test_the_wheel_has_exactly_the_files_of_the_package(wheel: zipfile.ZipFile) -> None:
    packaged = {name for name in wheel.namelist() if not name.startswith(f"fedul-{fedul.__version__}.dist-info/")}
    assert packaged == package_files()
    assert {"fedul/py.typed", "fedul/__init__.pyi", "fedul/data/digits.npz"} <= packaged
    assert "fedul/engines/flower/deploy/template/site.toml" in packaged


def test_the_metadata_of_the_wheel_are_those_of_the_project(wheel: zipfile.ZipFile) -> None:
    folder = f"fedul-{fedul.__version__}.dist-info"
    headers = Parser().parsestr(wheel.read(f"{folder}/METADATA").decode())
    assert (headers["Name"], headers["Version"]) == ("fedul", fedul.__version__)
    assert headers["License-Expression"] == "Apache-2.0"
    licences = {f"{folder}/licenses/{name}" for name in headers.get_all("License-File", [])}
    assert f"{folder}/licenses/LICENSE" in licences
    assert licences <= set(wheel.namelist())
    assert "fedul = fedul.cli.app:main" in wheel.read(f"{folder}/entry_points.txt").decode()


def test_the_source_has_no_compiled_or_temporary_files() -> None:
    unwanted = (".pyc", ".so", ".orig", ".rej", ".swp", "~")
    assert [name for name in package_files() if Path(name).name.endswith(unwanted)] == []
