"""Ledger of privacy: what the rows of each client have paid for, written before it is released.

A ledger is a file of JSON lines that only grows. A charge is on the disk before the release that it pays for, so that a
crash in between costs privacy budget, never privacy. Whatever is repeated after a crash is charged again: an observer
may have seen both. A last line without an end was written by a process that died before the release; it is removed.

A row is either trained on or held out, and what is computed from the rows of the other part tells nothing about it. So
epsilon of a client is the larger one of its two parts.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import IO, Any, Literal

from fedul._utils.documents import Document, read_document
from fedul._utils.files import sync_folder, write_problem
from fedul.errors import EnvironmentFailure, InputError
from fedul.privacy.accounting import Gaussian, Laplace, Mechanism, epsilon_of

RowPart = Literal["training", "held-out", "all"]
"""The rows that a release depends on."""
RELATIVE_TOLERANCE = 1e-9
"""Rounding of a sum of charges that a budget allows for."""


class BudgetSpent(InputError):
    """A release that a privacy budget does not suffice for.

    Parameters
    ----------
    message : str
        What happened.
    setting : str
        Name of the setting that gives the budget.
    """

    def __init__(self, message: str, setting: str) -> None:
        super().__init__(message)
        self.setting = setting


@dataclass(frozen=True)
class Budget:
    """Upper bound of what a client may spend.

    Parameters
    ----------
    epsilon, delta : float
        The bound.
    setting : str
        Name of the setting that gives it, for messages.
    run : str, optional
        Run that it is for, at a site that takes part in several; by default it is for all runs together.
    """

    epsilon: float
    delta: float
    setting: str = "dp-epsilon"
    run: str | None = None


@dataclass(frozen=True)
class Charge(Document):
    """What a release costs.

    Parameters
    ----------
    release : str
        What is released: "training".
    mechanism : Gaussian or Laplace
        How it is made private.
    round : int, default=0
        Round of the run; 0 for a release outside of rounds.
    rows : {"training", "held-out", "all"}, default="training"
        Rows that it depends on.
    run : str, default=""
        Run at a site that takes part in several.
    """

    release: str
    mechanism: Mechanism
    round: int = 0
    rows: RowPart = "training"
    run: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-serializable values."""
        kind = type(self.mechanism).__name__.lower()
        return {**vars(self), "mechanism": {"kind": kind, **vars(self.mechanism)}}

    @classmethod
    def from_dict(cls, stored: Any) -> Charge:
        """Return the object from the result of `to_dict`; ValueError if it has another form."""
        try:
            mechanism = dict(stored["mechanism"])
            kind: type[Mechanism] = {"gaussian": Gaussian, "laplace": Laplace}[mechanism.pop("kind")]
            paid = read_document(kind, mechanism)
            if min(paid.noise, paid.count) < 0 or (isinstance(paid, Gaussian) and not 0 <= paid.rate <= 1):
                raise ValueError("a mechanism out of range")
            charge = cls(**{**stored, "mechanism": paid})
        except (KeyError, TypeError):
            raise ValueError("not a charge of a ledger") from None
        if charge.rows not in ("training", "held-out", "all"):
            raise ValueError("unknown rows")
        return charge


