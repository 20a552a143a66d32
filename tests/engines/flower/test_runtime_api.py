"""The interface of a SuperNode to its launcher, with the SuperNode's own server and state in this process."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Iterator
from typing import Any

import pytest

if importlib.util.find_spec("flwr") is None:
    pytest.skip("Flower is not installed (fedul[flower])", allow_module_level=True)

import uvicorn
from flwr.supercore.constant import TaskType
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supernode.main import create_app
from flwr.supernode.nodestate import NodeStateFactory

from fedul.engines.flower.processes import HOST, free_port
from fedul.engines.flower.site.runtime_api import TaskQueue
from fedul.errors import EnvironmentFailure

from ...waiting import wait_until

SECRET = b"secret"


@pytest.fixture
def factory() -> Any:
    return NodeStateFactory(objectstore_factory=ObjectStoreFactory())


@pytest.fixture
def port(factory: Any) -> Iterator[int]:
    """The port of a server as a SuperNode has it."""
    number = free_port()
    app = create_app(state_factory=factory, superexec_auth_secret=SECRET)
    server = uvicorn.Server(uvicorn.Config(app, host=HOST, port=number, log_level="error", ws="none"))
    thread = threading.Thread(target=server.run)
    thread.start()
    wait_until(lambda: server.started or not thread.is_alive())
    yield number
    server.should_exit = True
    thread.join()


def test_messages_to_apps_of_every_kind_are_taken_once(factory: Any, port: int) -> None:
    with TaskQueue(port, SECRET) as queue:
        assert queue.acquire() is None
        for kind in (TaskType.CLIENT_APP, TaskType.AGENT_APP):
            factory.state().create_task(task_type=kind, run_id=1, fab_hash="0" * 64)
        tokens = [queue.acquire() for _ in range(3)]
    assert len(set(tokens)) == 3
    assert tokens[2] is None


def test_without_the_secret_there_are_no_messages(factory: Any, port: int) -> None:
    factory.state().create_task(task_type=TaskType.CLIENT_APP, run_id=1, fab_hash="0" * 64)
    refused = pytest.raises(EnvironmentFailure, match=r"refuses its own launcher \(status 401\)")
    with TaskQueue(port, b"another secret") as queue, refused:
        queue.acquire()


def test_a_supernode_that_has_ended_has_no_messages() -> None:
    with TaskQueue(free_port(), SECRET) as queue:
        assert queue.acquire() is None
