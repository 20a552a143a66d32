"""Metrics of a round: one line of `metrics.jsonl`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from fedul._utils.documents import Document

MOST_SITES = 100
"""Clients of a run beyond which no metrics of single ones are recorded."""


@dataclass(frozen=True)
class SiteMetrics(Document):
    """Metrics of one client in a round. What the coordinator does not know, or must not tell, is None.

    Parameters
    ----------
    state : {"trained", "failed"}
        Whether the round has its update; `RoundMetrics.site_errors` has the reason if not.
    loss : float or None
        Its mean training loss.
    rows : int or None
        Rows that it trained on.
    seconds : float or None
        From the request for its update to the reply.
    bytes_sent, bytes_received : int or None
        Traffic with it.
    epsilon : float or None
        Epsilon of its rows so far.
    """

    state: Literal["trained", "failed"]
    loss: float | None = None
    rows: int | None = None
    seconds: float | None = None
    bytes_sent: int | None = None
    bytes_received: int | None = None
    epsilon: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-serializable values; what is not known is left out."""
        return {key: value for key, value in super().to_dict().items() if value is not None}


@dataclass(frozen=True)
class RoundMetrics(Document):
    """Metrics of one round.

    Parameters
    ----------
    round : int
        Number of the round, from 1.
    loss : float or None
        Mean training loss over the rows of the participating clients; None if rows are private.
    clients : int
        Clients whose update was aggregated; their expected number if clients are protected.
    seconds : float
        Wall-clock time of the round.
    directive : mapping of str to float
        What all clients received from the method in this round (`Method.directive`).
    held_out_loss : float or None
        Mean -log Q over held-out rows at the best temperature; None if no rows are held out.
    comparable_loss : float or None
        The held-out loss made comparable with the best round, where not all sites evaluated both; else None.
    temperature : float
        Temperature that calibrates the probabilities of this round.
    held_out_error, test_error : float or None
        Error with respect to true labels, where they exist and are asked for.
    evaluated_by : tuple of str
        Sites that evaluated the round, if not all of them did.
    site_errors : mapping of str to str
        Sites that failed in this round, with the reason.
    bytes_sent, bytes_received : int or None
        Traffic between coordinator and sites; None in process.
    clipped_values : int or None
        Values of all updates that were outside the range of secure aggregation; None without it.
    epsilon : float or None
        Largest epsilon of the rows of a client so far; None if they are not protected, or no finite one is known.
    epsilon_by_client : mapping of str to float or None
        Epsilon of the rows of each client so far, None if it is infinite; empty if they are not protected.
    client_epsilon : float or None
        Epsilon of whole clients so far; None if they are not protected, or it is not finite.
    sites : mapping of str to SiteMetrics
        Metrics of the clients that were asked to train; empty if there are more than `MOST_SITES`, or if it is private
        who took part.

    Examples
    --------
    >>> RoundMetrics(round=1, loss=0.5, clients=3).to_dict()["held_out_loss"] is None
    True
    """

    round: int
    loss: float | None
    clients: int
    seconds: float = 0.0
    directive: Mapping[str, float] = field(default_factory=dict)
    held_out_loss: float | None = None
    comparable_loss: float | None = None
    temperature: float = 1.0
    held_out_error: float | None = None
    test_error: float | None = None
    evaluated_by: tuple[str, ...] = ()
    site_errors: Mapping[str, str] = field(default_factory=dict)
    bytes_sent: int | None = None
    bytes_received: int | None = None
    clipped_values: int | None = None
    epsilon: float | None = None
    epsilon_by_client: Mapping[str, float | None] = field(default_factory=dict)
    client_epsilon: float | None = None
    sites: Mapping[str, SiteMetrics] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-serializable values; what is not known or empty is left out, except the losses."""
        values = super().to_dict()
        return {k: v for k, v in values.items() if k in ("loss", "held_out_loss") or v not in (None, [], {})}
