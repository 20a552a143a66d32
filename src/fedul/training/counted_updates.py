"""Updates of a round, counted while an algorithm reads them."""

from __future__ import annotations

from collections.abc import Iterator

from fedul.core import SiteMetrics, Update


class CountedUpdates:
    """Iterates over updates, and counts their clients and losses on the way.

    Parameters
    ----------
    updates : iterator of Update
        The updates of a round.
    singly : bool, default=False
        Whether `sites` records every client.
    """

    def __init__(self, updates: Iterator[Update], *, singly: bool = False) -> None:
        self._updates, self._singly = updates, singly
        self.sites: dict[str, SiteMetrics] = {}
        self._loss: float | None = 0.0
        self._rows = 0
        self.clients = 0

    def __iter__(self) -> Iterator[Update]:
        for update in self._updates:
            if self._loss is not None:
                self._loss = None if update.loss is None else self._loss + update.loss * update.rows
            self._rows += update.rows
            self.clients += 1
            if self._singly:
                self.sites[update.client] = SiteMetrics("trained", update.loss, update.rows)
            yield update

    def mean_loss(self) -> float | None:
        """Return the mean loss over the rows; None if rows are private."""
        return None if self._loss is None else self._loss / max(self._rows, 1)
