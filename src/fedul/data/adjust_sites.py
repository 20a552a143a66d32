"""`fedul.adjust_sites`: prior-adjusted standardisation of every client of a federation.

The maths is in `fedul.core.site_adjustment`, the test of "auto" in `fedul.core.site_differences`.
"""

from __future__ import annotations

import warnings
from dataclasses import replace

from fedul.core import SIGNIFICANCE, Federation, Schema
from fedul.core.site_adjustment import Columns, SiteAdjustments, fit_adjustment, is_determined, with_adjusted_rows
from fedul.core.site_differences import SiteDifferences, compare_sites
from fedul.core.unlabeled_sets import UnlabeledSets
from fedul.data.files.schema.table import TableSchema
from fedul.errors import InputError

MODES = ("off", "on", "auto")


def adjust_sites(federation: Federation, mode: str = "on") -> Federation:
    """Return the federation with the rows of every client in units of what the client would have at the test prior.

    Each client regresses the mean and the second moment of a feature on the class priors of its sets, predicts both for
    the test prior, and standardises its rows by them. Only numbers are adjusted, not the inputs of categories.

    Parameters
    ----------
    federation : Federation
        Clients with rows of numbers (D,).
    mode : {"on", "auto", "off"}, default="on"
        With "auto", rows are adjusted if clients differ beyond what their class priors explain, and the sets of every
        client determine its adjustment. What was decided is a Python warning.

    Returns
    -------
    Federation
        Its `site_adjustments` go into the classifier: ``classifier.predict_proba(rows, client="north")``.

    Examples
    --------
    >>> import numpy as np
    >>> from fedul import Federation, UnlabeledSets
    >>> x, sets = np.random.default_rng(0).normal(size=(400, 1)), np.arange(400) // 200
    >>> priors = [[0.9, 0.1], [0.1, 0.9]]
    >>> clients = [UnlabeledSets.from_arrays(name, x + shift, sets, priors) for name, shift in (("a", 0), ("b", 5))]
    >>> adjusted = adjust_sites(Federation(clients, ["flu", "cold"]))
    >>> a, b = adjusted.site_adjustments.sites.values()
    >>> bool(np.allclose(b.location - a.location, 5))
    True
    """
    if mode not in MODES:
        raise InputError(f"mode: '{mode}' is not one of {', '.join(MODES)}.")
    adjusted, messages = apply_site_adjustment(federation, mode)
    for message in messages:
        warnings.warn(message, stacklevel=2)
    return adjusted


def apply_site_adjustment(
    federation: Federation, mode: str, client_column: str | None = None
) -> tuple[Federation, list[str]]:
    """Return the federation as `adjust_sites` does, and what a user should know about it.

    Parameters
    ----------
    federation : Federation
        Clients with rows of numbers.
    mode : {"off", "on", "auto"}
        Whether to adjust.
    client_column : str, optional
        Column of a table with the client of a row, which new rows may have too.
    """
    if mode == "off":
        return federation, []
    if federation.site_adjustments is not None:
        raise InputError("site-adjustment: the rows of this federation are adjusted already; adjust them once.")
    columns = adjusted_columns(federation.schema, federation.clients[0])
    messages = []
    if mode == "auto":
        differences = compare_sites(federation.clients, federation.test_prior, columns)
        adjusts, message = _decide(differences, federation)
        messages.append(f"site-adjustment auto: {message}.")
        if not adjusts:
            return federation, messages
    sites = {client.name: fit_adjustment(client, federation.test_prior, columns) for client in federation.clients}
    adjustments = SiteAdjustments(sites, columns, client_column)
    weak = [client.name for client in federation.clients if not is_determined(client, federation.test_prior)]
    if weak:
        messages.append(
            f"site-adjustment: the class priors of {_listed(weak)} hardly vary, or rows are few; such a site is "
            "standardised by moments of its own class mix, which removes what this mix tells about its rows."
        )
    return replace(
        federation, clients=with_adjusted_rows(federation.clients, adjustments), site_adjustments=adjustments
    ), messages


def adjusted_columns(schema: Schema | None, client: UnlabeledSets) -> Columns:
    """Return the inputs to adjust: the numbers of a table, or all columns of an array; InputError if there are none."""
    if isinstance(schema, TableSchema):
        columns: Columns = schema.number_places()
    elif len(client.inputs.shape) == 2 and client.inputs.is_floating_point():
        columns = dict.fromkeys(range(client.inputs.shape[1]))
    else:
        raise InputError("site-adjustment: is for tables and arrays of numbers; for images, use --algorithm fedbn.")
    if not columns:
        raise InputError("site-adjustment: the table has no column of numbers to adjust; leave it out.")
    return columns


def _decide(differences: SiteDifferences, federation: Federation) -> tuple[bool, str]:
    """Return whether to adjust, and why."""
    p_value = differences.p_value
    if len(federation.clients) == 1:
        return False, "off, because there is one client"
    if differences.undetermined:
        return False, (
            f"off, because it cannot be told whether sites differ: the class priors of "
            f"{_listed(differences.undetermined)} hardly vary, so a difference may be one of class mix"
        )
    if p_value is None:
        return False, "off, because the sets are too few to tell whether sites differ"
    if p_value >= SIGNIFICANCE:
        return False, f"off, because class priors explain the differences between sites (p = {p_value:.2g})"
    feature = _feature_name(federation.schema, differences.place)
    return True, f"on, because sites differ in {feature} beyond their class priors (p = {p_value:.2g})"


def _feature_name(schema: Schema | None, place: int | None) -> str:
    if isinstance(schema, TableSchema) and place is not None:
        return f"'{schema.column_at(place).name}'"
    return f"column {(place or 0) + 1}"


def _listed(names: list[str] | tuple[str, ...]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
