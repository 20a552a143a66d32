"""Cost of judging ten million held-out rows, relative to predicting them. About one minute.

    python benchmarks/held_out.py [--rows N] [--json]

A 64-32-10 network and 10 sets. Four computations alternate: the forward pass alone, in the blocks and on the threads
that judging uses; judging as the rounds do (all rows at one temperature, a sample at the grid, paired differences from
a reference that is known); and, on a tenth of the rows, the forward pass in blocks of 256 rows on one thread, and
judging with the full grid of temperatures on all rows, as it was before. The target is judging / forward pass.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from _measure import Quartiles, compare_to_target, describe_machine, make_parser, print_result, time_alternating
from fedul._utils.hardware import available_cores, torch_threads
from fedul.core import Scaling
from fedul.engines.held_out import HeldOutSums
from fedul.engines.held_out_evaluator import HeldOutEvaluator
from fedul.engines.held_out_rows import HeldOutRows

ROWS, FEATURES, SETS, CLASSES = 10_000_000, 64, 10, 10
REPEATS, FEWER = 7, 10
TARGET = 1.4


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--rows", type=int, default=ROWS, help="held-out rows")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    inputs = torch.randint(0, 256, (arguments.rows, FEATURES), dtype=torch.uint8)
    network = torch.nn.Sequential(torch.nn.Linear(FEATURES, 32), torch.nn.ReLU(), torch.nn.Linear(32, CLASSES)).eval()
    evaluator, few = (make_evaluator(inputs[:count]) for count in (arguments.rows, arguments.rows // FEWER))
    reference = evaluator.predictions(network, 1.0)
    of_few = few.logits(network)

    def forward() -> None:
        for _ in evaluator._blocks(network, evaluator._rows):
            pass

    def judge() -> HeldOutSums:
        return evaluator.compare(evaluator.predictions(network), reference, 1.0)

    def full_grid() -> HeldOutSums:
        return few.sums(few.logits(network), of_few)

    actions: dict[str, Callable[[], object]] = {
        "forward pass": on(available_cores(), forward),
        "judging": on(available_cores(), judge),
        f"forward pass, 1/{FEWER} of the rows, blocks of 256": on(1, lambda: few.logits(network)),
        f"full grid, 1/{FEWER} of the rows": on(1, full_grid),
    }
    taken = time_alternating(actions, REPEATS)
    names = list(taken)
    ratios = {
        name: Quartiles.of([a / b for a, b in zip(taken[name], taken[base], strict=True)])
        for name, base in ((names[1], names[0]), (names[3], names[2]))
    }
    table = [["", "seconds (quartiles)", "ratio to the forward pass", ""]]
    for name, seconds in taken.items():
        ratio = ratios[name].format(digits=2) if name in ratios else ""
        verdict = compare_to_target(ratios[name].median, TARGET) if name == "judging" else ""
        table.append([name, Quartiles.of(seconds).format(), ratio, verdict])
    result = {
        "seconds": {name: Quartiles.of(values).to_dict() for name, values in taken.items()},
        "ratios": {name: ratio.to_dict() for name, ratio in ratios.items()},
        "target": TARGET,
        "rows": arguments.rows,
        "machine": describe_machine(),
    }
    print_result(result, table, as_json=arguments.json)


def make_evaluator(inputs: torch.Tensor) -> HeldOutEvaluator:
    """Return an evaluator of rows in random sets with random class priors."""
    generator = torch.Generator().manual_seed(1)
    sets = torch.randint(0, SETS, (len(inputs),), generator=generator)
    tables = torch.rand(2, SETS, CLASSES, generator=generator).log()
    parts = [(inputs, torch.arange(len(inputs)))]
    return HeldOutEvaluator(HeldOutRows(parts, sets, tables[0], tables[1], Scaling(1 / 255)))


def on(threads: int, action: Callable[[], object]) -> Callable[[], object]:
    """Return the action without gradients on this many threads."""

    @torch.no_grad()
    def run() -> object:
        with torch_threads(threads):
            return action()

    return run


if __name__ == "__main__":
    main()
