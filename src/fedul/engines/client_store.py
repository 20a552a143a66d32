"""Client state between rounds, by the name of the client: in memory, or on disk next to the checkpoint of a run.

On disk, the name of a file contains the round in which it was written. The file that the last checkpoint refers to is
kept until the next checkpoint is written, so a run that is killed at any time resumes with the state of its checkpoint.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from fedul._utils.files import read_tensors, write_tensors
from fedul.errors import InputError
from fedul.methods.base import ClientState


class ClientStore(Protocol):
    """Storage of client states.

    The round loop calls `rewind` before its first round and `checkpointed` after every checkpoint; the engine calls
    `read` before a client trains and `write` afterwards.
    """

    def read(self, client: str) -> ClientState:
        """Return the latest state of a client; empty if it has none."""

    def write(self, client: str, round_number: int, client_state: ClientState) -> None:
        """Store the state of a client after a round. An empty state leaves the previous one in place."""

    def rewind(self, round_number: int, versions: Mapping[str, int] | None = None) -> None:
        """Drop states that are later than the round of the checkpoint from which the run resumes.

        Parameters
        ----------
        round_number : int
            Round of the checkpoint; 0 for a new run.
        versions : mapping of str to int, optional
            What `versions` returned when the checkpoint was written.

        Raises
        ------
        InputError
            If a state that the checkpoint refers to is missing.
        """

    def versions(self, round_number: int) -> Mapping[str, int]:
        """Return, by a key of the client, the round of the latest state that is not later than this round."""

    def checkpointed(self, *round_numbers: int) -> None:
        """Record that the run may resume from these rounds; states that only earlier rounds need may be deleted."""


class MemoryStore:
    """Client states in memory. A run without a folder cannot be resumed, so only the latest state is kept."""

    def __init__(self) -> None:
        self._states: dict[str, ClientState] = {}

    def read(self, client: str) -> ClientState:
        return self._states.get(client, {})

    def write(self, client: str, round_number: int, client_state: ClientState) -> None:
        if client_state:
            self._states[client] = client_state

    def rewind(self, round_number: int, versions: Mapping[str, int] | None = None) -> None:
        self._states.clear()

    def versions(self, round_number: int) -> Mapping[str, int]:
        return {}

    def checkpointed(self, *round_numbers: int) -> None:
        """Do nothing."""


class DiskStore:
    """Client states in a folder, one file per client and round.

    Parameters
    ----------
    folder : Path
        The folder; it is created by the first `write`.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._checkpoints: tuple[int, ...] = (0,)
        self._rounds: dict[str, list[int]] = {}  # rounds of the files of each client

    def rewind(self, round_number: int, versions: Mapping[str, int] | None = None) -> None:
        self._checkpoints = (round_number,)
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
                    f"{self._file(key, needed)}: is missing, and the checkpoint refers to it; "
                    "restore a copy, or start a new run in another --out."
                )

    def versions(self, round_number: int) -> Mapping[str, int]:
        known = {key: [number for number in rounds if number <= round_number] for key, rounds in self._rounds.items()}
        return {key: max(rounds) for key, rounds in known.items() if rounds}

    def read(self, client: str) -> ClientState:
        key = _key(client)
        if not self._rounds.get(key):
            return {}
        file = self._file(key, max(self._rounds[key]))
        client_state, metadata = read_tensors(file)
        if metadata.get("client") != client:
            raise InputError(f"{file}: is not of client '{client}'; restore a copy, or start a new run.")
        return client_state

    def write(self, client: str, round_number: int, client_state: ClientState) -> None:
        if not client_state:
            return
        key = _key(client)
        write_tensors(self._file(key, round_number), client_state, {"client": client})
        before = self._rounds.get(key, [])
        needed = {max((n for n in before if n <= each), default=round_number) for each in self._checkpoints}
        for number in {*before} - needed - {round_number}:
            _delete(self._file(key, number))
        self._rounds[key] = sorted(needed | {round_number})

    def checkpointed(self, *round_numbers: int) -> None:
        self._checkpoints = round_numbers

    def _file(self, key: str, number: int) -> Path:
        return self._folder / f"{key}@{number}.safetensors"


def _key(client: str) -> str:
    """Return a file name for any client name."""
    return hashlib.sha256(client.encode(errors="surrogatepass")).hexdigest()[:24]


def _delete(file: Path) -> None:
    with contextlib.suppress(OSError):
        file.unlink()
