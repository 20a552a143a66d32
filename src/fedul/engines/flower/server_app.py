"""The coordinator's side for Flower: the settings of a run, and `fedul.engines.flower.coordinator`."""

from __future__ import annotations

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedul.engines.flower.coordinator import coordinate
from fedul.engines.flower.post import Post
from fedul.errors import FedulError

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Runs a federation to its end; a failure is one sentence, and the run counts as failed."""
    try:
        coordinate(Post(grid), dict(context.run_config))
    except FedulError as problem:
        raise SystemExit(f"fedul: {problem}") from None
