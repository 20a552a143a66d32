"""Log of a coordinator: one line per round and per warning."""

from __future__ import annotations

import sys

from fedul.core import RoundMetrics
from fedul.training import Callback, RunInfo, RunResult


class LogProgress(Callback):
    """Prints one line per round on standard error; Flower shows it with 'flwr run --stream'."""

    def on_warning(self, message: str) -> None:
        print(f"fedul: {message}", file=sys.stderr, flush=True)

    def on_round_end(self, run: RunInfo, metrics: RoundMetrics) -> None:
        loss = "" if metrics.loss is None else f"  loss {metrics.loss:.4f}"
        text = f"round {metrics.round}/{run.rounds}{loss}  sites {metrics.clients}"
        text += "" if metrics.held_out_loss is None else f"  held-out {metrics.held_out_loss:.4f}"
        text += "" if metrics.epsilon is None else f"  epsilon {metrics.epsilon:.3f}"
        text += f"  {metrics.seconds:.1f} s"
        for site, reason in metrics.site_errors.items():
            text += f"\n  {site}: {reason}"
        self.on_warning(text)

    def on_run_end(self, run: RunInfo, result: RunResult | None) -> None:
        if result is not None:
            self.on_warning(f"done: round {result.selected_round} of {result.rounds} is delivered, in {run.folder}.")
            for statement in result.privacy:
                self.on_warning(f"privacy: {statement.headline}.")
