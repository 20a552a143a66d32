"""The coordinator's side for Flower: the settings of a run, and `fedul.engines.flower.coordinator`."""

from __future__ import annotations

import logging

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedul.engines.flower.coordinator import coordinate
from fedul.engines.flower.post import Post
from fedul.errors import FedulError

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Runs a federation to its end. A failure ends in one sentence, which 'flwr ls' and the log of the run show."""
    logging.getLogger("flwr").addFilter(in_a_sentence)
    coordinate(Post(grid), dict(context.run_config))


def in_a_sentence(record: logging.LogRecord) -> bool:
    """A failure that fedul tells in a sentence is logged as just that.

    Flower logs whatever ends a run with all that led to it. It has to be raised nevertheless, or the run is not failed.
    """
    problem = record.exc_info[1] if record.exc_info else None
    if isinstance(problem, FedulError):
        record.msg, record.args = "fedul: %s", (str(problem),)
        record.exc_info = record.exc_text = None
    return True
