"""The plan that a run declares to its sites before it starts, and that sites hold it to.

A coordinator learns from every evaluation and every update. So a run states in advance how many of them it will ask
for, and how it may be resumed, and a site refuses any further one (`site.plan_guard`).
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from fedul._utils.settings import to_dict
from fedul.config import TrainConfig
from fedul.engines.flower.protocol.run_spec import RunSpec
from fedul.training.run_record import RESUMABLE_CHANGES

STEPS_BACK = 1
"""Rounds before the last one that a resumed run may repeat.

A checkpoint is written after every evaluated round, and a round is evaluated while the next one trains. So the run that
was lost may have trained two rounds since its checkpoint.
"""


@dataclass(frozen=True)
class RunPlan:
    """What a run will ask of every site.

    Parameters
    ----------
    rounds : int
        Most rounds of the run, also if it is resumed with more later.
    evaluations : int, default=1
        Evaluations of each round on held-out rows. The same request may be repeated.
    references : bool, default=True
        Whether a round is compared with an earlier one, which the site has evaluated when it was new.
    local_evaluations : int, default=1
        Evaluations of a delivered classifier, each time that the run ends.
    resumptions : int, default=10
        Times that the run may be resumed.
    min_sites : int, default=1
        Sites that a sum is over at least.
    most_rows : int, default=0
        Upper bound of the training rows of all sites, where rows weigh the updates of secure sums.
    """

    rounds: int
    evaluations: int = 1
    references: bool = True
    local_evaluations: int = 1
    resumptions: int = 10
    min_sites: int = 1
    most_rows: int = 0


def settings_digest(spec: RunSpec, training: TrainConfig) -> str:
    """Return a digest of everything that the coordinator sets, but for what a resumed run may change."""
    settings = {name: value for name, value in to_dict(training).items() if name not in RESUMABLE_CHANGES}
    text = json.dumps({"spec": spec.to_dict(), "training": settings}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
