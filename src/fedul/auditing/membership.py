"""Membership inference: does the published classifier tell which rows it was trained on?

The attacker has the classifier, a row with its set, and the class priors of its client. The score of a row is log Q,
the log-probability that the classifier gives to the set of the row, as in training. Two attacks:

- loss threshold (Yeom et al., CSF 2018): rows with a large Q are taken for members;
- likelihood ratio (LiRA: Carlini et al., Membership Inference Attacks From First Principles, S&P 2022): log Q / (1 - Q)
  is compared with that of other models, some trained on the row and some not. Carlini et al. train hundreds; here there
  are few, so one variance is used for all rows.

All models are trained by the configuration of the run, each on a random half of the rows. Each is attacked in turn,
with the others as shadow models.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from fedul._utils.randomness import numpy_generator
from fedul.auditing.canaries import NO_ROWS
from fedul.auditing.document import MembershipResult
from fedul.auditing.protections import Condition
from fedul.auditing.roc import Membership, measure_roc
from fedul.classifier import Classifier
from fedul.core import Federation, Index, Matrix, Rows, Transition, UnlabeledSets, gather_rows
from fedul.errors import InputError
from fedul.training import Callback, RunInfo, train_parts

FEWEST_SHADOWS = 4
FEWEST_ROWS = 40
"""Different rows of all clients."""
BLOCK = 8192
SMALLEST = 1e-12


@dataclass(frozen=True, eq=False)
class _Client:
    """A client, and the number of each of its rows among the different rows of all clients."""

    client: UnlabeledSets
    rows: Rows
    numbers: Index

    def half(self, member: Membership) -> tuple[UnlabeledSets, Index]:
        """Return the client with those rows that are members, and the numbers of its rows; no set becomes empty."""
        chosen = member[self.numbers]
        sets = self.rows.sets.numpy()
        for empty in np.flatnonzero(np.bincount(sets[chosen], minlength=len(self.client.priors)) == 0):
            chosen[np.flatnonzero(sets == empty)[0]] = True
        at = torch.from_numpy(np.flatnonzero(chosen))
        scope = replace(self.client.prior_scope, missing=1 - len(at) / len(chosen))
        train = Rows(self.rows.index[at], self.rows.sets[at])
        return replace(self.client, train=train, held_out=NO_ROWS, prior_scope=scope), self.numbers[chosen]

    def log_odds(self, classifier: Classifier, test_prior: Matrix) -> tuple[Matrix, Matrix]:
        """Return log Q and log Q / (1 - Q) (n,) of the set of each row."""
        client = replace(self.client, train=self.rows, held_out=NO_ROWS)
        transition = Transition(client.priors, client.set_priors, test_prior)
        blocks = gather_rows([(client.inputs, self.rows.index)], BLOCK)
        classifier = classifier.without_adjustments()  # rows of a federation are adjusted already
        found = np.concatenate([np.log(np.maximum(classifier.predict_proba(block), SMALLEST)) for block in blocks])
        logs = transition(torch.from_numpy(found)).numpy()[np.arange(len(found)), self.rows.sets.numpy()]
        return logs, logs - np.log(np.maximum(-np.expm1(logs), SMALLEST))


class MembershipAttack:
    """Membership inference on the rows of a federation.

    Parameters
    ----------
    federation : Federation
        The clients.
    shadows : int
        Models to train for each configuration; at least `FEWEST_SHADOWS`.
    seed : int
        Seed of the halves.
    """

    def __init__(self, federation: Federation, shadows: int, seed: int) -> None:
        if shadows < FEWEST_SHADOWS:
            raise InputError(f"shadows: {shadows} are too few to compare with; use at least {FEWEST_SHADOWS}.")
        self._federation, self._seed, self._clients = federation, seed, _number_rows(federation)
        self._count = 1 + max(int(each.numbers.max()) for each in self._clients)
        if self._count < FEWEST_ROWS:
            raise InputError(
                f"membership: the clients have {self._count} different rows, and at least {FEWEST_ROWS} are needed to "
                "tell members from others; leave it out (--attacks), or add rows."
            )
        generator = numpy_generator(seed, "halves of the rows")
        # Independent coins: if every row were in exactly half of the models, the others would tell about the attacked.
        self._halves: Membership = generator.random((shadows, self._count)) < 0.5

    def run(
        self, condition: Condition, callback: Callback, info: Callable[[int], RunInfo]
    ) -> tuple[MembershipResult, ...]:
        """Train the models of a configuration, and attack each with the others.

        Parameters
        ----------
        condition : Condition
            How the models are trained.
        callback : Callback
            Called during training.
        info : callable
            Function from the number of a model, from 0, to its run, for the callback.
        """
        shadows = len(self._halves)
        members = np.zeros_like(self._halves)
        logs, odds = np.zeros(members.shape), np.zeros(members.shape)
        runs = train_parts(self._parts(members), condition.recipe, map(info, range(shadows)), callback)
        for model, run in enumerate(runs):
            logs[model], odds[model] = self._scores(run.classifier)
        generator = numpy_generator(self._seed, "resampled rows")
        scores = {"loss threshold": logs, "likelihood ratio": likelihood_ratios(odds, members)}
        return tuple(
            MembershipResult(
                protection=condition.protection.name,
                attack=attack,  # type: ignore[arg-type]  # the two names above
                rows=self._count,
                models=shadows,
                **vars(measure_roc(values, members, generator)),
            )
            for attack, values in scores.items()
        )

    def _parts(self, members: Membership) -> Iterator[Federation]:
        """Yield the federation of each model, and note in `members` on which rows it is trained."""
        for model, half in enumerate(self._halves):
            clients = []
            for each in self._clients:
                client, numbers = each.half(half)
                members[model, numbers] = True
                clients.append(client)
            yield replace(self._federation, clients=clients)

    def _scores(self, classifier: Classifier) -> tuple[Matrix, Matrix]:
        """Return the mean of log Q and of log Q / (1 - Q) over the sets of each row (n,)."""
        totals, counts = np.zeros((2, self._count)), np.zeros(self._count)
        for each in self._clients:
            for total, values in zip(totals, each.log_odds(classifier, self._federation.test_prior), strict=True):
                np.add.at(total, each.numbers, values)
            np.add.at(counts, each.numbers, 1)
        return totals[0] / counts, totals[1] / counts


def likelihood_ratios(odds: Matrix, members: Membership) -> Matrix:
    """Return the log-likelihood ratio of being a member, for each model and row, from the other models.

    Parameters
    ----------
    odds : ndarray of shape (models, n)
        Statistic of each row at each model, about normal.
    members : ndarray of shape (models, n), bool
        Which rows each model was trained on.
    """
    ratios = np.zeros(odds.shape)
    for model in range(len(odds)):
        others = np.arange(len(odds)) != model
        inside, outside = _mean(odds[others], members[others]), _mean(odds[others], ~members[others])
        rest = odds[others] - np.where(members[others], inside, outside)
        variance = max(float(np.nanmean(rest**2)), SMALLEST)
        ratio = ((odds[model] - outside) ** 2 - (odds[model] - inside) ** 2) / (2 * variance)
        ratios[model] = np.nan_to_num(ratio)  # a row that all other models were trained on tells nothing
    return ratios


def _mean(values: Matrix, chosen: Membership) -> Matrix:
    """Return the mean (n,) over the models that are chosen for each row; NaN where there is none."""
    counts = chosen.sum(0)
    means: Matrix = np.where(counts > 0, np.where(chosen, values, 0).sum(0) / np.maximum(counts, 1), np.nan)
    return means


def _number_rows(federation: Federation) -> Sequence[_Client]:
    """Return the clients with the rows that their priors speak of; a row in several sets has one number."""
    keys: dict[tuple[int, int], int] = {}
    clients = []
    for client in federation.clients:
        rows, place = client.prior_rows, client.inputs.data_ptr()
        numbers = [keys.setdefault((place, row), len(keys)) for row in rows.index.tolist()]
        clients.append(_Client(client, rows, np.array(numbers)))
    return clients
