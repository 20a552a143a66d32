"""The machine, folders and programs that fedul finds, with what is wrong with them."""

from __future__ import annotations

import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from fedul._utils.files import write_problem
from fedul._utils.machine import (
    available_cores,
    free_memory_bytes,
    memory_bytes,
    processor_features,
    processor_name,
)
from fedul.data.source import expand_folder, user_cache
from fedul.installation.probe import Trial
from fedul.installation.result import FolderStatus, Issue, MachineStatus, ProgramStatus

FEATURES = ("avx2", "avx512f", "avx512_bf16", "amx_bf16", "bf16")
"""Instruction sets that matter to the speed of training: wide vectors, and 16 bits in hardware."""
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
COUNTS = THREAD_VARIABLES[:3]
DATA_VARIABLE = "FEDUL_DATA"
LITTLE_MEMORY, LITTLE_SPACE = 1.0, 1.0
"""GB of free memory and of free disk below which a note is made."""
PROGRAMS = {
    "nginx": "the proxy in front of a coordinator (fedul federation)",
    "chromium": "tests of the report page",
}


def machine_status(trial: Trial | None) -> MachineStatus:
    """Return what is known of the machine; of PyTorch's part only if its trial succeeded."""
    features = processor_features()
    return MachineStatus(
        system=platform.platform(),
        processor=processor_name(),
        cores=available_cores(),
        memory_gb=_gigabytes(memory_bytes()),
        free_memory_gb=_gigabytes(free_memory_bytes()),
        features=tuple(name for name in FEATURES if name in features),
        threads={name: os.environ[name] for name in THREAD_VARIABLES if name in os.environ},
        gpus=() if trial is None else trial.gpus,
        bfloat16=None if trial is None else trial.bfloat16,
    )


def machine_issues(machine: MachineStatus) -> Iterator[Issue]:
    """Yield what is wrong with threads and memory."""
    for name in COUNTS:
        text = machine.threads.get(name, "1").split(",")[0].strip()
        if not text.isdecimal() or int(text) < 1:
            yield Issue("problem", f"{name} is '{machine.threads[name]}', not a number of threads; unset it.")
        elif int(text) > machine.cores:
            yield Issue(
                "note",
                f"{name} is {text}, but this process may use {machine.cores} of the cores; unset it, or training is "
                "slower.",
            )
    if machine.free_memory_gb is not None and machine.free_memory_gb < LITTLE_MEMORY:
        yield Issue("note", f"only {machine.free_memory_gb:.1f} GB of memory are free; end other programs.")


def folder_status() -> tuple[FolderStatus, ...]:
    """Return the folders that fedul uses by default."""
    shared = os.environ.get(DATA_VARIABLE)
    places = {
        "runs (the working folder)": Path.cwd(),
        "downloaded data": user_cache(),
        "temporary files": Path(tempfile.gettempdir()),
        **({f"data sets ({DATA_VARIABLE})": expand_folder(shared)} if shared else {}),
    }
    return tuple(
        FolderStatus(use, str(path), _write_obstacle(path) is None, _free_gigabytes(path))
        for use, path in places.items()
    )


def folder_issues(folders: tuple[FolderStatus, ...]) -> Iterator[Issue]:
    """Yield what is wrong with the folders that fedul uses by default."""
    runs, cache, temporary, *shared = folders
    if not temporary.writable:
        yield Issue("problem", f"{temporary.path}: {_reason(temporary)}; set TMPDIR to a folder for temporary files.")
    for folder in shared:
        if not os.path.isdir(folder.path):
            yield Issue("problem", f"{DATA_VARIABLE} is {folder.path}, which is not a folder; correct or unset it.")
        elif not os.access(folder.path, os.R_OK | os.X_OK):
            yield Issue("problem", f"{DATA_VARIABLE} is {folder.path}, which cannot be read; mend its permissions.")
    if not runs.writable:
        yield Issue(
            "note", f"{runs.path}: {_reason(runs)}; change to another folder, or give commands --out elsewhere."
        )
    elif not _can_be_locked(Path(runs.path)):
        yield Issue(
            "note",
            f"{runs.path}: folders cannot be locked here, as on some network drives, so two commands could train into "
            "one run; keep runs on a local disk.",
        )
    if not cache.writable:
        yield Issue(
            "note", f"{cache.path}: {_reason(cache)}; set XDG_CACHE_HOME, or give 'fedul datasets fetch' --data-dir."
        )
    for folder in (runs, temporary):
        if folder.writable and folder.free_gb is not None and folder.free_gb < LITTLE_SPACE:
            yield Issue("note", f"{folder.path}: only {folder.free_gb:.1f} GB are free; make room before training.")


def program_status() -> tuple[ProgramStatus, ...]:
    """Return the programs that some commands use."""
    return tuple(ProgramStatus(name, use, shutil.which(name)) for name, use in PROGRAMS.items())


def command_issues() -> Iterator[Issue]:
    """Yield a note if the command `fedul` of the shell is that of another installation."""
    command = shutil.which("fedul")
    folders = {Path(sys.executable).parent, Path(sys.prefix) / "bin"}
    if command is not None and Path(command).exists() and Path(command).parent not in folders:
        yield Issue(
            "note",
            f"the shell runs {command}, which belongs to another Python than {sys.executable}; activate one "
            "environment, or write 'python -m fedul'.",
        )


def _write_obstacle(folder: Path) -> str | None:
    """Return why no file can be written into a folder, or the nearest one above it that exists; None if one can."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    try:
        with tempfile.TemporaryFile(dir=folder):
            return None
    except OSError as problem:
        return write_problem(problem)


def _reason(folder: FolderStatus) -> str:
    return f"no file can be written here ({_write_obstacle(Path(folder.path))})"


def _can_be_locked(folder: Path) -> bool:
    """Return whether the system locks folders here; `FolderLock` takes no lock where it does not."""
    try:
        import fcntl

        descriptor = os.open(folder, os.O_RDONLY)
    except (ImportError, OSError):
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:  # a run is training into this very folder
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def _free_gigabytes(folder: Path) -> float | None:
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    with suppress(OSError):
        return _gigabytes(shutil.disk_usage(folder).free)
    return None


def _gigabytes(count: int | None) -> float | None:
    return None if count is None else round(count / 2**30, 2)
