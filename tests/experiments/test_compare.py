"""A comparison names its variants, runs each once, and marks the best without labels and all that are not worse."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy import stats

from fedul.config import BenchmarkDataConfig, CompareConfig, TrainConfig
from fedul.core import paired_p_value
from fedul.data.load import load
from fedul.errors import InputError
from fedul.experiments.compare import compare
from fedul.experiments.comparison_result import ComparisonResult, VariantResult
from fedul.experiments.grid import mark_best
from fedul.experiments.variants import Variant, parse_variants

from ..callbacks import Recorder
from ..factories import gaussian_study
from ..worlds import repeatable, seeds


def test_every_method_is_combined_with_every_algorithm() -> None:
    found = parse_variants("fedul,supervised:labels=0.1", "fedavg,fedprox:mu=0.1:weighting=rows")
    assert found == [
        Variant("fedul", "fedavg"),
        Variant("supervised", "fedavg", {"labels": 0.1}),
        Variant("fedul", "fedprox", {}, {"mu": 0.1, "weighting": "rows"}),
        Variant("supervised", "fedprox", {"labels": 0.1}, {"mu": 0.1, "weighting": "rows"}),
    ]


def test_a_variant_is_named_by_its_method_its_options_and_an_algorithm_other_than_fedavg() -> None:
    found = parse_variants("fedul,supervised:labels=0.1", "fedavg,fedprox:mu=0.1")
    titles = ["fedul", "supervised labels=0.1", "fedul fedprox mu=0.1", "supervised labels=0.1 fedprox mu=0.1"]
    assert [c.title for c in found] == titles


def test_the_folder_of_a_variant_is_one_file_name() -> None:
    (found,) = parse_variants("fedul:score=a/b c", "fedavg")
    assert found.folder == "fedul_score=a-b_c_under_fedavg"


def test_blanks_and_surplus_commas_do_not_matter() -> None:
    assert parse_variants(" fedul , fedllp ,", "fedavg,") == parse_variants("fedul,fedllp", "fedavg")


def test_all_methods_are_compared_by_default() -> None:
    usual = CompareConfig()
    assert len(parse_variants(usual.methods, usual.algorithms)) == 8


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
def test_wrong_names_of_variants_are_refused(methods: str, algorithms: str, complaint: str) -> None:
    with pytest.raises(InputError) as refusal:
        parse_variants(methods, algorithms)
    assert str(refusal.value).startswith(complaint)


def test_an_algorithm_that_is_named_twice_is_refused() -> None:
    with pytest.raises(InputError, match="named twice"):
        parse_variants("fedul", "fedavg,fedavg")


def result(name: str, errors: list[float], labels_used: int = 0) -> VariantResult:
    return VariantResult(
        variant=Variant(name), values=tuple((error,) for error in errors), seconds=1.0, labels_used=labels_used
    )


BEST = [0.10, 0.12, 0.11, 0.13, 0.10]
AS_GOOD = [0.11, 0.11, 0.12, 0.12, 0.11]
WORSE = [0.20, 0.23, 0.20, 0.24, 0.21]


def test_the_best_without_labels_and_all_that_are_not_significantly_worse_are_marked() -> None:
    found = mark_best([result("worse", WORSE), result("best", BEST), result("as good", AS_GOOD)])
    assert [r.best for r in found] == [False, True, True]
    assert [r.p_value is None for r in found] == [False, True, False]
    assert found[0].p_value < 0.05 <= found[2].p_value


def test_methods_with_labels_are_neither_tested_nor_marked() -> None:
    labelled = result("labelled", [0.01] * 5, labels_used=10)
    found = mark_best([labelled, result("best", BEST), result("worse", WORSE)])
    assert found[0] == labelled
    assert [r.best for r in found] == [False, True, False]


def test_nothing_is_marked_if_all_methods_use_labels() -> None:
    results = [result("one", BEST, labels_used=5), result("two", WORSE, labels_used=5)]
    assert mark_best(results) == results


def test_with_one_seed_only_the_best_is_marked() -> None:
    found = mark_best([result("best", [0.1]), result("close", [0.1001])])
    assert [(r.best, r.p_value) for r in found] == [(True, None), (False, None)]


def test_a_method_with_the_same_errors_as_the_best_is_marked() -> None:
    found = mark_best([result("one", BEST), result("twin", BEST)])
    assert [r.best for r in found] == [True, True]


def test_a_method_that_is_worse_by_the_same_amount_with_every_seed_is_worse() -> None:
    found = mark_best([result("best", [0.25, 0.5]), result("worse", [0.375, 0.625])])
    assert (found[1].best, found[1].p_value) == (False, 0.0)


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
def test_mean_and_deviation_are_over_seeds(errors: list[float]) -> None:
    found = result("one", errors)
    assert_allclose(found.mean, np.mean(errors), rtol=1e-12)
    assert_allclose(found.deviations[0], np.std(errors, ddof=1) if len(errors) > 1 else 0.0, rtol=1e-9, atol=1e-12)


SETTINGS: dict[str, Any] = {"clients": 2, "held_out": 0.6, "batch_size": 256, "model": "linear", "threads": 1}


def run_comparison(out: Path | None, methods: str, **options: Any) -> tuple[ComparisonResult, Recorder]:
    recorder = Recorder()
    settings = {**SETTINGS, "seeds": 1, "rounds": 1, **options}
    return compare(methods=methods, out=out, callbacks=[recorder], **settings), recorder


def test_runs_are_numbered_seed_by_seed_from_the_seed_of_the_data(tmp_path: Path) -> None:
    comparison, recorder = run_comparison(tmp_path / "C", "fedul,fedllp", seeds=2, seed=3)
    titles = ["fedul, seed 3", "fedllp, seed 3", "fedul, seed 4", "fedllp, seed 4"]
    assert recorder.started == [(n + 1, 4, title) for n, title in enumerate(titles)]
    assert [len(set(result.by_seed)) for result in comparison.results] == [2, 2]


def test_only_missing_runs_are_trained(tmp_path: Path) -> None:
    before, _ = run_comparison(tmp_path / "C", "fedul")
    after, recorder = run_comparison(tmp_path / "C", "fedul,fedllp", seeds=2, resume=True)
    assert [title for _, _, title in recorder.started] == ["fedllp, seed 0", "fedul, seed 1", "fedllp, seed 1"]
    assert after.results[0].by_seed[0] == before.results[0].by_seed[0]


def test_a_resumed_comparison_takes_its_settings_from_the_folder(tmp_path: Path) -> None:
    before, _ = run_comparison(tmp_path / "C", "fedul,fedllp", seed=2)
    after = compare(out=tmp_path / "C", resume=True)
    assert after.to_dict() == before.to_dict()


def test_more_rounds_continue_the_runs(tmp_path: Path) -> None:
    run_comparison(tmp_path / "C", "fedul", rounds=1)
    longer, recorder = run_comparison(tmp_path / "C", "fedul", rounds=3, resume=True)
    whole, _ = run_comparison(tmp_path / "D", "fedul", rounds=3)
    assert len(recorder.started) == 1
    assert longer.results[0].curves == whole.results[0].curves
    assert len(longer.results[0].curves[0]) == 3


def test_the_result_of_a_variant_does_not_depend_on_the_others(tmp_path: Path) -> None:
    alone, _ = run_comparison(tmp_path / "C", "fedllp")
    both, _ = run_comparison(tmp_path / "D", "fedul,fedllp")
    assert both.results[1].values == alone.results[0].values


def test_without_a_folder_nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    comparison, _ = run_comparison(None, "fedul")
    assert comparison.to_dict()["comparison"] is None
    assert list(tmp_path.iterdir()) == []


def test_a_comparison_takes_lists_of_names_and_a_data_configuration() -> None:
    data = BenchmarkDataConfig(clients=2, held_out=0.6, rows=400)
    settings = {"seeds": 1, "rounds": 1, "model": "linear"}
    lists = compare(data, methods=["fedul", "fedllp"], algorithms=["fedavg"], **settings)
    names = compare("digits", methods="fedul,fedllp", clients=2, held_out=0.6, rows=400, **settings)
    assert [result.values for result in lists.results] == [result.values for result in names.results]


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"rouns": 3}, "unknown option 'rouns': did you mean 'rounds'"),
        ({"method": "fedul"}, "method: is what a comparison varies; use methods and algorithms"),
        ({"data": "digit"}, "unknown data set 'digit'"),
        ({"resume": True}, "--resume needs --out"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        compare(**settings)


def test_a_comparison_of_an_older_version_is_refused_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "comparison.json").write_text('{"format": "fedul-comparison", "version": 1}')
    sentence = r"another version of fedul \(format 1, this one reads 2\); use that version, or compare again in another"
    with pytest.raises(InputError, match=sentence):
        compare(out=tmp_path, resume=True)


def comparison_of(*results: VariantResult) -> ComparisonResult:
    return ComparisonResult(mark_best(results), BenchmarkDataConfig(seed=4), TrainConfig(rounds=7))


def test_a_comparison_prints_a_table_with_methods_without_labels_first() -> None:
    text = repr(comparison_of(result("supervised", [0.01] * 5, 10), result("fedllp", WORSE), result("fedul", BEST)))
    assert "digits: 5 clients, 5 seeds, 7 rounds" in text
    rows = [line.split() for line in text.splitlines() if "(" in line and "." in line]
    assert [row[0] for row in rows] == ["fedul", "fedllp", "supervised"]
    assert rows[0][2:4] == ["11.20", "(1.30)*"]
    assert "* the best without labels, and all that a paired t-test (5%) does not call worse" in text


def test_a_notebook_shows_the_same_table() -> None:
    html = comparison_of(result("fedul", BEST), result("fedllp", WORSE))._repr_html_()
    assert html.startswith("<pre>")
    assert "11.20 (1.30)*" in html


def test_a_comparison_is_written_as_csv_and_plotted(tmp_path: Path) -> None:
    comparison = comparison_of(replace(result("fedul", [0.1, 0.2]), curves=((0.3, 0.1), (0.4, 0.2))))
    comparison.to_csv(tmp_path / "runs.csv")
    comparison.plot(tmp_path / "plot.svg")
    assert (tmp_path / "runs.csv").read_text().splitlines()[1:] == ["fedul,fedavg,4,0.1,0", "fedul,fedavg,5,0.2,0"]
    assert "<svg" in (tmp_path / "plot.svg").read_text()


def test_a_study_that_was_loaded_is_compared_as_its_data_is() -> None:
    study = load("digits", clients=2, rows=400)
    settings: dict[str, Any] = {"methods": "fedul,soft-labels", "seeds": 1, "rounds": 1}
    results = [compare(study, **settings), compare("digits", clients=2, rows=400, **settings)]
    assert len({tuple((each.variant.title, each.mean) for each in result.results) for result in results}) == 1


def test_a_study_that_was_not_loaded_from_files_is_refused() -> None:
    with pytest.raises(InputError, match="the study was not loaded from files"):
        compare(gaussian_study(), seeds=1)
