"""Locks on folders: they leave no file behind and end with their process."""

from __future__ import annotations

import os
import time
from pathlib import Path

ATTEMPTS, PAUSE = 5, 0.01
"""Attempts to lock a folder, and the seconds between two: `is_locked` holds a folder for a moment."""


class FolderLock:
    """Lock on a folder: `with FolderLock(folder) as acquired` says whether it was free.

    Where there are no such locks (Windows, some network drives) the folder is always free.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._descriptor: int | None = None

    def __enter__(self) -> bool:
        try:
            import fcntl

            self._folder.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(self._folder, os.O_RDONLY)
            for attempt in range(ATTEMPTS):
                if attempt:
                    time.sleep(PAUSE)
                try:
                    fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    continue
                return True
        except (ImportError, OSError):  # the first write reports what is wrong with the folder
            return True
        self.__exit__()
        return False

    def __exit__(self, *_: object) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def is_locked(folder: Path) -> bool | None:
    """Return whether a process holds the `FolderLock` of a folder; None where there are no such locks."""
    try:
        import fcntl

        descriptor = os.open(folder, os.O_RDONLY)
    except ImportError:
        return None
    except OSError:  # there is no such folder
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared, so that two observers do not see each other
    except BlockingIOError:
        return True
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return False
