"""The coordinator as Flower's ServerApp."""

from __future__ import annotations

import logging

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedul.engines.flower.server.coordinator import run_coordinator
from fedul.engines.flower.server.transport import Transport
from fedul.errors import FedulError

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run a federation to its end. A failure is one sentence, which 'flwr ls' and the log of the run show."""
    logging.getLogger("flwr").addFilter(log_as_sentence)
    run_coordinator(Transport(grid), dict(context.run_config))


def log_as_sentence(record: logging.LogRecord) -> bool:
    """Log an error of fedul as one sentence without its traceback.

    The error must still be raised, or Flower would not mark the run as failed.
    """
    problem = record.exc_info[1] if record.exc_info else None
    if isinstance(problem, FedulError):
        record.msg, record.args = "fedul: %s", (str(problem),)
        record.exc_info = record.exc_text = None
    return True
