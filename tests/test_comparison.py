"""A comparison names its contestants plainly, and marks the best without labels and all that are not worse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy import stats

from fedul.comparison import Contestant, Result, compare, contestants, judged, paired_p_value
from fedul.config import CompareConfig, DataConfig, TrainConfig
from fedul.errors import InputError

from .watching import Witness
from .worlds import repeatable, seeds


def test_every_method_meets_every_algorithm() -> None:
    found = contestants("fedul,supervised:labels=0.1", "fedavg,fedprox:mu=0.1:weighting=rows")
    assert found == [
        Contestant("fedul", "fedavg"),
        Contestant("supervised", "fedavg", {"labels": 0.1}),
        Contestant("fedul", "fedprox", {}, {"mu": 0.1, "weighting": "rows"}),
        Contestant("supervised", "fedprox", {"labels": 0.1}, {"mu": 0.1, "weighting": "rows"}),
    ]


def test_a_contestant_is_named_by_its_method_its_settings_and_an_unusual_algorithm() -> None:
    found = contestants("fedul,supervised:labels=0.1", "fedavg,fedprox:mu=0.1")
    titles = ["fedul", "supervised labels=0.1", "fedul fedprox mu=0.1", "supervised labels=0.1 fedprox mu=0.1"]
    assert [c.title for c in found] == titles


def test_a_folder_is_one_name_whatever_the_settings_say() -> None:
    (found,) = contestants("fedul:score=a/b c", "fedavg")
    assert found.folder == "fedul_score=a-b_c_under_fedavg"


def test_blanks_and_surplus_commas_do_not_matter() -> None:
    assert contestants(" fedul , fedllp ,", "fedavg,") == contestants("fedul,fedllp", "fedavg")


def test_the_usual_contestants_are_every_method() -> None:
    usual = CompareConfig()
    assert len(contestants(usual.methods, usual.algorithms)) == 7


@pytest.mark.parametrize(
    ("methods", "algorithms", "complaint"),
    [
        ("fedull", "fedavg", "unknown method 'fedull': did you mean 'fedul'?"),
        ("fedul", "fedporx", "unknown algorithm 'fedporx': did you mean 'fedprox'?"),
        ("fedul,fedul", "fedavg", "methods: 'fedul' is named twice"),
        ("supervised:labels=0.1,supervised:labels=1e-1", "fedavg", "methods: 'supervised labels=0.1' is named twice"),
        ("", "fedavg", "methods: names none; give one or more of fedul"),
        (" ,, ", "fedavg", "methods: names none"),
        ("fedul", ",", "algorithms: names none; give one or more of fedavg"),
        ("fedul:x", "fedavg", "methods: expected NAME or NAME:NAME=VALUE, got 'fedul:x'"),
        ("fedul:", "fedavg", "methods: expected NAME or NAME:NAME=VALUE, got 'fedul:'"),
        ("fedul:=1", "fedavg", "methods: expected NAME or NAME:NAME=VALUE, got 'fedul:=1'"),
        ("fedul", "fedprox:mu", "algorithms: expected NAME or NAME:NAME=VALUE, got 'fedprox:mu'"),
        (":labels=1", "fedavg", "unknown method ''"),
    ],
)
def test_contestants_that_cannot_be_are_refused(methods: str, algorithms: str, complaint: str) -> None:
    with pytest.raises(InputError) as refusal:
        contestants(methods, algorithms)
    assert str(refusal.value).startswith(complaint)


def test_an_algorithm_that_is_named_twice_is_refused() -> None:
    with pytest.raises(InputError, match="named twice"):
        contestants("fedul", "fedavg,fedavg")


def result(name: str, errors: list[float], labels_used: int = 0) -> Result:
    return Result(Contestant(name), tuple(errors), 1.0, labels_used, ())


BEST = [0.10, 0.12, 0.11, 0.13, 0.10]
AS_GOOD = [0.11, 0.11, 0.12, 0.12, 0.11]
WORSE = [0.20, 0.23, 0.20, 0.24, 0.21]


def test_the_best_without_labels_and_all_that_are_not_significantly_worse_are_marked() -> None:
    found = judged([result("worse", WORSE), result("best", BEST), result("as good", AS_GOOD)])
    assert [r.marked for r in found] == [False, True, True]
    assert [r.p_value is None for r in found] == [False, True, False]
    assert found[0].p_value < 0.05 <= found[2].p_value


def test_methods_with_labels_are_neither_judged_nor_in_the_way() -> None:
    labelled = result("labelled", [0.01] * 5, labels_used=10)
    found = judged([labelled, result("best", BEST), result("worse", WORSE)])
    assert found[0] == labelled
    assert [r.marked for r in found] == [False, True, False]


def test_without_a_method_without_labels_nobody_is_marked() -> None:
    results = [result("one", BEST, labels_used=5), result("two", WORSE, labels_used=5)]
    assert judged(results) == results


def test_with_one_seed_only_the_best_is_marked() -> None:
    found = judged([result("best", [0.1]), result("close", [0.1001])])
    assert [(r.marked, r.p_value) for r in found] == [(True, None), (False, None)]


def test_a_method_that_does_exactly_as_well_as_the_best_is_marked() -> None:
    found = judged([result("one", BEST), result("twin", BEST)])
    assert [r.marked for r in found] == [True, True]


def test_a_method_that_is_worse_by_the_same_amount_with_every_seed_is_worse() -> None:
    found = judged([result("best", [0.25, 0.5]), result("worse", [0.375, 0.625])])
    assert (found[1].marked, found[1].p_value) == (False, 0.0)


@repeatable
@given(seeds, st.integers(2, 10))
def test_the_p_value_is_that_of_the_paired_t_test(seed: int, count: int) -> None:
    one, other = np.random.default_rng(seed).uniform(size=(2, count))
    differences = one - other
    t = differences.mean() / (differences.std(ddof=1) / np.sqrt(count))
    found = paired_p_value(one.tolist(), other.tolist())
    assert_allclose(found, 2 * stats.t.sf(abs(t), count - 1), rtol=1e-9)
    assert_allclose(found, stats.ttest_rel(one, other).pvalue, rtol=1e-12)
    assert found == paired_p_value(other.tolist(), one.tolist())


@repeatable
@given(st.lists(st.floats(0, 1), min_size=1, max_size=9))
def test_a_result_sums_up_its_errors(errors: list[float]) -> None:
    found = result("one", errors)
    assert_allclose(found.mean, np.mean(errors), rtol=1e-12)
    assert_allclose(found.deviation, np.std(errors, ddof=1) if len(errors) > 1 else 0.0, rtol=1e-9, atol=1e-12)


def compared(out: Path, methods: str, seeds: int = 1, **options: Any) -> tuple[list[Result], Witness]:
    witness = Witness()
    data = DataConfig(clients=2, sets=(10,), validation=0.6, seed=options.pop("seed", 0))
    training = TrainConfig(rounds=options.pop("rounds", 1), batch_size=256, model="linear", threads=1)
    compared = CompareConfig(methods=methods, seeds=seeds, out=str(out), **options)
    return compare(data, training, compared, out, witness), witness


def test_runs_are_numbered_seed_by_seed_from_the_seed_of_the_data(tmp_path: Path) -> None:
    results, witness = compared(tmp_path / "C", "fedul,fedllp", seeds=2, seed=3)
    titles = ["fedul, seed 3", "fedllp, seed 3", "fedul, seed 4", "fedllp, seed 4"]
    assert witness.seen == [(n + 1, 4, title) for n, title in enumerate(titles)]
    assert [len(r.errors) for r in results] == [2, 2]
    assert [len(set(r.errors)) for r in results] == [2, 2]


def test_only_runs_that_are_missing_are_done(tmp_path: Path) -> None:
    before, _ = compared(tmp_path / "C", "fedul", seeds=1)
    after, witness = compared(tmp_path / "C", "fedul,fedllp", seeds=2, resume=True)
    assert [title for _, _, title in witness.seen] == ["fedllp, seed 0", "fedul, seed 1", "fedllp, seed 1"]
    assert after[0].errors[0] == before[0].errors[0]


def test_more_rounds_go_on_from_where_the_runs_were(tmp_path: Path) -> None:
    compared(tmp_path / "C", "fedul", rounds=1)
    longer, witness = compared(tmp_path / "C", "fedul", rounds=3, resume=True)
    whole, _ = compared(tmp_path / "D", "fedul", rounds=3)
    assert len(witness.seen) == 1
    assert longer[0].curves == whole[0].curves
    assert len(longer[0].curves[0]) == 3


def test_what_was_compared_alone_comes_to_the_same_in_company(tmp_path: Path) -> None:
    (alone,), _ = compared(tmp_path / "C", "fedllp")
    (_, in_company), _ = compared(tmp_path / "D", "fedul,fedllp")
    assert in_company.errors == alone.errors
