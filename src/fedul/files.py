"""Files that are either whole or not there: written to a temporary name, synced, renamed; read back with a check.

Tensors are stored as safetensors with a digest over names, bytes and notes, so that a cut or altered file is refused.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from uuid import uuid4

from fedul.errors import InputError, WorldError

if TYPE_CHECKING:
    from torch import Tensor

TEMPORARY = ".writing-"
"""Prefix of files that are being written; whoever finds one may delete it."""
OLD_SECONDS = 24 * 3600


@contextlib.contextmanager
def writing(path: Path) -> Iterator[IO[bytes]]:
    """A file to write into, which takes its place as a whole at the end of the block.

    On any failure the old content stays and nothing else is left behind.
    """
    if path.exists() and not path.is_file():  # a rename would put a file in the place of a device
        raise InputError(f"{path}: is a folder or a device; name a file.")
    temporary = path.parent / f"{TEMPORARY}{uuid4().hex}"  # known before it is there, to be deleted however this ends
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(temporary, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
        _sync_folder(path.parent)
    except OSError as problem:
        raise WorldError(
            f"could not write {path}: {problem.strerror or problem}; what was there before is intact."
        ) from None
    finally:
        with contextlib.suppress(OSError):
            os.unlink(temporary)


def write_bytes(path: Path, content: bytes) -> None:
    """Writes a file as a whole."""
    with writing(path) as file:
        file.write(content)


def write_json(path: Path, value: Any) -> None:
    """Writes a value as indented JSON."""
    write_bytes(path, (json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode())


def read_json(path: Path) -> Any:
    """Reads JSON; an InputError says what is wrong with the file."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file.") from None
    except (OSError, ValueError, RecursionError) as problem:
        raise InputError(f"{path}: not a readable JSON file ({problem}); restore a copy of it.") from None


def remove_leftovers(folder: Path) -> None:
    """Deletes what an interrupted write left behind."""
    for leftover in folder.glob(f"**/{TEMPORARY}*"):
        with contextlib.suppress(OSError):
            leftover.unlink()


def remove_old_leftovers(folder: Path) -> None:
    """Deletes what interrupted writes left behind in a folder, not below it, where nobody has written for a day."""
    for leftover in folder.glob(f"{TEMPORARY}*"):
        with contextlib.suppress(OSError):
            if leftover.stat().st_mtime < time.time() - OLD_SECONDS:
                leftover.unlink()


class Lock:
    """Keeps other processes out of a folder while it is held: `with Lock(folder) as mine` says whether it was free.

    It leaves no file behind, and ends with the process that holds it, however that ends. Where there are no such locks
    (Windows, some network drives) the folder is always free.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._descriptor: int | None = None

    def __enter__(self) -> bool:
        try:
            import fcntl

            self._folder.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(self._folder, os.O_RDONLY)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.__exit__()
            return False
        except (ImportError, OSError):  # what is wrong with the folder is said when the first file is written
            return True
        return True

    def __exit__(self, *_: object) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def tensors_digest(tensors: Mapping[str, Tensor]) -> str:
    """sha256 over tensors, names sorted, raw bytes; for weights this is `weights_sha256`."""
    import torch

    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name}:{tensor.dtype}:{tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)  # as bytes: NumPy has no bfloat16
    return digest.hexdigest()


def write_tensors(path: Path, tensors: Mapping[str, Tensor], notes: Mapping[str, Any]) -> None:
    """Writes tensors and notes (JSON-able) into one safetensors file, with a digest over both."""
    from safetensors.torch import save

    text = json.dumps(notes, allow_nan=False)
    flat: dict[str, Tensor] = {}
    places: set[int] = set()
    for name, tensor in tensors.items():
        flat[name] = tensor.detach().cpu().contiguous()
        place = flat[name].untyped_storage().data_ptr()
        if place in places:  # safetensors refuses tensors that share memory
            flat[name] = flat[name].clone()
        places.add(place)
    # One entry only: the order of several is random, and equal runs should give equal files.
    write_bytes(path, save(flat, {"sealed": _digest(text, flat) + text}))


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Reads what `write_tensors` wrote; a file that is cut, altered or foreign is refused."""
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise InputError(f"{path}: there is no such file.")
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
        untouched = _padded_with_blanks(path)
    except (SafetensorError, OSError) as problem:
        raise InputError(f"{path}: damaged or cut short ({problem}); restore a copy of it.") from None
    sealed = header.get("sealed", "")
    digest, notes = sealed[:64], sealed[64:]
    if digest != _digest(notes, tensors) or not untouched:
        raise InputError(f"{path}: altered since it was written (its digest does not match); restore a copy of it.")
    return tensors, json.loads(notes)


def _padded_with_blanks(path: Path) -> bool:
    """Whether only blanks follow the header's JSON, as they were written; the digest does not cover them."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        return file.read(length).rstrip(b" ").endswith(b"}")


def _digest(notes: str, tensors: Mapping[str, Tensor]) -> str:
    return hashlib.sha256((notes + tensors_digest(tensors)).encode()).hexdigest()


def _sync_folder(folder: Path) -> None:
    # The rename itself must survive a power cut; not every system lets a folder be synced.
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
