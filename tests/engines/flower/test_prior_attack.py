"""A coordinator sends weights with which every row gets the same answer, and solves for the class priors of a site.

The held-out loss of such a network depends on the priors and the sizes of the sets only, and sites send it at 25
temperatures. docs/privacy/threat-model.md states this attack.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from fedul.auditing.prior_equations import SetSizes, constant_losses, solve_shares
from fedul.engines.flower.protocol.message import Message
from fedul.engines.flower.server import secure_engine
from fedul.engines.flower.server.coordinator import run_coordinator
from fedul.engines.flower.server.secure_sums import SecureSums
from fedul.engines.flower.site import degenerate
from fedul.engines.held_out import TEMPERATURES, HeldOutSums
from fedul.errors import EnvironmentFailure

from .secure_sites import add_identity, secure_settings, write_identities
from .test_faults import TABLE, table_site, two_classes
from .test_secure_refusals import Recorder
from .wire import ChangingWire

Vector = NDArray[np.float64]

PRIORS = {"north": (0.9, 0.35), "south": (0.6, 0.15), "west": (0.75, 0.45)}
"""Share of the first class in both sets of each site; the sets are equally large."""
LOGIT = 4.0
DRAWS = 20


def losses(shares: Sequence[float], logits: Vector) -> Vector:
    """Mean loss -log Q of rows of a site with equally large sets, if every row has the logits (z, 0)."""
    return constant_losses(shares, np.exp(logits), SetSizes.equal(len(shares)))


def solve(observed: Vector, logits: Vector, sites: int, published: float = 0.5) -> Vector:
    """Return the shares (sites, 2) that fit the mean loss over sites best, those of a site in descending order."""
    sizes, weights = [SetSizes.equal(2)] * sites, np.full(sites, 1 / sites)
    return np.array(solve_shares(observed, np.exp(logits), sizes, weights, published))


def error(found: Vector, expected: Any) -> float:
    return float(np.abs(found - np.asarray(expected)).mean())


def constant(messages: Mapping[Any, Message], noise: float = 0.0) -> None:
    """Replace the weights that are evaluated: the logits of a row are (z, 0), plus a little of its values."""
    for message in {id(each): each for each in messages.values()}.values():
        for name in [each for each in message.tensors if each.startswith("weights/")]:
            shape = message.tensors[name].shape
            changed = (
                torch.tensor([LOGIT, 0.0]) if len(shape) == 1 else noise * torch.tensor([[1.0], [-1.0]]).expand(shape)
            )
            message.tensors[name] = changed  # type: ignore[index]


class Evil(ChangingWire):
    """A wire whose coordinator evaluates weights that it has prepared, and reads what the sites reply."""

    def __init__(self, sites: dict[int, Path], noise: float = 0.0) -> None:
        super().__init__(sites, lambda kind, sent: constant(sent, noise) if kind == "evaluate_held_out" else None)
        self.seen: dict[int, Any] = {}

    def request(self, kind: str, messages: Mapping[int, Message], seconds: float) -> Any:
        replies = super().request(kind, messages, seconds)
        if kind == "evaluate_held_out":
            self.seen |= {node: getattr(reply, "document", reply) for node, reply in replies.items()}
        return replies


def hospitals(folder: Path) -> dict[int, Path]:
    """Three sites with two sets each."""
    sites = {}
    for number, (name, shares) in enumerate(PRIORS.items(), start=1):
        lines = "".join(f"{label},{share},{1 - share}\n" for label, share in zip("ab", shares, strict=True))
        sites[number] = table_site(folder, name, table=TABLE, priors="set,ill,well\n" + lines)
    return sites


def secure_hospitals(folder: Path) -> dict[int, Path]:
    sites = hospitals(folder)
    write_identities(folder, list(PRIORS))
    for name, file in zip(PRIORS, sites.values(), strict=True):
        add_identity(file, folder, name)
    return sites


SETTINGS = {"classes": "ill,well", "model": "linear", "rounds": 1}
SCALED = LOGIT / np.array(TEMPERATURES)


def test_without_protection_the_priors_of_every_site_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(degenerate, "LEAST_INFORMATION", -1.0)
    wire = Evil(hospitals(tmp_path))
    run_coordinator(wire, {**two_classes(tmp_path), **SETTINGS})
    for node, shares in enumerate(PRIORS.values(), start=1):
        reply = wire.seen[node]
        found = solve(np.array(reply["losses"]) / reply["rows"], SCALED, 1)
        assert error(found[0], shares) < 0.01


def test_weights_with_a_little_noise_are_not_refused_and_tell_the_priors_nearly_as_well(tmp_path: Path) -> None:
    wire = Evil(hospitals(tmp_path), noise=1e-3)
    run_coordinator(wire, {**two_classes(tmp_path), **SETTINGS})
    for node, shares in enumerate(PRIORS.values(), start=1):
        reply = wire.seen[node]
        found = solve(np.array(reply["losses"]) / reply["rows"], SCALED, 1)
        assert error(found[0], shares) < 0.05


def test_sites_refuse_such_weights(tmp_path: Path) -> None:
    wire = Evil(hospitals(tmp_path))
    with pytest.raises(EnvironmentFailure, match="these weights give every row the same answer"):
        run_coordinator(wire, {**two_classes(tmp_path), **SETTINGS})


def test_with_secure_aggregation_a_coordinator_sees_the_total_of_all_sites_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    totals: list[HeldOutSums] = []

    def noticed(values: Any) -> HeldOutSums:
        totals.append(right(values))
        return totals[-1]

    def collect(sums: SecureSums, kind: str, messages: Mapping[str, Message], *others: Any) -> Any:
        if kind == "evaluate_held_out":
            constant(messages, noise=1e-3)  # noise, so that the sites do not refuse
        return right_collect(sums, kind, messages, *others)

    right, right_collect = secure_engine.held_out_sums, SecureSums.collect
    monkeypatch.setattr(secure_engine, "held_out_sums", noticed)
    monkeypatch.setattr(SecureSums, "collect", collect)
    wire = Recorder(secure_hospitals(tmp_path))
    run_coordinator(wire, secure_settings(tmp_path, 3, **SETTINGS))
    assert all(reply.document == {"refusals": {}} for kind, reply in wire.replies if kind == "evaluate_held_out")
    (total,) = totals
    mean = np.mean([losses(shares, SCALED) for shares in PRIORS.values()], axis=0)
    assert np.array(total.losses) / total.rows == pytest.approx(mean, abs=0.01)


def test_from_totals_priors_are_found_no_better_than_guessed_from_the_published_mean() -> None:
    """Under equal chances, 17 or more wins in 20 draws have a probability of 0.0013."""
    generator, wins, alone = np.random.default_rng(1), 0, list[float]()
    for _ in range(DRAWS):
        shares = np.sort(generator.uniform(0.05, 0.95, size=(5, 2)))[:, ::-1]
        single = np.array([losses(each, SCALED) for each in shares])
        alone.append(error(solve(single[0], SCALED, 1)[0], shares[0]))
        observed = np.round(single.mean(0), 9)  # the totals are in fixed point
        guess = np.full_like(shares, shares.mean())
        wins += error(solve(observed, SCALED, 5, shares.mean()), shares) < error(guess, shares)
    assert np.median(alone) < 1e-6  # one site alone is found exactly
    assert wins < 17
