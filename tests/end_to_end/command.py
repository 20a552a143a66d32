"""The `fedul` command as a user types it, in its own process and folder.

`run` starts a new interpreter. `Warm` forks each command from a process that has already imported what commands import,
which takes longer than most commands: it serves all tests but those about starting up.
"""

from __future__ import annotations

import gc
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
"""Modules of other packages that commands import when they first need them."""

NOT_LOADED = ("_app", "__main__", "sklearn", "estimator", "scoring")
"""Modules that no command imports: the apps that Flower starts, and the estimator."""

CANONICAL = (
    "train --data digits --clients 5 --sets 10 --split iid --prior-recipe boosted --method fedul --algorithm fedavg "
    "--model auto --rounds 3 --seed 0 --out RUN --json"
)


@dataclass(frozen=True)
class Outcome:
    """Exit code and output of a command."""

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
    """Return the environment of this process without settings of fedul, and with an empty user cache."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("FEDUL_")}
    ours = {
        "PYTHONPATH": str(Path(fedul.__file__).parents[1]),
        "OMP_NUM_THREADS": "1",
        "XDG_CACHE_HOME": os.devnull,
        "NO_PROXY": "127.0.0.1",
        "no_proxy": "127.0.0.1",
        "COLUMNS": "100",
    }
    return {**inherited, **ours, **more}


def run(
    line: str, at: Path, *, out: IO[str] | int = subprocess.PIPE, names: Mapping[str, str] | None = None
) -> Outcome:
    """Run a command in a folder to its end, with names added to its environment."""
    done = subprocess.run(
        [*COMMAND, *shlex.split(line)],
        cwd=at,
        env=environment(**(names or {})),
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    return Outcome(done.returncode, done.stdout or "", done.stderr)


class Warm:
    """A process that has imported what commands import, and forks one process per command."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._orders = 0
        variables = environment(MPLCONFIGDIR=str(scratch / "matplotlib"))  # the font cache of matplotlib
        self._server = subprocess.Popen(
            [sys.executable, __file__], env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def start(
        self,
        line: str,
        at: Path,
        *,
        largest_file: int | None = None,
        names: Mapping[str, str] | None = None,
        stdin: Path | str = os.devnull,
    ) -> Running:
        """Start a command; `largest_file` limits the size of files it writes, `names` is added to its environment."""
        self._orders += 1
        files = {name: str(self._scratch / f"{self._orders}.{name}") for name in ("out", "err", "code")}
        limits = {"at": str(at), "largest_file": largest_file, "names": names or {}}
        order = {**files, **limits, "words": shlex.split(line), "in": str(stdin)}
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        print(json.dumps(order), file=self._server.stdin, flush=True)
        return Running(int(self._server.stdout.readline()), self._server, files)

    def run(self, line: str, at: Path, **options: Any) -> Outcome:
        """Run a command to its end."""
        return self.start(line, at, **options).outcome()

    def close(self) -> None:
        """End the process."""
        self._server.communicate()


@dataclass(frozen=True)
class Running:
    """A command that was started and may have ended."""

    pid: int
    server: subprocess.Popen[str]
    files: dict[str, str]

    def wait_until(self, happened: Callable[[], object], *, pause: float = 0.0005) -> None:
        """Wait for something to happen, or for the end of the command."""
        while not self._ended() and not happened():
            time.sleep(pause)

    def send(self, number: signal.Signals) -> None:
        """Send a signal, unless the command has ended."""
        if not self._ended():
            os.kill(self.pid, number)

    def outcome(self) -> Outcome:
        """Wait for the end of the command and return its outcome."""
        self.wait_until(lambda: False, pause=0.005)
        code, out, err = (Path(self.files[name]).read_text() for name in ("code", "out", "err"))
        return Outcome(int(code), out, err)

    def _ended(self) -> bool:
        assert self.server.poll() is None
        return os.path.exists(self.files["code"])


def load() -> None:
    """Import what commands import when they need it: fedul without its estimator, libraries, modules of the parser."""
    modules = [found.name for found in walk_packages(fedul.__path__, "fedul.") if not found.name.endswith(NOT_LOADED)]
    for module in (*modules, *LIBRARIES):
        import_module(module)
    from fedul.cli.app import main

    for words in ("train --help", "train --sets 0"):
        sys.argv = ["fedul", *words.split()]
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()), suppress(SystemExit):
            main()


def serve() -> None:
    """Run the commands that arrive on standard input, one JSON document per line, each in its own process."""
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
            for number, file in enumerate((order["in"], order["out"], order["err"])):
                os.dup2(os.open(file, os.O_RDWR | os.O_CREAT, 0o644), number)
            if order["largest_file"]:
                # Under the limit CPython 3.11 would cache truncated byte code, for all later processes.
                sys.dont_write_bytecode = True
                os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
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


if __name__ == "__main__":
    serve()
