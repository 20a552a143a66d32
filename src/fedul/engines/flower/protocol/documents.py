"""Documents of requests and replies, one class each; `Message.read` validates what the other side sent.

The reply to "evaluate_held_out" is `HeldOutSums`. docs/privacy/threat-model.md lists what each reply discloses:
rows, class priors and paths are in none of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fedul._utils.documents import register_reader
from fedul.config import TrainConfig
from fedul.data.files.signature import DataSignature
from fedul.engines.flower.protocol.run_plan import RunPlan
from fedul.engines.flower.protocol.run_spec import RunSpec
from fedul.engines.held_out import HeldOutSums

register_reader(DataSignature, DataSignature.from_dict)
register_reader(RunSpec, RunSpec.from_dict)


@dataclass(frozen=True)
class SumsRequest:
    """Request for parts of secure sums, which are tensors (`secure.blobs`).

    Parameters
    ----------
    run : str
        Identifier of the run.
    resumption : int
        How often it has been resumed.
    """

    run: str
    resumption: int


@dataclass(frozen=True)
class SumsReply:
    """Reply to a request for parts of secure sums.

    Parameters
    ----------
    refusals : mapping of str to str
        Why parts have no reply, by "group/purpose" of their tensor in the request.
    """

    refusals: Mapping[str, str]


@dataclass(frozen=True)
class HelloRequest(SumsRequest):
    """Request for the name of a site and the form of its data.

    Parameters
    ----------
    classes : tuple of str
        The classes of the run.
    secure : bool
        Whether the run uses secure aggregation; the site then sends no numbers of its own.
    """

    classes: tuple[str, ...]
    secure: bool


@dataclass(frozen=True)
class HelloReply:
    """Name of a site and form of its data."""

    name: str
    signature: DataSignature


@dataclass(frozen=True)
class StatisticsRequest(SumsRequest):
    """Request for statistics of the rows of a site, in a secure sum.

    Parameters
    ----------
    classes : tuple of str
        The classes, in the order of their counts.
    columns : tuple of str
        Columns of a table; empty for images and arrays.
    words : mapping of str to tuple of str
        By column, the words that are counted.
    """

    classes: tuple[str, ...]
    columns: tuple[str, ...]
    words: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, eq=False)
class RunRequest:
    """Request to join a run.

    Parameters
    ----------
    run : str
        Identifier of the run, under which a site stores what belongs to it.
    spec : RunSpec
        What all sites share.
    training : TrainConfig
        How to train.
    plan : RunPlan
        What the run will ask of a site.
    resumption : int
        How often the run has been resumed.
    """

    run: str
    spec: RunSpec
    training: TrainConfig
    plan: RunPlan
    resumption: int


@dataclass(frozen=True)
class JoinReply:
    """Size of the data that a site takes part with.

    Parameters
    ----------
    rows : int
        Rows of the method's task.
    held_out_rows, sets : int
        Held-out rows and unlabeled sets.
    labelled_rows : int
        Rows whose class the site knows and trains on.
    identifies_classes : bool
        Whether the priors of this site alone tell all classes apart.
    """

    rows: int
    held_out_rows: int
    sets: int
    labelled_rows: int
    identifies_classes: bool


@dataclass(frozen=True, eq=False)
class HeldOutRequest(RunRequest):
    """Request to evaluate the weights of a round on held-out rows, and the difference from a reference.

    The tensors "reference" are the weights of the round with the lowest held-out loss so far. A site needs no memory of
    that round, and one that did not evaluate it can compare too.

    Parameters
    ----------
    evaluated : int
        Round whose weights are evaluated; 0 without any.
    reference : int
        Round of the reference; 0 without one.
    reference_temperature : float or None
        Temperature of the reference; None without one.
    """

    evaluated: int
    reference: int
    reference_temperature: float | None


@dataclass(frozen=True, eq=False)
class TrainRequest(HeldOutRequest):
    """Request for an update, and for held-out sums if it has the tensors "evaluate".

    Parameters
    ----------
    round : int
        Number of the round, from 1.
    directive : mapping of str to float
        What the method tells all clients (`Method.directive`).
    accepted : int
        Round of the last update of this site that was accepted; 0 for none.
    checkpointed : int
        Round to which a resumed run may go back.
    clips : mapping of str to float
        Largest norm of each group of tensors of the update, where clients are protected.
    """

    round: int
    directive: Mapping[str, float]
    accepted: int
    checkpointed: int
    clips: Mapping[str, float]


@dataclass(frozen=True)
class TrainReply:
    """Numbers of an update.

    Parameters
    ----------
    rows : int
        Rows that the site trained on.
    steps : float
        Effective steps.
    loss : float or None
        Mean loss; None if rows are private.
    held_out : HeldOutSums or None
        Held-out sums of the round before, if they were requested.
    epsilon : float or None
        What the rows of the site have paid in this run, if they are private; None if that is not finite.
    """

    rows: int
    steps: float
    loss: float | None
    held_out: HeldOutSums | None
    epsilon: float | None = None


@dataclass(frozen=True, eq=False)
class LocalEvaluationRequest(RunRequest):
    """Request for an accuracy estimate of the delivered classifier, which has this temperature."""

    temperature: float


@dataclass(frozen=True)
class LocalEvaluation:
    """Accuracy of the classifier as one site estimates it from its priors, rounded to three decimals.

    Parameters
    ----------
    rows : int
        Held-out rows; 0 if the site has too little data for an estimate.
    accuracy, standard_error : float
        The estimate.
    p_value : float or None
        Of the test whether the site's sets fit the classes; None if it could not be tested.
    """

    rows: int
    accuracy: float = 0.0
    standard_error: float = 0.0
    p_value: float | None = None
