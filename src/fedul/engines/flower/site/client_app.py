"""A site's replies to the messages of Flower, which it forwards to its worker process.

The launcher of a site calls `reply_to_message`. A SuperNode without the launcher executes the app of the coordinator,
which imports `app` from here, in a new process for every message.

Nothing here may import PyTorch, which takes longer to load than most messages take to answer.
"""

from __future__ import annotations

import logging

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fedul.engines.flower.protocol.message import REQUEST_KINDS, ErrorReply, UnreadableMessage, WireMessage, printable
from fedul.engines.flower.site.worker_process import forward_to_worker

PREFIX = "query."
"""Start of the type of every message; the kind of request follows."""

app = ClientApp()


def reply_to_message(message: Message, settings: str) -> Message:
    """Return the reply of the site with this settings file to a message of any type."""
    return Message(reply_to_content(message.metadata.message_type, message.content, settings), reply_to=message)


def reply_to_content(message_type: str, content: RecordDict, settings: str) -> RecordDict:
    """Return the content of the reply; a message of a type that fedul does not have is refused."""
    prefix, kind = message_type[: len(PREFIX)], message_type[len(PREFIX) :]
    if prefix != PREFIX or kind not in REQUEST_KINDS:
        problem = f"messages of type '{printable(message_type, 40)}' are unknown here; this site runs fedul alone"
        return ErrorReply(problem).serialize().to_record()
    try:
        return forward_to_worker(kind, settings, WireMessage.from_record(content)).to_record()
    except UnreadableMessage as unreadable:
        return ErrorReply(f"the request cannot be read: {unreadable}").serialize().to_record()


def _handle(message: Message, context: Context) -> Message:
    settings = context.node_config.get("config")
    if isinstance(settings, str):
        return reply_to_message(message, settings)
    logging.getLogger("flwr").error(
        "fedul: the node configuration names no settings file; add --node-config 'config=\"FILE\"'."
    )
    return Message(
        ErrorReply("its node configuration names no settings file").serialize().to_record(), reply_to=message
    )


for _kind in REQUEST_KINDS:
    app.query(_kind)(_handle)
