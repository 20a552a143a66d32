"""The tables of `docs/results/speed.md`, from the document that `speed.py --json FILE` wrote.

python benchmarks/speed_report.py docs/results/speed.json
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from _measure import Quartiles


def markdown_tables(document: Mapping[str, Any]) -> dict[str, str]:
    """Return every table of the document in Markdown, by the name of its comparison or part."""
    tables = {name: _comparison(results) for name, results in document["comparisons"].items()}
    parts = {"transition": _transition, "scaling": _scaling, "memory": _memory}
    return tables | {name: make(document[name]) for name, make in parts.items() if name in document}


def fault_sentence(results: Mapping[str, Any]) -> str:
    """Return how far faulty loops are from the others in a comparison."""
    parts = []
    for precision, found in results["distance_of_faults"].items():
        faults = ", ".join(f"{name} {value:.1e}" for name, value in found.items())
        parts.append(f"{precision} {faults} (accepted {results['tolerance'][precision]:.1e})")
    return f"Distances of faulty loops: {'; '.join(parts)}."


def _comparison(results: Mapping[str, Any]) -> str:
    simulators = results["simulators"]
    optional = {
        "times the floor": "times_the_floor",
        "speedup over the bfloat16 loop": "speedup_over_bfloat16_loop",
    }
    optional = {head: key for head, key in optional.items() if any(one[key] for one in simulators.values())}
    head = ["simulator", "seconds per round", "speedup over the manual loop", "speedup of fedul", *optional]
    rows = [[*head, "peak MB", "distance"]]
    for name, one in simulators.items():
        seconds = Quartiles.from_dict(one["quartiles"])
        cells = [seconds.format(digits=2 if seconds.median > 0.5 else 4)]
        keys = ("speedup_over_manual_loop", "speedup_of_fedul", *optional.values())
        cells += [Quartiles.from_dict(one[key]).format(digits=2) if one[key] else "-" for key in keys]
        memory = "-" if one["peak_mb"] is None else f"{one['peak_mb']:.0f} ({one['shared_once_mb']:.0f})"
        distance = "-" if one["distance"] is None else f"{one['distance']:.0e}"
        rows.append([name, *cells, memory, distance])
    return _table(rows)


def _transition(results: Sequence[Mapping[str, Any]]) -> str:
    rows = [["sets x classes", "`set_loss`", "full Q", "cross-entropy"]]
    for one in results:
        medians = [f"{1e6 * stored['median']:.0f}" for stored in one["seconds"].values()]
        rows.append([f"{one['sets']:,} x {one['classes']}", *medians])
    return _table(rows)


def _scaling(results: Mapping[str, Any]) -> str:
    rows = [["axis", "from", "to", "seconds", "exponent (upper half, log axes)"]]
    for axis, one in results.items():
        first, last = (f"{one['seconds'][end]['median']:.4f}" for end in (0, -1))
        rows.append([axis, f"{one['at'][0]:,}", f"{one['at'][-1]:,}", f"{first} - {last}", f"{one['exponent']:.2f}"])
    return _table(rows)


def _memory(results: Mapping[str, Any]) -> str:
    rows = [["clients", "peak MB", "seconds per round"]]
    rows += [[f"{int(n):,}", f"{one['peak_mb']:.0f}", f"{one['seconds']:.2f}"] for n, one in results.items()]
    return _table(rows)


def _table(rows: Sequence[Sequence[str]]) -> str:
    """Return rows as a Markdown table, numbers to the right."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([lines[0], f"|---|{'---:|' * (len(rows[0]) - 1)}", *lines[1:]])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="what speed.py wrote")
    document = json.loads(parser.parse_args().file.read_text())
    for name, table in markdown_tables(document).items():
        print(f"{name}\n\n{table}\n")
        if results := document["comparisons"].get(name):
            print(f"{fault_sentence(results)}\n")


if __name__ == "__main__":
    main()
