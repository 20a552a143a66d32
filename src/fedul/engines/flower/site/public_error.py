"""Errors of a site whose text the coordinator receives."""

from __future__ import annotations

from fedul.errors import InputError


class PublicError(InputError):
    """An error whose text the coordinator receives. The texts of all others stay at the site: they may quote data."""
