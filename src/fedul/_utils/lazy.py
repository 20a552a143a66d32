"""Imports on first use: objects by name, and packages that export names of their modules.

So ``import fedul`` does not wait for torch. A stub (``__init__.pyi``) tells type checkers what a package exports.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def import_object(place: str) -> Any:
    """Return what "module:attribute" names."""
    module, _, attribute = place.partition(":")
    return getattr(import_module(module), attribute)


def lazy_exports(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the functions ``__getattr__`` and ``__dir__`` of a package.

    Parameters
    ----------
    package : str
        Name of the package.
    homes : mapping of str to str
        Exported name to the module below the package that defines it. A name must not be that of a module.
    """

    def get_attribute(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        return import_object(f"{package}.{homes[name]}:{name}")

    return get_attribute, lambda: sorted(homes)
