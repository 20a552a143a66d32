"""Base class of methods: what a client minimises. A method knows no algorithm and no engine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass
from typing import Any, ClassVar

from torch import Tensor

from fedul._utils.settings import validate_fields
from fedul.core import Federation, RoundMetrics, TaskSpec, UnlabeledSets
from fedul.methods.task import Predict, Step, Targets, Task

ClientState = dict[str, Tensor]
"""Tensors that a method or an algorithm keeps at a client between rounds."""


@dataclass(frozen=True)
class Alternative:
    """Settings that `fedul.train` may choose for a method, without labels, on sets that it leaves out.

    Parameters
    ----------
    name : str
        What distinguishes the alternative, in a few words.
    options : mapping of str to object
        Settings of the method.
    training : mapping of str to object
        Fields of `fedul.TrainConfig`; those that the user gives take precedence.
    fallback : bool
        Whether it is chosen where the sets left out cannot tell anything.
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)
    fallback: bool = False


class Method(ABC):
    """What a client minimises.

    Subclass it as a frozen dataclass. Fields made with `fedul.option` become ``--method-option NAME=VALUE`` on the
    command line. `task` and `loss` are required; everything else has a default.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> import fedul
    >>> from fedul.methods.fedul import set_task
    >>> @dataclass(frozen=True)
    ... class Smoothed(fedul.Method):
    ...     '''FedUL whose logits are divided by a temperature.'''
    ...
    ...     temperature: float = fedul.option(2.0, "Divisor of the logits.", above=0)
    ...
    ...     def task(self, client, spec):
    ...         return set_task(client, client.train, spec)
    ...
    ...     def loss(self, predict, step):
    ...         from fedul.core.transition import set_loss
    ...
    ...         logits = predict(step.inputs) / self.temperature
    ...         return step.mean(set_loss(logits, step.targets["joint"], step.shared["marginal"]))
    >>> Smoothed(temperature=1.5).temperature
    1.5
    """

    vectorized: ClassVar[bool] = False
    """Whether `loss` and `begin_round` accept a leading dimension of clients. Without it clients train in a loop."""

    needs_truth: ClassVar[bool] = False
    """Whether the method needs the labels of research data; they are set as its field ``truth``."""

    uses_transition: ClassVar[bool] = False
    """Whether the method predicts sets, with the transition Q after the classifier."""

    def __post_init__(self) -> None:
        if is_dataclass(self):
            validate_fields(self)

    @abstractmethod
    def task(self, client: UnlabeledSets, spec: TaskSpec) -> Task:
        """Return the rows of a client to train on, with their targets.

        The task may also have rows that are not trained on, see `Task`.

        Parameters
        ----------
        client : UnlabeledSets
            The client's rows, sets and class priors.
        spec : TaskSpec
            What all clients share: classes, test prior, input scaling.
        """

    @abstractmethod
    def loss(self, predict: Predict, step: Step) -> Tensor:
        """Return the loss of a step: a scalar, or (C,) for vectorized clients, made from the predictions.

        It must be pure: no random numbers, no state. Average over rows with `Step.mean`. The first step of a round is
        checked: anything else is an InputError.

        Parameters
        ----------
        predict : callable
            Function from inputs (..., n, ...) to logits (..., n, K).
        step : Step
            The rows of the step and their targets.
        """

    def row_private(self) -> tuple[Method, Sequence[str]]:
        """Return the method for clients whose rows are private, and sentences on what it leaves out.

        The loss of the result must be the mean over the rows of a step of one term per row, which depends on no other
        row. Targets that `task` or `begin_round` compute may depend on class priors, numbers of rows, the global
        weights and the row itself. `fedul.methods.row_private` uses this only if the class of the method itself defines
        it.

        Raises
        ------
        InputError
            If there is no such form.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define row_private.")

    @property
    def needs_evaluation(self) -> bool:
        """Whether `directive` depends on the held-out evaluation of the previous round."""
        return False

    @property
    def pools_sets(self) -> bool:
        """Whether sets of all clients are compared under one class mix, as if they were those of one client."""
        return False

    def alternatives(self, shape: tuple[int, ...], sets: int | None) -> Sequence[Alternative]:
        """Return the settings among which `fedul.train` chooses, the default first; empty for no choice.

        Parameters
        ----------
        shape : tuple of int
            Shape of one row.
        sets : int or None
            Number of sets of all clients; None where it is not known.
        """
        return ()

    def labels_used(self, federation: Federation) -> int:
        """Return the number of rows whose label is used: by default, the rows that the user labelled.

        A method that needs the truth must override this.
        """
        if self.needs_truth:
            raise NotImplementedError(f"{type(self).__name__} needs the truth and does not define labels_used.")
        return federation.columns.labelled_rows

    def startup_warnings(self, rounds: int) -> list[str]:
        """Return warnings about this method in a run of this many rounds."""
        return []

    def final_warnings(self, history: Sequence[RoundMetrics]) -> list[str]:
        """Return warnings about this method after a run, from the metrics of its rounds."""
        return []

    def patience_start(self, history: Sequence[RoundMetrics]) -> int:
        """Return the round from which ``--patience`` counts, if no later one has been selected.

        A method that changes what clients minimise during a run returns the round of the last change, so that the
        new phase has its chance.

        Parameters
        ----------
        history : sequence of RoundMetrics
            Metrics of the rounds so far.
        """
        return 0

    def directive(self, history: Sequence[RoundMetrics]) -> Mapping[str, float]:
        """Return the values that the coordinator sends to every client in the next round.

        Parameters
        ----------
        history : sequence of RoundMetrics
            Metrics of the rounds so far.
        """
        return {}

    def needs_logits(self, directive: Mapping[str, float]) -> bool:
        """Return whether clients predict all their rows with the new global model before this round."""
        return False

    def begin_round(
        self, targets: Targets, logits: Tensor, directive: Mapping[str, float], client_state: ClientState
    ) -> tuple[Targets, ClientState]:
        """Return the targets of a round and the new client state; called if `needs_logits`.

        Parameters
        ----------
        targets : Targets
            Targets of the task.
        logits : Tensor
            (..., n, K) logits of the new global model, in evaluation mode, for all rows of the task, also those that
            are not trained on.
        directive : mapping of str to float
            Values that `directive` returned at the coordinator.
        client_state : dict of str to Tensor
            State that the previous call returned; empty at first.
        """
        return targets, client_state
