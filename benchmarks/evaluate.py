"""Time of `fedul evaluate` on the digits, relative to another version of fedul. About five minutes.

    python benchmarks/evaluate.py --before PATH/src [--runs N] [--json]

PATH is a checkout of the version to compare with, e.g. `git worktree add PATH 26c409e`. Each version trains a run with
`fedul train --data digits` in a folder of its own. Then the command `fedul evaluate` of both is timed in turn, in a
process of its own and without folds of an earlier evaluation. Byte code is cached, as after an installation. The target
is half the time.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import fedul
from _measure import Quartiles, compare_to_target, describe_machine, make_parser, print_result, time_alternating

TARGET = 0.5


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--before", type=Path, required=True, help="folder `src` of the version to compare with")
    parser.add_argument("--runs", type=int, default=5, help="evaluations by each version (default: 5)")
    arguments = parser.parse_args()
    sources = {"before": arguments.before.resolve(), "now": Path(fedul.__file__).resolve().parents[1]}
    with tempfile.TemporaryDirectory() as folder:
        actions: dict[str, Callable[[], object]] = {
            name: prepare(source, Path(folder) / name) for name, source in sources.items()
        }
        taken = time_alternating(actions, arguments.runs)
    ratio = Quartiles.of([b / a for a, b in zip(taken["before"], taken["now"], strict=True)])
    seconds = {name: Quartiles.of(values) for name, values in taken.items()}
    rows = [["", "seconds (quartiles)"], *([name, each.format(digits=2)] for name, each in seconds.items())]
    rows += [["now / before", f"{ratio.format(digits=2)}  {compare_to_target(ratio.median, TARGET)}"]]
    result = {
        "seconds": {name: each.to_dict() for name, each in seconds.items()},
        "ratio": ratio.to_dict(),
        "runs": arguments.runs,
        "target": TARGET,
        "machine": describe_machine(),
    }
    print_result(result, rows, as_json=arguments.json)


def prepare(source: Path, folder: Path) -> Callable[[], None]:
    """Train a run with the version in this folder, and return a function that evaluates it."""
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment = {**inherited, "PYTHONPATH": str(source), "PYTHONPYCACHEPREFIX": str(folder / "bytecode")}
    run = folder / "run"

    def call(*words: str) -> None:
        command = [sys.executable, "-m", "fedul", *words]
        subprocess.run(command, env=environment, check=True, capture_output=True)

    def evaluate() -> None:
        for outdated in ("evaluation", "evaluation.json", "check.json"):
            path = run / outdated
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        call("evaluate", str(run))

    call("train", "--data", "digits", "--out", str(run))
    evaluate()  # fills the cache of byte code
    return evaluate


if __name__ == "__main__":
    main()
