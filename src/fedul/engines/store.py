"""What an algorithm keeps per client, by the client's name: in memory, or on disk beside the checkpoint of a run.

On disk a client's file names the round it is of, and the one that the last checkpoint rests on stays until the next
checkpoint is written: so a run that is killed anywhere goes on with exactly what it had.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from torch import Tensor

from fedul.errors import InputError
from fedul.files import read_tensors, write_tensors

Kept = dict[str, Tensor]


class ClientStore(Protocol):
    """What is kept per client."""

    def read(self, client: str) -> Kept:
        """What was kept the last time; empty if nothing was."""
        ...

    def write(self, client: str, round_number: int, kept: Kept) -> None:
        """Keeps something, in place of what was kept before."""
        ...

    def rewind(self, round_number: int, versions: Mapping[str, int] | None = None) -> None:
        """Forgets what is later than this round, from whose checkpoint the run goes on.

        `versions` is what `versions` returned when that checkpoint was written; what is missing is refused.
        """
        ...

    def versions(self, round_number: int) -> Mapping[str, int]:
        """Of which round is what was kept after this one, by a key for each client that keeps something."""
        ...

    def checkpointed(self, *round_numbers: int) -> None:
        """The run may go on from any of these rounds, and from none before them."""
        ...


class InMemory:
    """Keeps it while the process lives."""

    def __init__(self) -> None:
        self._kept: dict[str, Kept] = {}

    def read(self, client: str) -> Kept:
        return self._kept.get(client, {})

    def write(self, client: str, round_number: int, kept: Kept) -> None:
        if kept:
            self._kept[client] = kept

    def rewind(self, round_number: int, versions: Mapping[str, int] | None = None) -> None:
        self._kept.clear()

    def versions(self, round_number: int) -> Mapping[str, int]:
        return {}

    def checkpointed(self, *round_numbers: int) -> None:
        pass


class OnDisk:
    """Keeps it in a folder, a file a client and round."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._safe: tuple[int, ...] = (0,)
        self._rounds: dict[str, list[int]] = {}

    def rewind(self, round_number: int, versions: Mapping[str, int] | None = None) -> None:
        self._safe = (round_number,)
        self._rounds.clear()
        for file in self._folder.glob("*@*.safetensors"):
            key, _, number = file.stem.partition("@")
            if number.isdecimal() and int(number) <= round_number:
                self._rounds.setdefault(key, []).append(int(number))
            else:
                _delete(file)
        for key, needed in (versions or {}).items():
            if needed not in self._rounds.get(key, []):
                raise InputError(
                    f"{self._file(key, needed)}: is missing, and the checkpoint rests on it; "
                    "restore a copy, or start the run anew in another --out."
                )

    def versions(self, round_number: int) -> Mapping[str, int]:
        known = {key: [number for number in rounds if number <= round_number] for key, rounds in self._rounds.items()}
        return {key: max(rounds) for key, rounds in known.items() if rounds}

    def read(self, client: str) -> Kept:
        key = _key(client)
        if not self._rounds.get(key):
            return {}
        file = self._file(key, max(self._rounds[key]))
        kept, notes = read_tensors(file)
        if notes.get("client") != client:
            raise InputError(f"{file}: is not of client '{client}'; restore a copy, or start the run anew.")
        return kept

    def write(self, client: str, round_number: int, kept: Kept) -> None:
        if not kept:
            return
        key = _key(client)
        write_tensors(self._file(key, round_number), kept, {"client": client})
        before = self._rounds.get(key, [])
        needed = {max((number for number in before if number <= safe), default=round_number) for safe in self._safe}
        for number in {*before} - needed - {round_number}:
            _delete(self._file(key, number))
        self._rounds[key] = sorted(needed | {round_number})

    def checkpointed(self, *round_numbers: int) -> None:
        self._safe = round_numbers

    def _file(self, key: str, number: int) -> Path:
        return self._folder / f"{key}@{number}.safetensors"


def _key(client: str) -> str:
    """A file name for any client name."""
    return hashlib.sha256(client.encode(errors="surrogatepass")).hexdigest()[:24]


def _delete(file: Path) -> None:
    with contextlib.suppress(OSError):
        file.unlink()
