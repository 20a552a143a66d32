"""Demonstration of a run on sites: the digits across sites on this machine, with TLS, keys and a roster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedul.data.load import load
from fedul.engines.flower.deploy.loopback import Loopback, loopback
from fedul.engines.flower.server.coordinator import read_settings
from fedul.engines.secure_sums import FEWEST_CLIENTS, check_enough_sites
from fedul.errors import EnvironmentFailure
from fedul.training import Callback, RunFolder, RunInfo, test_error
from fedul.training.run_files import METRICS

SITE_FILE = """\
name = "{name}"
state = "state"

[data]
data = "digits"
clients = {sites}
"""


def run_demo(
    folder: Path, *, sites: int, rounds: int, algorithm: str, callback: Callback, secure: bool = False
) -> tuple[RunFolder, float]:
    """Start a federation on this machine, run it to its end, and end all its processes; `secure` hides single updates.

    Returns
    -------
    RunFolder
        The run, in the folder "run".
    float
        Its test error.
    """
    study, run = load("digits", clients=sites), RunFolder(folder / "run")
    settings: dict[str, Any] = {
        "out": str(run.path),
        "classes": ",".join(study.federation.classes),
        "sites": sites,
        "rounds": rounds,
        "algorithm": algorithm,
        "model": "mlp",
        "roster": str(folder / "federation" / "roster.toml"),
    }
    own = ""
    if secure:
        check_enough_sites(sites)
        settings |= {"secure_aggregation": True, "min_sites": FEWEST_CLIENTS}
        own = "require-secure-aggregation = true\n"
    read_settings(settings)  # refuses wrong settings before anything is started
    with loopback(folder / "federation", settings) as federation:
        callback.on_warning(
            f"starting a SuperLink and {sites} sites on loopback, with TLS and keys (minutes, on a small machine)."
        )
        federation.start_coordinator()
        for client in study.federation.clients:
            federation.register(client.name)
        federation.write_roster()
        for client in study.federation.clients:
            federation.start_site(client.name, own + SITE_FILE.format(name=client.name, sites=sites))
        _follow(federation, federation.run({}), run, RunInfo(rounds, folder=run.path), callback)
    assert study.truth is not None
    return run, test_error(run.load_classifier().module, study.truth, study.federation.scaling)[0]


def _follow(federation: Loopback, run_id: int, run: RunFolder, info: RunInfo, callback: Callback) -> None:
    """Call the callback for every round of a run until it ends."""
    callback.on_run_start(info)
    shown = 0

    def report_rounds() -> None:
        nonlocal shown
        history = run.history() if (run.path / METRICS).exists() else []
        for metrics in history[shown:]:
            callback.on_round_end(info, metrics)
            for site, reason in metrics.site_errors.items():
                callback.on_warning(f"round {metrics.round}: {site}: {reason}")
        shown = len(history)

    if (status := federation.until_ended(run_id, run, report_rounds)) != "finished:completed":
        raise EnvironmentFailure(f"the run ended ({status}): {federation.reason(run_id)}")
