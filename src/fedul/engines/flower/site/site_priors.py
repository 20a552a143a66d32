"""Perturbed class priors of a site (`prior-epsilon` in its settings): drawn once, stored in its state folder.

Every draw is a line of `prior_draws.jsonl`, with its epsilon. A draw is used by all runs until the site's priors, the
sizes of its sets or `prior-epsilon` change. Then another one is drawn, and the epsilons of all lines add up.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fedul._utils.documents import Document
from fedul._utils.files import write_bytes
from fedul.core import UnlabeledSets
from fedul.errors import InputError
from fedul.privacy.prior_noise import count_noise, perturb_client
from fedul.privacy.random_source import random_source

DRAWS = "prior_draws.jsonl"


@dataclass(frozen=True)
class PriorDraw(Document):
    """A draw of perturbed class priors.

    Parameters
    ----------
    source : str
        Digest of what was perturbed.
    epsilon : float
        Epsilon of the class of one row.
    priors : list of list of float
        The perturbed priors (M, K).
    """

    source: str
    epsilon: float
    priors: list[list[float]]


def perturb_site(
    client: UnlabeledSets, classes: Sequence[str], epsilon: float | None, state: Path
) -> tuple[UnlabeledSets, bool]:
    """Return a site's client with perturbed class priors, and whether they were drawn just now.

    Parameters
    ----------
    client : UnlabeledSets
        The client with its exact priors.
    classes : sequence of str
        Their classes.
    epsilon : float or None
        Epsilon of the class of one row; None leaves the client as it is.
    state : Path
        The state folder of the site.
    """
    if epsilon is None:
        return client, False
    source, draws = _digest(client, classes), read_draws(state)
    draw = next((each for each in draws if each.source == source and each.epsilon == epsilon), None)
    is_new = draw is None
    if draw is None:
        priors = perturb_client(client, epsilon, random_source(None))
        draw = PriorDraw(source, epsilon, priors.tolist())
        lines = "".join(json.dumps(each.to_dict()) + "\n" for each in (*draws, draw))
        write_bytes(state / DRAWS, lines.encode())  # before anything uses the draw
    scope = replace(client.prior_scope, noise=count_noise(epsilon, len(classes)))
    return replace(client, priors=np.array(draw.priors), prior_scope=scope), is_new


def read_draws(state: Path) -> list[PriorDraw]:
    """Return all draws of a site, oldest first."""
    file = state / DRAWS
    try:
        lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
        return [PriorDraw.from_dict(json.loads(line)) for line in lines]
    except (OSError, ValueError, KeyError):
        raise InputError(
            f"{file}: cannot be read; restore a copy of it, because another draw would disclose more of the priors."
        ) from None


def _digest(client: UnlabeledSets, classes: Sequence[str]) -> str:
    rows = np.bincount(client.prior_rows.sets.numpy(), minlength=len(client.priors))
    content = [list(classes), list(client.set_names), rows.tolist(), client.priors.tolist(), repr(client.prior_scope)]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()
