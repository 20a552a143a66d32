"""A watcher of many runs that shows nothing and writes everything down."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from fedul.training import Quiet


class Witness:
    """Knows which runs were done; at run `stop_at` it is interrupted."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.seen: list[tuple[int, int, str]] = []
        self.together_done: list[str] = []
        self.sentences: list[str] = []
        self._stop_at = stop_at

    @contextmanager
    def run(self, number: int, total: int, title: str) -> Iterator[Quiet]:
        if number == self._stop_at:
            raise KeyboardInterrupt
        self.seen.append((number, total, title))
        yield Quiet()

    @contextmanager
    def together(self, done: int, total: int) -> Iterator[Witness]:
        yield self

    def finished(self, title: str, sentences: Sequence[str]) -> None:
        self.together_done.append(title)
        self.sentences += sentences
