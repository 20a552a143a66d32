"""A site as Flower's ClientApp. Flower starts a process for every message; it forwards to the site's worker process.

Nothing here may import PyTorch, which takes longer to load than most messages take to answer.
"""

from __future__ import annotations

import logging

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fedul.engines.flower.protocol.message import REQUEST_KINDS, ErrorReply, UnreadableMessage, WireMessage
from fedul.engines.flower.site.worker_process import forward_to_worker

app = ClientApp()


def _reply(kind: str, message: Message, context: Context) -> WireMessage:
    settings = context.node_config.get("config")
    if not isinstance(settings, str):
        logging.getLogger("flwr").error(
            "fedul: the node configuration names no settings file; add --node-config 'config=\"FILE\"'."
        )
        return ErrorReply("its node configuration names no settings file").serialize()
    try:
        return forward_to_worker(kind, settings, WireMessage.from_record(message.content))
    except UnreadableMessage as problem:
        return ErrorReply(f"the request cannot be read: {problem}").serialize()


def _handler(kind: str):  # type: ignore[no-untyped-def]
    def handle(message: Message, context: Context) -> Message:
        return Message(_reply(kind, message, context).to_record(), reply_to=message)

    return handle


for _kind in REQUEST_KINDS:
    app.query(_kind)(_handler(_kind))
