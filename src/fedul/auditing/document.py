"""The document `audit.json`: what attacks on the configuration of a run achieve, under several protections."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from fedul._utils.display import RichDisplay
from fedul._utils.documents import Document

Attack = Literal["membership", "canaries", "class-priors", "gradient-inversion"]
ATTACKS: tuple[Attack, ...] = get_args(Attack)
"""Names of all attacks."""

ProtectionName = Literal["none", "dp", "secure-aggregation"]
PROTECTIONS: tuple[ProtectionName, ...] = get_args(ProtectionName)
"""Names of all protections."""

SHADOWS = 6
"""Models of a membership attack, for each configuration, unless given."""
CANARIES = 500
"""Canaries of a run, unless given; they exclude an epsilon of at most about 4.8."""
DEFAULT_EPSILON = 8.0
"""Epsilon of private rows where the run has none, unless given."""


@dataclass(frozen=True)
class Protection:
    """A protection under which attacks were run.

    Parameters
    ----------
    name : {"none", "dp", "secure-aggregation"}
        None at all, differential privacy of rows, or secure aggregation.
    description : str
        Its settings, in a few words.
    of_run : bool
        Whether the run that is audited has it.
    """

    name: ProtectionName
    description: str
    of_run: bool


@dataclass(frozen=True)
class MembershipResult:
    """How well members are distinguished from others by the published classifier.

    Parameters
    ----------
    protection : str
        Name of the protection.
    attack : {"loss threshold", "likelihood ratio"}
        By the loss of a row, or compared with other models that were trained with and without it.
    auc, auc_low, auc_high : float
        Probability that a member has a higher score than another row, with its 95 % interval; 0.5 is guessing.
    tpr, tpr_low, tpr_high : float
        Share of members that are found where 1 % of the other rows are taken for members, with its 95 % interval.
    rows, models : int
        Different rows, and models that were attacked.
    """

    protection: ProtectionName
    attack: Literal["loss threshold", "likelihood ratio"]
    auc: float
    auc_low: float
    auc_high: float
    tpr: float
    tpr_low: float
    tpr_high: float
    rows: int
    models: int


@dataclass(frozen=True)
class CanaryResult:
    """Lower bound on epsilon from canaries in one training run.

    Parameters
    ----------
    protection : str
        Name of the protection.
    bound : float
        Lower bound on epsilon, with 95 % confidence.
    stated : float or None
        Epsilon that the run states; None if it states none.
    delta : float
        Delta of both.
    canaries : int
        Canaries, each included with probability 1/2.
    guesses, correct : int
        Guesses of the bound, and right ones among them.
    highest : float
        Largest bound that this number of canaries can give.
    """

    protection: ProtectionName
    bound: float
    stated: float | None
    delta: float
    canaries: int
    guesses: int
    correct: int
    highest: float


@dataclass(frozen=True)
class PriorResult:
    """Reconstruction of class priors by a coordinator that evaluates weights of its choice.

    Parameters
    ----------
    protection : str
        Name of the protection.
    error : float
        Mean absolute difference between reconstructed and true shares.
    guess_error : float
        The same for guessing the published share of the class for every set.
    pooled_error : float
        The same for guessing, for every client, the shares in the sets of all clients together. A total over clients
        may tell as much; an error below this one says something about single clients.
    compared, wins : int
        Classes of clients that were attacked, and how often the attack was closer than the guess.
    p_value : float
        Probability of at least this number of wins if attack and guess had equal chances.
    """

    protection: ProtectionName
    error: float
    guess_error: float
    pooled_error: float
    compared: int
    wins: int
    p_value: float


@dataclass(frozen=True)
class InversionResult:
    """Reconstruction of rows from the update of one local step.

    Parameters
    ----------
    protection : str
        Name of the protection.
    attack : {"first layer", "gradient matching"}
        Division of the gradients of the first dense layer, or matching of all gradients.
    batch, clients : int
        Rows of a client in the step, and clients in the sum that the coordinator sees.
    error : float
        Median distance to the true row, as a multiple of the distance of the mean row from it.
    recovered : float
        Share of the rows whose distance is below a tenth of that of the mean row.
    rows : int
        Rows that were attacked.
    """

    protection: ProtectionName
    attack: Literal["first layer", "gradient matching"]
    batch: int
    clients: int
    error: float
    recovered: float
    rows: int


@dataclass(frozen=True)
class NotMeasured:
    """An attack that was not run under a protection, with the reason as a sentence."""

    attack: Attack
    protection: ProtectionName
    reason: str


@dataclass(frozen=True, repr=False)
class AuditResult(Document, RichDisplay):
    """Result of attacks on the configuration of a run, as `fedul.audit` returns it.

    Parameters
    ----------
    method, algorithm, model : str
        Configuration that was attacked.
    rounds, rows, clients : int
        Rounds of a training run, and rows and clients of the data.
    protections : tuple of Protection
        Protections under which attacks were run.
    membership : tuple of MembershipResult
    canaries : tuple of CanaryResult
    class_priors : tuple of PriorResult
    gradient_inversion : tuple of InversionResult
        Results by attack; empty for attacks that were not chosen.
    not_measured : tuple of NotMeasured
        Attacks that cannot be run under a protection, or that it does not affect by its nature.
    seed : int
        Seed of the audit.

    Examples
    --------
    >>> result = AuditResult("fedul", "fedavg", "mlp", rounds=30, rows=2000, clients=5, protections=())
    >>> result.to_dict()["membership"]
    []
    """

    method: str
    algorithm: str
    model: str
    rounds: int
    rows: int
    clients: int
    protections: tuple[Protection, ...]
    membership: tuple[MembershipResult, ...] = ()
    canaries: tuple[CanaryResult, ...] = ()
    class_priors: tuple[PriorResult, ...] = ()
    gradient_inversion: tuple[InversionResult, ...] = ()
    not_measured: tuple[NotMeasured, ...] = ()
    seed: int = 0

    @property
    def sentences(self) -> Sequence[str]:
        """What the numbers mean, in plain sentences."""
        from fedul.auditing.sentences import audit_sentences

        return audit_sentences(self)

    def __rich__(self) -> Any:
        from fedul.auditing.display import audit_view

        return audit_view(self)
