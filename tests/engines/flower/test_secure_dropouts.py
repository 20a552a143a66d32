"""With secure aggregation, rounds are complete while enough sites stay, whatever phase the others are lost in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from fedul.engines.flower.protocol.message import Message
from fedul.engines.flower.secure import blobs
from fedul.engines.flower.server.coordinator import run_coordinator
from fedul.errors import EnvironmentFailure

from .secure_sites import secure_digits_sites, secure_settings
from .test_parity import settings, weights
from .wire import Fault, Wire, digits_sites

Phase = Callable[[str, Message], bool]


def has(group: str, purpose: str) -> Phase:
    """Whether a request has a part of a sum of updates in it."""
    return lambda kind, request: kind == "aggregate" and purpose in request.group(group)


def in_round(number: int) -> Phase:
    return lambda kind, request: kind == "train" and request.document["round"] == number


def lost(*phases: Phase) -> Fault:
    """No reply to the first request of each of these phases."""
    left = list(phases)

    def reply_or_none(kind: str, request: Message, reply: Message) -> Message | None:
        if left and left[0](kind, request):
            left.pop(0)
            return None
        return reply

    return reply_or_none


PHASES: dict[str, tuple[list[Phase], list[int]]] = {
    "keys of statistics": ([has(blobs.ADVERTISE, "statistics")], [5, 5, 5]),
    "shares of statistics": ([has(blobs.KEY_LIST, "statistics")], [5, 5, 5]),
    "statistics": ([lambda kind, _: kind == "statistics"], [5, 5, 5]),
    "unmasking of statistics": ([has(blobs.UNMASK, "statistics")], [5, 5, 5]),
    "keys of the first round": ([has(blobs.ADVERTISE, "train")], [4, 5, 5]),
    "shares of the first round": ([has(blobs.KEY_LIST, "train")], [4, 5, 5]),
    "vector and next keys": ([in_round(2)], [5, 4, 4]),
    "unmasking and next shares": ([has(blobs.UNMASK, "train")], [5, 4, 5]),
    "vector, twice": ([in_round(1), in_round(3)], [4, 4, 4]),
}


@pytest.mark.parametrize("name", PHASES)
def test_a_round_is_complete_without_a_site_that_is_lost_in_any_phase(tmp_path: Path, name: str) -> None:
    phases, clients = PHASES[name]
    wire = Wire(secure_digits_sites(tmp_path, 5, rows=400), {5: lost(*phases)})
    found = run_coordinator(wire, secure_settings(tmp_path, 5, rounds=3))
    assert [line.clients for line in found.history] == clients


def test_the_result_without_a_lost_site_is_that_of_a_run_in_the_open(tmp_path: Path) -> None:
    wire = Wire(secure_digits_sites(tmp_path / "secure", 5, rows=400), {5: lost(in_round(2))})
    found = run_coordinator(wire, secure_settings(tmp_path / "secure", 5, rounds=3, select="last"))
    missing: Fault = lambda kind, request, reply: (  # noqa: E731
        None if kind == "train" and request.document["round"] in (2, 3) else reply
    )
    open_wire = Wire(digits_sites(tmp_path / "open", 5, rows=400), {5: missing})
    expected = run_coordinator(open_wire, settings(tmp_path / "open", 5, rounds=3, select="last"))
    assert float((weights(found) - weights(expected)).abs().max()) < 1e-5
    assert "client-5" in found.history[1].site_errors


def test_rounds_are_evaluated_by_the_same_sites_or_not_at_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Leaving(Wire):
        def request(self, kind: str, messages: Any, seconds: float) -> Any:
            if any(in_round(4)(kind, message) for message in messages.values()):
                del self.settings[5]
            return super().request(kind, messages, seconds)

    wire = Leaving(secure_digits_sites(tmp_path, 5, rows=400), {5: lost(in_round(3))})
    found = run_coordinator(wire, secure_settings(tmp_path, 5, rounds=4))
    everyone = tuple(f"client-{number}" for number in range(1, 6))
    # Round 2 is evaluated by an exchange of its own, after the site was late; without the site there is no evaluation.
    assert [line.evaluated_by for line in found.history] == [everyone, everyone, (), ()]
    assert [line.held_out_loss is None for line in found.history] == [False, False, True, True]
    assert found.history[3].temperature == found.history[1].temperature
    assert found.selected_round == 4
    assert "round 4 is not evaluated: client-5 did not take part" in capsys.readouterr().err


def test_two_sites_that_are_lost_while_others_agree_on_the_survivors_do_not_stop_the_round(tmp_path: Path) -> None:
    faults = {6: lost(in_round(2)), 5: lost(has(blobs.SURVIVORS, "train"))}
    wire = Wire(secure_digits_sites(tmp_path, 6, rows=480), faults)
    found = run_coordinator(wire, secure_settings(tmp_path, 6, rounds=2, **{"aggregation-threshold": 0.6}))
    assert [line.clients for line in found.history] == [6, 5]


def test_below_the_threshold_a_round_is_repeated_with_fresh_keys_and_nothing_is_revealed(tmp_path: Path) -> None:
    class Counting(Wire):
        def request(self, kind: str, messages: Any, seconds: float) -> Any:
            seen.extend((kind, sorted({key.partition("/")[0] for key in each.tensors})) for each in messages.values())
            return super().request(kind, messages, seconds)

    seen: list[tuple[str, list[str]]] = []
    wire = Counting(secure_digits_sites(tmp_path, 5, rows=400), {4: lost(in_round(2)), 5: lost(in_round(2))})
    found = run_coordinator(wire, secure_settings(tmp_path, 5, rounds=2))
    assert [line.clients for line in found.history] == [5, 5]
    attempts = [number for number, (kind, _) in enumerate(seen) if kind == "train"]
    first, second = attempts[5:10], attempts[10:]  # requests for the second round
    between = [groups for _, groups in seen[first[-1] + 1 : second[0]]]
    assert len(second) == 5
    assert not any(blobs.UNMASK in groups or blobs.SURVIVORS in groups for groups in between)
    plain = run_coordinator(
        Wire(digits_sites(tmp_path / "open", 5, rows=400)), settings(tmp_path / "open", 5, rounds=2)
    )
    assert float((weights(found) - weights(plain)).abs().max()) < 1e-5


def test_a_run_ends_with_the_reason_if_too_few_sites_stay(tmp_path: Path) -> None:
    gone: Fault = lambda kind, request, reply: None if kind == "train" else reply  # noqa: E731
    wire = Wire(secure_digits_sites(tmp_path, 4, rows=400), {3: gone, 4: gone})
    with pytest.raises(EnvironmentFailure, match=r"round 1: no sum of updates in 3 attempts: .* 2 of at least 3 sites"):
        run_coordinator(wire, secure_settings(tmp_path, 4, rounds=1))


def test_a_coordinator_that_was_lost_resumes_to_the_same_result(tmp_path: Path) -> None:
    class Lost(Exception):
        pass

    class Losing(Wire):
        def request(self, kind: str, messages: Any, seconds: float) -> Any:
            found = super().request(kind, messages, seconds)
            if any(in_round(3)(kind, message) for message in messages.values()):
                raise Lost
            return found

    sites = secure_digits_sites(tmp_path, 4, rows=400)
    with pytest.raises(Lost):
        run_coordinator(Losing(sites), secure_settings(tmp_path, 4, algorithm="scaffold"))
    found = run_coordinator(Wire(sites), secure_settings(tmp_path, 4, algorithm="scaffold", resume=True))
    whole = run_coordinator(
        Wire(secure_digits_sites(tmp_path / "whole", 4, rows=400)),
        secure_settings(tmp_path / "whole", 4, algorithm="scaffold"),
    )
    assert float((weights(found) - weights(whole)).abs().max()) < 1e-5
    assert [line.clients for line in found.history] == [4, 4, 4]
    assert found.selected_round == whole.selected_round


def test_a_site_that_is_late_takes_part_from_the_round_after_the_next(tmp_path: Path) -> None:
    class Late(Wire):
        def request(self, kind: str, messages: Any, seconds: float) -> Any:
            if any(in_round(1)(kind, message) for message in messages.values()):
                self.settings[5] = late
            return super().request(kind, messages, seconds)

    sites = secure_digits_sites(tmp_path, 5, rows=400)
    late = sites.pop(5)
    found = run_coordinator(Late(sites), secure_settings(tmp_path, 4, rounds=4))
    assert [line.clients for line in found.history] == [4, 4, 5, 5]
    # It does not evaluate: sums over the others with and without it would disclose its part.
    assert all(line.evaluated_by == ("client-1", "client-2", "client-3", "client-4") for line in found.history)
    assert torch.isfinite(weights(found)).all()
