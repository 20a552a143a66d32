"""TensorBoard: a run of fedul is a folder of event files, with a series for every metric.

They are written by PyTorch's own writer and the package ``tensorboard``, which is needed to look at them anyway.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedul._utils.files import as_path
from fedul.core import RoundMetrics
from fedul.errors import InputError
from fedul.tracking.files import card_text, stored_evaluation
from fedul.tracking.tracker import Series, Tracker, unreachable
from fedul.tracking.values import markdown_table, parameters, result_values, round_values
from fedul.training import RunFolder, RunInfo, RunRecord, RunResult
from fedul.training.run_files import TENSORBOARD

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

EVENTS = "events.out.tfevents.*"


class TensorBoardTracker(Tracker):
    """Records runs for TensorBoard; needs the extra ``fedul[tensorboard]``.

    Parameters
    ----------
    log_dir : str or Path, optional
        Folder in which every run gets one with its name. Default: ``tensorboard`` in the run folder.
    artifacts : bool, default=True
        Whether the model card of a finished run is recorded too; TensorBoard does not take other files.

    Raises
    ------
    InputError
        If TensorBoard is not installed.

    Examples
    --------
    >>> import fedul, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> data = fedul.load("digits", clients=2, rows=400)
    >>> run = fedul.train(data, rounds=1, seed=0, callbacks=[fedul.TensorBoardTracker(folder)])
    """

    title = "TensorBoard"

    def __init__(self, log_dir: str | Path | None = None, *, artifacts: bool = True) -> None:
        super().__init__()
        self.log_dir, self._artifacts = None if log_dir is None else as_path(log_dir, "log_dir").resolve(), artifacts
        try:
            import torch.utils.tensorboard  # noqa: F401
        except ImportError:
            raise InputError(
                "TensorBoard is not installed; install fedul with it: pip install 'fedul[tensorboard]'."
            ) from None

    def connect(self) -> None:
        if self.log_dir is None:
            return
        try:
            self.log_dir.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise unreachable("the folder of TensorBoard", str(self.log_dir), problem) from None

    def on_run_start(self, run: RunInfo) -> None:
        if self.log_dir is None and run.folder is None and run.role != "choice":
            raise InputError("log_dir: is needed for a run without a folder (out).")
        super().on_run_start(run)

    def open(self, run: RunInfo) -> Series:
        return _EventFiles(self._place(run), len(run.history), artifacts=self._artifacts)

    def _place(self, run: RunInfo) -> Path:
        """Return the folder of the event files of a run."""
        if self.log_dir is None:
            assert run.folder is not None
            return run.folder / TENSORBOARD
        name = run.title or (run.folder.resolve().name if run.folder else "")
        return self.log_dir / re.sub(r"[^\w\-.=]+", "-", name).strip("-.")


class _EventFiles(Series):
    """The event files of one run.

    Parameters
    ----------
    place : Path
        Their folder.
    done : int
        Rounds of which earlier event files are valid, if there are any.
    """

    def __init__(self, place: Path, done: int, *, artifacts: bool) -> None:
        self._place, self._artifacts = place, artifacts
        self._last = done if any(place.glob(EVENTS)) else 0  # last step that is there
        self._opened: SummaryWriter | None = None

    @property
    def _writer(self) -> SummaryWriter:
        if self._opened is None:
            from torch.utils.tensorboard import SummaryWriter

            # What an earlier process wrote of later rounds is dropped by TensorBoard, since they are trained again.
            self._opened = SummaryWriter(str(self._place), purge_step=self._last + 1)
        return self._opened

    def write_parameters(self, record: RunRecord) -> None:
        self._writer.add_text("parameters", markdown_table(parameters(record)), self._last)
        self._writer.flush()

    def write_rounds(self, rounds: Sequence[RoundMetrics]) -> None:
        for metrics in rounds:
            if metrics.round <= self._last:
                continue
            for name, value in round_values(metrics).items():
                self._writer.add_scalar(name, value, metrics.round)
            self._last = metrics.round
        self._writer.flush()

    def write_result(self, result: RunResult, folder: RunFolder | None) -> None:
        from torch.utils.tensorboard.summary import hparams

        values = result_values(result, None if folder is None else stored_evaluation(folder))
        for name, value in values.items():
            self._writer.add_scalar(name, value, result.rounds)
        record = None if folder is None else folder.stored_config()
        if record is not None:
            files: Any = self._writer.file_writer
            summaries: Any = hparams(dict(parameters(record)), dict.fromkeys(values))  # type: ignore[no-untyped-call]
            for summary in summaries:
                files.add_summary(summary)
        if self._artifacts and folder is not None and (card := card_text(folder)):
            self._writer.add_text("model card", card, result.rounds)

    def close(self, failure: BaseException | None) -> None:
        status = "finished" if failure is None else f"failed: {type(failure).__name__}: {failure}"
        if failure is not None and not isinstance(failure, Exception):
            status = "interrupted"
        self._writer.add_text("status", status, self._last)
        self.abandon()

    def abandon(self) -> None:
        if self._opened is not None:
            self._opened.close()
