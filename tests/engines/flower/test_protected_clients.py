"""Sites whose updates are protected as a whole: clipped at the site, noise at the coordinator."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import fedul
from fedul.engines.flower.server.coordinator import run_coordinator
from fedul.engines.flower.site.handlers import handle
from fedul.engines.flower.site.site_data import SiteData
from fedul.errors import InputError
from fedul.privacy.clipping import group_norm
from fedul.training.run_files import CLIENT_LEDGER, EVALUATION, METRICS

from .test_parity import settings, weights
from .wire import ChangingWire, Wire, digits_sites

PROTECTED = {"client-dp-clip": 0.05, "client-dp-quantile": 0.5, "select": "last", "rounds": 3}


@pytest.mark.parametrize("algorithm", ["fedavg", "scaffold"])
def test_without_noise_sites_end_with_the_weights_of_a_run_in_process(tmp_path: Path, algorithm: str) -> None:
    given = {**PROTECTED, "client-dp-noise": 0.0, "algorithm": algorithm}
    found = run_coordinator(Wire(digits_sites(tmp_path, 3, rows=300)), settings(tmp_path, 3, **given))
    study = fedul.load("digits", clients=3, rows=300)
    same = {name.replace("-", "_"): value for name, value in given.items()}
    expected = fedul.train(study, method="fedul", **same)
    here, there = weights(found), weights(expected)
    assert float((here - there).norm() / there.norm()) < 1e-5
    unclipped = weights(fedul.train(study, method="fedul", algorithm=algorithm, select="last", rounds=3))
    assert float((unclipped - there).norm() / there.norm()) > 1e-3


def test_a_site_sends_only_clipped_tensors_and_the_folder_nothing_of_single_sites(tmp_path: Path) -> None:
    norms: list[float] = []
    sites = digits_sites(tmp_path, 3, rows=300)
    wire = Wire(sites)

    def record(kind, request, reply):
        if kind == "train":
            norms.append(group_norm(reply.group("delta")))
        return reply

    wire.faults = dict.fromkeys(sites, record)
    given = {**PROTECTED, "client-dp-noise": 2.0, "participation": 0.7}
    run = run_coordinator(wire, settings(tmp_path, 3, **given))
    assert norms
    assert max(norms) <= 0.05 * 1.5  # the clip of the first round, and how far it may have moved in two
    lines = [json.loads(line) for line in (tmp_path / "run" / METRICS).read_text().splitlines()]
    for line in lines:
        assert line["clients"] == 2
        assert line.get("loss") is None
        assert not {"site_errors", "bytes_sent", "bytes_received", "evaluated_by"} & line.keys()
    assert len((tmp_path / "run" / CLIENT_LEDGER).read_text().splitlines()) == 3
    assert not (tmp_path / "run" / EVALUATION).exists()
    assert run.result.privacy[0].unit == "client"


def test_a_site_sends_nothing_if_the_coordinator_sends_no_clip(tmp_path: Path) -> None:
    requests = []

    def remember(kind, messages):
        requests.extend((kind, message) for message in messages.values())

    sites = digits_sites(tmp_path, 2, rows=300)
    wire = ChangingWire(sites, remember)
    run_coordinator(wire, settings(tmp_path, 2, **{**PROTECTED, "client-dp-noise": 1.0, "rounds": 1, "max-rounds": 2}))
    message = next(message for kind, message in requests if kind == "train")
    message = replace(message, document={**message.document, "clips": {}, "round": 2})
    with pytest.raises(InputError, match="sends no clip for the delta"):
        handle("train", SiteData.read(str(sites[1])), message)


def test_seeded_noise_is_for_simulations(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="dp-seeded"):
        run_coordinator(
            Wire(digits_sites(tmp_path, 2)), settings(tmp_path, 2, **{"client-dp-noise": 1.0, "dp-seeded": True})
        )


def test_noise_is_added_at_the_coordinator(tmp_path: Path) -> None:
    given = {**PROTECTED, "client-dp-noise": 30.0, "rounds": 1, "averaging": 0.0}
    run = run_coordinator(Wire(digits_sites(tmp_path, 2, rows=300)), settings(tmp_path, 2, **given))
    start = fedul.train(
        fedul.load("digits", clients=2, rows=300),
        method="fedul",
        rounds=1,
        averaging=0.0,
        client_dp_noise=0.0,
        client_dp_clip=1e-9,
    )
    noise = weights(run) - weights(start)
    expected = 30.0 / (1 - 0.05) ** 0.5 * 0.05 / 2  # z_u C / N, with a twentieth of the budget for the quantile
    assert float(noise.std()) == pytest.approx(expected, rel=0.1)
    assert torch.isfinite(noise).all()
