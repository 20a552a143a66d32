"""Updates match their declaration, and pass through the update chain before they are aggregated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedul._utils.files import tensors_digest
from fedul.algorithms import ALGORITHMS, make_algorithm
from fedul.algorithms.base import Algorithm, TrainedClient, declared_update
from fedul.algorithms.fedavg import FedAvg
from fedul.algorithms.scaffold import Scaffold
from fedul.config import TrainConfig
from fedul.core import TensorSpec, Update, UpdateSpec, Weights
from fedul.engines.base import Broadcast
from fedul.engines.simulation.engine import SimulationEngine
from fedul.errors import FedulError
from fedul.methods.fedul import FedUL
from fedul.privacy.update_chain import UpdateChain, UpdateContext, UpdateStep, build_update_chain

from ..factories import random_federation, seeded_network
from ..runs import copy_update, copy_weights

FEDERATION = random_federation()
NAMES = [client.name for client in FEDERATION.clients]


def with_buffers() -> nn.Module:
    """A seeded_network with batch norm and a frozen layer."""
    module = seeded_network((2,), 3, nn.BatchNorm1d(6))
    for parameter in module[1].parameters():
        parameter.requires_grad_(False)
    return module


def engine_of(
    algorithm: Algorithm, module: nn.Module, chain: UpdateChain | None = None, **settings: Any
) -> SimulationEngine:
    config = TrainConfig(**{"batch_size": 10, "learning_rate": 0.05, "seed": 4, **settings})
    return SimulationEngine(FEDERATION, FedUL(), algorithm, module, config, update_chain=chain)


def first_round(
    engine: SimulationEngine, module: nn.Module, algorithm: Algorithm, names: Sequence[str] = NAMES
) -> list[Update]:
    weights = copy_weights(module)
    broadcast = Broadcast(1, weights, algorithm.broadcast({}))
    return [copy_update(update) for update in engine.train(broadcast, names)]


def digest(update: Update) -> str:
    return "".join(tensors_digest(group) for group in (update.delta, update.buffers, update.message))


@pytest.mark.parametrize("engine_mode", ["loop", "vectorized"])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_updates_of_both_workers_match_the_declaration(name: str, engine_mode: str) -> None:
    algorithm, module = make_algorithm(name, {}), seeded_network()
    spec = declared_update(algorithm, module)
    engine = engine_of(algorithm, module, engine_mode=engine_mode)
    assert engine.layout.vectorized is (engine_mode == "vectorized")
    updates = first_round(engine, module, algorithm)
    assert [update.client for update in updates] == NAMES
    for update in updates:
        assert spec.problem(update) == ""
        assert update.delta.keys() == spec.delta.keys()
        assert update.message.keys() == spec.message.keys()


@pytest.mark.parametrize("name", ALGORITHMS)
def test_updates_of_a_network_with_buffers_and_frozen_layers_match_the_declaration(name: str) -> None:
    algorithm, module = make_algorithm(name, {}), with_buffers()
    spec = declared_update(algorithm, module)
    for update in first_round(engine_of(algorithm, module), module, algorithm):
        assert spec.problem(update) == ""
        assert update.buffers.keys() == spec.buffers.keys() == {f"2.{n}" for n, _ in module[2].named_buffers()}


def test_scaffold_declares_a_control_variate_for_each_trainable_parameter() -> None:
    spec = declared_update(Scaffold(), with_buffers())
    assert spec.message == {name: spec.delta[name] for name in ("2.weight", "2.bias", "4.weight", "4.bias")}


@dataclass(frozen=True)
class Chatty(Algorithm):
    """FedAvg that declares one tensor and sends others."""

    sent: dict[str, Tensor] = field(default_factory=dict)

    def message_spec(self, parameters: Any) -> dict[str, TensorSpec]:
        return {"norm": TensorSpec((2,), torch.float64)}

    def finish(self, trained: TrainedClient, received: Weights, client_state: Weights) -> tuple[Weights, Weights]:
        return {name: tensor.clone() for name, tensor in self.sent.items()}, {"seen": torch.ones(1)}


NORM = torch.zeros(2, dtype=torch.float64)
WRONG: dict[str, tuple[dict[str, Tensor], str]] = {
    "undeclared": ({"norm": NORM, "rows": NORM}, "'rows' is not a declared message tensor"),
    "missing": ({}, "the message tensor 'norm' is missing"),
    "misshapen": ({"norm": torch.zeros(3, dtype=torch.float64)}, r"'norm' has shape \(3,\), not \(2,\)"),
    "mistyped": ({"norm": NORM.float()}, "'norm' holds float32, not float64"),
}


@pytest.mark.parametrize(("sent", "problem"), WRONG.values(), ids=WRONG)
def test_an_update_that_is_not_as_declared_is_refused(sent: dict[str, Tensor], problem: str) -> None:
    algorithm, module = Chatty(sent=sent), seeded_network()
    message = f"^the update of client 'c0' is not as declared: {problem}\\.$"
    with pytest.raises(FedulError, match=message):
        first_round(engine_of(algorithm, module, engine_mode="loop"), module, algorithm)


def test_an_update_is_checked_in_every_round() -> None:
    sent = {"norm": NORM}
    algorithm, module = Chatty(sent=sent), seeded_network()
    engine = engine_of(algorithm, module, engine_mode="loop")
    assert len(first_round(engine, module, algorithm)) == len(NAMES)
    sent["norm"] = NORM.float()
    with pytest.raises(FedulError, match="'norm' holds float32, not float64"):
        first_round(engine, module, algorithm)


@dataclass(frozen=True)
class Clip(UpdateStep):
    """Scales an update to a largest norm."""

    norm: float

    def apply(self, update: Update, context: UpdateContext) -> Update:
        length = torch.cat([tensor.flatten() for tensor in update.delta.values()]).norm()
        factor = (self.norm / length).clamp_max(1)
        return replace(update, delta={name: factor * tensor for name, tensor in update.delta.items()})


@dataclass(frozen=True)
class ToFloat32(UpdateStep):
    """Halves the size of an update in float64."""

    def declare(self, spec: UpdateSpec) -> UpdateSpec:
        return replace(spec, delta={name: TensorSpec(each.shape, torch.float32) for name, each in spec.delta.items()})

    def apply(self, update: Update, context: UpdateContext) -> Update:
        return replace(update, delta={name: tensor.float() for name, tensor in update.delta.items()})


@dataclass(frozen=True)
class Noise(UpdateStep):
    """Adds noise that is keyed by client, round and seed, and records its contexts."""

    contexts: list[UpdateContext] = field(default_factory=list)

    def apply(self, update: Update, context: UpdateContext) -> Update:
        self.contexts.append(context)
        key = hash((context.round, context.seed, sum(context.client.encode())))
        generator = torch.Generator().manual_seed(key % 2**31)
        noise = {k: torch.randn(t.shape, generator=generator, dtype=t.dtype) for k, t in update.delta.items()}
        return replace(update, delta={name: tensor + noise[name] for name, tensor in update.delta.items()})


def test_the_identity_chain_changes_no_bit() -> None:
    updates = []
    for chain in (None, UpdateChain(), UpdateChain((UpdateStep(), UpdateStep()))):
        algorithm, module = Scaffold(), with_buffers()
        updates.append([digest(u) for u in first_round(engine_of(algorithm, module, chain), module, algorithm)])
    assert updates[0] == updates[1] == updates[2]
    assert build_update_chain(TrainConfig()) == UpdateChain()


@pytest.mark.parametrize("engine_mode", ["loop", "vectorized"])
def test_every_update_passes_through_the_chain_in_order(engine_mode: str) -> None:
    module, algorithm = seeded_network(), FedAvg()
    plain = first_round(engine_of(algorithm, module, engine_mode=engine_mode), module, algorithm)
    chain = UpdateChain((Clip(1e-3), ToFloat32()))
    engine = engine_of(algorithm, seeded_network(), chain, engine_mode=engine_mode)
    changed = first_round(engine, seeded_network(), algorithm)
    for before, after in zip(plain, changed, strict=True):
        expected = chain.apply(before, UpdateContext(before.client, 1, 4))
        assert digest(after) == digest(expected)
        assert (after.client, after.rows, after.steps, after.loss) == (
            before.client,
            before.rows,
            before.steps,
            before.loss,
        )
        length = torch.cat([tensor.flatten() for tensor in after.delta.values()]).norm()
        assert length == pytest.approx(1e-3, rel=1e-5)


def test_the_chain_declares_what_it_changes() -> None:
    spec = declared_update(Scaffold(), seeded_network())
    declared = UpdateChain((Clip(1.0), ToFloat32())).declare(spec)
    assert {each.dtype for each in declared.delta.values()} == {torch.float32}
    assert declared.message == spec.message
    assert declared.nbytes == spec.nbytes - sum(each.nbytes for each in spec.delta.values()) // 2


def test_a_step_that_does_not_declare_what_it_changes_is_refused() -> None:
    class Undeclared(ToFloat32):
        def declare(self, spec: UpdateSpec) -> UpdateSpec:
            return spec

    module, algorithm = seeded_network(), FedAvg()
    with pytest.raises(FedulError, match=r"^the update of client 'c0' is not as declared: '1\.weight' holds float32"):
        first_round(engine_of(algorithm, module, UpdateChain((Undeclared(),))), module, algorithm)


@pytest.mark.parametrize("settings", [{"engine_mode": "loop", "workers": 2}, {"engine_mode": "vectorized"}], ids=str)
def test_the_chain_knows_client_and_round_and_not_the_order_of_clients(settings: dict[str, Any]) -> None:
    found = []
    for names in (NAMES, NAMES[::-1]):
        step, module, algorithm = Noise(), seeded_network(), FedAvg()
        engine = engine_of(algorithm, module, UpdateChain((step,)), **settings)
        updates = first_round(engine, module, algorithm, names)
        assert step.contexts == [UpdateContext(name, 1, 4) for name in names]
        found.append({update.client: digest(update) for update in updates})
    assert found[0] == found[1]
    assert len(set(found[0].values())) == len(NAMES)
