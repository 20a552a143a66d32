"""Result of `fedul.doctor`: versions, machine, folders and problems of an installation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from fedul._utils.display import RichDisplay
from fedul._utils.documents import Document

Level = Literal["problem", "note"]
ExtraState = Literal["installed", "missing", "broken"]


@dataclass(frozen=True)
class Issue:
    """Something that is wrong (a problem), or that may surprise (a note), in one sentence with what to do."""

    level: Level
    sentence: str


@dataclass(frozen=True)
class PackageStatus:
    """A package that fedul needs: the installed version, None if there is none, and the versions that fedul accepts."""

    name: str
    version: str | None
    needed: str
    accepted: bool


@dataclass(frozen=True)
class ExtraStatus:
    """An optional extra of fedul: what it is for, whether its packages are installed, and how to install it."""

    name: str
    purpose: str
    state: ExtraState
    packages: tuple[PackageStatus, ...]
    install: str


@dataclass(frozen=True)
class MachineStatus:
    """The machine, as far as the system tells it.

    `features` are the instruction sets that matter to the speed of training, `threads` the environment variables that
    set numbers of threads, and `gpus` the graphics processors that PyTorch can use. `bfloat16` says whether networks
    train faster in 16 bits here; None if PyTorch could not be asked.
    """

    system: str
    processor: str
    cores: int
    memory_gb: float | None
    free_memory_gb: float | None
    features: tuple[str, ...]
    threads: dict[str, str]
    gpus: tuple[str, ...]
    bfloat16: bool | None


@dataclass(frozen=True)
class FolderStatus:
    """A folder that fedul uses: whether it can be written to, and its free space in GB."""

    use: str
    path: str
    writable: bool
    free_gb: float | None


@dataclass(frozen=True)
class ProgramStatus:
    """A program that some commands use, and where it is; None if it is not installed."""

    name: str
    use: str
    path: str | None


@dataclass(frozen=True, repr=False)
class DoctorResult(Document, RichDisplay):
    """Result of `fedul.doctor`; prints as text.

    Parameters
    ----------
    works : bool
        Whether there is no problem. Notes do not count.
    issues : tuple of Issue
        Problems, then notes, each in one sentence with what to do.
    fedul, python, executable : str
        Versions of fedul and Python, and the program of Python.
    packages : tuple of PackageStatus
        The packages that fedul needs.
    extras : tuple of ExtraStatus
        The optional extras.
    machine : MachineStatus
        Processor, memory, threads and graphics processors.
    folders : tuple of FolderStatus
        The folders that fedul reads and writes by default.
    programs : tuple of ProgramStatus
        Programs that some commands use.

    Examples
    --------
    >>> import fedul
    >>> result = fedul.doctor()
    >>> result.fedul == fedul.__version__, all(issue.level in ("problem", "note") for issue in result.issues)
    (True, True)
    """

    works: bool
    issues: tuple[Issue, ...]
    fedul: str
    python: str
    executable: str
    packages: tuple[PackageStatus, ...]
    extras: tuple[ExtraStatus, ...]
    machine: MachineStatus
    folders: tuple[FolderStatus, ...]
    programs: tuple[ProgramStatus, ...]

    def __rich__(self) -> Any:
        from fedul.installation.display import doctor_view

        return doctor_view(self)
