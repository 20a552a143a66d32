"""A site holds a run to the plan that it declared: what goes beyond it is refused, and the site's log states it.

The site stores the plan when it joins, and what it has been asked since. A run that is resumed repeats its last rounds,
with other weights if other sites replied. Each time it announces a higher number, and the plan limits how often.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from torch import Tensor

from fedul._utils.documents import Document, read_document_file, to_document
from fedul._utils.files import tensors_digest, write_json
from fedul.engines.flower.protocol.documents import HeldOutRequest, RunRequest, TrainRequest
from fedul.engines.flower.protocol.message import Message
from fedul.engines.flower.protocol.run_plan import STEPS_BACK, RunPlan, settings_digest
from fedul.engines.flower.site.public_error import PublicError

PLAN = "plan.json"


@dataclass(frozen=True)
class RunHistory(Document):
    """What a site has been asked in a run; the document `plan.json` in the state folder.

    Parameters
    ----------
    plan : RunPlan
        What the run declared.
    settings : str
        Digest of the spec and of the settings of training.
    resumption : int
        How often the run has been resumed, as far as the site knows.
    trained, evaluated : mapping of str to str
        By round, a digest of what was received: to train from, and to evaluate.
    delivered : tuple of str
        Digests of the classifiers that were evaluated as delivered.
    """

    plan: RunPlan
    settings: str
    resumption: int = 0
    trained: Mapping[str, str] = field(default_factory=dict)
    evaluated: Mapping[str, str] = field(default_factory=dict)
    delivered: tuple[str, ...] = ()


class PlanGuard:
    """Checks requests of a run against its plan, and records them.

    Parameters
    ----------
    folder : Path
        Folder of the run in the site's state.
    request : RunRequest
        Any request of the run. The plan of the first one is stored.
    """

    def __init__(self, folder: Path, request: RunRequest) -> None:
        self._file = folder / PLAN
        settings = settings_digest(request.spec, request.training)
        stored = read_document_file(RunHistory, self._file, "the next message")
        self.is_new = stored is None
        self._history = stored or RunHistory(request.plan, settings)
        if request.plan != self._history.plan:
            raise PublicError("this run declared another plan when it started; start another run")
        if settings != self._history.settings:
            raise PublicError("this run had other settings or another spec when it started; start another run")
        if request.training.rounds > request.plan.rounds:
            raise PublicError(f"{request.training.rounds} rounds are more than the {request.plan.rounds} of its plan")
        if self.is_new:
            self._write()

    @property
    def plan(self) -> RunPlan:
        """The plan that the run declared."""
        return self._history.plan

    def check_training(self, request: TrainRequest, message: Message) -> str:
        """Refuse a round that the plan does not have, that goes back, or that is repeated with other weights.

        Returns
        -------
        str
            Digest of everything that the update depends on; it is the same if a request is repeated.
        """
        self._check_resumption(request)
        number, trained = request.round, self._history.trained
        further = (
            tensors_digest(message.group("received")),
            sorted(request.directive.items()),
            sorted(request.clips.items()),
        )
        received = _digest(message.group("weights"), *further)
        if not 0 < number <= self.plan.rounds:
            raise PublicError(f"round {number} is not one of the {self.plan.rounds} that the run declared")
        if trained.get(str(number), received) != received:
            raise PublicError(f"it has trained round {number} from other weights")
        if str(number) not in trained and number < (last := _last(trained)):
            raise PublicError(f"round {number} comes after round {last}, and the run was not resumed")
        recent = {key: digest for key, digest in trained.items() if int(key) >= number - STEPS_BACK - 1}
        self._history = replace(self._history, trained={**recent, str(number): received})
        self._write()
        return f"{number} {received}"

    def check_evaluation(self, request: HeldOutRequest, message: Message, group: str) -> None:
        """Refuse an evaluation of other weights than those of a round, or a second one, or another reference.

        Parameters
        ----------
        request : HeldOutRequest
            The request.
        message : Message
            Its tensors.
        group : str
            Group of the tensors that are evaluated.
        """
        self._check_resumption(request)
        number, evaluated = request.evaluated, self._history.evaluated
        received, reference = _digest(message.group(group)), _digest(message.group("reference"))
        if not self.plan.evaluations or not 0 < number <= self.plan.rounds:
            raise PublicError(f"the plan of the run has no evaluation of round {number}")
        if evaluated.get(str(number), received) != received:
            raise PublicError(f"it has evaluated round {number} with other weights")
        if str(number) not in evaluated and number < (last := max(_last(evaluated), _last(self._history.trained) - 1)):
            raise PublicError(f"the evaluation of round {number} comes after that of round {last}")
        if request.reference and not (self.plan.references and request.reference < number):
            raise PublicError(f"round {number} cannot be compared with round {request.reference}")
        if bool(request.reference) != bool(message.group("reference")):
            raise PublicError("the reference has weights or a round, but not both")
        if request.reference and evaluated.get(str(request.reference), reference) != reference:
            raise PublicError(f"round {request.reference}, the reference, had other weights when it was evaluated")
        self._history = replace(self._history, evaluated={**evaluated, str(number): received})
        self._write()

    def check_delivered(self, message: Message) -> None:
        """Refuse to evaluate more delivered classifiers than the plan has."""
        received, delivered = _digest(message.group("weights")), self._history.delivered
        if received in delivered:
            return
        if len(delivered) >= self.plan.local_evaluations * (1 + self._history.resumption):
            raise PublicError("it has evaluated the delivered classifier of this run")
        self._history = replace(self._history, delivered=(*delivered, received))
        self._write()

    def _check_resumption(self, request: HeldOutRequest) -> None:
        """Note that the run was resumed, or refuse that."""
        history = self._history
        if request.resumption < history.resumption:
            raise PublicError(f"the run was resumed {history.resumption} times, and this message is from before")
        if request.resumption == history.resumption:
            return
        if request.resumption > self.plan.resumptions:
            raise PublicError(f"the plan allows {self.plan.resumptions} resumptions, and this is one more")
        earliest = max(_last(history.trained) - STEPS_BACK, 1)
        if isinstance(request, TrainRequest) and request.round < earliest:
            raise PublicError(f"a resumed run goes back to round {earliest} at the earliest, not to {request.round}")
        first = request.round if isinstance(request, TrainRequest) else request.evaluated
        self._history = replace(
            history,
            resumption=request.resumption,
            trained={key: digest for key, digest in history.trained.items() if int(key) < first},
            evaluated={key: digest for key, digest in history.evaluated.items() if int(key) < first},
        )

    def _write(self) -> None:
        write_json(self._file, to_document(self._history))


def _digest(tensors: Mapping[str, Tensor], *further: object) -> str:
    return " ".join([tensors_digest(tensors), *map(str, further)])


def _last(rounds: Mapping[str, str]) -> int:
    return max(map(int, rounds), default=0)
