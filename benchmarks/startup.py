"""How long `import fedul` and `fedul --help` take beyond the bare interpreter. Takes about 10 seconds.

    python benchmarks/startup.py [--json]

Each is a process of its own; the three are run in turn, and the median of the bare interpreter is taken off.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from _measure import Spread, in_turn, machine, options, show, verdict

TARGET = 0.3


def help_command() -> list[str]:
    """`fedul --help` as a user calls it, or the same without the installed script."""
    script = Path(sys.executable).with_name("fedul")
    if script.is_file():
        return [str(script), "--help"]
    return [sys.executable, "-c", "from fedul.cli.app import main; main()", "--help"]


def main() -> None:
    parser = options(__doc__)
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
    in_turn(actions, 2)  # byte code is compiled, files are in the cache
    taken = in_turn(actions, arguments.runs)
    bare = statistics.median(taken["bare"])
    beyond = {name: Spread.of([t - bare for t in times]) for name, times in taken.items() if name != "bare"}
    result = {
        **{name: spread.median for name, spread in beyond.items()},
        "seconds_beyond_bare": {name: spread.plain() for name, spread in beyond.items()},
        "bare_interpreter": Spread.of(taken["bare"]).plain(),
        "runs": arguments.runs,
        "target": TARGET,
        "machine": machine(),
    }
    table = [["what", "seconds beyond the bare interpreter (quartiles)", "target"]]
    table += [[name.replace("_", " "), s.text(), verdict(s.median, TARGET)] for name, s in beyond.items()]
    table += [["bare interpreter", Spread.of(taken["bare"]).text(), "the interpreter itself"]]
    show(result, table, as_json=arguments.json)


if __name__ == "__main__":
    main()
