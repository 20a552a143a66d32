"""Time of `import fedul` and `fedul --help` beyond the bare interpreter. About 10 seconds.

    python benchmarks/startup.py [--json]

Each is a separate process. The three alternate, and the median of the bare interpreter is subtracted.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from _measure import Quartiles, compare_to_target, describe_machine, make_parser, print_result, time_alternating

TARGET = 0.3


def help_command() -> list[str]:
    """Return the command `fedul --help`; through Python if the script is not installed."""
    script = Path(sys.executable).with_name("fedul")
    if script.is_file():
        return [str(script), "--help"]
    return [sys.executable, "-c", "from fedul.cli.app import main; main()", "--help"]


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--runs", type=int, default=15, help="processes of each kind (default: 15)")
    arguments = parser.parse_args()

    commands = {
        "bare": [sys.executable, "-c", "pass"],
        "import_fedul": [sys.executable, "-c", "import fedul"],
        "fedul_help": help_command(),
    }
    actions: dict[str, Callable[[], object]] = {
        name: partial(subprocess.run, command, check=True, stdout=subprocess.DEVNULL)
        for name, command in commands.items()
    }
    time_alternating(actions, 2)  # warm-up: byte code and file cache
    taken = time_alternating(actions, arguments.runs)
    bare = statistics.median(taken["bare"])
    beyond = {name: Quartiles.of([t - bare for t in times]) for name, times in taken.items() if name != "bare"}
    result = {
        **{name: times.median for name, times in beyond.items()},
        "seconds_beyond_bare": {name: times.to_dict() for name, times in beyond.items()},
        "bare_interpreter": Quartiles.of(taken["bare"]).to_dict(),
        "runs": arguments.runs,
        "target": TARGET,
        "machine": describe_machine(),
    }
    table = [["command", "seconds beyond the bare interpreter (quartiles)", "target"]]
    table += [[name.replace("_", " "), s.format(), compare_to_target(s.median, TARGET)] for name, s in beyond.items()]
    table += [["bare interpreter", Quartiles.of(taken["bare"]).format(), "baseline"]]
    print_result(result, table, as_json=arguments.json)


if __name__ == "__main__":
    main()
