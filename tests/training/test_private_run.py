"""Row-private runs: what they charge, when they stop, and that a resumed run never claims a smaller epsilon."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import fedul
from fedul.engines.simulation.engine import SimulationEngine
from fedul.errors import InputError
from fedul.privacy import accounting
from fedul.privacy.accounting import epsilon_of
from fedul.privacy.ledger import Ledger
from fedul.training import CollectWarnings, Run, RunFolder

from ..callbacks import StopAt
from ..factories import gaussian_study

STUDY = gaussian_study()
ROUNDS = 4


def train(out: Path | None = None, *, resume: bool = False, callbacks: Any = (), **settings: Any) -> Run:
    private = {"dp_epsilon": 4.0, "rounds": ROUNDS, **settings}
    private = {name: value for name, value in private.items() if value is not None}
    return fedul.train(
        STUDY, method="fedul", batch_size=16, learning_rate=0.02, out=out, resume=resume, callbacks=callbacks, **private
    )


def ledger_of(folder: Path) -> Ledger:
    return Ledger(folder / "privacy" / "ledger.jsonl")


def charged_rounds(folder: Path) -> list[int]:
    return [charge.round for charge, _ in ledger_of(folder).entries()]


def test_a_run_spends_its_budget_over_all_rounds_and_says_so_everywhere(tmp_path):
    run = train(tmp_path)
    result, history = json.loads((tmp_path / "result.json").read_text()), RunFolder(tmp_path).history()
    assert set(result["epsilon"]) == {client.name for client in STUDY.federation.clients}
    assert all(3.99 < epsilon <= 4.0 for epsilon in result["epsilon"].values())
    assert history[-1].epsilon == max(result["epsilon"].values()) == run.result.privacy[0].epsilon
    assert [metrics.epsilon for metrics in history] == sorted(metrics.epsilon for metrics in history)
    ledger = ledger_of(tmp_path)
    ledger.read()
    assert {name: ledger.epsilon(name, 1e-5) for name in result["epsilon"]} == result["epsilon"]
    assert run.to_dict()["epsilon"] == result["epsilon"]


def test_nothing_that_is_computed_from_rows_without_noise_is_released(tmp_path):
    run = train(tmp_path)
    for metrics in run.history:
        assert metrics.loss is None
        assert metrics.held_out_loss is None
        assert metrics.temperature == 1.0
    assert run.selected_round == ROUNDS
    assert run.classifier.temperature == 1.0
    assert run.classifier.set_levels == ()


def test_a_round_is_charged_before_it_begins(tmp_path, monkeypatch):
    seen: list[list[int]] = []
    jobs = SimulationEngine.jobs

    def spy(engine, *arguments):
        seen.append(charged_rounds(tmp_path))
        return jobs(engine, *arguments)

    monkeypatch.setattr(SimulationEngine, "jobs", spy)
    train(tmp_path, workers=1)
    assert {max(rounds) for rounds in seen} == {1, 2, 3, 4}
    assert seen[0] == [1]


def test_a_run_that_is_interrupted_and_resumed_continues_its_ledger(tmp_path):
    whole = train()
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path, callbacks=[StopAt(2)], checkpoint_every=1)
    before = charged_rounds(tmp_path)
    run = train(tmp_path, resume=True, dp_epsilon=4.5)
    repeated = [number for number in before if charged_rounds(tmp_path).count(number) > 1]
    assert charged_rounds(tmp_path)[: len(before)] == before
    for name, epsilon in run.result.epsilon.items():
        assert epsilon >= whole.result.epsilon[name]
    assert repeated, "the round after the last checkpoint is trained and charged again"


def test_a_resumed_run_without_its_ledger_is_refused(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path, callbacks=[StopAt(3)], checkpoint_every=1)
    (tmp_path / "privacy" / "ledger.jsonl").unlink()
    with pytest.raises(InputError, match=r"does not have round 2.*the privacy that is spent is not known"):
        train(tmp_path, resume=True)


def test_further_rounds_beyond_the_budget_are_refused_and_a_larger_budget_allows_them(tmp_path):
    first = train(tmp_path)
    with pytest.raises(InputError, match=r"is spent: epsilon is 4 .* above dp-epsilon 4\..*--dp-epsilon.*--rounds 4"):
        train(tmp_path, resume=True, rounds=6)
    assert charged_rounds(tmp_path) == [1, 2, 3, 4]
    recorded = (tmp_path / "config.json").read_bytes()
    with pytest.raises(InputError, match="above dp-epsilon 2"):
        train(tmp_path, resume=True, rounds=6, dp_epsilon=2.0)
    assert (tmp_path / "config.json").read_bytes() == recorded  # the next resume continues what was trained
    more = train(tmp_path, resume=True, rounds=6, dp_epsilon=8.0)
    assert charged_rounds(tmp_path) == [1, 2, 3, 4, 5, 6]
    assert max(first.result.epsilon.values()) < max(more.result.epsilon.values()) < 8.0


def test_a_budget_that_suffices_for_some_further_rounds_ends_the_run_after_them(tmp_path):
    train(tmp_path)
    notes = CollectWarnings()
    run = train(tmp_path, resume=True, rounds=20, dp_epsilon=5.0, callbacks=[notes])
    assert ROUNDS < run.result.rounds < 20
    assert run.selected_round == run.result.rounds
    assert max(run.result.epsilon.values()) <= 5.0
    assert any(f"The run ends after round {run.result.rounds} of 20." in message for message in notes.messages)


def test_a_run_without_protection_cannot_be_resumed_with_it(tmp_path):
    train(tmp_path, dp_epsilon=None)
    with pytest.raises(InputError, match="dp-epsilon is not given there"):
        train(tmp_path, resume=True)


def test_only_clients_that_take_part_are_charged(tmp_path):
    run = train(tmp_path, participation=0.5, rounds=3)
    rounds = {name: sum(name in names for _, names in ledger_of(tmp_path).entries()) for name in run.result.epsilon}
    assert sum(rounds.values()) == 3 * round(0.5 * len(rounds))
    for name, epsilon in run.result.epsilon.items():
        assert epsilon == 0 if not rounds[name] else 3.99 < epsilon <= 4.0


def test_given_noise_has_the_epsilon_that_it_has(tmp_path):
    run = train(tmp_path, dp_epsilon=None, dp_noise=1.5)
    mechanism = next(charge.mechanism for charge, _ in ledger_of(tmp_path).entries())
    assert mechanism.noise == 1.5
    assert set(run.result.epsilon.values()) == {epsilon_of([mechanism] * ROUNDS, 1e-5)}


def test_no_noise_and_seeded_noise_are_no_guarantee(tmp_path):
    unbounded = train(dp_epsilon=None, dp_noise=0.0).result
    assert set(unbounded.epsilon.values()) == {None}
    seeded = train(dp_seeded=True).result
    for result in (unbounded, seeded):
        assert not result.privacy[0].guarantee
        assert "no guarantee" in result.privacy[0].meaning
        assert result.privacy[0].headline == "no row is protected"


def test_a_seeded_run_that_is_resumed_ends_with_the_same_weights(tmp_path):
    whole = train(dp_seeded=True)
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path, dp_seeded=True, callbacks=[StopAt(2)], checkpoint_every=1)
    resumed = train(tmp_path, dp_seeded=True, resume=True, dp_epsilon=6.0)
    assert resumed.weights_sha256 == whole.weights_sha256


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"select": "held-out-loss"}, "select held-out-loss: compares rounds on held-out rows"),
        ({"patience": 3}, "patience: compares rounds on held-out rows"),
        ({"dp_noise": 1.0}, "dp-noise: follows from dp-epsilon"),
        ({"dp_epsilon": None, "dp_seeded": True}, "dp-seeded: is for noise, of which there is none"),
        ({"dp_delta": 0.05}, "dp-delta: 0.05 is not below 1 / rows"),
    ],
)
def test_settings_that_contradict_private_rows_are_refused(settings, message):
    with pytest.raises(InputError, match=message):
        train(**settings)


def test_settings_are_not_chosen_on_rows():
    run = fedul.train(STUDY, dp_epsilon=8.0, rounds=1, callbacks=[CollectWarnings()])
    assert run.result.choice is not None
    assert not run.result.choice.alternatives
    assert "privacy budget" in run.result.choice.reason


def test_the_statement_lists_what_is_covered_and_what_is_not():
    statement = train().result.privacy[0]
    assert statement.unit == "row"
    assert statement.guarantee
    assert any("classifier" in each for each in statement.covers)
    assert any("held-out" in each for each in statement.left_out)
    assert any("class priors" in each for each in statement.not_covered)
    assert any("numbers of rows" in each for each in statement.not_covered)
    assert "coordinator" in statement.trust


def test_a_missing_extra_is_named_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find_spec = accounting.find_spec
    monkeypatch.setattr(accounting, "find_spec", lambda name: None if name == "dp_accounting" else find_spec(name))
    with pytest.raises(InputError, match=r"pip install 'fedul\[privacy\]'"):
        train(tmp_path / "RUN")
    assert list(tmp_path.iterdir()) == []
