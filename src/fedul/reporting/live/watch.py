"""`fedul.watch`: a page on loopback that follows a run."""

from __future__ import annotations

import threading
import webbrowser
from pathlib import Path
from typing import Self

from fedul._utils.files import as_path
from fedul.errors import InputError, wrong_type
from fedul.reporting.live.run_view import LiveFolder, find_run
from fedul.reporting.live.server import LiveServer
from fedul.training import Run, RunFolder

MAX_PORT = 65535


class LivePage:
    """A page that is served until `close`, or until the end of a ``with`` block.

    Parameters
    ----------
    server : LiveServer
        The server, which listens already.
    """

    def __init__(self, server: LiveServer) -> None:
        self._server = server
        self._thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
        self._ended = threading.Event()
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<LivePage {self.url}>"

    @property
    def run(self) -> str:
        """The run folder."""
        return str(self._server.folder.path)

    @property
    def url(self) -> str:
        """Address of the page. It contains a secret: those who have it can read the page on this machine."""
        return self._server.url

    def wait(self) -> None:
        """Serve the page until `close` is called, or Ctrl-C."""
        self._ended.wait()

    def close(self) -> None:
        """End the server."""
        if not self._ended.is_set():
            self._ended.set()
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()


def watch(run: Run | RunFolder | str | Path, *, port: int = 0, wait: bool = False, open: bool = False) -> LivePage:
    """Serve a page on loopback that follows a run and updates itself: progress, curves, sites, warnings, the report.

    The server only reads the run folder. It runs in a thread, beside the rest of the program.

    Parameters
    ----------
    run : Run, RunFolder or path
        A run, its folder, or the folder of a federation, whose latest run is followed.
    port : int, default=0
        Port on 127.0.0.1; 0 takes a free one.
    wait : bool, default=False
        Whether the run may begin later.
    open : bool, default=False
        Whether to open the page in a browser.

    Returns
    -------
    LivePage
        The page; its `url` is the address. Use it as a context manager, or call `close`.

    Raises
    ------
    InputError
        If there is no run in the folder.
    EnvironmentFailure
        If the port is not free.

    Examples
    --------
    >>> import fedul, tempfile
    >>> folder = f"{tempfile.mkdtemp()}/RUN"
    >>> with fedul.watch(folder, wait=True) as page:
    ...     run = fedul.train(fedul.load("digits", clients=2, rows=400), rounds=1, seed=0, out=folder)
    >>> page.url.startswith("http://127.0.0.1:")
    True
    """
    if isinstance(run, Run):
        if run.folder is None:
            raise InputError("run: has no folder; train it with out=.")
        run = run.folder
    folder = run.path if isinstance(run, RunFolder) else as_path(run, "run")
    if isinstance(port, bool) or not isinstance(port, int):
        raise wrong_type("port", "a number", port)
    if not 0 <= port <= MAX_PORT:
        raise InputError(f"port: {port} is not from 0 to {MAX_PORT}.")
    if not wait and find_run(folder) is None:
        raise InputError(
            f"{folder}: no run in it; give the folder of a run, or add --wait (wait=True) if it begins later."
        )
    page = LivePage(LiveServer(LiveFolder(folder), port))
    if open:
        webbrowser.open(page.url)
    return page
