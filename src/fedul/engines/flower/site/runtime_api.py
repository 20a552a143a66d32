"""The interface of a SuperNode to processes outside it, in its mode `--isolation process`.

Flower has such processes of its own (`flower-superexec`, which starts `flwr-clientapp`). They install the app that the
coordinator sends, and run it. Here a message is replied to by a function, and the app stays unread: the SuperNode hands
it over, and nothing unpacks, installs or executes it.

Flower promises no stability for the modules that are imported here. They are used for the versions in `VERSIONS` only,
which were tested; another version is refused before anything is started.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

from fedul.engines.flower.processes import HOST
from fedul.errors import EnvironmentFailure

if TYPE_CHECKING:
    from flwr.app import Message

VERSIONS = "1.41"
"""Versions of Flower, without the patch number, whose interface this module knows."""
REQUEST_TRIES = 3


def require_known_version() -> None:
    """Refuse a version of Flower whose interface is not known."""
    from importlib.metadata import version

    found = version("flwr")
    if ".".join(found.split(".")[:2]) != VERSIONS:
        raise EnvironmentFailure(
            f"Flower {found} is installed, and a site needs {VERSIONS}: fedul runs in place of the coordinator's app "
            f"through an interface that other versions may not have; install 'flwr~={VERSIONS}.0'."
        )


class TaskQueue:
    """Messages that a SuperNode has received. Only holders of the secret get them. Use it as a context manager.

    Parameters
    ----------
    port : int
        Port of the SuperNode on this machine.
    secret : bytes
        Content of its `--superexec-auth-secret-file`.
    """

    def __init__(self, port: int, secret: bytes) -> None:
        from flwr.supercore.interceptors import SuperExecAuthHttpInterceptor

        signing = SuperExecAuthHttpInterceptor(
            master_secret=secret, protected_methods=["/flwr.proto.Runtime/AcquireTask"]
        )
        self._client = _client(port, signing)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def acquire(self) -> str | None:
        """Return the token of the next message, which allows to reply to it; None if there is none."""
        import httpx
        from flwr.proto.runtime_pb2 import AcquireTaskRequest
        from flwr.supercore.constant import TaskType

        # Messages to an "agent app" are replied to as well, or the SuperNode would wait for a reply for ever.
        kinds = [TaskType.CLIENT_APP, TaskType.AGENT_APP]
        try:
            return self._client.AcquireTask(AcquireTaskRequest(supported_task_types=kinds)).token or None
        except httpx.TransportError:  # it starts or ends
            return None
        except httpx.HTTPStatusError as problem:
            if (code := problem.response.status_code) >= httpx.codes.INTERNAL_SERVER_ERROR:
                return None
            raise EnvironmentFailure(
                f"the SuperNode refuses its own launcher (status {code}); reinstall fedul[flower]."
            ) from None


def reply_to_task(port: int, token: str, reply: Callable[[Message], Message]) -> None:
    """Fetch a message, call `reply` with it, and send the result.

    The process ends (with code 1) if the SuperNode has given up the message, for instance because its run was stopped.

    Parameters
    ----------
    port : int
        Port of the SuperNode on this machine.
    token : str
        Token of the message.
    reply : callable
        Returns the reply to a message.
    """
    from flwr.common.constant import SubStatus
    from flwr.supercore.heartbeat import HeartbeatSender
    from flwr.supercore.interceptors import RuntimeTokenHttpInterceptor
    from flwr.supernode.runtime.run_clientapp import pull_task_input, push_message, push_task_output

    with _client(port, RuntimeTokenHttpInterceptor(token)) as client:
        heartbeat = HeartbeatSender(lambda: _beat(client))
        heartbeat.start()
        message, context, _run, _app = pull_task_input(client)  # the app is not looked at
        push_message(client, reply(message), context)
        push_task_output(client, context, SubStatus.COMPLETED, "")
        heartbeat.stop()


def _beat(client: Any) -> bool:
    """Tell the SuperNode that the message is being processed; return whether it was told."""
    import httpx
    from flwr.proto.runtime_pb2 import SendTaskHeartbeatRequest

    try:
        expected = client.SendTaskHeartbeat(SendTaskHeartbeatRequest()).success
    except httpx.TransportError:
        return False
    except httpx.HTTPStatusError:
        expected = False
    if not expected:
        os._exit(1)
    return True


def _client(port: int, *interceptors: Any) -> Any:
    import httpx
    from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
    from flwr.supercore.retry import RetryInvoker, constant
    from flwr.supercore.runtime import RuntimeHttpClient

    retry = RetryInvoker(lambda: constant(0.5), httpx.TransportError, max_tries=REQUEST_TRIES, max_time=None)
    return RuntimeHttpClient.from_server_address(
        f"{HOST}:{port}",
        insecure=True,  # on this machine
        root_certificates=None,
        interceptors=[RuntimeVersionHttpInterceptor(component_name="fedul"), *interceptors],
        retry_invoker=retry,
    )
