"""Flower's simulation engine on Ray: ServerApp, ClientApp and FedAvg of its Message API, one actor a core.

The strategy is Flower's own; it is only held back between two rounds, and tells each node whose rows it has this time,
so that cohorts are the same as everyone's.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from contestants.by_hand import local_epoch
from contestants.turns import Turns, arguments
from work import Data, Work, make_data, network, training_loss


class Stop(Exception):
    """The race is over; Flower's loop knows no other end than its number of rounds."""


@functools.cache
def held(text: str) -> tuple[Work, Data, nn.Module]:
    """What an actor keeps from one message to the next, as Flower's examples keep their data set."""
    torch.set_num_threads(1)
    work = Work.read(text)
    return work, make_data(work), network(work).train()


def client_app(text: str) -> Any:
    from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp

    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        from contestants.flower_simulation import held  # by its name: an actor's copy of this function has no memory

        work, rows, module = held(text)
        config = message.content["config"]
        number, client = int(config["server-round"]), int(config["client"])
        module.load_state_dict(message.content["arrays"].to_torch_state_dict())
        local_epoch(work, module, *rows.rows_of(work, client, work.order(number, client)))
        reply = {"arrays": ArrayRecord(module.state_dict()), "metrics": MetricRecord({"num-examples": work.rows})}
        return Message(content=RecordDict(reply), reply_to=message)

    return app


def server_app(work: Work, module: nn.Module, turns: Turns) -> Any:
    from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
    from flwr.serverapp import Grid, ServerApp
    from flwr.serverapp.strategy import FedAvg

    class Held(FedAvg):
        def configure_train(
            self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
        ) -> Iterable[Message]:
            if not turns.go_on():
                module.load_state_dict(arrays.to_torch_state_dict())
                raise Stop
            messages = list(super().configure_train(server_round, arrays, config, grid))
            for message, client in zip(messages, work.cohort_of(server_round), strict=True):
                told = ConfigRecord({"server-round": server_round, "client": client})
                message.content = RecordDict({"arrays": arrays, "config": told})
            return messages

    app = ServerApp()

    @app.main()
    def run(grid: Grid, context: Context) -> None:
        strategy = Held(
            fraction_train=work.a_round / work.clients,
            fraction_evaluate=0.0,
            min_train_nodes=work.a_round,
            min_available_nodes=work.clients,
        )
        strategy.start(grid=grid, initial_arrays=ArrayRecord(module.state_dict()), num_rounds=2**31)

    return app


def main() -> None:
    told = arguments(__doc__).parse_args()
    turns = Turns()
    from flwr.simulation import run_simulation

    torch.set_num_threads(1)
    work, module = told.work, network(told.work)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    resources = {"init_args": {"num_cpus": cores}, "client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
    try:
        run_simulation(server_app(work, module, turns), client_app(work.text()), work.clients, "ray", resources)
    except Stop:
        rows = make_data(work)
        turns.finish(training_loss(work, rows, module), data=rows.source)


if __name__ == "__main__":
    main()
