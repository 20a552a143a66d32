"""What the rows of a site have paid for: the site charges itself for every private update, before it leaves.

The ledger `row_privacy.jsonl` in the state folder has all runs of the site. The coordinator is not trusted with it: it
may repeat rounds, resume a run or start another one, and the site refuses what a budget does not suffice for. There are
two: `dp-epsilon` of the run, and `row-epsilon` in the site's settings, which is for all runs together.

The update of the last round is stored with its noise, so that a request that is repeated, because a reply was lost or
the coordinator was, gets the same update and costs nothing.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from fedul._utils.files import read_tensors, write_tensors
from fedul.config import TrainConfig
from fedul.core import Update
from fedul.engines.flower.protocol.message import Message
from fedul.engines.flower.protocol.spent_budget import spent_budget
from fedul.engines.flower.site.public_error import PublicError
from fedul.engines.flower.site.site_data import EMPTY, SiteData, log_warning
from fedul.errors import InputError
from fedul.privacy.ledger import Budget, BudgetSpent, Charge, Ledger
from fedul.privacy.row_accountant import TRAINING
from fedul.privacy.row_privacy import RowPrivacy, check_delta, plan_row_privacy

LEDGER, LAST_UPDATE = "row_privacy.jsonl", "private_update.safetensors"
GROUPS = ("delta", "buffers", "message")


class RowBudget:
    """Row privacy of a site in one run.

    Parameters
    ----------
    data : SiteData
        The site.
    run : str
        Identifier of the run.
    config : TrainConfig
        How the run trains.
    rows : int
        Rows that the site trains on.
    """

    def __init__(self, data: SiteData, run: str, config: TrainConfig, rows: int) -> None:
        self._name, self._run, self._config = data.config.name, run, config
        with data.explain_state_errors():
            self._ledger = Ledger(data.state / LEDGER)
            self._update_file = data.run_folder(run) / LAST_UPDATE
        self._budgets = [
            Budget(epsilon, delta, setting, run=scope)
            for epsilon, delta, setting, scope in (
                (config.dp_epsilon, config.dp_delta, "dp-epsilon", run),
                (data.config.row_epsilon, data.config.row_delta, "row-epsilon", None),
            )
            if epsilon is not None
        ]
        try:
            check_delta(config.dp_delta, rows)
        except InputError:
            raise PublicError("dp-delta is not below 1 / its number of rows") from None
        earlier = [charge.mechanism.noise for charge, _ in self._ledger.entries() if charge.run == run]
        if not earlier and (self._update_file.exists() or self._has_lost_ledger(data)):
            log_warning(f"{self._ledger.file}: is missing or of another run, so what the rows have paid is not known.")
            raise PublicError("the ledger of its privacy is missing")
        if earlier:  # further rounds have the noise of the first ones
            config = replace(config, dp_epsilon=None, dp_noise=earlier[-1])
        self.plan: RowPrivacy = plan_row_privacy(config, rows, config.rounds)

    def _has_lost_ledger(self, data: SiteData) -> bool:
        """Return whether nothing is charged, though an update of some run is stored; it counts for `row-epsilon`."""
        if data.config.row_epsilon is None or any(True for _ in self._ledger.entries()):
            return False
        return any(data.state.glob(f"*/{LAST_UPDATE}"))

    def check_run(self) -> None:
        """Refuse a run whose rounds `row-epsilon` does not suffice for, before anything is computed."""
        charge = Charge(TRAINING, self.plan.mechanism, run=self._run)
        for budget in self._budgets:
            if budget.run is None and not self._ledger.affords(self._name, charge, budget, self._config.rounds):
                raise PublicError(spent_budget(budget.setting))

    def charge(self, number: int) -> None:
        """Charge a round before it is trained; refuse it if a budget does not suffice.

        Parameters
        ----------
        number : int
            Number of the round.
        """
        charge = Charge(TRAINING, self.plan.mechanism, number, run=self._run)
        try:
            self._ledger.charge({self._name: charge}, *self._budgets)
        except BudgetSpent as spent:
            log_warning(str(spent))
            raise PublicError(spent_budget(spent.setting)) from None

    @property
    def epsilon(self) -> float:
        """Epsilon of the site's rows in this run so far, at `dp_delta` of the run."""
        return self._ledger.epsilon(self._name, self._config.dp_delta, run=self._run)

    def stored_update(self, request: str) -> Update | None:
        """Return the update that answered a request with this digest; None if it was another one or is lost."""
        with suppress(InputError):
            tensors, notes = read_tensors(self._update_file)
            if notes["request"] == request:
                groups = {group: Message({}, tensors).group(group) for group in GROUPS}
                return Update(self._name, rows=notes["rows"], steps=notes["steps"], loss=None, **groups)
        return None

    def store_update(self, request: str, update: Update) -> None:
        """Store the update that answers a request, before it leaves the site."""
        tensors = {f"{group}/{name}": t for group in GROUPS for name, t in getattr(update, group).items()}
        notes = {"request": request, "rows": update.rows, "steps": update.steps}
        write_tensors(self._update_file, tensors or EMPTY, notes)


def refuse_unprotected(data: SiteData, config: TrainConfig) -> None:
    """Refuse a run without private rows at a site that has a budget for them."""
    if data.config.row_epsilon is not None and not config.protects_rows:
        raise PublicError("it takes part in runs with private rows only (row-epsilon); use dp-epsilon")


def refuse_evaluation(config: TrainConfig) -> None:
    """Refuse to evaluate anything on rows of a private run: its epsilon does not cover that."""
    if config.is_private:
        raise PublicError("rows or clients are private in this run, so nothing is evaluated on them")
