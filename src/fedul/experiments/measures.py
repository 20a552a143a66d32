"""What a comparison measures of a run.

A benchmark has test rows with labels. On a user's own data there are two measures. With a truth column it is the error
on held-out rows, at the test prior. Without one, methods are compared as `fedul.training.choice` compares settings:
each is trained three times without a third of the sets, and its mean prediction over each set that was left out is
compared with the class priors of that set.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedul._utils.display import counted
from fedul._utils.documents import Document, read_document_file
from fedul._utils.files import write_json
from fedul.classifier import Classifier
from fedul.config import FileDataConfig
from fedul.core import Federation, Index, Labels, Study, gather_rows
from fedul.data.load import AnyDataConfig
from fedul.errors import InputError
from fedul.experiments.grid import GridResult, collect_results
from fedul.experiments.run_job import RunJob, StudyCache
from fedul.training import Run
from fedul.training.choice import FEWEST
from fedul.training.left_out import BLOCK, FOLDS, assign_folds, score_left_out, without_sets
from fedul.training.run_files import MEASUREMENT
from fedul.training.truth_metrics import error_at_prior


@dataclass(frozen=True)
class Measure:
    """What is measured of a run; lower is better.

    Parameters
    ----------
    key : str
        Its name in CSV and JSON.
    quantity : str
        Kind of number, in names of JSON keys: "error" gives ``mean_error`` and ``errors``.
    plural : str
        The same for several numbers.
    heading : str
        Its name in tables and plots.
    scale : float
        Factor of the numbers in tables and plots.
    decimals : int
        Decimals in tables.
    """

    key: str
    quantity: str
    plural: str
    heading: str
    scale: float
    decimals: int


TEST_ERROR = Measure("test_error", "error", "errors", "error %", 100, 2)
HELD_OUT_ERROR = Measure("held_out_error", "error", "errors", "held-out error %", 100, 2)
LEFT_OUT_LOSS = Measure("left_out_loss", "loss", "losses", "loss on sets left out", 1, 4)


def measure_of(data: AnyDataConfig) -> Measure:
    """Return what is measured on this data."""
    if not isinstance(data, FileDataConfig):
        return TEST_ERROR
    return LEFT_OUT_LOSS if data.truth_column is None else HELD_OUT_ERROR


@dataclass(frozen=True)
class Measurement(Document):
    """What was measured of a run on a user's own data: the document `measurement.json`.

    Parameters
    ----------
    weights_sha256 : str
        Digest of the weights after the last round of the run, as in its result.
    held_out_error : float or None
        Error on held-out rows at the test prior; None without a truth column.
    rows : tuple of float
        Rows of each set that was left out of training.
    losses : tuple of float
        Mean loss of the rows of each of these sets (`fedul.training.left_out`).
    """

    weights_sha256: str
    held_out_error: float | None = None
    rows: tuple[float, ...] = ()
    losses: tuple[float, ...] = ()


@dataclass(frozen=True)
class MeasuredJob(RunJob):
    """A run on a user's own data, whose measurement is written beside its result.

    Parameters
    ----------
    part : int or None
        Which of the parts of the sets is left out of training; None for a run on all sets.
    """

    part: int | None = None

    def measurement(self) -> Measurement | None:
        """Return what was measured of the run as it is now; None if nothing was."""
        result = self.folder.result()
        stored = read_document_file(Measurement, self.folder.path / MEASUREMENT, "the comparison")
        return stored if stored and result and stored.weights_sha256 == result.weights_sha256 else None

    def is_done(self) -> bool:
        return super().is_done() and self.measurement() is not None

    def study(self, studies: StudyCache) -> Study:
        study = super().study(studies)
        if self.part is None:
            return study
        # Without the origin of the data: that is of all sets.
        part = without_sets(study.federation, self._left_out(study.federation))
        return Study(part, None, warnings=study.warnings)

    def finish(self, studies: StudyCache, run: Run) -> None:
        study, digest = super().study(studies), run.weights_sha256
        if self.part is None:
            found = Measurement(digest, held_out_error=held_out_error(study, run.classifier))
        else:
            left_out = self._left_out(study.federation)
            rows, losses = score_left_out(study.federation, left_out, run.classifier)
            found = Measurement(digest, rows=tuple(rows.tolist()), losses=tuple(losses.tolist()))
        write_json(self.folder.path / MEASUREMENT, found.to_dict())

    def _left_out(self, federation: Federation) -> list[Index]:
        return [folds == self.part for folds in assign_folds(federation.clients, self.training.seed)]


def held_out_error(study: Study, classifier: Classifier) -> float:
    """Return the error on the held-out rows of a study with a truth column, at the test prior."""
    federation, true_labels = study.federation, study.true_labels
    assert true_labels is not None
    classifier = classifier.without_adjustments()  # rows of a federation are adjusted already
    blocks = gather_rows([(client.inputs, client.held_out.index) for client in federation.clients], BLOCK)
    predicted: Labels = np.concatenate([classifier.predict_proba(block).argmax(axis=1) for block in blocks])
    labels: Labels = np.concatenate([true_labels[client.name][1] for client in federation.clients])
    return error_at_prior(predicted, labels, federation.test_prior)


def with_parts(job: RunJob) -> list[RunJob]:
    """Return the jobs that measure a run: for a user's own data without a truth column, one for each part of its sets.

    Parameters
    ----------
    job : RunJob
        The run, as on a benchmark.
    """
    measure, fields = measure_of(job.data), vars(job)
    if measure is TEST_ERROR:
        return [job]
    if measure is HELD_OUT_ERROR:
        return [MeasuredJob(**fields)]
    jobs: list[RunJob] = []
    for part in range(FOLDS):
        folder = type(job.folder)(job.folder.path / f"part-{part + 1}")
        # A part may determine less than all sets do, which were checked.
        measured = MeasuredJob(**{**fields, "folder": folder, "force": True}, part=part)
        jobs.append(replace(measured, title=f"{job.title}, part {part + 1} of {FOLDS}"))
    return jobs


def collect_measured(jobs: Sequence[RunJob]) -> GridResult:
    """Read what was measured of the finished runs of a variant on a user's own data.

    Parameters
    ----------
    jobs : sequence of RunJob
        What `with_parts` returns for each seed, one after another.
    """
    measured = {job.folder.path: job.measurement() for job in jobs if isinstance(job, MeasuredJob)}
    found = collect_results([job.folder for job in jobs], lambda folder, _: _sums(measured[folder.path]))
    parts = FOLDS if measure_of(jobs[0].data) is LEFT_OUT_LOSS else 1
    by_seed = np.array(found.values).reshape(-1, parts, 2).sum(axis=1)  # (seeds, 2)
    values = tuple((float(total / count),) for total, count in by_seed)
    return replace(found, values=values, seconds=parts * found.seconds)


def _sums(measured: Measurement | None) -> tuple[float, float]:
    """Return a sum and a count whose ratio is what was measured."""
    if measured is None:
        raise ValueError("nothing was measured")
    if measured.held_out_error is not None:
        return measured.held_out_error, 1.0
    return float(np.dot(measured.rows, measured.losses)), float(np.sum(measured.rows))


def check_measurable(study: Study, measure: Measure, seeds: Sequence[int]) -> list[str]:
    """Return warnings about a measure on a study; InputError if it cannot be measured.

    Parameters
    ----------
    study : Study
        The data.
    measure : Measure
        What is to be measured.
    seeds : sequence of int
        Seeds of the comparison, each of which leaves out other sets together.
    """
    clients = study.federation.clients
    if measure is HELD_OUT_ERROR and not any(len(client.held_out) for client in clients):
        raise InputError("truth-column: errors are measured on held-out rows, and there are none; raise --held-out.")
    if measure is not LEFT_OUT_LOSS:
        return []
    remedy = "name a column of true classes with --truth-column, or give more sets"
    for seed in seeds:
        folds = assign_folds(clients, seed)
        count = sum(int((of_client >= 0).sum()) for of_client in folds)
        if not count:
            raise InputError(f"no client has three sets, so none can be left out to compare methods; {remedy}.")
        try:
            for fold in range(FOLDS):
                without_sets(study.federation, [of_client == fold for of_client in folds])
        except InputError:
            raise InputError(
                f"with seed {seed} a class would be missing without the sets left out to compare methods; {remedy}."
            ) from None
    if count < FEWEST:
        return [
            f"only {counted(count, 'set')} can be left out, so differences between methods are uncertain; {remedy}."
        ]
    return []
