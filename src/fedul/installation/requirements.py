"""Requirements of the installed fedul: which are met, which extras are installed, and which versions conflict.

Everything is read from the metadata of installed packages. Nothing is imported, so a broken package cannot stop it.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import metadata

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from fedul.installation.result import ExtraState, ExtraStatus, PackageStatus

DISTRIBUTION = "fedul"
EXTRAS = {
    "sklearn": "the scikit-learn estimator FedULClassifier",
    "onnx": "fedul export --format onnx",
    "dicom": "DICOM images",
    "flower": "training across real sites (fedul federation)",
    "privacy": "differential privacy and secure aggregation",
    "mlflow": "runs in MLflow (--track mlflow)",
    "tensorboard": "runs in TensorBoard (--track tensorboard)",
    "ray": "fedul compare and fedul reproduce on several machines (--executor ray)",
}
"""What each extra is for. Extras for developers are not listed."""


def installed_version(name: str) -> str | None:
    """Return the version of an installed package; None if it is not installed."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def package_status(extra: str = "") -> tuple[PackageStatus, ...]:
    """Return the packages that fedul needs, or that only one of its extras needs."""
    always = set(_needs(DISTRIBUTION, frozenset()))
    needed = [each for each in _needs(DISTRIBUTION, frozenset({extra})) if not extra or each not in always]
    return tuple(sorted(map(_status, needed), key=lambda status: status.name.lower()))


def extra_status() -> tuple[ExtraStatus, ...]:
    """Return the extras that the installed fedul has."""
    return tuple(_extra(name, purpose) for name, purpose in EXTRAS.items() if package_status(name))


def conflicts(extras: frozenset[str]) -> Iterator[tuple[str, Requirement, str | None]]:
    """Yield package, requirement and installed version wherever a package that fedul needs lacks what it needs itself.

    Parameters
    ----------
    extras : frozenset of str
        Extras of fedul that are installed.
    """
    waiting = [(each.name, frozenset(each.extras)) for each in _needs(DISTRIBUTION, extras)]
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        name, its_extras = waiting.pop()
        if (canonicalize_name(name), its_extras) in seen or installed_version(name) is None:
            continue
        seen.add((canonicalize_name(name), its_extras))
        for each in _needs(name, its_extras):
            if not _status(each).accepted:
                yield name, each, installed_version(each.name)
            waiting.append((each.name, frozenset(each.extras)))


def _extra(name: str, purpose: str) -> ExtraStatus:
    packages = package_status(name)
    state: ExtraState = "installed" if all(each.accepted for each in packages) else "missing"
    if any(each.version is not None and not each.accepted for each in packages):
        state = "broken"
    return ExtraStatus(name, purpose, state, packages, f"pip install '{DISTRIBUTION}[{name}]'")


def _status(requirement: Requirement) -> PackageStatus:
    found = installed_version(requirement.name)
    accepted = found is not None and requirement.specifier.contains(found, prereleases=True)
    return PackageStatus(requirement.name, found, str(requirement.specifier), accepted)


def _needs(name: str, extras: frozenset[str]) -> list[Requirement]:
    """Return what an installed package needs here, with these extras of it."""
    found = []
    for text in _metadata_lines(name):
        try:
            requirement = Requirement(text)
        except InvalidRequirement:  # of an old package; pip ignores it too
            continue
        environments = [{"extra": extra} for extra in (extras or {""})]
        if requirement.marker is None or any(requirement.marker.evaluate(each) for each in environments):
            found.append(requirement)
    return found


def _metadata_lines(name: str) -> list[str]:
    try:
        return metadata.requires(name) or []
    except metadata.PackageNotFoundError:
        return []
