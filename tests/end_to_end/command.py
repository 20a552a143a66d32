"""The `fedul` command as a user types it, in a process and a folder of its own.

`run` starts the command afresh. `Warm` forks each command from a process that has loaded already what commands load,
which takes longer than most commands do: for all but what is about starting, and for kills that are to hit work.
"""

from __future__ import annotations

import gc
import hashlib
import io
import json
import os
import resource
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import IO, Any

import fedul

SCRIPT = Path(sys.executable).with_name("fedul")
COMMAND = [str(SCRIPT)] if SCRIPT.exists() else [sys.executable, "-c", "from fedul.cli.app import main; main()"]

LIBRARIES = (
    "matplotlib.backends.backend_agg",
    "matplotlib.backends.backend_svg",
    "matplotlib.figure",
    "matplotlib.font_manager",
    "pyarrow.parquet",
    "safetensors.torch",
    "scipy.stats",
)
"""What commands load of other packages, when they first need it."""

NOT_LOADED = ("_app", "__main__", "sklearn", "estimator", "scoring")
"""What no command loads: the apps that Flower starts, and the estimator."""

CANONICAL = (
    "train --data digits --clients 5 --sets 10 --split iid --prior-recipe boosted --method fedul --algorithm fedavg "
    "--model auto --rounds 3 --seed 0 --out RUN --json"
)


@dataclass(frozen=True)
class Outcome:
    """What a command left behind: its exit code and what it printed."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """Standard output, which must be one JSON document."""
        document: dict[str, Any] = json.loads(self.out)
        return document


Fedul = Callable[..., Outcome]
"""A way to run a command in the folder of the test."""


def environment(**more: str) -> dict[str, str]:
    """This process's environment without settings of fedul, and with an empty user cache."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FEDUL_")}
    own = {
        "PYTHONPATH": str(Path(fedul.__file__).parents[1]),
        "OMP_NUM_THREADS": "1",
        "XDG_CACHE_HOME": os.devnull,
        "NO_PROXY": "127.0.0.1",
        "no_proxy": "127.0.0.1",
        "COLUMNS": "100",
    }
    return {**kept, **own, **more}


def run(line: str, at: Path, *, out: IO[str] | int = subprocess.PIPE) -> Outcome:
    """Runs a command in a folder to its end."""
    done = subprocess.run(
        [*COMMAND, *shlex.split(line)],
        cwd=at,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    return Outcome(done.returncode, done.stdout or "", done.stderr)


class Warm:
    """A process that has loaded what commands load, and forks a command whenever it is given one."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._orders = 0
        own = environment(MPLCONFIGDIR=str(scratch / "matplotlib"))  # where matplotlib keeps what it knows of fonts
        self._server = subprocess.Popen(
            [sys.executable, __file__], env=own, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def start(
        self, line: str, at: Path, *, largest_file: int | None = None, names: Mapping[str, str] | None = None
    ) -> Running:
        """Starts a command; files that it writes may be limited to some size, names added to its environment."""
        self._orders += 1
        files = {name: str(self._scratch / f"{self._orders}.{name}") for name in ("out", "err", "code")}
        order = {**files, "words": shlex.split(line), "at": str(at), "largest_file": largest_file, "names": names or {}}
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        print(json.dumps(order), file=self._server.stdin, flush=True)
        return Running(int(self._server.stdout.readline()), self._server, files)

    def run(self, line: str, at: Path, **options: Any) -> Outcome:
        """Runs a command to its end."""
        return self.start(line, at, **options).outcome()

    def close(self) -> None:
        """Ends the process."""
        self._server.communicate()


@dataclass(frozen=True)
class Running:
    """A command that was started and may have ended."""

    pid: int
    server: subprocess.Popen[str]
    files: dict[str, str]

    def wait_until(self, happened: Callable[[], object], *, pause: float = 0.0005) -> None:
        """Waits for something to happen, or for the end of the command."""
        while not self._ended() and not happened():
            time.sleep(pause)

    def send(self, number: signal.Signals) -> None:
        """Sends a signal, unless the command has ended."""
        if not self._ended():
            os.kill(self.pid, number)

    def outcome(self) -> Outcome:
        """What the command left behind, when it has ended."""
        self.wait_until(lambda: False, pause=0.005)
        code, out, err = (Path(self.files[name]).read_text() for name in ("code", "out", "err"))
        return Outcome(int(code), out, err)

    def _ended(self) -> bool:
        assert self.server.poll() is None
        return os.path.exists(self.files["code"])


def load() -> None:
    """Loads what commands load once they need it: all of fedul but its estimator, libraries, the parser's own."""
    own = [found.name for found in walk_packages(fedul.__path__, "fedul.") if not found.name.endswith(NOT_LOADED)]
    for module in (*own, *LIBRARIES):
        import_module(module)
    from fedul.cli.app import main

    for words in ("train --help", "train --sets 0"):
        sys.argv = ["fedul", *words.split()]
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()), suppress(SystemExit):
            main()


def serve() -> None:
    """Runs the commands that come in on standard input, a JSON document a line, each in a process of its own."""
    load()
    from fedul.cli.app import main

    gc.freeze()
    for line in sys.stdin:
        order = json.loads(line)
        pid = os.fork()
        if pid == 0:
            # Tests that were started in the background inherit that Ctrl-C is ignored; a user at a terminal does not.
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.signal(signal.SIGHUP, signal.SIG_DFL)
            os.setsid()
            os.chdir(order["at"])
            os.environ.update(order["names"])
            for number, file in enumerate((os.devnull, order["out"], order["err"])):
                os.dup2(os.open(file, os.O_RDWR | os.O_CREAT, 0o644), number)
            if order["largest_file"]:
                resource.setrlimit(resource.RLIMIT_FSIZE, (order["largest_file"],) * 2)
            sys.argv = ["fedul", *order["words"]]
            try:
                main()
            except SystemExit as left:
                sys.stdout.flush()
                os._exit(int(left.code or 0))
        print(pid, flush=True)
        _, status = os.waitpid(pid, 0)
        unfinished = Path(order["code"] + ".unfinished")
        unfinished.write_text(str(os.waitstatus_to_exitcode(status)))
        unfinished.rename(order["code"])


def contents(folder: Path) -> dict[str, str]:
    """Every file and folder below a folder, with a digest of what it holds."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"
        for path in sorted(folder.rglob("*"))
    }


def leftovers(folder: Path) -> list[str]:
    """Files that an interrupted write left behind."""
    return [path.name for path in folder.rglob(".*") if path.is_file()]


def is_one_sentence(err: str) -> bool:
    """Whether standard error holds one sentence of fedul, in one line, and nothing else."""
    return err.startswith("fedul: ") and err.endswith("\n") and err.count("\n") == 1 and "Traceback" not in err


def refuses(fedul: Fedul, folder: Path, line: str, complaint: str) -> None:
    """The command ends with code 2 and this complaint in one sentence, and leaves the folder as it was."""
    before = contents(folder)
    outcome = fedul(line)
    assert is_one_sentence(outcome.err), outcome.err
    assert complaint in outcome.err
    assert (outcome.code, outcome.out) == (2, "")
    assert contents(folder) == before


def class_priors(sets: dict[str, int]) -> str:
    """A CSV of priors of the ten digits: in set m of a client, class m is eleven times as common as the others."""
    lines = [f"client,set,{','.join('0123456789')}"]
    for client, count in sets.items():
        for m in range(count):
            shares = ["0.55" if k == m % 10 else "0.05" for k in range(10)]
            lines.append(f"{client},{m + 1},{','.join(shares)}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    serve()
