"""Flower's simulation engine on Ray: ServerApp, ClientApp and FedAvg of its Message API, one actor per core.

The strategy is Flower's FedAvg. It only waits between two rounds, and tells each node which client it simulates, so
that all simulators have the same participants.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from simulators.manual_loop import local_epoch
from simulators.protocol import RoundTimer, make_parser
from workload import Data, Workload, build_network, check_outputs, make_data


class Stop(Exception):
    """Ends the run: Flower's loop otherwise ends only after its number of rounds."""


@functools.cache
def actor_state(text: str) -> tuple[Workload, Data, nn.Module]:
    """Return what an actor keeps between messages, as Flower's examples keep their data set."""
    torch.set_num_threads(1)
    workload = Workload.from_json(text)
    return workload, make_data(workload), build_network(workload).train()


def client_app(text: str) -> Any:
    from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp

    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        # Imported here: the pickled copy of this function in an actor would not share the cache.
        from simulators.flower_simulation import actor_state

        workload, data, module = actor_state(text)
        config = message.content["config"]
        number, client = int(config["server-round"]), int(config["client"])
        module.load_state_dict(message.content["arrays"].to_torch_state_dict())
        local_epoch(workload, module, *data.client_rows(workload, client, workload.row_order(number, client)))
        reply = {"arrays": ArrayRecord(module.state_dict()), "metrics": MetricRecord({"num-examples": workload.rows})}
        return Message(content=RecordDict(reply), reply_to=message)

    return app


def server_app(workload: Workload, module: nn.Module, timer: RoundTimer) -> Any:
    from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
    from flwr.serverapp import Grid, ServerApp
    from flwr.serverapp.strategy import FedAvg

    class WaitingFedAvg(FedAvg):
        def configure_train(
            self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
        ) -> Iterable[Message]:
            module.load_state_dict(arrays.to_torch_state_dict())  # for the outputs of the check
            if not timer.next_round():
                raise Stop
            messages = list(super().configure_train(server_round, arrays, config, grid))
            for message, client in zip(messages, workload.participants_of(server_round), strict=True):
                settings = ConfigRecord({"server-round": server_round, "client": client})
                message.content = RecordDict({"arrays": arrays, "config": settings})
            return messages

    app = ServerApp()

    @app.main()
    def run(grid: Grid, context: Context) -> None:
        strategy = WaitingFedAvg(
            fraction_train=workload.clients_per_round / workload.clients,
            fraction_evaluate=0.0,
            min_train_nodes=workload.clients_per_round,
            min_available_nodes=workload.clients,
        )
        strategy.start(grid=grid, initial_arrays=ArrayRecord(module.state_dict()), num_rounds=2**31)

    return app


def main() -> None:
    workload = make_parser(__doc__).parse_args().workload
    timer = RoundTimer()
    from flwr.simulation import run_simulation

    torch.set_num_threads(1)
    data, module = make_data(workload), build_network(workload)
    timer.outputs = lambda: check_outputs(data, module)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    resources = {"init_args": {"num_cpus": cores}, "client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
    try:
        run_simulation(
            server_app(workload, module, timer), client_app(workload.to_json()), workload.clients, "ray", resources
        )
    except Stop:
        timer.finish(data.source)


if __name__ == "__main__":
    main()
