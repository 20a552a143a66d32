"""Secure aggregation between the clients of a simulation: the arithmetic and messages of real sites, in one process.

All clients stay to the end of every round. Nothing is hidden from the process that simulates them all: the purpose is
to test and to measure. Sums are exact, so the masks, which come from the operating system's entropy, do not change the
result.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping

from fedul.algorithms.base import Algorithm
from fedul.config import TrainConfig
from fedul.core import RoundSums, Update, UpdateSpec
from fedul.engines.base import Broadcast
from fedul.engines.held_out import HeldOutSums
from fedul.engines.secure_sums import FEWEST_CLIENTS, HELD_OUT_FIELDS, held_out_sums, held_out_values
from fedul.privacy.secure_aggregation.in_process import LocalFederation
from fedul.privacy.secure_aggregation.layout import VectorLayout
from fedul.privacy.secure_aggregation.masks import Words
from fedul.privacy.secure_aggregation.messages import RoundTerms
from fedul.privacy.secure_aggregation.problems import NotFinite
from fedul.privacy.secure_aggregation.site import SitePolicy
from fedul.privacy.secure_aggregation.update_layout import UpdateLayout


class SecureClients:
    """Sums over clients that no one sees one by one.

    Parameters
    ----------
    names : sequence of str
        The clients of the federation.
    algorithm, config
        The algorithm, and the configuration of the run.
    spec : UpdateSpec
        Declaration of the updates.
    rows : mapping of str to int
        Upper bound of the rows that each client trains on.
    """

    def __init__(self, algorithm: Algorithm, config: TrainConfig, spec: UpdateSpec, rows: Mapping[str, int]) -> None:
        self._algorithm, self._config, self._spec, self._rows = algorithm, config, spec, rows
        self._federation = LocalFederation(
            rows, secrets.token_hex(16), SitePolicy(FEWEST_CLIENTS, config.aggregation_threshold)
        )
        self._evaluations = 0
        self.participants: tuple[str, ...] = tuple(rows)
        """Clients of the last round; all, before the first one."""

    def sum_updates(self, updates: Iterator[Update], broadcast: Broadcast, count: int) -> RoundSums:
        """Return the sums over the updates of a round, of which there are `count`."""
        layout = UpdateLayout(
            self._spec,
            count,
            self._algorithm.weighting,
            self._config.aggregation_range,
            self._config.aggregation_threshold,
            sum(self._rows.values()),
            has_loss=not self._config.protects_rows,
        )
        vectors: dict[str, Words] = {}
        for update in updates:
            prepared = self._algorithm.prepare(broadcast.weights, update)
            try:
                vectors[update.client] = layout.encode(prepared).words
            except NotFinite:
                raise NotFinite(
                    f"the update of client '{update.client}' in round {broadcast.round} is not finite, so it cannot be "
                    "summed; use a smaller learning rate (--learning-rate), or look for very large values in the data."
                ) from None
        self.participants = tuple(vectors)
        words = self._sum("train", broadcast.round, layout.vector, vectors)
        device = next(iter(broadcast.weights.values())).device
        return layout.decode(words, len(vectors), device)

    def sum_held_out(self, sums: Mapping[str, HeldOutSums]) -> HeldOutSums:
        """Return the sums over the held-out rows of several clients."""
        layout = VectorLayout(HELD_OUT_FIELDS, len(sums))
        vectors = {name: layout.encode(held_out_values(each)).words for name, each in sums.items()}
        self._evaluations += 1
        return held_out_sums(layout.decode(self._sum("evaluate", self._evaluations, layout, vectors)))

    def _sum(self, purpose: str, number: int, layout: VectorLayout, vectors: Mapping[str, Words]) -> Words:
        share = self._config.aggregation_threshold
        terms = RoundTerms(self._federation.run, purpose, number, 1, share, FEWEST_CLIENTS, layout.digest)
        return self._federation.aggregate(terms, layout, vectors)[0]