class Ledger:
    """Charges of the clients of a run, or of a site in all its runs.

    Parameters
    ----------
    file : Path or None
        The file, which is created by the first charge; None holds the charges in memory.

    Examples
    --------
    >>> ledger = Ledger()
    >>> for number in (1, 2, 3):
    ...     ledger.charge({"north": Charge("training", Gaussian(1.0, 0.1, 10), round=number)})
    >>> round(ledger.epsilon("north", delta=1e-5), 2), ledger.epsilon("south", delta=1e-5)
    (4.18, 0.0)
    """

    def __init__(self, file: Path | None = None) -> None:
        self.file = file
        self._entries: list[tuple[Charge, tuple[str, ...]]] = []
        self._paid: dict[str, Counter[tuple[str, RowPart, Mechanism]]] = {}  # by run, rows and single mechanism
        self._length = 0  # bytes of the file that have been read

    def charge(self, charges: Mapping[str, Charge], *budgets: Budget) -> None:
        """Write charges by client; after this, and not before, the releases that they pay for may happen.

        Raises
        ------
        BudgetSpent
            If one of the budgets of a client does not suffice. Then nothing is written.
        """
        with self._open() as file:
            for (client, charge), budget in product(charges.items(), budgets):
                if not self.affords(client, charge, budget):
                    spent = self.epsilon(client, budget.delta, run=budget.run)
                    raise BudgetSpent(
                        f"the privacy budget of '{client}' is spent: epsilon is {spent:.3g} at delta {budget.delta:g}, "
                        f"and '{charge.release}' would raise it above {budget.setting} {budget.epsilon:g}.",
                        budget.setting,
                    )
            entries = _grouped(charges)
            if file is not None:
                lines = "".join(json.dumps({**c.to_dict(), "clients": clients}) + "\n" for c, clients in entries)
                file.write(lines.encode())
                file.flush()
                os.fsync(file.fileno())
                self._length = file.tell()
            self._add(entries)

    def affords(self, client: str, charge: Charge, budget: Budget, times: int = 1) -> bool:
        """Return whether the budget suffices for a charge, or for several like it."""
        further = replace(charge, mechanism=replace(charge.mechanism, count=charge.mechanism.count * times))
        spent = self.epsilon(client, budget.delta, further, run=budget.run)
        return spent <= budget.epsilon * (1 + RELATIVE_TOLERANCE)

    def epsilon(self, client: str, delta: float, *further: Charge, run: str | None = None) -> float:
        """Return the epsilon of the rows of a client.

        Parameters
        ----------
        client : str
            Name of the client.
        delta : float
            Delta.
        *further : Charge
            Charges to add to those of the ledger.
        run : str, optional
            Only what this run has paid for; by default all runs.
        """
        parts: dict[str, list[Mechanism]] = {"training": [], "held-out": []}
        paid = self._paid.get(client, Counter())
        known = ((rows, replace(one, count=n)) for (of_run, rows, one), n in paid.items() if run in (None, of_run))
        for rows, mechanism in (*known, *((each.rows, each.mechanism) for each in further)):
            for part in parts if rows == "all" else (rows,):
                parts[part].append(mechanism)
        return max(epsilon_of(mechanisms, delta) for mechanisms in parts.values())

    def entries(self) -> Iterator[tuple[Charge, Sequence[str]]]:
        """Yield all charges in the order in which they were written, each with the clients that paid it."""
        self.read()
        return iter(self._entries)

    def read(self) -> None:
        """Read what other processes have written in the meantime."""
        if self.file is not None and self.file.exists():
            with self._open():
                pass

    @contextmanager
    def _open(self) -> Iterator[IO[bytes] | None]:
        """Open the file for this process alone, with everything read that is in it; None in memory."""
        if self.file is None:
            yield None
            return
        try:
            is_new = not self.file.exists()
            self.file.parent.mkdir(parents=True, exist_ok=True)
            opened = open(self.file, "a+b", opener=lambda name, flags: os.open(name, flags, 0o600))  # noqa: SIM115
        except OSError as problem:
            raise self._failure(problem) from None
        with opened as file:
            try:
                with suppress(ImportError):
                    import fcntl

                    fcntl.flock(file, fcntl.LOCK_EX)
                if is_new:
                    sync_folder(self.file.parent)
                self._read_rest(file)
                yield file
            except OSError as problem:
                raise self._failure(problem) from None

    def _failure(self, problem: OSError) -> EnvironmentFailure:
        return EnvironmentFailure(
            f"{self.file}: the ledger of privacy cannot be written ({write_problem(problem)}), so nothing is released; "
            "free disk space, or let this account write to it."
        )

    def _read_rest(self, file: IO[bytes]) -> None:
        """Read the lines that were appended since the last time."""
        file.seek(self._length)
        content = file.read()
        complete = content[: content.rfind(b"\n") + 1]
        if len(complete) < len(content):
            file.truncate(self._length + len(complete))
        try:
            for line in complete.splitlines():
                stored = json.loads(line)
                clients = tuple(map(str, stored.pop("clients")))
                self._add([(Charge.from_dict(stored), clients)])
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise InputError(f"{self.file}: damaged; restore a copy of it, or what it records is lost.") from None
        self._length += len(complete)
        file.seek(self._length)

    def _add(self, entries: Iterable[tuple[Charge, tuple[str, ...]]]) -> None:
        for charge, clients in entries:
            self._entries.append((charge, clients))
            key = (charge.run, charge.rows, replace(charge.mechanism, count=1))
            for client in clients:
                self._paid.setdefault(client, Counter())[key] += charge.mechanism.count


def _grouped(charges: Mapping[str, Charge]) -> list[tuple[Charge, tuple[str, ...]]]:
    """Return each charge once, with the clients that pay it."""
    clients: dict[Charge, list[str]] = {}
    for client, charge in charges.items():
        clients.setdefault(charge, []).append(client)
    return [(charge, tuple(names)) for charge, names in clients.items()]
