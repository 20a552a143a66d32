"""A run as a Ray task: what happens on the node that trains it, and how its folder gets there and back.

Nodes need not share a file system. The process that starts the task writes a marker beside the run folder. A node that
sees the marker trains in that folder, so that its checkpoints are there at once. Any other node trains in a folder of
its own, which starts with the documents of the run folder, and its documents are returned.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from uuid import uuid4

from fedul._utils.files import TEMPORARY, write_bytes
from fedul._utils.folder_lock import FolderLock
from fedul.experiments.executors.base import train_job
from fedul.experiments.run_job import RunJob, StudyCache
from fedul.training import RunFolder
from fedul.training.run_files import CONFIG, RESULT

Answer = list[str] | Exception | None
"""What `train_job` returns."""
Documents = Mapping[str, bytes]
"""Contents of the files of a run folder, by their path in it."""


def write_marker(folder: Path) -> Path:
    """Write a file beside a run folder by which a node recognizes the folder; a run deletes such files inside it."""
    marker = folder.parent / f"{TEMPORARY}{uuid4().hex}"
    write_bytes(marker, b"")
    return marker


def train_on_node(job: RunJob, marker: str, documents: Documents) -> tuple[Answer, Documents]:
    """Train a job on the node that runs this task.

    Parameters
    ----------
    job : RunJob
        The job; its folder is absolute.
    marker : str
        File beside its folder, which exists where the file system is shared.
    documents : mapping of str to bytes
        What the folder held when the task was started.

    Returns
    -------
    answer : list of str, Exception or None
        As `train_job` returns it.
    documents : mapping of str to bytes
        What the folder holds now; empty if the run was trained in the folder itself.
    """
    if Path(marker).exists():
        return train_job(job, _studies()), {}
    with tempfile.TemporaryDirectory(prefix="fedul-") as scratch:
        folder = Path(scratch) / "run"
        write_documents(folder, documents)
        answer = train_job(replace(job, folder=RunFolder(folder)), _studies())
        return answer, read_documents(folder)


def read_documents(folder: Path) -> Documents:
    """Return the complete files of a run folder."""
    files = [file for file in folder.rglob("*") if file.is_file() and not file.name.startswith(TEMPORARY)]
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in files}


def write_documents(folder: Path, documents: Documents) -> None:
    """Write files into a run folder, the result last, because it says that the run is finished."""
    for name in sorted(documents, key=lambda name: (name == RESULT, name)):
        write_bytes(folder / name, documents[name])


def store_documents(folder: RunFolder, documents: Documents) -> bool:
    """Write what a node returned into the run folder; False if another process is training that run now."""
    with FolderLock(folder.path) as acquired:
        if acquired and documents:
            write_documents(folder.path, documents)
            if (record := folder.stored_config()) is not None:  # paths relative to this folder
                record.write(folder.path / CONFIG)
    return acquired


@cache
def _studies() -> StudyCache:
    """Return the data that this process loaded last; a process of Ray runs one task after another."""
    return StudyCache()
