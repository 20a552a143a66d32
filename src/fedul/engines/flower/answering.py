"""An envelope to a site, and the one that goes back.

Whatever fails, the site's log is told, and the coordinator hears of it in words that quote nothing of the site's.
"""

from __future__ import annotations

import logging

from fedul.engines.flower.envelope import Envelope, apology
from fedul.engines.flower.letters import sealed, unsealed
from fedul.engines.flower.own import Own
from fedul.engines.flower.site import Told, answered, told
from fedul.engines.flower.site_file import named_in
from fedul.errors import FedulError


def reply(kind: str, settings: str, asked: Envelope) -> Envelope:
    """The answer of the site that has this settings file."""
    try:
        own = Own.read(settings)
        if len(asked.tensors) > (most := own.config.max_message_mb * 2**20):
            raise Told(f"a message of {len(asked.tensors):,} bytes is more than its max-message-mb allows ({most:,})")
        return sealed(answered(kind, own, unsealed(asked)))
    except Exception as problem:  # whatever it is, Flower would send its text
        logging.getLogger("flwr").error("fedul: %s", problem, exc_info=not isinstance(problem, FedulError))
        return apology(told(problem), named_in(settings))
