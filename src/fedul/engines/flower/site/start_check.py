"""Check of a site before it connects: its rows and class priors are read once, as for the first message of a run.

The check is made in another process. It loads PyTorch, and the launcher, which is forked for every message, must not.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict, dataclass

from fedul._utils.display import counted
from fedul._utils.processes import bound
from fedul.errors import EnvironmentFailure, FedulError, InputError


@dataclass(frozen=True)
class CheckedData:
    """What a site has to train on.

    Parameters
    ----------
    rows : int
        Rows to train on.
    classes : tuple of str
        Classes that its priors name.
    """

    rows: int
    classes: tuple[str, ...]

    def __str__(self) -> str:
        return f"{counted(self.rows, 'row')} to train on, classes {', '.join(self.classes)}"


def check_data(path: str) -> CheckedData:
    """Read the rows and class priors of a site in another process.

    Parameters
    ----------
    path : str
        Settings file of the site.

    Returns
    -------
    CheckedData
        What was found.

    Raises
    ------
    InputError
        If they cannot be used.
    EnvironmentFailure
        If they cannot be read for another reason.
    """
    command = bound([sys.executable, "-P", "-m", __name__, path])
    ended = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        start_new_session=True,  # Ctrl-C reaches this process only, which then ends the other one
    )
    try:
        found = json.loads(ended.stdout)
    except ValueError:
        raise EnvironmentFailure(
            f"{path}: the rows could not be read (code {ended.returncode}), perhaps for lack of memory; the lines "
            "above may say why."
        ) from None
    if "problem" in found:
        raise (InputError if found["wrong"] else EnvironmentFailure)(found["problem"])
    return CheckedData(found["rows"], tuple(found["classes"]))


def read_data(path: str) -> CheckedData:
    """Read what a site discloses the form of, and refuse rows that no run could use."""
    from fedul.engines.flower.site.site_data import SiteData

    data = SiteData.read(path)
    data.signature()
    if data.rows < data.config.min_rows:
        raise InputError(
            f"{path}: {counted(data.rows, 'row')} to train on are fewer than min-rows ({data.config.min_rows}); give "
            "more rows, or lower min-rows."
        )
    return CheckedData(data.rows, data.classes)


def main(path: str) -> None:
    """Write the result, or the problem, as JSON; the body of the other process."""
    try:
        result = asdict(read_data(path))
    except FedulError as problem:
        result = {"problem": str(problem), "wrong": isinstance(problem, InputError)}
    print(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1])
