"""The coordinator's side for Flower: the settings of a run, and `fedul.engines.flower.coordinator`."""

from __future__ import annotations

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedul.engines.flower.coordinator import coordinate
from fedul.engines.flower.post import Post

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Runs a federation to its end. A failure ends in one sentence, which 'flwr ls' and the log of the run show."""
    coordinate(Post(grid), dict(context.run_config))
