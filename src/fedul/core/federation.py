"""A federation: its clients, their common classes, and the population that the classifier is for."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from torch import Tensor

from fedul._utils.display import counted
from fedul.core import priors as prior_tools
from fedul.core.inputs import inputs_digest, memory_key
from fedul.core.prior_scope import PriorScope
from fedul.core.priors import Matrix
from fedul.core.site_adjustment import SiteAdjustments
from fedul.core.task_spec import Scaling, Schema, TaskSpec
from fedul.core.unlabeled_sets import UnlabeledSets, pooled_class_mix
from fedul.errors import InputError, wrong_type


@dataclass(frozen=True, eq=False, repr=False)
class Federation:
    """Clients with common classes, and the class mix of the population that the classifier is for.

    Parameters
    ----------
    clients : sequence of UnlabeledSets
        The clients; names are unique.
    classes : sequence of str
        Names of the K classes.
    test_prior : array-like of shape (K,), optional
        Class mix of the population that the classifier is for; by default uniform.
    scaling : Scaling, optional
        Map from stored inputs to network inputs.
    schema : Schema, optional
        How tables or files became inputs; None where they were arrays.
    site_adjustments : SiteAdjustments, optional
        How the rows of each client were adjusted (`fedul.adjust_sites`); None where they were not.

    Raises
    ------
    InputError
        If clients, classes or priors do not fit together.

    Examples
    --------
    >>> x, sets = np.zeros((6, 2)), [0, 0, 0, 1, 1, 1]
    >>> north = UnlabeledSets.from_arrays("north", x, sets, [[0.9, 0.1], [0.2, 0.8]])
    >>> Federation([north], ["flu", "cold"]).test_prior
    array([0.5, 0.5])
    """

    clients: Sequence[UnlabeledSets]
    classes: Sequence[str]
    test_prior: Matrix = None  # type: ignore[assignment]  # None means uniform
    scaling: Scaling = field(default_factory=Scaling)
    schema: Schema | None = None
    site_adjustments: SiteAdjustments | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.classes, Iterable):
            raise wrong_type("classes", "a list of names", self.classes)
        classes = tuple(str(c) for c in self.classes)
        if len(classes) < 2 or len(set(classes)) < len(classes):
            raise InputError("a federation needs at least two classes with different names.")
        if not isinstance(self.clients, Sequence) or not all(isinstance(c, UnlabeledSets) for c in self.clients):
            raise InputError("clients of a federation are a list of UnlabeledSets.")
        if not self.clients:
            raise InputError("a federation needs at least one client.")
        prior = np.full(len(classes), 1 / len(classes)) if self.test_prior is None else self.test_prior
        object.__setattr__(self, "classes", classes)
        object.__setattr__(self, "clients", _with_shared_inputs(self.clients))
        object.__setattr__(self, "test_prior", prior_tools.validate_test_prior(prior, classes))
        seen: set[str] = set()
        shape = self.input_shape
        for client in self.clients:
            if client.name in seen:
                raise InputError(f"two clients are called '{client.name}'; give every client a unique name.")
            seen.add(client.name)
            if client.priors.shape[1] != len(classes):
                raise prior_tools.wrong_columns_error(client.priors, classes, f"class priors of client '{client.name}'")
            if tuple(client.inputs.shape[1:]) != shape:
                raise InputError(
                    f"client '{client.name}': rows of shape {tuple(client.inputs.shape[1:])}, but client "
                    f"'{self.clients[0].name}' has {shape}; all clients need the same columns or image size."
                )
        absent = np.flatnonzero(sum(client.priors.sum(axis=0) for client in self.clients) == 0)
        if len(absent):
            raise InputError(
                f"class '{classes[absent[0]]}' has prior 0 in every set; drop the class or add a set with it."
            )

    def __repr__(self) -> str:
        sets = counted(sum(len(client.priors) for client in self.clients), "set")
        rows = counted(sum(len(client.train) + len(client.held_out) for client in self.clients), "row")
        return f"<Federation of {counted(len(self.clients), 'client')}, {sets}, {rows} and {len(self.classes)} classes>"

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one row."""
        return tuple(self.clients[0].inputs.shape[1:])

    @cached_property
    def spec(self) -> TaskSpec:
        """What all clients share: classes, test prior, and form of the inputs."""
        mix = pooled_class_mix(self.clients)
        return TaskSpec(self.classes, self.test_prior, self.input_shape, self.scaling, self.schema, mix)

    def fingerprint(self) -> str:
        """Return a hash of all clients and of what they share, independent of the order of clients."""
        digest = hashlib.sha256(repr((self.classes, self.test_prior.tolist(), self.scaling)).encode())
        hashed: dict[int, bytes] = {}  # shared inputs are read once
        for client in sorted(self.clients, key=lambda c: c.name):
            shared = id(client.inputs)
            if shared not in hashed:
                hashed[shared] = inputs_digest(client.inputs)
            digest.update(repr((client.name, client.inputs.shape, client.inputs.dtype)).encode())
            digest.update(hashed[shared])
            for rows in (client.train, client.held_out):
                digest.update(repr(len(rows)).encode())
                digest.update(rows.index.numpy().data)
                digest.update(rows.sets.numpy().data)
            digest.update(np.ascontiguousarray(client.priors).data)
            if client.prior_scope != PriorScope():  # the fingerprint of earlier versions otherwise
                digest.update(repr(client.prior_scope).encode())
        return digest.hexdigest()


def _with_shared_inputs(clients: Sequence[UnlabeledSets]) -> tuple[UnlabeledSets, ...]:
    """Return the clients such that inputs over the same memory are the same tensor.

    Code that converts, moves or hashes inputs then recognises by the tensor what it has done already.
    """
    known: dict[tuple[Any, ...], Tensor] = {}
    result = []
    for client in clients:
        shared = known.setdefault(memory_key(client.inputs), client.inputs)
        if shared is not client.inputs:
            client = copy.copy(client)  # not `replace`, which would check all its rows once more
            object.__setattr__(client, "inputs", shared)
        result.append(client)
    return tuple(result)


def check_identifiability(federation: Federation, *, pooled: bool = False) -> list[str]:
    """Return warnings about the priors; InputError if they cannot determine a classifier.

    Parameters
    ----------
    federation : Federation
        The clients, whose priors are checked together and one by one.
    pooled : bool, default=False
        Whether the method compares the sets of all clients under one class mix, as if they were those of one client.
    """
    classes = len(federation.classes)
    matrices = [client.priors for client in federation.clients]
    if pooled:
        matrices = [np.concatenate(matrices)]
    rank = prior_tools.joint_rank(matrices)
    if rank < classes - 1:
        raise InputError(
            f"the class priors cannot tell the classes apart: all clients together determine {rank} of {classes - 1} "
            "directions; give sets with more different class mixes, or use --force (force=True) to train anyway."
        )
    if pooled:
        return []
    alone = prior_tools.prior_ranks(matrices)
    weak = [client.name for client, own in zip(federation.clients, alone, strict=True) if own < classes]
    if not weak:
        return []
    names = ", ".join(weak[:3]) + (f" and {len(weak) - 3} more" if len(weak) > 3 else "")
    return [f"alone, {names} could not determine the classifier (rank below {classes}); all clients together can."]
