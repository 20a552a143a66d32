"""Variants that a comparison compares: a method under an algorithm, each with its options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from fedul._utils.registry import Registry
from fedul._utils.settings import parse_name_values
from fedul.algorithms import ALGORITHMS
from fedul.config import TrainConfig
from fedul.errors import InputError, unknown_name
from fedul.methods import METHODS

CHOSEN_BY_VARIANTS = ("method", "method_option", "algorithm", "algorithm_option")
"""Settings of `TrainConfig` in which variants differ."""


@dataclass(frozen=True)
class Variant:
    """A method under an algorithm, each with its options."""

    method: str
    algorithm: str = "fedavg"
    method_option: Mapping[str, Any] = field(default_factory=dict)
    algorithm_option: Mapping[str, Any] = field(default_factory=dict)

    @property
    def method_name(self) -> str:
        """The method with its options: 'supervised labels=0.1'."""
        return _with_options(self.method, self.method_option)

    @property
    def algorithm_name(self) -> str:
        """The algorithm with its options."""
        return _with_options(self.algorithm, self.algorithm_option)

    @property
    def title(self) -> str:
        """The method, and the algorithm unless it is FedAvg without options."""
        return self.method_name if self.algorithm_name == "fedavg" else f"{self.method_name} {self.algorithm_name}"

    @property
    def folder(self) -> str:
        """The name of its folder."""
        return f"{self.method_name} under {self.algorithm_name}".replace(" ", "_").replace("/", "-")

    def train_config(self, training: TrainConfig) -> TrainConfig:
        """Return the training of this variant, which is otherwise that of all."""
        return replace(training, **{name: getattr(self, name) for name in CHOSEN_BY_VARIANTS})


def parse_variants(methods: str, algorithms: str) -> list[Variant]:
    """Return every method under every algorithm.

    >>> [variant.folder for variant in parse_variants("fedul,supervised:labels=0.1", "fedavg")]
    ['fedul_under_fedavg', 'supervised_labels=0.1_under_fedavg']
    """
    named_methods, named_algorithms = _parse_names(methods, METHODS), _parse_names(algorithms, ALGORITHMS)
    variants = [
        Variant(method, algorithm, method_option, algorithm_option)
        for algorithm, algorithm_option in named_algorithms
        for method, method_option in named_methods
    ]
    folders = [variant.folder for variant in variants]
    if repeated := [variant for variant in variants if folders.count(variant.folder) > 1]:
        raise InputError(f"methods: '{repeated[0].title}' is named twice; name it once, or give it other settings.")
    return variants


def needs_truth(method: str) -> bool:
    """Return whether a method, by name, trains on the labels of research data.

    >>> needs_truth("supervised"), needs_truth("fedul")
    (True, False)
    """
    return METHODS.load(method).needs_truth


def without_truth(methods: str) -> str:
    """Return the methods of 'NAME,NAME:OPTION=VALUE' that need no true labels.

    >>> without_truth("fedul, supervised, supervised:labels=0.1")
    'fedul'
    """
    parts = [part.strip() for part in methods.split(",")]
    return ", ".join(part for part in parts if not needs_truth(part.partition(":")[0]))


def _with_options(name: str, options: Mapping[str, Any]) -> str:
    return " ".join([name, *(f"{key}={value}" for key, value in options.items())])


def _parse_names(text: str, registry: Registry[Any]) -> list[tuple[str, dict[str, Any]]]:
    """Parse 'NAME,NAME:OPTION=VALUE' into names with options."""
    what, parsed = f"{registry.kind}s", []
    for part in filter(None, (p.strip() for p in text.split(","))):
        name, *options = part.split(":")
        if name not in registry:
            raise unknown_name(registry.kind, name, registry)
        try:
            parsed.append((name, parse_name_values(options)))
        except ValueError as problem:
            raise InputError(f"{what}: expected NAME or NAME:{problem}, got '{part}'.") from None
    if not parsed:
        raise InputError(f"{what}: names none; give one or more of {', '.join(registry)}, separated by commas.")
    return parsed
