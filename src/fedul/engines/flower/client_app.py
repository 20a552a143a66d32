"""The site's side for Flower, which starts a process for every message: this one hands it to the site's clerk.

So nothing here may import PyTorch, which takes longer to load than most messages take to answer.
"""

from __future__ import annotations

import logging

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fedul.engines.flower.clerk import answer_of
from fedul.engines.flower.envelope import QUESTIONS, Envelope, Unreadable, apology, posted, received

app = ClientApp()


def _answer(kind: str, message: Message, context: Context) -> Envelope:
    settings = context.node_config.get("config")
    if not isinstance(settings, str):
        logging.getLogger("flwr").error(
            "fedul: the site's node configuration names no settings file (--node-config 'config=\"FILE\"')."
        )
        return apology("its node configuration names no settings file", "")
    try:
        return answer_of(kind, settings, received(message.content))
    except Unreadable as problem:
        return apology(f"what it was sent cannot be used: {problem}", "")


def _handler(kind: str):  # type: ignore[no-untyped-def]
    def handle(message: Message, context: Context) -> Message:
        return Message(posted(_answer(kind, message, context)), reply_to=message)

    return handle


for _kind in QUESTIONS:
    app.query(_kind)(_handler(_kind))
