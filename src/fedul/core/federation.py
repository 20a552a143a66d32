"""A federation: its clients, their common classes, and the population that the classifier is for."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import cast

import numpy as np
from numpy.typing import ArrayLike
from torch import Tensor

from fedul._utils.display import counted
from fedul.core import priors as prior_tools
from fedul.core.client_table import ClientTable
from fedul.core.clients import ClientList, Clients
from fedul.core.prior_scope import PriorScope
from fedul.core.priors import Matrix
from fedul.core.site_adjustment import SiteAdjustments
from fedul.core.task_spec import Scaling, Schema, TaskSpec
from fedul.core.unlabeled_sets import UnlabeledSets
from fedul.errors import InputError, wrong_type


@dataclass(frozen=True, eq=False, repr=False)
class Federation:
    """Clients with common classes, and the class mix of the population that the classifier is for.

    Parameters
    ----------
    clients : sequence of UnlabeledSets
        The clients; names are unique. `from_arrays` makes very many of them from arrays.
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
        if not isinstance(self.clients, ClientTable):
            object.__setattr__(self, "clients", _checked(self.clients, classes))
        prior = np.full(len(classes), 1 / len(classes)) if self.test_prior is None else self.test_prior
        object.__setattr__(self, "classes", classes)
        object.__setattr__(self, "test_prior", prior_tools.validate_test_prior(prior, classes))
        priors = self.columns.stacked_priors
        if priors.shape[1] != len(classes):
            raise prior_tools.wrong_columns_error(priors, classes, "class priors")
        absent = np.flatnonzero(priors.sum(axis=0) == 0)
        if len(absent):
            raise InputError(
                f"class '{classes[absent[0]]}' has prior 0 in every set; drop the class or add a set with it."
            )

    @classmethod
    def from_arrays(
        cls,
        inputs: ArrayLike | Tensor,
        sets: ArrayLike | Tensor,
        priors: ArrayLike,
        clients: ArrayLike,
        classes: Sequence[str],
        *,
        test_prior: ArrayLike | None = None,
        scaling: Scaling | None = None,
        held_out: float = 0.2,
        seed: int = 0,
        priors_of: str | PriorScope = PriorScope.of,
    ) -> Federation:
        """Build a federation of any number of clients from arrays, without an object for every client.

        The result is that of one `UnlabeledSets.from_arrays` per client, with the rows of its sets in ascending order.
        Inputs are not copied.

        Parameters
        ----------
        inputs : array-like or Tensor of shape (N, ...)
            Inputs of all clients, e.g. of a mapped file: ``np.load("x.npy", mmap_mode="r")``.
        sets : array-like of shape (N,)
            Number of each row's set, from 0 to S - 1, over all clients.
        priors : array-like of shape (S, K)
            Class priors of each set.
        clients : array-like of shape (S,)
            Name or number of the client that each set belongs to.
        classes : sequence of str
            Names of the K classes.
        test_prior, scaling
            As in `Federation`.
        held_out, seed, priors_of
            As in `UnlabeledSets.from_arrays`.

        Raises
        ------
        InputError
            If arrays do not fit together.

        Examples
        --------
        >>> x, priors = np.zeros((8, 2)), [[0.9, 0.1], [0.2, 0.8], [0.7, 0.3]]
        >>> sets, clients = [0, 0, 1, 1, 1, 2, 2, 2], ["north", "north", "south"]
        >>> federation = Federation.from_arrays(x, sets, priors, clients, ["flu", "cold"])
        >>> federation
        <Federation of 2 clients, 3 sets, 8 rows and 2 classes>
        >>> federation.clients[1]
        <UnlabeledSets of client 'south': 1 set, 2 rows to train on and 1 held out>
        """
        table = ClientTable.from_arrays(
            inputs, sets, priors, clients, held_out=held_out, seed=seed, priors_of=priors_of
        )
        return cls(table, classes, cast(Matrix, test_prior), scaling or Scaling())

    def __repr__(self) -> str:
        sets = counted(len(self.columns.stacked_priors), "set")
        rows = counted(int(self.columns.train_rows.sum() + self.columns.held_out_rows.sum()), "row")
        return f"<Federation of {counted(len(self.clients), 'client')}, {sets}, {rows} and {len(self.classes)} classes>"

    @property
    def columns(self) -> Clients:
        """The clients with figures of all of them: their rows, sets and priors as arrays."""
        return cast(Clients, self.clients)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one row."""
        return tuple(self.columns.sources[0].shape[1:])

    @cached_property
    def spec(self) -> TaskSpec:
        """What all clients share: classes, test prior, and form of the inputs."""
        mix = self.columns.class_mix
        return TaskSpec(self.classes, self.test_prior, self.input_shape, self.scaling, self.schema, mix)

    def with_noisy_priors(self, priors: Matrix, noise: float) -> Federation:
        """Return the federation with perturbed class priors.

        A test prior that is the class mix of all rows becomes the perturbed one.

        Parameters
        ----------
        priors : ndarray of shape (S, K)
            Class priors of all sets, one client after another.
        noise : float
            Standard deviation of the noise of the numbers of rows of each class.
        """
        is_natural = np.allclose(self.test_prior, self.columns.class_mix, rtol=0, atol=1e-9)
        clients = self.columns.with_priors(priors, noise)
        test_prior = clients.class_mix if is_natural else self.test_prior
        return replace(self, clients=cast(Sequence[UnlabeledSets], clients), test_prior=test_prior)

    def fingerprint(self) -> str:
        """Return a hash of all clients and of what they share, independent of the order of clients."""
        digest = hashlib.sha256(repr((self.classes, self.test_prior.tolist(), self.scaling)).encode())
        for part in self.columns.digest_parts():
            digest.update(part)
        return digest.hexdigest()


def _checked(clients: Iterable[UnlabeledSets], classes: Sequence[str]) -> ClientList:
    """Return clients that fit together."""
    if not isinstance(clients, Sequence) or not all(isinstance(client, UnlabeledSets) for client in clients):
        raise InputError("clients of a federation are a list of UnlabeledSets.")
    if not clients:
        raise InputError("a federation needs at least one client.")
    seen: set[str] = set()
    shape = tuple(clients[0].inputs.shape[1:])
    for client in clients:
        if client.name in seen:
            raise InputError(f"two clients are called '{client.name}'; give every client a unique name.")
        seen.add(client.name)
        if client.priors.shape[1] != len(classes):
            raise prior_tools.wrong_columns_error(client.priors, classes, f"class priors of client '{client.name}'")
        if tuple(client.inputs.shape[1:]) != shape:
            raise InputError(
                f"client '{client.name}': rows of shape {tuple(client.inputs.shape[1:])}, but client "
                f"'{clients[0].name}' has {shape}; all clients need the same columns or image size."
            )
    return ClientList(clients)


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
    matrices = [federation.columns.stacked_priors] if pooled else federation.columns.priors
    rank = prior_tools.joint_rank(matrices)
    if rank < classes - 1:
        raise InputError(
            f"the class priors cannot tell the classes apart: all clients together determine {rank} of {classes - 1} "
            "directions; give sets with more different class mixes, or use --force (force=True) to train anyway."
        )
    if pooled:
        return []
    alone = prior_tools.prior_ranks(matrices)
    weak = np.flatnonzero(alone < classes)
    if not len(weak):
        return []
    names = ", ".join(federation.columns.names[c] for c in weak[:3]) + (
        f" and {len(weak) - 3} more" if len(weak) > 3 else ""
    )
    return [f"alone, {names} could not determine the classifier (rank below {classes}); all clients together can."]
