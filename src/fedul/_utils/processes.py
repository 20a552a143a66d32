"""Child processes that are never lost: signals wait while one is started, and it ends when its parent does.

Run as a script, this file is the launcher that `bound` puts in front of a command.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from types import FrameType
from typing import Any

ENDING_SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
RESET_SIGNALS = tuple(getattr(signal, name) for name in ("SIGPIPE", "SIGXFSZ") if hasattr(signal, name))
"""Signals that every Python ignores when it starts, and that a program it is replaced with would ignore too."""
PR_SET_PDEATHSIG = 1


class DeferredSignals:
    """Context in which SIGINT, SIGTERM and SIGHUP wait: the first that arrives takes effect at the end of the block.

    Start a process and note it inside one block. Otherwise Ctrl-C between the two loses the process.

    Handlers are replaced instead of signals masked: a signal that the main thread blocks is delivered to another thread
    (PyTorch and rich have some), and Python then runs its handler in the main thread all the same. Children inherit
    nothing, because handlers do not survive `exec`. Ignored signals stay ignored. In other threads than the main one
    the block does nothing, because Python never raises from a handler there.
    """

    def __init__(self) -> None:
        self._active = False
        self._arrived: list[int] = []
        self._before: dict[int, Any] = {}

    def __enter__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        self._active = True
        try:
            for number in ENDING_SIGNALS:
                before = signal.getsignal(number)
                if before not in (signal.SIG_IGN, None):  # None: a handler that is not Python's
                    self._before[number] = before
                    signal.signal(number, self._handle)
        except BaseException:  # from a handler that was not replaced yet
            self._restore()
            raise

    def __exit__(self, *_: object) -> None:
        self._restore()
        if self._arrived:
            signal.raise_signal(self._arrived[0])

    def _restore(self) -> None:
        self._active = False  # from here on a signal takes effect, also where its handler is not put back yet
        for number, before in self._before.items():
            signal.signal(number, before)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._active:
            self._arrived.append(number)
            return
        before = self._before[number]
        if callable(before):
            before(number, frame)
        else:
            signal.signal(number, before)
            signal.raise_signal(number)


def bound(command: Sequence[str]) -> list[str]:
    """Return a command whose process is killed when this process ends, however it ends.

    The process starts as a launcher that asks the kernel for the kill (`PR_SET_PDEATHSIG`) and then becomes the
    command, with the same process id. A launcher is safe where a `preexec_fn` is not: in a parent with threads.

    Linux alone can do this, and it sends the signal when the starting *thread* ends. Elsewhere, and in other threads
    than the main one, the command is returned unchanged, and its process is ended only by the code that started it.
    """
    if sys.platform != "linux" or threading.current_thread() is not threading.main_thread():
        return list(command)
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), *command]


def end_with_parent(parent: int) -> None:
    """Let the kernel kill this process when its parent, which has this process id, ends. Linux alone can do this."""
    if sys.platform != "linux":
        return
    with suppress(ImportError, OSError, AttributeError):  # a Python without ctypes, or a C library without prctl
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it ended before the kernel was asked
        sys.exit(1)


def _become(parent: int, command: list[str]) -> None:
    """Replace this process with a command that is killed when the parent ends."""
    end_with_parent(parent)
    for number in RESET_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    os.execvp(command[0], command)


if __name__ == "__main__":
    _become(int(sys.argv[1]), sys.argv[2:])
