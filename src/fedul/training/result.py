"""Result of a training run: the document `result.json`, and `Run`, which `fedul.train` returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedul._utils.display import counted
from fedul._utils.documents import Document
from fedul.classifier import Classifier
from fedul.core import Federation, RoundMetrics, Study
from fedul.privacy.statement import PrivacyStatement
from fedul.training.choice import Choice

if TYPE_CHECKING:
    from fedul.training.recipe import Recipe
    from fedul.training.run_record import RunRecord


@dataclass(frozen=True)
class DataCounts:
    """How much data a run had."""

    clients: int
    sets: int
    rows: int
    held_out_rows: int

    @classmethod
    def of(cls, federation: Federation) -> DataCounts:
        """Count the clients, sets and rows of a federation."""
        clients = federation.columns
        return cls(
            clients=len(federation.clients),
            sets=len(clients.stacked_priors),
            rows=int(clients.train_rows.sum()),
            held_out_rows=int(clients.held_out_rows.sum()),
        )


@dataclass(frozen=True)
class AggregationResult:
    """What the coordinator saw of a run with secure aggregation.

    Parameters
    ----------
    fewest_clients : int
        Fewest clients in a sum of updates.
    clipped_values : int or None
        Values of updates that were outside the declared range at their client, over all rounds; None if this number
        is not released, because clients are private.
    """

    fewest_clients: int
    clipped_values: int | None

    @classmethod
    def of(cls, history: Sequence[RoundMetrics]) -> AggregationResult:
        """Return what the coordinator saw in these rounds, of which there is at least one."""
        clipped = [metrics.clipped_values for metrics in history]
        released = None if None in clipped else sum(each or 0 for each in clipped)
        return cls(min(metrics.clients for metrics in history), released)

    @property
    def sentence(self) -> str:
        """What it means, for the report and the model card."""
        fewest = self.fewest_clients
        seen = f"The coordinator received sums of updates over at least {fewest} clients, and no single update"
        if self.clipped_values is None:
            return f"{seen}."
        return f"{seen}; {counted(self.clipped_values, 'value')} outside the declared range had been clipped."


@dataclass(frozen=True)
class RunResult(Document):
    """Result of a training run, as `result.json` and ``fedul train --json`` have it.

    Parameters
    ----------
    rounds : int
        Rounds that were trained.
    selected_round : int
        Round whose classifier is delivered.
    held_out_loss : float or None
        Held-out -log Q of the selected round, at its best temperature; None if no rows are held out.
    labels_used : int
        Rows whose label was used.
    weights_sha256 : str
        Digest of the weights after the last round.
    data : DataCounts
        How much data there was.
    seconds : float
        Wall-clock time of all rounds.
    test_error : float or None
        Error over the pooled test rows of the selected round; None without truth, as the following.
    test_error_clients : float or None
        Mean of `test_errors`, as the paper's tables have it.
    test_errors : tuple of float
        Error over each client's test rows.
    calibration_error : float or None
        Expected calibration error of the delivered probabilities.
    choice : Choice or None
        Settings that were chosen without labels; None if the method offers no choice.
    epsilon : mapping of str to float or None
        By client, epsilon of its rows at the `dp_delta` of the run, None if it is infinite; empty if rows are not
        protected.
    privacy : tuple of PrivacyStatement
        What the run guarantees about rows and about clients, and what it does not; empty if it protects neither.
    secure_aggregation : AggregationResult or None
        What the coordinator saw; None if it saw single updates.
    stopped : str or None
        Why the run ended before its last round (patience, a callback, a privacy budget that is spent); None if it did
        not.

    Examples
    --------
    >>> import fedul
    >>> study = fedul.load("digits", clients=2, rows=400)
    >>> result = fedul.train(study, method="fedul", model="linear", rounds=1).result
    >>> result.rounds, result.data.clients
    (1, 2)
    """

    rounds: int
    selected_round: int
    held_out_loss: float | None
    labels_used: int
    weights_sha256: str
    data: DataCounts
    seconds: float
    test_error: float | None = None
    test_error_clients: float | None = None
    test_errors: tuple[float, ...] = ()
    calibration_error: float | None = None
    choice: Choice | None = None
    epsilon: Mapping[str, float | None] = field(default_factory=dict)
    privacy: tuple[PrivacyStatement, ...] = ()
    secure_aggregation: AggregationResult | None = None
    stopped: str | None = None


@dataclass(frozen=True, eq=False, repr=False)
class Run:
    """A finished training run, as `fedul.train` returns it.

    Parameters
    ----------
    classifier : Classifier
        The classifier of the selected round.
    history : sequence of RoundMetrics
        Metrics of every round.
    result : RunResult
        Result in numbers.
    folder : Path or None
        The run folder, if `out` was given.
    study : Study or None
        The data that the run was trained on; None for a run on Flower, whose data stays at the sites.
    recipe : Recipe or None
        Configuration and objects that the run was trained with; None for a run on Flower.
    record : RunRecord or None
        Everything needed to repeat the run, as `config.json` has it; None for a run on Flower.
    site_classifiers : mapping of str to Classifier
        Classifiers of single clients, under algorithms that keep a part of the model there (`fedbn`); else empty.

    Examples
    --------
    >>> import fedul
    >>> run = fedul.train(fedul.load("digits", clients=2, rows=400), method="fedul", model="linear", rounds=2)
    >>> len(run.history), run.labels_used
    (2, 0)
    >>> run.classifier.predict_proba(run.study.truth.test_inputs[:3]).shape
    (3, 10)
    """

    classifier: Classifier
    history: Sequence[RoundMetrics]
    result: RunResult
    folder: Path | None = None
    study: Study | None = None
    recipe: Recipe | None = None
    record: RunRecord | None = None
    site_classifiers: Mapping[str, Classifier] = field(default_factory=dict)

    def __repr__(self) -> str:
        error = "" if self.test_error is None else f", test error {self.test_error:.2%}"
        return f"<Run of {counted(len(self.history), 'round')}, round {self.selected_round} selected{error}>"

    @property
    def selected_round(self) -> int:
        """Round whose classifier is delivered."""
        return self.result.selected_round

    @property
    def held_out_loss(self) -> float | None:
        """Held-out -log Q of the selected round; None if no rows are held out."""
        return self.result.held_out_loss

    @property
    def test_error(self) -> float | None:
        """Error over the pooled test rows; None without truth."""
        return self.result.test_error

    @property
    def labels_used(self) -> int:
        """Rows whose label was used."""
        return self.result.labels_used

    @property
    def weights_sha256(self) -> str:
        """Digest of the weights after the last round."""
        return self.result.weights_sha256

    def to_dict(self) -> dict[str, Any]:
        """Return the run folder and the result as JSON-serializable values, as ``fedul train --json`` prints them."""
        return {"run": None if self.folder is None else str(self.folder), **self.result.to_dict()}
