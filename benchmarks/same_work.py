"""Whether simulators compute the same: outputs of their global models after the first round, next to those of faults.

After one round, rounding has hardly been amplified. Its size depends on network, optimizer, machine and precision, and
so does the effect of a fault. So the benchmark runs the manual loop with faults too (`simulators/manual_loop.py`):
with a client skipped, with rows in another order, and with a larger rate. A simulator must be nearer to the manual loop
in its own precision than half the distance of the nearest fault. If rounding were as large as that, the check would
fail, instead of finding nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from interleaved import SimulatorProcess
from simulators.manual_loop import FAULTS
from workload import Workload

SHARE = 0.5
"""Tolerance as a share of the distance of the nearest fault."""

Outputs = Sequence[Sequence[float]]
"""Outputs of the global model at the start and after the first round."""


def distance(one: Outputs, other: Outputs) -> float:
    """Return the distance between outputs after the first round, relative to how far the other moved from its start."""
    start, end = other
    if len(one) != 2 or len(one[1]) != len(end):
        return math.inf
    return math.dist(one[1], end) / math.dist(start, end)


def tolerances(reference: Mapping[str, Outputs], faults: Mapping[str, Mapping[str, Outputs]]) -> dict[str, float]:
    """Return the largest distance that is accepted, by precision."""
    return {
        precision: SHARE * min(distance(outputs, reference[precision]) for outputs in found.values())
        for precision, found in faults.items()
    }


def fault_commands(workload: Workload, precision: str) -> dict[str, list[str]]:
    """Return the commands of manual loops with a fault, by fault."""
    loop = ["-m", "simulators.manual_loop", "--workload", workload.to_json(), "--precision", precision]
    return {fault: [*loop, "--threads", "1", "--fault", fault] for fault in FAULTS}


def measure_faults(commands: Mapping[str, Mapping[str, Sequence[str]]]) -> dict[str, dict[str, Outputs]]:
    """Return the outputs of faulty loops, by precision and fault."""
    return {kind: {fault: _outputs(command) for fault, command in every.items()} for kind, every in commands.items()}


def _outputs(command: Sequence[str]) -> Outputs:
    process = SimulatorProcess(command)
    try:
        return process.start().outputs
    finally:
        process.stop()
