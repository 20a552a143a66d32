"""The ledger of privacy: written before a release, never lost, and never less than what was released."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from fedul.errors import EnvironmentFailure, InputError
from fedul.privacy.accounting import Gaussian, Laplace, epsilon_of
from fedul.privacy.ledger import Budget, BudgetSpent, Charge, Ledger

DELTA = 1e-5
STEPS = Gaussian(1.3, 0.25, 4)


def round_of(number: int, **changes: object) -> Charge:
    return replace(Charge("training", STEPS, number), **changes)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "privacy" / "ledger.jsonl"


def test_epsilon_is_that_of_all_charges_of_a_client():
    ledger = Ledger()
    for number in range(1, 6):
        ledger.charge(
            {"north": round_of(number), "south": round_of(number)} if number < 3 else {"north": round_of(number)}
        )
    assert ledger.epsilon("north", DELTA) == epsilon_of([Gaussian(1.3, 0.25, 20)], DELTA)
    assert ledger.epsilon("south", DELTA) == epsilon_of([Gaussian(1.3, 0.25, 8)], DELTA)
    assert ledger.epsilon("west", DELTA) == 0


def test_a_row_pays_for_its_own_part_and_for_what_depends_on_all_rows():
    ledger = Ledger()
    held_out, everything = Gaussian(0.9), Laplace(8.0)
    ledger.charge({"north": round_of(1)})
    ledger.charge({"north": Charge("temperature", held_out, rows="held-out")})
    assert ledger.epsilon("north", DELTA) == max(epsilon_of([STEPS], DELTA), epsilon_of([held_out], DELTA))
    ledger.charge({"north": Charge("counts", everything, rows="all")})
    assert ledger.epsilon("north", DELTA) == max(
        epsilon_of([STEPS, everything], DELTA), epsilon_of([held_out, everything], DELTA)
    )


def test_a_ledger_that_is_opened_again_continues(file):
    first = Ledger(file)
    first.charge({"north": round_of(1), "south": round_of(1)})
    again = Ledger(file)
    again.read()
    again.charge({"north": round_of(2)})
    entries = list(Ledger(file).entries())
    assert [(charge.round, tuple(clients)) for charge, clients in entries] == [(1, ("north", "south")), (2, ("north",))]
    first.read()  # what the other wrote in the meantime
    assert first.epsilon("north", DELTA) == epsilon_of([STEPS, STEPS], DELTA)


def test_two_processes_that_charge_in_turn_miss_nothing(file):
    one, other = Ledger(file), Ledger(file)
    for number in range(1, 5):
        (one, other)[number % 2].charge({"north": round_of(number)})
    assert len(list(one.entries())) == len(list(other.entries())) == 4


def test_a_line_that_was_not_finished_paid_for_nothing_and_is_removed(file):
    Ledger(file).charge({"north": round_of(1)})
    complete = file.read_bytes()
    file.write_bytes(complete + complete[: len(complete) // 2])
    ledger = Ledger(file)
    ledger.charge({"north": round_of(2)})
    assert [charge.round for charge, _ in Ledger(file).entries()] == [1, 2]


def test_a_round_that_is_repeated_is_charged_again(file):
    Ledger(file).charge({"north": round_of(1)})
    ledger = Ledger(file)
    ledger.charge({"north": round_of(1)})
    assert ledger.epsilon("north", DELTA) == epsilon_of([STEPS, STEPS], DELTA)


@pytest.mark.parametrize("text", ['{"clients": ["north"]}\n', "nonsense\n", '{"clients": 5, "release": "training"}\n'])
def test_a_damaged_ledger_is_refused(file, text):
    Ledger(file).charge({"north": round_of(1)})
    file.write_text(file.read_text() + text)
    with pytest.raises(InputError, match="damaged; restore a copy"):
        Ledger(file).read()


def test_a_mechanism_out_of_range_is_refused(file):
    Ledger(file).charge({"north": round_of(1)})
    file.write_text(file.read_text().replace('"count": 4', '"count": -4'))
    with pytest.raises(InputError, match="damaged"):
        Ledger(file).read()


def test_nobody_pays_if_one_client_cannot(file):
    ledger = Ledger(file)
    budget = Budget(1.05 * epsilon_of([STEPS], DELTA), DELTA)
    ledger.charge({"north": round_of(1)}, budget)
    before = file.read_bytes()
    with pytest.raises(BudgetSpent, match=r"budget of 'north' is spent: epsilon is .* above dp-epsilon"):
        ledger.charge({"south": round_of(2), "north": round_of(2)}, budget)
    assert file.read_bytes() == before
    assert ledger.epsilon("south", DELTA) == 0


def test_a_budget_suffices_for_what_was_planned_and_not_for_more():
    ledger, budget = Ledger(), Budget(epsilon_of([Gaussian(1.3, 0.25, 12)], DELTA), DELTA)
    assert ledger.affords("north", round_of(1), budget, times=3)
    assert not ledger.affords("north", round_of(1), budget, times=4)


def test_epsilon_of_a_single_run_at_a_site_is_below_that_of_all_runs(file):
    ledger = Ledger(file)
    for run in ("first", "second"):
        ledger.charge({"north": round_of(1, run=run)})
    assert ledger.epsilon("north", DELTA, run="first") == epsilon_of([STEPS], DELTA)
    assert ledger.epsilon("north", DELTA) == epsilon_of([STEPS, STEPS], DELTA)


def test_a_charge_is_on_the_disk_when_the_call_returns(file, monkeypatch):
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.fstat(descriptor).st_size))
    Ledger(file).charge({"north": round_of(1)})
    assert file.stat().st_size in synced


def test_what_cannot_be_written_is_not_paid(tmp_path):
    (tmp_path / "privacy").write_text("a file where the folder should be")
    ledger = Ledger(tmp_path / "privacy" / "ledger.jsonl")
    with pytest.raises(EnvironmentFailure, match="nothing is released"):
        ledger.charge({"north": round_of(1)})
    assert ledger.epsilon("north", DELTA) == 0


def test_charges_of_all_kinds_survive_the_file(file):
    charges = [
        round_of(1, run="a"),
        Charge("temperature", Laplace(3.0, 2), rows="held-out"),
        Charge("x", Gaussian(2.0)),
    ]
    for charge in charges:
        Ledger(file).charge({"north": charge})
    assert [charge for charge, _ in Ledger(file).entries()] == charges
