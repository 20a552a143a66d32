"""The classifier gives probabilities, follows another class mix in closed form, and comes back from disk to the bit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from torch import nn

from fedul._utils.files import read_json, write_tensors
from fedul.classifier import Classifier
from fedul.core import Scaling
from fedul.errors import InputError
from fedul.models.weights import weights_of

from .factories import CLASSES, TRAINED_PRIOR, make_classifier
from .worlds import random_shares, repeatable, seeds

PIXELS = np.random.default_rng(0).integers(0, 17, (7, 1, 4, 4)).astype(np.uint8)


def classifier(model: str = "mlp", **changes: Any) -> Classifier:
    """Return a classifier of images with values in 0..16."""
    return make_classifier(model, **{"scaling": Scaling(1 / 16, -0.25), **changes})


def test_probabilities_are_the_softmax_of_scaled_rows_logits_over_the_temperature() -> None:
    module = classifier().module
    logits = module(torch.from_numpy(PIXELS).float() / 16 - 0.25).detach().double() / 0.5
    assert_allclose(classifier().predict_proba(PIXELS), logits.softmax(1), rtol=1e-6)


def test_a_classifier_is_shown_in_a_line_with_its_classes_and_its_prior() -> None:
    assert repr(classifier().with_prior([0.25, 0.25, 0.5])) == "<Classifier (mlp) of cat 0.25, dog 0.25, owl 0.5>"
    many = classifier(classes=[f"c{i}" for i in range(40)], trained_prior=np.full(40, 1 / 40))
    assert repr(many).endswith("c11 0.025 and 28 more>")


@repeatable
@given(seeds, st.integers(0, 9), st.integers(1, 9))
def test_probabilities_are_positive_and_sum_to_one_whatever_the_batches_are(seed: int, rows: int, batch: int) -> None:
    inputs = np.random.default_rng(seed).normal(size=(rows, 1, 4, 4)) * 10
    found = classifier().predict_proba(inputs, batch_size=batch)
    assert found.shape == (rows, 3)
    assert found.dtype == np.float64
    assert_allclose(found.sum(axis=1), 1, rtol=1e-12)
    assert_allclose(found, classifier().predict_proba(inputs), rtol=1e-5, atol=1e-12)


def test_predictions_are_names_of_the_most_probable_classes() -> None:
    found = classifier().predict(PIXELS)
    assert_array_equal(found, np.array(CLASSES)[classifier().predict_proba(PIXELS).argmax(axis=1)])


def test_prediction_sets_start_with_the_predicted_class_and_follow_the_prior() -> None:
    sets = classifier().predict_set(PIXELS, coverage=0.9)
    assert [names[0] for names in sets] == classifier().predict(PIXELS).tolist()
    for names, row in zip(sets, classifier().predict_proba(PIXELS), strict=True):
        assert sum(row[CLASSES.index(name)] for name in names) >= 0.9
    certain = classifier().with_prior([1, 0, 0])
    assert set(certain.predict_set(PIXELS, coverage=1.0)) == {(CLASSES[0],)}
    with pytest.raises(InputError, match="coverage: must be above 0"):
        classifier().predict_set(PIXELS, coverage=0)


@pytest.mark.parametrize("shape", [(7, 16), (7, 4, 4), (7, 1, 4, 4)])
@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy, lambda a: a.tolist(), lambda a: a.astype(np.float64)])
def test_flat_pixels_lists_and_tensors_serve_as_well(shape: tuple[int, ...], kind: Any) -> None:
    assert_allclose(classifier().predict_proba(kind(PIXELS.reshape(shape))), classifier().predict_proba(PIXELS))


@pytest.mark.parametrize("shape", [(0, 16), (0, 1, 4, 4)])
def test_no_rows_have_no_probabilities(shape: tuple[int, ...]) -> None:
    assert classifier().predict_proba(np.zeros(shape)).shape == (0, 3)


@pytest.mark.parametrize("shape", [(7, 15), (16,), (7, 1, 4, 5), (), (7,), (0, 15)])
def test_rows_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match=r"rows of shape .*, but this classifier takes \(1, 4, 4\)"):
        classifier().predict_proba(np.zeros(shape))


@pytest.mark.parametrize("rows", [[["a"] * 16], [[None] * 16], [[1.0] * 16, [1.0]], [{}]])
def test_rows_that_are_no_numbers_are_refused(rows: Any) -> None:
    with pytest.raises(InputError, match="rows are not a table of numbers"):
        classifier().predict_proba(rows)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("model", ["linear", "mlp", "small-cnn"])
def test_the_first_row_with_a_missing_or_infinite_value_is_refused_by_its_number(model: str, value: float) -> None:
    rows = np.zeros((2000, 1, 4, 4))
    rows[[1500, 1700], 0, 2, 2] = value
    with pytest.raises(InputError, match="row 1501 gives no finite prediction"):
        classifier(model).predict_proba(rows)


@repeatable
@given(seeds)
def test_another_prior_re_weights_posteriors_by_bayes_rule(seed: int) -> None:
    prior = random_shares(np.random.default_rng(seed), 3)
    weighted = classifier().predict_proba(PIXELS) * prior / TRAINED_PRIOR
    expected = weighted / weighted.sum(axis=1, keepdims=True)
    assert_allclose(classifier().with_prior(prior).predict_proba(PIXELS), expected, rtol=1e-9)


def test_the_trained_prior_changes_nothing() -> None:
    assert_array_equal(classifier().with_prior(TRAINED_PRIOR).predict_proba(PIXELS), classifier().predict_proba(PIXELS))


def test_of_several_priors_only_the_last_counts() -> None:
    once = classifier().with_prior([0.6, 0.3, 0.1])
    twice = classifier().with_prior([0.1, 0.1, 0.8]).with_prior([0.6, 0.3, 0.1])
    assert_array_equal(twice.predict_proba(PIXELS), once.predict_proba(PIXELS))


def test_a_class_that_does_not_occur_is_never_predicted() -> None:
    found = classifier().with_prior([0.5, 0, 0.5]).predict_proba(PIXELS)
    assert_array_equal(found[:, 1], 0)
    assert_allclose(found.sum(axis=1), 1)


def test_a_new_prior_leaves_the_old_classifier_as_it_was() -> None:
    old = classifier()
    before = old.predict_proba(PIXELS)
    old.with_prior([0.6, 0.3, 0.1])
    assert_array_equal(old.predict_proba(PIXELS), before)


@pytest.mark.parametrize(
    ("prior", "complaint"),
    [
        ([0.5, 0.5], "2 columns for 3 classes"),
        ([0.5, 0.5, 0.5], "sums to 1.5"),
        ([0.5, 0.6, -0.1], "negative"),
        ([0.5, 0.5, float("nan")], "missing or infinite"),
        ([[0.2, 0.3, 0.5]] * 2, "give one proportion for each of cat, dog, owl"),
        ("uniform", "give one proportion for each of cat, dog, owl"),
        ([[1], [1, 2]], "give one proportion for each"),
        ([], "give one proportion for each"),
        (1.0, "give one proportion for each"),
    ],
)
def test_a_prior_that_is_none_is_refused(prior: Any, complaint: str) -> None:
    with pytest.raises(InputError, match=f"^prior: .*{complaint}"):
        classifier().with_prior(prior)


@pytest.mark.parametrize("model", ["linear", "mlp", "small-cnn", "paper-cnn"])
def test_a_saved_classifier_predicts_the_same_to_the_bit(tmp_path: Path, model: str) -> None:
    one = classifier(model).with_prior([0.6, 0.3, 0.1])
    one.save(tmp_path / "model")
    other = Classifier.load(tmp_path / "model")
    assert_array_equal(other.predict_proba(PIXELS), one.predict_proba(PIXELS))
    assert_array_equal(
        other.with_prior(TRAINED_PRIOR).predict_proba(PIXELS), one.with_prior(TRAINED_PRIOR).predict_proba(PIXELS)
    )


def test_a_classifier_is_two_files(tmp_path: Path) -> None:
    classifier().save(tmp_path / "model")
    assert sorted(p.name for p in (tmp_path / "model").iterdir()) == ["classifier.json", "weights.safetensors"]


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    classifier().save(tmp_path / "model")
    return tmp_path / "model"


def rewrite(folder: Path, **changes: Any) -> None:
    file = folder / "classifier.json"
    file.write_text(json.dumps({**read_json(file), **changes}))


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"format": "other"}, "not a classifier of fedul"),
        ({"version": 1}, "format version 1, but this fedul reads version 2; train again"),
        ({"version": None}, "format version None"),
        ({"classes": ["dog", "cat", "owl"]}, "altered or belongs to other weights"),
        ({"prior": [0.3, 0.3, 0.4]}, "altered or belongs to other weights"),
        ({"temperature": 0.25}, "altered or belongs to other weights"),
        ({"scaling": {"scale": 1, "shift": 0}}, "altered or belongs to other weights"),
        ({"model": "linear"}, "altered or belongs to other weights"),
        ({"more": 1}, "altered or belongs to other weights"),
    ],
)
def test_an_altered_description_is_refused(saved: Path, changes: dict[str, Any], complaint: str) -> None:
    rewrite(saved, **changes)
    with pytest.raises(InputError, match=complaint):
        Classifier.load(saved)


@pytest.mark.parametrize("content", ["[]", "3", "null"])
def test_a_description_that_is_no_object_is_refused(saved: Path, content: str) -> None:
    (saved / "classifier.json").write_text(content)
    with pytest.raises(InputError, match="not a classifier of fedul"):
        Classifier.load(saved)


def test_altered_weights_are_refused(saved: Path) -> None:
    file = saved / "weights.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(InputError, match="altered since it was written"):
        Classifier.load(saved)


def test_weights_of_another_classifier_are_refused(saved: Path, tmp_path: Path) -> None:
    classifier(temperature=2.0).save(tmp_path / "other")
    (tmp_path / "other" / "weights.safetensors").replace(saved / "weights.safetensors")
    with pytest.raises(InputError, match="altered or belongs to other weights"):
        Classifier.load(saved)


def test_weights_that_do_not_fit_the_model_are_refused(saved: Path) -> None:
    description = read_json(saved / "classifier.json")
    write_tensors(saved / "weights.safetensors", {"head.weight": torch.zeros(3, 16)}, description)
    with pytest.raises(InputError, match="the weights do not fit the model 'mlp'"):
        Classifier.load(saved)


@pytest.mark.parametrize("name", ["classifier.json", "weights.safetensors"])
def test_a_missing_file_is_refused(saved: Path, name: str) -> None:
    (saved / name).unlink()
    with pytest.raises(InputError, match="there is no such file"):
        Classifier.load(saved)


def users_model() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 5), nn.Tanh(), nn.Linear(5, 3))


def test_a_model_of_the_users_own_must_be_given_again_to_load_it(tmp_path: Path) -> None:
    one = classifier(module=users_model(), model="custom")
    one.save(tmp_path)
    with pytest.raises(InputError, match=r"made with a custom model; name it with --model \(model=...\)"):
        Classifier.load(tmp_path)
    for model in (users_model(), lambda shape, classes: users_model()):
        assert_array_equal(Classifier.load(tmp_path, model=model).predict_proba(PIXELS), one.predict_proba(PIXELS))


def test_a_users_model_with_other_weights_is_refused(tmp_path: Path) -> None:
    classifier(module=users_model(), model="custom").save(tmp_path)
    with pytest.raises(InputError, match="the weights do not fit the model 'custom'"):
        Classifier.load(tmp_path, model=nn.Sequential(nn.Flatten(), nn.Linear(16, 3)))


def test_a_double_precision_classifier_predicts_in_double_precision_after_loading(tmp_path: Path) -> None:
    module = users_model().double()
    classifier(module=module, model="custom").save(tmp_path)
    loaded = Classifier.load(tmp_path, model=users_model().double())
    assert {tensor.dtype for tensor in weights_of(loaded.module).values()} == {torch.float64}
    assert_array_equal(loaded.predict_proba(PIXELS), classifier(module=module).predict_proba(PIXELS))
