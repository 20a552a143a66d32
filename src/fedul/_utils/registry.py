"""Registries of named components: those of fedul, and those that installed packages provide through entry points."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from fedul._utils.lazy import import_object
from fedul._utils.settings import build_component, to_dict
from fedul.errors import InputError, list_names, unknown_name

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

T = TypeVar("T")

CUSTOM = "custom:"
"""Prefix of the recorded name of an object whose class is not registered."""


class Registry(Mapping[str, str], Generic[T]):
    """Component classes by name.

    Iterating gives the names: built-in ones first, then those of installed packages. A built-in name cannot be
    replaced.

    Parameters
    ----------
    kind : str
        What is registered, for messages: "method" or "algorithm".
    builtin : mapping of str to str
        Name to "module:Class".
    group : str
        Entry-point group of other packages, e.g. "fedul.methods".
    base : str
        The base class of all components, as "module:Class".
    """

    def __init__(self, kind: str, builtin: Mapping[str, str], group: str, base: str) -> None:
        self.kind, self._builtin, self._group, self._base = kind, dict(builtin), group, base

    @cached_property
    def _installed(self) -> dict[str, EntryPoint]:
        from importlib.metadata import entry_points

        return {point.name: point for point in entry_points(group=self._group) if point.name not in self._builtin}

    def __getitem__(self, name: str) -> str:
        return self._builtin[name] if name in self._builtin else self._installed[name].value

    def __iter__(self) -> Iterator[str]:
        return iter((*self._builtin, *self._installed))

    def __len__(self) -> int:
        return len(self._builtin) + len(self._installed)

    def is_builtin(self, name: str) -> bool:
        """Return whether fedul itself provides a component."""
        return name in self._builtin

    def package(self, name: str) -> str:
        """Return the name of the package that provides a component."""
        point = None if name in self._builtin else self._installed[name]
        return "fedul" if point is None else point.dist.name if point.dist else point.module

    def load(self, name: str) -> type[T]:
        """Import and return the class of this name.

        Raises
        ------
        InputError
            If there is no such name, its package cannot be imported, or it is not a component of this kind.
        """
        if name.startswith(CUSTOM):
            raise InputError(
                f"{self.kind} '{name}': was passed as an object; pass it again from Python ({self.kind}=...), or "
                f"register it as an entry point '{self._group}'."
            )
        if name not in self:
            raise unknown_name(self.kind, name, self)
        try:
            found: type[T] = import_object(self[name])
        except Exception as problem:  # a module of another package may raise anything
            raise InputError(
                f"{self.kind} '{name}': cannot be loaded from {self[name]} ({problem}); reinstall the package that "
                "provides it."
            ) from None
        base = import_object(self._base)
        if not (isinstance(found, type) and issubclass(found, base) and is_dataclass(found)):
            raise InputError(
                f"{self.kind} '{name}': {self[name]} is not a dataclass derived from fedul.{base.__name__}; "
                f"ask the author of package {self.package(name)}."
            )
        if missing := sorted(getattr(found, "__abstractmethods__", ())):
            raise InputError(
                f"{self.kind} '{name}': {found.__name__} of package {self.package(name)} does not define "
                f"{list_names(missing)}; ask its author."
            )
        return found

    def build(self, name: str, options: Mapping[str, Any]) -> T:
        """Return the component of this name with these options."""
        return build_component(self.load(name), options, f"{self.kind} {name}")

    def describe(self, component: T) -> tuple[str, dict[str, Any]]:
        """Return the name and the options under which an object is recorded.

        A registered class has its name and the options that differ from their defaults, as if it was named on the
        command line. The name of another class is "custom:module.Class", with all options and all other fields that
        hold text or numbers; such a run can be resumed only by passing the object again.
        """
        kind = type(component)
        name = next((name for name in self if _is_at(self[name], kind)), "")
        described = fields(component) if is_dataclass(component) else ()
        options = {f.name: f.default for f in described if "help" in f.metadata}
        values = to_dict(component) if described else {}
        if name:
            return name, {key: value for key, value in values.items() if key in options and value != options[key]}
        recorded = {
            key: value for key, value in values.items() if key in options or isinstance(value, str | int | float)
        }
        return f"{CUSTOM}{kind.__module__}.{kind.__qualname__}", recorded


def _is_at(place: str, kind: type[Any]) -> bool:
    """Return whether "module:Class" is this class; a module that is not imported yet does not provide it."""
    module, _, attribute = place.partition(":")
    return getattr(sys.modules.get(module), attribute, None) is kind
