"""The site's side for Flower: every question is answered by `fedul.engines.flower.site`, with the site's own data.

A problem is told to the site's log. The coordinator hears of it in words that quote nothing of the site's.
"""

from __future__ import annotations

import logging

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fedul.engines.flower.letters import Letter, opened, packed
from fedul.engines.flower.own import Own
from fedul.engines.flower.site import ANSWERS, answered, told
from fedul.errors import FedulError

app = ClientApp()


def _answer(kind: str, message: Message, context: Context) -> Message:
    name = ""
    try:
        settings = context.node_config.get("config")
        if not isinstance(settings, str):
            raise FedulError("the site's node configuration names no settings file (--node-config 'config=\"FILE\"').")
        own = Own.read(settings)
        name = own.config.name
        letter = answered(kind, own, opened(message.content, own.config.max_message_mb * 2**20))
    except Exception as problem:  # whatever it is, Flower would send its text
        logging.getLogger("flwr").error("fedul: %s", problem, exc_info=not isinstance(problem, FedulError))
        letter = Letter({"problem": told(problem), "name": name})
    return Message(packed(letter), reply_to=message)


def _handler(kind: str):  # type: ignore[no-untyped-def]
    def handle(message: Message, context: Context) -> Message:
        return _answer(kind, message, context)

    return handle


for _kind in ANSWERS:
    app.query(_kind)(_handler(_kind))
