"""Atomic writing of files: to a temporary name, synced, then renamed.

Tensors are stored as safetensors with a digest over names, bytes and notes, so that a truncated or altered file is
refused.
"""

from __future__ import annotations

import contextlib
import csv
import hashlib
import io
import json
import math
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from uuid import uuid4

from fedul.errors import EnvironmentFailure, InputError, wrong_type

if TYPE_CHECKING:
    from torch import Tensor

TEMPORARY = ".writing-"
"""Prefix of files that are being written. Leftovers may be deleted."""
ENTRY = "digest-and-notes"
"""Name of the only metadata entry of a safetensors file."""


@contextlib.contextmanager
def atomic_write(path: Path, *, durable: bool = True) -> Iterator[IO[bytes]]:
    """Context with a file to write to, which replaces `path` at the end of the block.

    On any failure the old content stays and no other file is left. A file that is not durable is not synced, which is
    quicker, and may be lost in a power cut.
    """
    if path.exists() and not path.is_file():  # a rename would replace a device with a file
        raise InputError(f"{path}: is a folder or a device; name a file.")
    temporary = path.parent / f"{TEMPORARY}{uuid4().hex}"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(temporary, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            yield file
            file.flush()
            if durable:
                os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
        if durable:
            sync_folder(path.parent)
    except OSError as problem:
        existed = "the previous content is intact" if path.exists() else "choose another place"
        raise EnvironmentFailure(f"could not write {path}: {write_problem(problem)}; {existed}.") from None
    finally:
        with contextlib.suppress(OSError):
            os.unlink(temporary)


def write_problem(problem: OSError) -> str:
    """Return why a file or folder cannot be written, in words.

    >>> write_problem(FileNotFoundError(2, "No such file or directory"))  # of a folder that exists, such as /proc
    'this place takes no new files'
    """
    if isinstance(problem, FileNotFoundError):
        return "this place takes no new files"
    return problem.strerror or str(problem)


def as_path(value: str | os.PathLike[str], name: str) -> Path:
    """Return the path that the argument `name` of a function gives; InputError if it is none."""
    if not isinstance(value, str | os.PathLike):
        raise wrong_type(name, "a path", value)
    if not os.fspath(value):
        raise InputError(f"{name}: is empty; give a path.")
    return Path(value)


def require_unused(folder: Path, other: str, problem: str = "exists and is not empty") -> None:
    """Raise an InputError, which advises to choose another `other`, unless a folder is absent or empty."""
    place = folder.resolve()  # "new/.." is this folder
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise InputError(f"{folder}: {problem}; choose another {other}.")


def write_bytes(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Write a file atomically."""
    with atomic_write(path, durable=durable) as file:
        file.write(content)


def write_json(path: Path, value: Any) -> None:
    """Write a value as indented JSON."""
    write_bytes(path, (json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode())


def csv_text(rows: Iterable[Iterable[object]]) -> str:
    """Return rows of cells as CSV.

    >>> csv_text([["name", "share"], ["a, b", 0.5]])
    'name,share\\n"a, b",0.5\\n'
    """
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def read_json(path: Path) -> Any:
    """Read JSON; an InputError says what is wrong with the file."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file; correct the path.") from None
    except (OSError, ValueError, RecursionError) as problem:
        raise InputError(f"{path}: not a readable JSON file ({problem}); restore a copy of it.") from None


def remove_leftovers(folder: Path, *, below: bool = True, older_than: float = -math.inf) -> None:
    """Delete the leftovers of interrupted writes in a folder, and below it, that are older than some seconds."""
    for leftover in folder.glob(f"{'**/' if below else ''}{TEMPORARY}*"):
        with contextlib.suppress(OSError):
            if leftover.stat().st_mtime < time.time() - older_than:
                leftover.unlink()


def tensors_digest(tensors: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 over the names (sorted), types, shapes and bytes of tensors; `weights_sha256` for weights."""
    import torch

    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name}:{tensor.dtype}:{tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)  # bytes, because NumPy has no bfloat16
    return digest.hexdigest()


def write_tensors(path: Path, tensors: Mapping[str, Tensor], notes: Mapping[str, Any]) -> None:
    """Write tensors and notes (JSON-serializable) into one safetensors file, with a digest over both."""
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
    # Only one entry: the order of several is random, and equal runs should give equal files.
    write_bytes(path, save(flat, {ENTRY: _digest(text, flat) + text}))


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what `write_tensors` wrote; an InputError says that the file is truncated, altered or foreign."""
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise InputError(f"{path}: there is no such file; restore a copy of it.")
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
        padding_intact = _is_padded_with_blanks(path)
    except (SafetensorError, OSError) as problem:
        raise InputError(f"{path}: damaged or truncated ({problem}); restore a copy of it.") from None
    entry = header.get(ENTRY, "")
    digest, notes = entry[:64], entry[64:]
    if digest != _digest(notes, tensors) or not padding_intact:
        raise InputError(f"{path}: altered since it was written (its digest does not match); restore a copy of it.")
    return tensors, json.loads(notes)


def _is_padded_with_blanks(path: Path) -> bool:
    """Return whether only blanks follow the JSON of the header, which the digest does not cover."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        return file.read(length).rstrip(b" ").endswith(b"}")


def _digest(notes: str, tensors: Mapping[str, Tensor]) -> str:
    return hashlib.sha256((notes + tensors_digest(tensors)).encode()).hexdigest()


def sync_folder(folder: Path) -> None:
    """Make new names in a folder survive a power cut; not every system lets a folder be synced."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
