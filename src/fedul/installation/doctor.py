"""`fedul.doctor`: a check of the installation, the machine and the folders that fedul uses."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator
from pathlib import Path

from fedul import __version__
from fedul.errors import EnvironmentFailure
from fedul.installation.probe import Trial, run_trial
from fedul.installation.result import DoctorResult, ExtraStatus, Issue, PackageStatus

FLOWER_PROGRAMS = ("flwr", "flower-superlink", "flower-supernode")


def doctor() -> DoctorResult:
    """Check this installation: versions, extras, processor, memory, threads and folders, and what is wrong with them.

    PyTorch is tried in a process of its own, so a broken one is reported and does no harm. Nothing is changed, and no
    network is used.

    Returns
    -------
    DoctorResult
        Everything that was found; it prints as text. `works` is False if there is a problem, and `issues` has
        problems and notes, each in one sentence with what to do.

    Raises
    ------
    EnvironmentFailure
        If the package `packaging` is missing, which reads the requirements.

    Examples
    --------
    >>> import fedul
    >>> result = fedul.doctor()
    >>> result.fedul == fedul.__version__, [extra.name for extra in result.extras][:2]
    (True, ['sklearn', 'onnx'])
    """
    try:
        from fedul.installation import requirements
    except ImportError as problem:
        raise EnvironmentFailure(f"{problem}; install fedul again: pip install --force-reinstall fedul.") from None
    from fedul.installation import surroundings

    packages, extras = requirements.package_status(), requirements.extra_status()
    outcome = run_trial()
    machine = surroundings.machine_status(None if isinstance(outcome, str) else outcome)
    folders = surroundings.folder_status()
    issues = [
        *_package_issues(packages, extras, requirements.installed_version(requirements.DISTRIBUTION)),
        *_conflict_issues(extras, {each.name for each in packages}),
        *_trial_issues(outcome),
        *surroundings.machine_issues(machine),
        *surroundings.folder_issues(folders),
        *surroundings.command_issues(),
    ]
    issues.sort(key=lambda issue: issue.level == "note")
    return DoctorResult(
        works=all(issue.level == "note" for issue in issues),
        issues=tuple(issues),
        fedul=__version__,
        python=platform.python_version(),
        executable=sys.executable,
        packages=packages,
        extras=extras,
        machine=machine,
        folders=folders,
        programs=surroundings.program_status(),
    )


def _package_issues(
    packages: tuple[PackageStatus, ...], extras: tuple[ExtraStatus, ...], recorded: str | None
) -> Iterator[Issue]:
    """Yield what is wrong with the version of fedul, with the packages that it needs, and with those of extras."""
    if recorded is None:
        yield Issue("note", "fedul runs from a folder and is not installed, so its packages are not checked.")
    elif recorded != __version__:
        yield Issue(
            "note",
            f"fedul {__version__} runs, but version {recorded} was installed; install it again: pip install -e . in "
            "the clone.",
        )
    for package in packages:
        if not package.accepted:
            yield Issue("problem", f"{_state(package)}; install it: {_install(package)}.")
    for extra in extras:
        if extra.state == "broken":
            wrong = [package for package in extra.packages if not package.accepted]
            states = " and ".join(map(_state, wrong))
            yield Issue("problem", f"extra {extra.name}: {states}; install it again: {extra.install}.")
        elif extra.name == "flower" and extra.state == "installed":
            folder = Path(sys.executable).parent
            if missing := [name for name in FLOWER_PROGRAMS if not os.access(folder / name, os.X_OK)]:
                yield Issue(
                    "problem",
                    f"extra flower: {folder} has no program {missing[0]}; install it again: "
                    "pip install --force-reinstall flwr.",
                )


def _conflict_issues(extras: tuple[ExtraStatus, ...], checked: set[str]) -> Iterator[Issue]:
    """Yield the versions that packages of fedul do not work with, but for those that fedul states itself."""
    from fedul.installation.requirements import conflicts

    installed = frozenset(extra.name for extra in extras if extra.state == "installed")
    for package, needed, found in conflicts(installed):
        state = "is not installed" if found is None else f"is {found}"
        yield Issue(
            "problem",
            f"{package} needs {needed.name}{needed.specifier}, but {needed.name} {state}; "
            f"install it: pip install '{needed.name}{needed.specifier}'.",
        )


def _trial_issues(outcome: Trial | str) -> Iterator[Issue]:
    """Yield why PyTorch does not work, and which components of other packages cannot be loaded."""
    if isinstance(outcome, str):
        yield Issue(
            "problem",
            f"PyTorch does not work here: {outcome}; install it again: pip install --force-reinstall torch numpy.",
        )
    else:
        yield from (Issue("problem", sentence) for sentence in outcome.broken_components)


def _state(package: PackageStatus) -> str:
    if package.version is None:
        return f"{package.name} is not installed"
    return f"{package.name} is {package.version}, and fedul needs {package.needed}"


def _install(package: PackageStatus) -> str:
    return f"pip install '{package.name}{package.needed}'"
