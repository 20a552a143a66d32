"""`fedul doctor` reports a sound installation, and what is wrong with a broken one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import fedul
from fedul.installation.probe import run_trial

from .command import Outcome, run

SOURCE = Path(fedul.__file__).parents[1]
PLUGIN = "[fedul.methods]\nlost = no_such_package:Method\n"


def install(site: Path, name: str, version: str, entry_points: str = "") -> None:
    """Write the metadata of a package, so that Python finds this version of it first."""
    folder = site / f"{name}-{version}.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (folder / "entry_points.txt").write_text(entry_points)


def doctor(site: Path, at: Path, **names: str) -> Outcome:
    return run("doctor --json", at, names={"PYTHONPATH": os.pathsep.join([str(site), str(SOURCE)]), **names})


def sentences(outcome: Outcome, level: str) -> str:
    return "\n".join(each["sentence"] for each in outcome.document["issues"] if each["level"] == level)


@pytest.mark.slow
def test_versions_of_packages_settings_and_folders_that_are_wrong_are_problems(tmp_path: Path) -> None:
    site = tmp_path / "site"
    install(site, "pydicom", "1.0")
    install(site, "flwr", "1.30.0")
    install(site, "pooch", "0.1")
    install(site, "attrs", "1.0")
    install(site, "plugin", "1.0", PLUGIN)
    outcome = doctor(site, tmp_path, FEDUL_DATA=str(tmp_path / "absent"), MKL_NUM_THREADS="all")
    assert (outcome.code, outcome.err) == (1, "")
    assert not outcome.document["works"]
    problems = sentences(outcome, "problem")
    assert "extra dicom: pydicom is 1.0, and fedul needs >=3; install it again: pip install 'fedul[dicom]'." in problems
    assert "extra flower: flwr is 1.30.0, and fedul needs <1.42,>=1.41" in problems
    assert "pooch is 0.1, and fedul needs >=1.8; install it: pip install 'pooch>=1.8'." in problems
    assert "cattrs needs attrs>=23.1.0, but attrs is 1.0" in problems
    assert "method 'lost': cannot be loaded from no_such_package:Method" in problems
    assert f"FEDUL_DATA is {tmp_path / 'absent'}, which is not a folder; correct or unset it." in problems
    assert "MKL_NUM_THREADS is 'all', not a number of threads; unset it." in problems
    states = {extra["name"]: extra["state"] for extra in outcome.document["extras"]}
    assert (states["dicom"], states["flower"], states["sklearn"]) == ("broken", "broken", "installed")


def test_a_broken_pytorch_is_one_problem_with_its_reason(tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (site / "torch.py").write_text("raise ImportError('libgomp.so.1: cannot open shared object file')\n")
    outcome = doctor(site, tmp_path)
    assert outcome.code == 1
    assert "PyTorch does not work here: ImportError: libgomp.so.1: cannot open shared" in sentences(outcome, "problem")
    assert outcome.document["machine"]["bfloat16"] is None


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGILL)", "the process ended with signal 4"),
        ("import threading; threading.Event().wait()", "it did not load within 2 seconds"),
    ],
)
def test_a_pytorch_that_crashes_or_hangs_does_not_take_fedul_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, reason: str
) -> None:
    (tmp_path / "numpy.py").write_text("")
    (tmp_path / "torch.py").write_text(program)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert run_trial(2) == reason


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a place that takes no files")
def test_a_folder_that_takes_no_files_is_a_note_and_no_problem() -> None:
    outcome = run("doctor --json", Path("/proc"), names={"OMP_NUM_THREADS": "1000"})
    assert (outcome.code, outcome.document["works"]) == (0, True), outcome.document["issues"]
    notes = sentences(outcome, "note")
    assert "/proc: no file can be written here (this place takes no new files); change to another folder" in notes
    assert "/dev/null" in notes  # the cache of tests, which is no folder
    assert "OMP_NUM_THREADS is 1000, but this process may use" in notes


@pytest.mark.slow
def test_python_returns_what_the_command_prints() -> None:
    result = fedul.doctor()
    assert result.fedul == fedul.__version__
    assert {"torch", "numpy", "cattrs"} <= {package.name for package in result.packages if package.accepted}
    assert result.machine.cores >= 1
    assert f"fedul {fedul.__version__}" in str(result)
    assert set(result.to_dict()) == {"works", "issues", "fedul", "python", "executable", "packages", "extras"} | {
        "machine",
        "folders",
        "programs",
    }
