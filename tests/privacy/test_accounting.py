"""Epsilon of compositions against closed forms and dp-accounting's own accountants, and the noise for a target."""

import math
import subprocess
import sys
from itertools import pairwise

import pytest
from dp_accounting import dp_event
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_ndtr, ndtr

from fedul.config import TrainConfig
from fedul.errors import InputError
from fedul.privacy.accounting import Gaussian, Laplace, epsilon_of, noise_for
from fedul.privacy.row_privacy import plan_row_privacy, steps_of_epoch

DELTA = 1e-5


def gaussian_delta(epsilon: float, noise: float) -> float:
    """Return delta of the Gaussian mechanism (Balle and Wang, ICML 2018, Theorem 5)."""
    above, below = 1 / (2 * noise) - epsilon * noise, -1 / (2 * noise) - epsilon * noise
    return float(ndtr(above) - math.exp(epsilon + log_ndtr(below)))


def laplace_delta(epsilon: float, noise: float) -> float:
    """Return delta of one Laplace mechanism: the hockey-stick divergence of two densities 1 apart."""
    return max(0.0, 1 - math.exp((epsilon - 1 / noise) / 2))


@pytest.mark.parametrize("noise", [0.5, 1.0, 4.0, 40.0])
@pytest.mark.parametrize("count", [1, 50])
def test_the_gaussian_mechanism_has_the_epsilon_of_its_closed_form(noise, count):
    epsilon = epsilon_of([Gaussian(noise, count=count)], DELTA)
    assert gaussian_delta(epsilon, noise / math.sqrt(count)) <= DELTA
    assert gaussian_delta(epsilon * 0.999 - 1e-4, noise / math.sqrt(count)) > DELTA


@pytest.mark.parametrize("noise", [0.3, 1.0, 5.0])
def test_the_laplace_mechanism_has_the_epsilon_of_its_closed_form(noise):
    epsilon = epsilon_of([Laplace(noise)], DELTA)
    assert laplace_delta(epsilon, noise) <= DELTA
    assert laplace_delta(epsilon - 2e-3, noise) > DELTA


@pytest.mark.parametrize(
    "mechanisms",
    [
        [Gaussian(1.1, 0.05, 200)],
        [Gaussian(0.8, 1 / 15, 900)],
        [Gaussian(1.1, 0.05, 200), Gaussian(3.0, count=4), Laplace(20.0, 3)],
        [Gaussian(2.0, 1 / 3, 30), Gaussian(1.5, 1 / 7, 70)],
    ],
)
def test_epsilon_is_that_of_dp_accounting_on_the_same_mechanisms(mechanisms):
    accountant = PLDAccountant(value_discretization_interval=1e-3)
    accountant.compose(dp_event.ComposedDpEvent([mechanism.event() for mechanism in mechanisms]))
    assert epsilon_of(mechanisms, DELTA) == pytest.approx(accountant.get_epsilon(DELTA), rel=1e-6)


def test_epsilon_is_an_upper_bound_that_a_finer_discretisation_hardly_lowers():
    mechanism = Gaussian(0.75, 1 / 150, 9000)
    accountant = PLDAccountant(value_discretization_interval=1e-4)
    accountant.compose(mechanism.event())
    finer = accountant.get_epsilon(DELTA)
    assert finer <= epsilon_of([mechanism], DELTA) <= 1.001 * finer


def test_epsilon_is_below_that_of_renyi_accounting():
    mechanism = Gaussian(1.5, 1 / 15, 900)
    accountant = RdpAccountant()
    accountant.compose(mechanism.event())
    assert epsilon_of([mechanism], DELTA) < 0.95 * accountant.get_epsilon(DELTA)


@settings(max_examples=8, deadline=None)
@given(noise=st.floats(0.6, 10), each_epoch=st.integers(1, 40), parts=st.lists(st.integers(1, 40), min_size=1))
def test_a_composition_does_not_depend_on_how_its_steps_are_grouped(noise, each_epoch, parts):
    together = epsilon_of([Gaussian(noise, 1 / each_epoch, sum(parts))], DELTA)
    assert epsilon_of([Gaussian(noise, 1 / each_epoch, part) for part in parts], DELTA) == pytest.approx(together)


def test_every_further_round_costs_something():
    spent = [epsilon_of([Gaussian(1.2, 1 / 8, 8 * rounds)], DELTA) for rounds in range(1, 30)]
    assert all(before < after for before, after in pairwise(spent))


def test_nothing_released_costs_nothing_and_no_noise_has_no_bound():
    assert epsilon_of([], DELTA) == 0
    assert epsilon_of([Gaussian(1.0, count=0), Gaussian(1.0, rate=0.0, count=5), Laplace(1.0, 0)], DELTA) == 0
    assert epsilon_of([Gaussian(0.0)], DELTA) == math.inf
    assert epsilon_of([Gaussian(5.0), Laplace(0.0)], DELTA) == math.inf


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 8.0, 30.0])
@pytest.mark.parametrize(("each_epoch", "rounds"), [(1, 1), (1, 60), (15, 60)])
def test_the_noise_for_a_target_spends_it_and_no_more(epsilon, each_epoch, rounds):
    noise = noise_for(epsilon, DELTA, lambda noise: [Gaussian(noise, 1 / each_epoch, each_epoch * rounds)])
    assert 0.999 * epsilon < epsilon_of([Gaussian(noise, 1 / each_epoch, each_epoch * rounds)], DELTA) <= epsilon


def test_what_other_releases_cost_raises_the_noise():
    alone = noise_for(2.0, DELTA, lambda noise: [Gaussian(noise, 0.1, 100)])
    beside = noise_for(2.0, DELTA, lambda noise: [Gaussian(noise, 0.1, 100), Gaussian(5.0)])
    assert beside > 1.05 * alone


def test_a_target_that_other_releases_have_spent_is_refused():
    with pytest.raises(InputError, match="no noise is enough"):
        noise_for(0.5, DELTA, lambda noise: [Gaussian(noise, 0.1, 100), Gaussian(1.0)])


def test_a_plan_keeps_the_whole_run_of_every_client_within_epsilon():
    config = TrainConfig(dp_epsilon=3.0, batch_size=32, epochs=2)
    for rows in (20, 33, 500, 1700):
        plan = plan_row_privacy(config, rows, rounds=40)
        assert plan.steps == 2 * steps_of_epoch(rows, 32)
        assert plan.rate * rows <= 32
        assert 2.99 < epsilon_of([plan.mechanism] * 40, config.dp_delta) <= 3.0


def test_a_plan_with_given_noise_has_this_noise():
    plan = plan_row_privacy(TrainConfig(dp_noise=0.7, dp_clip=2.0, dp_seeded=True), rows=64, rounds=5)
    assert (plan.noise, plan.clip, plan.rate, plan.steps, plan.seeded) == (0.7, 2.0, 0.5, 2, True)


def test_delta_has_to_be_below_one_over_the_rows():
    plan_row_privacy(TrainConfig(dp_noise=1.0, dp_delta=1e-3), rows=999, rounds=1)
    with pytest.raises(InputError, match=r"client 'north' has 1,000 rows; use at most 1e-04"):
        plan_row_privacy(TrainConfig(dp_noise=1.0, dp_delta=1e-3), rows=1000, rounds=1, client="north")


def test_accounting_is_imported_on_first_use():
    code = "import sys, fedul.privacy.row_privacy; print('dp_accounting' in sys.modules, 'scipy' in sys.modules)"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert output.split()[0] == "False"
