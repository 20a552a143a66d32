"""FedULClassifier keeps scikit-learn's contract, learns from sets, and is selected by a score that needs no labels."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import sklearn
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import fedul
from fedul import FedULClassifier, InputError
from fedul.algorithms.fedprox import FedProx
from fedul.config import TrainConfig
from fedul.core import Federation, RoundMetrics, UnlabeledSets
from fedul.methods.fedllp import FedLLP
from fedul.sklearn import set_likelihood_score
from fedul.training import Callback, RunInfo

PRIORS = {"may": {"ill": 0.8, "well": 0.2}, "june": {"ill": 0.3, "well": 0.7}}
SHUFFLED = KFold(3, shuffle=True, random_state=0)


class FittedToSets(FedULClassifier):
    """For the checks, which know labels only: rows are dealt into sets of mixed classes, and these are fitted."""

    def fit(self, X: Any, y: Any) -> FittedToSets:
        labels, codes = np.unique(np.asarray(y).ravel(), return_inverse=True)
        kinds = max(len(labels), 2)
        sets = np.where(np.arange(len(codes)) % 5 == 4, (codes + 1) % kinds, codes)
        present = np.unique(sets)
        shares = {m: {k: float(np.mean(codes[sets == m] == i)) for i, k in enumerate(labels.tolist())} for m in present}
        return super().fit(X, sets=sets, priors=shares)


NO_LABELS = "the estimator sees sets, not labels, so it cannot say what is wrong with labels"
EXPECTED_FAILED_CHECKS = {
    FedULClassifier: {},
    FittedToSets: {"check_classifiers_regression_target": NO_LABELS, "check_supervised_y_2d": NO_LABELS},
}


@parametrize_with_checks(
    [FedULClassifier(rounds=3), FittedToSets(rounds=3)],
    expected_failed_checks=lambda estimator: EXPECTED_FAILED_CHECKS[type(estimator)],
)
def test_it_passes_the_checks_of_scikit_learn(estimator: Any, check: Any) -> None:
    before = estimator.get_params()
    check(estimator)
    assert estimator.get_params() == before


@pytest.fixture
def routed() -> Iterator[None]:
    with sklearn.config_context(enable_metadata_routing=True):
        yield


def rows(count: int = 240, seed: int = 0) -> tuple[Any, Any, Any]:
    """Two well-separated classes in the sets of PRIORS: inputs, the set of each row, and the truth."""
    generator = np.random.default_rng(seed)
    sets = np.repeat(list(PRIORS), count // 2)
    ill = generator.random(count) < np.array([PRIORS[name]["ill"] for name in sets])
    x = np.where(ill, 2.0, -2.0)[:, None] + generator.standard_normal((count, 2))
    return x, sets, np.where(ill, "ill", "well")


def fitted(priors: Any = PRIORS, **parameters: Any) -> FedULClassifier:
    x, sets, _ = rows()
    return FedULClassifier(**{"rounds": 5, **parameters}).fit(x, sets=sets, priors=priors)


def same(one: FedULClassifier, other: FedULClassifier) -> bool:
    x, _, _ = rows(seed=1)
    return np.array_equal(one.predict_proba(x), other.predict_proba(x))


def test_it_learns_the_classes_from_sets_alone() -> None:
    x, _, truth = rows(seed=1)
    model = fitted()
    assert model.score(x, truth) > 0.9
    assert_array_equal(model.classes_, ["ill", "well"])
    assert model.n_iter_ == len(model.history_) == 5
    assert 1 <= model.selected_round_ <= 5


def test_it_trains_what_fedul_train_does() -> None:
    x, sets, _ = rows()
    shares = [[0.8, 0.2], [0.3, 0.7]]
    client = UnlabeledSets.from_arrays("client", x.astype(np.float32), np.where(sets == "may", 0, 1), shares)
    run = fedul.train(Federation([client], ["ill", "well"]), rounds=5)
    assert_array_equal(fitted(standardize=False).predict_proba(x), run.classifier.predict_proba(x))


def test_it_declares_what_the_priors_speak_of() -> None:
    x, sets, _ = rows()
    shares = [[0.8, 0.2], [0.3, 0.7]]
    numbers = np.where(sets == "may", 0, 1)
    settings = {"rounds": 5, "method": "fedul-refined", "method_option": {"earliest": 1, "latest": 1}}
    probabilities = []
    for of in ("population", "rows"):
        client = UnlabeledSets.from_arrays("client", x.astype(np.float32), numbers, shares, priors_of=of)
        run = fedul.train(Federation([client], ["ill", "well"]), **settings)
        probabilities.append(run.classifier.predict_proba(x))
        found = fitted(standardize=False, priors_of=of, **settings).predict_proba(x)
        assert_array_equal(found, probabilities[-1])
    assert np.abs(probabilities[0] - probabilities[1]).max() > 1e-4


def test_its_defaults_are_those_of_the_configuration() -> None:
    config = TrainConfig()
    parameters = FedULClassifier().get_params()
    shared = [name for name in parameters if hasattr(config, name) and not name.endswith("_option")]
    assert len(shared) > 10
    assert {name: parameters[name] for name in shared} == {name: getattr(config, name) for name in shared}


def test_what_is_trained_is_what_the_parameters_say() -> None:
    model = fitted(rounds=2, algorithm="fedprox", algorithm_option={"mu": 0.1})
    assert model.n_iter_ == 2
    assert not same(model, fitted(rounds=2))
    with pytest.raises(InputError, match="unknown algorithm 'fedprx': did you mean 'fedprox'"):
        fitted(algorithm="fedprx")


def test_priors_as_mapping_array_and_in_another_order_agree() -> None:
    x, sets, _ = rows()
    numbered = np.where(sets == "may", 0, 1)
    model = fitted()
    assert same(model, fitted({name: PRIORS[name] for name in ("june", "may")}))
    assert same(model, fitted({"may": [0.2, 0.8], "june": [0.7, 0.3]}, classes=["well", "ill"]))
    array = FedULClassifier(rounds=5).fit(x, sets=numbered, priors=[[0.8, 0.2], [0.3, 0.7]])
    assert same(model, array)
    assert_array_equal(array.classes_, [0, 1])
    assert same(array, FedULClassifier(rounds=5).fit(x, sets=list(numbered), priors=np.array([[0.8, 0.2], [0.3, 0.7]])))


def test_a_data_frame_of_priors_is_read_by_its_names() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(PRIORS).T
    model = fitted()
    assert same(model, fitted(frame))
    assert same(model, fitted(frame[["well", "ill"]].loc[["june", "may"]]))
    x, sets, _ = rows()
    index = pandas.MultiIndex.from_tuples([("north", name) for name in frame.index])
    by_client = FedULClassifier(rounds=5).fit(
        x, sets=pandas.Series(sets), clients=["north"] * len(x), priors=frame.set_axis(index)
    )
    assert same(model, by_client)


def test_columns_are_known_by_name_where_rows_are_a_data_frame() -> None:
    pandas = pytest.importorskip("pandas")
    x, sets, _ = rows()
    frame = pandas.DataFrame(x, columns=["age", "dose"])
    model = FedULClassifier(rounds=2).fit(frame, sets=sets, priors=PRIORS)
    assert_array_equal(model.feature_names_in_, ["age", "dose"])
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(frame[["dose", "age"]])


def mixed_rows(seed: int = 0) -> tuple[Any, Any, Any]:
    """The rows with missing numbers, a column of words and a category: a DataFrame, sets, and the truth."""
    pandas = pytest.importorskip("pandas")
    x, sets, truth = rows(seed=seed)
    generator = np.random.default_rng(seed)
    age = np.where(generator.random(len(x)) < 0.1, np.nan, x[:, 0])
    cough = np.where(generator.random(len(x)) < np.where(truth == "ill", 0.8, 0.1), "wet", "dry")
    ward = pandas.Categorical(generator.choice(["A", "B"], len(x)))
    return pandas.DataFrame({"age": age, "cough": cough, "ward": ward, "dose": x[:, 1]}), sets, truth


def test_a_data_frame_may_have_missing_values_words_and_categories() -> None:
    frame, sets, truth = mixed_rows()
    new, _, new_truth = mixed_rows(seed=1)
    model = FedULClassifier(rounds=5).fit(frame, sets=sets, priors=PRIORS)
    assert model.score(new, new_truth) > 0.9
    assert model.score(new, sets=sets, priors=PRIORS) > -0.69
    assert_array_equal(model.feature_names_in_, frame.columns)
    assert model.n_features_in_ == 4
    assert model.scaler_ is None
    labelled = FedULClassifier(rounds=5).fit(frame, truth)
    assert labelled.score(new, new_truth) > 0.9


def test_a_mixed_data_frame_is_encoded_as_fedul_load_does() -> None:
    pandas = pytest.importorskip("pandas")
    frame, sets, _ = mixed_rows()
    model = FedULClassifier(rounds=2, held_out=0).fit(frame, sets=sets, priors=PRIORS)
    priors = pandas.DataFrame(PRIORS).T.rename_axis("month")
    study = fedul.load(frame.assign(month=sets), priors, set_column="month", held_out=0)
    assert study.federation.schema is not None
    assert model.classifier_.schema.to_dict() == study.federation.schema.to_dict()


def test_rows_of_a_mixed_data_frame_are_needed_again_to_predict() -> None:
    frame, sets, _ = mixed_rows()
    model = FedULClassifier(rounds=1).fit(frame, sets=sets, priors=PRIORS)
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(frame.drop(columns="dose"))
    with pytest.warns(UserWarning, match="feature names"), pytest.raises(InputError, match="give a DataFrame"):
        model.predict(frame.to_numpy())


@pytest.mark.usefixtures("routed")
def test_a_grid_search_takes_a_mixed_data_frame() -> None:
    frame, sets, truth = mixed_rows()
    search = GridSearchCV(FedULClassifier(method="fedul", rounds=3), {"learning_rate": [1e-7, 1e-2]}, cv=SHUFFLED)
    search.fit(frame, sets=sets, priors=PRIORS)
    assert search.best_params_ == {"learning_rate": 1e-2}
    assert search.best_estimator_.score(frame, truth) > 0.9


def test_a_column_that_is_left_out_is_a_warning() -> None:
    frame, sets, _ = mixed_rows()
    frame = frame.assign(empty=None)
    with pytest.warns(UserWarning, match="column 'empty' is empty and is left out"):
        fitted = FedULClassifier(rounds=1).fit(frame, sets=sets, priors=PRIORS)
    assert len(fitted.predict(frame)) == len(frame)


class RoundCounter(Callback):
    def __init__(self) -> None:
        self.rounds = 0

    def on_round_end(self, run: RunInfo, metrics: RoundMetrics) -> None:
        self.rounds += 1


def test_method_algorithm_and_callbacks_may_be_objects_and_are_cloned() -> None:
    counter = RoundCounter()
    parameters = {"method": FedLLP(mean="batch"), "algorithm": FedProx(mu=0.1), "callbacks": [counter]}
    by_object = fitted(**parameters)
    assert counter.rounds == 5
    by_name = fitted(
        method="fedllp", method_option={"mean": "batch"}, algorithm="fedprox", algorithm_option={"mu": 0.1}
    )
    assert same(by_object, by_name)
    copied = clone(by_object)
    assert (copied.method, copied.algorithm) == (parameters["method"], parameters["algorithm"])
    x, sets, _ = rows()
    assert same(copied.fit(x, sets=sets, priors=PRIORS), by_name)
    assert counter.rounds == 5
    with pytest.raises(InputError, match="method-option: set the options on the method object"):
        fitted(method=FedLLP(), method_option={"mean": "batch"})


def test_one_client_is_the_same_as_none() -> None:
    x, sets, _ = rows()
    named = FedULClassifier(rounds=5).fit(x, sets=sets, priors=PRIORS, clients=["north"] * len(x))
    assert same(named, fitted())


def test_each_client_has_its_own_priors_for_a_set_of_the_same_name() -> None:
    x, sets, truth = rows()
    other, other_sets, other_truth = rows(seed=2)
    swapped = np.where(other_sets == "may", "june", "may")
    priors = {
        ("north", "may"): PRIORS["may"],
        ("north", "june"): PRIORS["june"],
        ("south", "may"): PRIORS["june"],
        ("south", "june"): PRIORS["may"],
    }
    both = {
        "sets": np.concatenate([sets, swapped]),
        "clients": np.repeat(["north", "south"], len(x)),
        "priors": priors,
    }
    x, truth = np.concatenate([x, other]), np.concatenate([truth, other_truth])
    model = FedULClassifier(rounds=5).fit(x, **both)
    assert model.score(x, truth) > 0.9
    assert model.score(x, **both) > model.score(x, sets=both["sets"], priors=PRIORS)


def test_labels_are_sets_of_one_class() -> None:
    x, _, truth = rows()
    one_hot = {"ill": {"ill": 1.0}, "well": {"well": 1.0}}
    by_labels = FedULClassifier(rounds=5).fit(x, truth)
    assert same(by_labels, FedULClassifier(rounds=5).fit(x, sets=truth, priors=one_hot))


def test_classes_are_sorted_and_keep_their_type() -> None:
    model = fitted({"may": {7: 0.8, 3: 0.2}, "june": {7: 0.3, 3: 0.7}})
    assert_array_equal(model.classes_, [3, 7])
    x, _, truth = rows(seed=1)
    assert np.mean(model.predict(x) == np.where(truth == "ill", 7, 3)) > 0.9


def test_unscaled_columns_do_no_harm_unless_they_are_taken_as_they_are() -> None:
    x, sets, truth = rows()
    far = x * [1e6, 1e-6] + [1e9, 0]
    model = FedULClassifier(rounds=5).fit(far, sets=sets, priors=PRIORS)
    assert model.score(far, truth) > 0.9
    plain = FedULClassifier(rounds=5, standardize=False).fit(x, sets=sets, priors=PRIORS)
    assert plain.scaler_ is None
    piped = make_pipeline(StandardScaler(), FedULClassifier(rounds=5, standardize=False))
    piped.fit(x, fedulclassifier__sets=sets, fedulclassifier__priors=PRIORS)
    assert_allclose(piped.predict_proba(x), fitted().predict_proba(x))


def test_without_held_out_rows_the_last_round_is_taken() -> None:
    assert fitted(held_out=0).selected_round_ == 5


def test_another_seed_gives_another_classifier_and_none_a_new_one_each_time() -> None:
    assert same(fitted(), fitted(random_state=0))
    assert not same(fitted(), fitted(random_state=1))
    assert not same(fitted(random_state=None), fitted(random_state=None))


def test_the_class_mix_it_is_for_can_be_said_before_and_after() -> None:
    x, _, _ = rows(seed=1)
    uniform = fitted()
    assert same(uniform, fitted(test_prior="uniform"))
    assert_allclose(fitted(test_prior="natural").classifier_.prior, [0.55, 0.45])
    assert_allclose(fitted(test_prior={"well": 0.9, "ill": 0.1}).classifier_.prior, [0.1, 0.9])
    moved = uniform.with_prior({"well": 1.0})
    assert_array_equal(moved.predict_proba(x)[:, 1], 1)
    assert same(uniform, fitted())
    assert same(moved.with_prior([0.5, 0.5]), uniform)


def test_the_score_without_labels_is_the_mean_log_probability_of_the_sets() -> None:
    x, sets, _ = rows(seed=1)
    model = fitted()
    shares = np.array([[PRIORS[name][k] for k in ("ill", "well")] for name in PRIORS])  # (M, K)
    weights = model.predict_proba(x) / 0.5  # (n, K), up to p(x)
    joint = 0.5 * weights @ shares.T  # (n, M)
    q = joint / joint.sum(axis=1, keepdims=True)
    expected = np.log(np.where(sets == "may", q[:, 0], q[:, 1])).mean()
    assert model.score(x, sets=sets, priors=PRIORS) == pytest.approx(expected)
    assert set_likelihood_score(model, x, sets=sets, priors=PRIORS) == pytest.approx(expected)
    assert model.score(x, sample_weight=np.ones(len(x)), sets=sets, priors=PRIORS) == pytest.approx(expected)
    assert model.with_prior({"ill": 1.0}).score(x, sets=sets, priors=PRIORS) == pytest.approx(expected)


def test_a_class_that_is_thought_impossible_costs_much_but_not_everything() -> None:
    x, _, truth = rows()
    model = FedULClassifier(rounds=5).fit(x, truth)
    one_hot = {"ill": {"ill": 1.0}, "well": {"well": 1.0}}
    assert np.isfinite(model.score(x * 1e6, sets=truth[::-1], priors=one_hot))


@pytest.mark.usefixtures("routed")
def test_a_grid_search_chooses_without_labels() -> None:
    x, sets, truth = rows()
    search = GridSearchCV(FedULClassifier(method="fedul", rounds=3), {"learning_rate": [1e-7, 1e-2]}, cv=SHUFFLED)
    search.fit(x, sets=sets, priors=PRIORS, clients=["north"] * len(x))
    assert search.best_params_ == {"learning_rate": 1e-2}
    assert search.best_estimator_.score(x, truth) > 0.9


@pytest.mark.usefixtures("routed")
def test_a_grid_search_over_a_pipeline_takes_the_scorer() -> None:
    x, sets, truth = rows()
    pipeline = make_pipeline(StandardScaler(), FedULClassifier(method="fedul", rounds=3, standardize=False))
    grid = {"fedulclassifier__learning_rate": [1e-7, 1e-2]}
    search = GridSearchCV(pipeline, grid, cv=SHUFFLED, scoring=set_likelihood_score)
    search.fit(x, sets=sets, priors=PRIORS)
    assert search.best_params_ == {"fedulclassifier__learning_rate": 1e-2}
    assert search.best_estimator_.score(x, truth) > 0.9


@pytest.mark.usefixtures("routed")
def test_priors_reach_every_fold_whole_in_any_form() -> None:
    x, sets, _ = rows()
    model = FedULClassifier(rounds=2)
    by_name = cross_val_score(model, x, cv=SHUFFLED, params={"sets": sets, "priors": PRIORS})
    numbers = np.where(sets == "may", 0, 1)
    array = np.array([[0.8, 0.2], [0.3, 0.7]])
    by_number = cross_val_score(model, x, cv=SHUFFLED, params={"sets": numbers, "priors": array})
    assert_allclose(by_name, by_number)
    assert np.isfinite(by_name).all()


@pytest.mark.usefixtures("routed")
def test_a_fold_may_lack_a_set() -> None:
    x, sets, _ = rows()
    rare = np.array([*sets[:-1], "july"])
    scores = cross_val_score(
        FedULClassifier(rounds=2), x, cv=SHUFFLED, params={"sets": rare, "priors": {**PRIORS, "july": PRIORS["may"]}}
    )
    assert np.isfinite(scores).all()


def test_without_routing_a_search_says_how_to_turn_it_on() -> None:
    x, sets, _ = rows()
    search = GridSearchCV(FedULClassifier(rounds=1), {}, cv=SHUFFLED, error_score="raise")
    with pytest.raises(InputError, match="enable_metadata_routing=True"):
        search.fit(x, sets=sets, priors=PRIORS)


def test_a_clone_has_the_parameters_and_is_not_fitted() -> None:
    model = fitted(test_prior={"ill": 0.1, "well": 0.9})
    copied = clone(model)
    assert copied.get_params() == model.get_params()
    with pytest.raises(sklearn.exceptions.NotFittedError):
        copied.predict([[0.0, 0.0]])


def test_a_fitted_one_can_be_pickled() -> None:
    model = fitted()
    assert same(model, pickle.loads(pickle.dumps(model)))  # noqa: S301


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"sets": None}, "^sets: not given; name the set of each row"),
        ({"priors": None}, "^priors: not given; name the set of each row"),
        ({"sets": None, "priors": None}, "^sets and priors: not given; .* or give labels y"),
        ({"y": [0] * 240}, "give labels y, or sets and priors, not both"),
        ({"y": [0] * 240, "sets": None, "priors": None}, "there is one class only, 0; a classifier needs two or more"),
        ({"sets": ["may"] * 239}, r"sets: got shape \(239,\) for 240 rows; give one name or number for each row"),
        ({"sets": [["may"]] * 240}, r"sets: got shape \(240, 1\) for 240 rows"),
        ({"clients": ["north"] * 3}, r"clients: got shape \(3,\) for 240 rows"),
        ({"sets": ["may"] * 239 + [None]}, "sets: is missing in row 240; give one for each row, or leave out the row"),
        ({"clients": [1.0, float("nan")] * 120}, "clients: is missing in row 2"),
        ({"sets": ["may", "jun"] * 120}, "set 'jun' has no class priors, which are there for 'may', 'june'; add its"),
        ({"sets": [0, 1] * 120, "clients": ["a", "b"] * 120}, "set 0 of client 'a' has no class priors"),
        ({"priors": 3}, "class priors: not a table of numbers; give a DataFrame"),
        ({"priors": {}}, "class priors: not a table of numbers"),
        ({"priors": {"may": [0.5, 0.5], "june": [1.0]}}, "class priors: not a table of numbers"),
        ({"priors": {"may": {"ill": 1.0}, "june": {"ill": 1.0}}}, "there is one class only, 'ill'"),
        ({"priors": {"may": {"ill": 0.8}, "june": {"well": 1.0}}}, "row 1 sums to 0.8, not to 1"),
        ({"priors": {"may": {"ill": 0.5, "well": 0.5}, "june": {"ill": 0.5, "well": 0.5}}}, "cannot tell the classes"),
    ],
)
def test_what_cannot_be_fitted_is_refused_in_a_sentence(changes: dict[str, Any], complaint: str) -> None:
    x, sets, _ = rows()
    with pytest.raises(InputError, match=complaint):
        FedULClassifier(rounds=1).fit(x, **{"sets": sets, "priors": PRIORS, **changes})


@pytest.mark.parametrize(
    ("parameters", "priors", "complaint"),
    [
        ({"classes": ["a"]}, {"may": [0.8, 0.2], "june": [0.3, 0.7]}, "2 columns for 1 classes; give one column for"),
        ({"classes": ["a", "a"]}, {"may": [0.8, 0.2], "june": [0.3, 0.7]}, "two columns are of the same class"),
        ({"classes": ["ill", "dead"]}, PRIORS, "are of the classes 'ill', 'well', but the parameter classes says"),
        ({"classes": ["well", "ill"], "test_prior": [0.9, 0.1]}, PRIORS, "test_prior: classes are sorted"),
        ({"test_prior": {"il": 0.9, "well": 0.1}}, PRIORS, "unknown class in test_prior 'il': did you mean 'ill'"),
        ({"test_prior": {"ill": 1.0}}, PRIORS, "well"),
    ],
)
def test_classes_that_do_not_fit_are_refused(parameters: dict[str, Any], priors: Any, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        fitted(priors, **parameters)


def test_rows_that_are_missing_or_too_large_are_refused() -> None:
    x, sets, _ = rows()
    x[3, 1] = np.nan
    with pytest.raises(ValueError, match="contains NaN"):
        FedULClassifier().fit(x, sets=sets, priors=PRIORS)
    x[3, 1] = 1e300
    with pytest.raises(InputError, match=r"row 4 .* missing or infinite"):
        FedULClassifier(standardize=False).fit(x, sets=sets, priors=PRIORS)


def test_rows_that_cannot_be_scored_are_refused() -> None:
    x, sets, _ = rows()
    model = fitted()
    with pytest.raises(InputError, match=r"of one set only, .* KFold\(5, shuffle=True\)"):
        model.score(x[:9], sets=sets[:9], priors=PRIORS)
    with pytest.raises(InputError, match="not of the classes that the classifier was fitted to"):
        model.score(x, sets=sets, priors={"may": {"a": 0.8, "b": 0.2}, "june": {"a": 0.3, "b": 0.7}})


def test_a_missing_set_of_a_data_frame_is_refused() -> None:
    pandas = pytest.importorskip("pandas")
    x, sets, _ = rows()
    with pytest.raises(InputError, match="sets: is missing in row 1"):
        FedULClassifier().fit(x, sets=pandas.Series([pandas.NA, *sets[1:]], dtype="string"), priors=PRIORS)


def test_a_set_given_twice_in_a_data_frame_is_refused() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame([[0.8, 0.2], [0.3, 0.7]], index=["may", "may"], columns=["ill", "well"])
    with pytest.raises(InputError, match="'may' occurs twice"):
        fitted(frame)


def test_without_scikit_learn_one_sentence_says_what_to_install() -> None:
    program = "import sys; sys.modules['sklearn'] = None; from fedul import FedULClassifier"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    last = run.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: FedULClassifier needs scikit-learn")
    assert last.endswith("pip install fedul[sklearn].")


def test_importing_all_names_does_not_need_scikit_learn() -> None:
    assert "FedULClassifier" in dir(fedul)
    assert "FedULClassifier" not in fedul.__all__
