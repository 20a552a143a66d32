"""Statements on whole clients and on class priors, beside that on rows (`fedul.privacy.statement`)."""

from __future__ import annotations

from fedul.config import TrainConfig
from fedul.privacy import statement
from fedul.privacy.statement import NO_GUARANTEE, UNBOUNDED, PrivacyStatement

COORDINATOR = (
    "The coordinator adds the noise, so it must be trusted to do so, and without secure aggregation it sees every "
    "update. The guarantee is against everyone else who sees the classifier and the metrics."
)
PARTICIPANTS = "who takes part in a round, how many do, and traffic, which depends on it"
WHOLE_FEDERATION = "the class mix of all rows, if it is the test prior or clients are compared under it"
CLIENT_STATES = "the state of clients in the run folder (checkpoint/clients)"
PRIOR_USES = "everything that is computed from class priors: updates, the classifier, held-out losses, estimates"
SET_SIZES = "numbers of rows of sets, names of sets, and which row is in which set"
ROWS_THEMSELVES = "the features of rows, from which a class may be guessed: --dp-epsilon protects rows"
OTHER_DRAWS = "other runs on the same data in other folders, which draw new noise: their epsilons add up"
OCCURRENCES = "a row in several sets as a whole: its class is protected in each of them, and the epsilons add up"
LOCAL_PRIORS = "Noise is added at each client before the priors are used, so the guarantee holds against everyone else."


def client_statement(config: TrainConfig, epsilon: float | None, not_covered: tuple[str, ...] = ()) -> PrivacyStatement:
    """Return the statement on the clients of a run.

    Parameters
    ----------
    config : TrainConfig
        The configuration.
    epsilon : float or None
        What each client has paid; None if it is infinite.
    not_covered : tuple of str
        What is released without the guarantee, besides what no such run protects.
    """
    meaning = (
        "If one client sends nothing, the probability of any result that is covered changes by a factor of at most "
        "exp(epsilon), up to delta."
    )
    if config.dp_seeded:
        meaning = NO_GUARANTEE
    elif epsilon is None:
        meaning = UNBOUNDED
    secret = (PARTICIPANTS,) if config.participation < 1 else ()
    return PrivacyStatement(
        unit="client",
        epsilon=epsilon,
        delta=config.client_dp_delta,
        guarantee=not config.dp_seeded and epsilon is not None,
        meaning=meaning,
        covers=("the weights of all rounds, the classifier, and everything that is computed from them alone",),
        left_out=(*statement.LEFT_OUT, *secret),
        not_covered=("names of clients", "numbers of clients, rows and sets", WHOLE_FEDERATION, *not_covered),
        trust=COORDINATOR,
    )


def prior_statement(config: TrainConfig, not_covered: tuple[str, ...] = ()) -> PrivacyStatement:
    """Return the statement on the class priors of a run, which are perturbed.

    Parameters
    ----------
    config : TrainConfig
        The configuration.
    not_covered : tuple of str
        What is released without the guarantee, besides what no such run protects.
    """
    meaning = (
        "If one row of a set has another class, the probability of any perturbed priors changes by a factor of at most "
        "exp(epsilon). This is about the priors alone, and does not add to an epsilon of rows or clients."
    )
    return PrivacyStatement(
        unit="class of a row",
        epsilon=config.prior_epsilon,
        delta=0.0,
        guarantee=not config.dp_seeded,
        meaning=NO_GUARANTEE if config.dp_seeded else meaning,
        covers=("the class priors", PRIOR_USES),
        left_out=(),
        not_covered=(SET_SIZES, ROWS_THEMSELVES, OTHER_DRAWS, *not_covered),
        trust=LOCAL_PRIORS,
    )
