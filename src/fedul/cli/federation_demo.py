"""The digits across sites on this machine: what `make federation` shows."""

from __future__ import annotations

import time
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from fedul.cli import show
from fedul.data.study import load
from fedul.engines.flower.coordinator import read_settings
from fedul.engines.flower.loopback import Loopback, loopback
from fedul.errors import WorldError
from fedul.runs import RunFolder

SITE = """\
name = "{name}"
state = "state"

[data]
data = "digits"
clients = {sites}
"""


def run_demo(folder: Path, *, sites: int, rounds: int, algorithm: str, as_json: bool) -> None:
    """Starts everything, shows how the run goes and what it came to, and ends everything."""
    study = load("digits", clients=sites)
    run = RunFolder(folder / "run")
    settings = {
        "out": str(run.path),
        "classes": ",".join(study.federation.classes),
        "sites": sites,
        "rounds": rounds,
        "algorithm": algorithm,
        "model": "mlp",
    }
    read_settings(settings)  # to say now what is wrong
    started = time.monotonic()
    with show.Rounds(f"{sites} sites") as reporter, loopback(folder / "federation", settings) as made:
        show.err.print(
            f"starting a SuperLink and {sites} sites on loopback, with TLS and a key each (minutes, on a small machine)"
        )
        made.start_coordinator()
        for client in study.federation.clients:
            made.register(client.name)
            made.start_site(client.name, SITE.format(name=client.name, sites=sites))
        _watch(made, run, made.run({}), rounds, reporter)
    assert study.truth is not None
    labels, classifier = study.truth.test_labels, run.load_classifier()
    names = classifier.predict(study.truth.test_inputs)
    error = float((names != [study.federation.classes[k] for k in labels]).mean())
    result = {"run": str(run.path), "test_error": error, "seconds": round(time.monotonic() - started, 1)}
    if as_json:
        show.print_json({**result, "rounds": run.history()})
        return
    table = Table()
    for heading in ("round", "sites", "loss", "held-out", "seconds", "KB sent", "KB received"):
        table.add_column(heading, justify="right")
    for line in run.history():
        traffic = [f"{line[name] / 1024:,.0f}" for name in ("bytes_sent", "bytes_received")]
        losses = [f"{line[name]:.3f}" for name in ("loss", "held_out_loss")]
        table.add_row(str(line["round"]), str(line["clients"]), *losses, f"{line['seconds']:.1f}", *traffic)
    show.out.print(table)
    show.out.print(f"test error [bold]{error:.2%}[/], without one label; all processes are ended")
    show.out.print(f"run folder [bold]{escape(str(run.path))}[/], logs beside it", soft_wrap=True)


def _watch(made: Loopback, run: RunFolder, number: int, rounds: int, reporter: show.Rounds) -> None:
    """Shows every round as it ends, until the run does."""
    shown = 0

    def show_rounds() -> None:
        nonlocal shown
        lines = run.history() if (run.path / "metrics.jsonl").exists() else []
        for line in lines[shown:]:
            reporter.round(line, rounds)
            for site, reason in line.get("troubles", {}).items():
                reporter.warn(f"round {line['round']}: {site}: {reason}")
        shown = len(lines)

    if (status := made.until_ended(number, run, show_rounds)) != "finished:completed":
        raise WorldError(f"the run ended ({status}): {made.reason(number)}")
