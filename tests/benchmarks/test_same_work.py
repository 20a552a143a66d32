"""The speed benchmark tells a simulator that does other work from one that only rounds differently."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import pytest

from ..places import ROOT

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="simulators are stopped by signals of POSIX")


@dataclass(frozen=True)
class Benchmark:
    """The modules of the benchmark that the tests use."""

    workload: Any
    manual: Any
    fedul: Any
    check: Any


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Benchmark:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    monkeypatch.setenv("FEDUL_DATA", str(ROOT / "benchmarks"))  # no images there, so those of the test are synthetic
    import same_work
    import simulators.fedul_engine
    import simulators.manual_loop
    import workload

    return Benchmark(workload, simulators.manual_loop, simulators.fedul_engine, same_work)


WORKLOADS = {  # rows of all classes alike, or fedul would correct for the class mix
    "sgd": ("pfl-cnn", 4, 20, 10, "sgd", 0.1),
    "adam": ("small-cnn", 4, 30, 8, "adam", 3e-3),
}
FAULTS = ("skip", "order", "rate")


def make_workload(benchmark: Benchmark, name: str) -> Any:
    network, clients, rows, batch, optimizer, rate = WORKLOADS[name]
    return benchmark.workload.Workload("test", network, clients, rows, batch, optimizer, rate)


def manual_outputs(benchmark: Benchmark, name: str, precision: str, fault: str = "") -> list[list[float]]:
    workload = make_workload(benchmark, name)
    data, module = benchmark.workload.make_data(workload), benchmark.workload.build_network(workload)
    found = [benchmark.workload.check_outputs(data, module)]
    benchmark.manual.federated_round(workload, data, module, 1, precision, fault)
    return [*found, benchmark.workload.check_outputs(data, module)]


def fedul_outputs(benchmark: Benchmark, name: str, precision: str) -> list[list[float]]:
    workload = make_workload(benchmark, name)
    data, module = benchmark.workload.make_data(workload), benchmark.workload.build_network(workload)
    start = benchmark.workload.check_outputs(data, module)
    simulator = benchmark.fedul.FedulSimulator(workload, data, precision=precision)
    simulator.run_round(1)
    benchmark.fedul.load_weights(module, simulator.weights)
    return [start, benchmark.workload.check_outputs(data, module)]


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", WORKLOADS)
def test_fedul_passes_the_check_and_every_fault_fails_it(benchmark: Benchmark, name: str, precision: str) -> None:
    outputs = {fault: manual_outputs(benchmark, name, precision, fault) for fault in ("", *FAULTS)}
    reference = outputs.pop("")
    tolerance = benchmark.check.tolerances({precision: reference}, {precision: outputs})[precision]
    assert benchmark.check.distance(fedul_outputs(benchmark, name, precision), reference) <= tolerance
    for fault, found in outputs.items():
        assert benchmark.check.distance(found, reference) > tolerance, fault
    assert benchmark.manual.FAULTS == FAULTS


def test_a_simulator_without_outputs_is_infinitely_far(benchmark: Benchmark) -> None:
    reference = [[0.0, 0.0], [3.0, 4.0]]
    assert benchmark.check.distance([], reference) == float("inf")
    assert benchmark.check.distance([[0.0, 0.0], [3.0, 5.0]], reference) == pytest.approx(0.2)


def test_random_labels_leave_every_class_its_rows_and_change_a_share(benchmark: Benchmark) -> None:
    workload = make_workload(benchmark, "sgd")
    balanced = benchmark.workload.balanced_labels(workload)
    labels = benchmark.workload.with_random_labels(workload, balanced)
    for one, other in zip(labels.split(workload.rows), balanced.split(workload.rows), strict=True):
        assert one.bincount().tolist() == other.bincount().tolist()
    changed = float((labels != balanced).float().mean())
    assert 0 < changed <= benchmark.workload.RANDOM_LABELS
