"""`fedul.train`: the same run gives the same weights, goes on where it stopped, and learns without labels."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.testing import assert_close

import fedul
from fedul.engines.inprocess import InProcess
from fedul.engines.local import Broadcast
from fedul.errors import FedulError, InputError
from fedul.federation import Federation, UnlabeledSets
from fedul.files import tensors_digest
from fedul.methods.fedul import HeldOut, HeldOutRows, set_task
from fedul.models.weights import weights_of
from fedul.runs import RunFolder
from fedul.training import Run
from fedul.truth import Study, Truth

from .stopping import StopAt
from .worlds import random_priors

NAMES = ("north", "south", "east", "west", "centre")
CENTRES = np.array([[1.5, 0.0], [0.0, 1.5], [-1.5, -1.0]])


def study_of(names: Sequence[str] = NAMES, rows: int = 60, sets: int = 4, held_out: float = 0.2) -> Study:
    """Clients with Gaussian rows around a centre for each of three classes, and the labels beside them."""
    clients, train_labels, held_out_labels = [], {}, {}
    for name in names:
        generator = np.random.default_rng([ord(letter) for letter in name])
        priors = random_priors(generator, sets, 3, purity=0.5)
        numbers = np.arange(rows) % sets
        labels = np.array([generator.choice(3, p=row) for row in priors[numbers]])
        inputs = (CENTRES[labels] + generator.normal(size=(rows, 2))).astype(np.float32)
        client = UnlabeledSets.from_arrays(name, inputs, numbers, priors, held_out=held_out)
        clients.append(client)
        train_labels[name], held_out_labels[name] = labels[client.train.index], labels[client.held_out.index]
    generator = np.random.default_rng(0)
    labels = np.arange(90) % 3
    inputs = torch.from_numpy(CENTRES[labels] + generator.normal(size=(90, 2))).float()
    truth = Truth(inputs, labels, np.arange(90) % len(names), train_labels, held_out_labels)
    return Study(Federation(clients, ("cat", "dog", "owl")), truth)


STUDY = study_of()
FEDERATION = STUDY.federation


def train(data: Federation | Study = FEDERATION, **settings: Any) -> Run:
    return fedul.train(data, **{"rounds": 3, "batch_size": 16, "learning_rate": 0.02, **settings})


def final_weights(data: Federation | Study = FEDERATION, **settings: Any) -> dict[str, Tensor]:
    return weights_of(train(data, select="last", **settings).classifier.module)


def without_time(history: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in line.items() if key != "seconds"} for line in history]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def table_network(*middle: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Linear(2, 8), *middle, nn.Linear(8, 3))


def with_dropout(shape: tuple[int, ...], classes: int) -> nn.Module:
    return table_network(nn.ReLU(), nn.Dropout(0.5))


def with_batch_norm(shape: tuple[int, ...], classes: int) -> nn.Module:
    return table_network(nn.BatchNorm1d(8), nn.ReLU())


SETTINGS: dict[str, dict[str, Any]] = {
    "adam": {},
    "sgd with momentum": {"optimizer": "sgd", "momentum": 0.9},
    "several epochs": {"epochs": 3},
    "some of the clients": {"participation": 0.4},
    "dropout": {"model": with_dropout},
    "batch norm": {"model": with_batch_norm},
    "l1": {"l1": 1e-3},
    "a global step": {"algorithm_option": {"weighting": "rows", "step": 0.7}},
}
every_setting = pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)


@every_setting
def test_clients_listed_in_another_order_end_with_the_same_weights(settings: dict[str, Any]) -> None:
    turned = replace(FEDERATION, clients=FEDERATION.clients[::-1])
    assert train(turned, **settings).weights_sha256 == train(**settings).weights_sha256


@every_setting
def test_a_resumed_run_ends_as_one_that_was_never_stopped(tmp_path: Path, settings: dict[str, Any]) -> None:
    whole = train(STUDY, rounds=4, **settings)
    train(STUDY, rounds=2, out=tmp_path / "run", **settings)
    resumed = train(STUDY, rounds=4, out=tmp_path / "run", resume=True, **settings)
    assert resumed.weights_sha256 == whole.weights_sha256
    assert without_time(resumed.history) == without_time(whole.history)
    assert resumed.selected_round == whole.selected_round
    assert_array_equal(
        resumed.classifier.predict_proba(STUDY.truth.test_inputs),
        whole.classifier.predict_proba(STUDY.truth.test_inputs),
    )


@pytest.mark.parametrize("every", [1, 2, 0])
def test_an_interrupted_run_goes_on_from_its_last_checkpoint(tmp_path: Path, every: int) -> None:
    with pytest.raises(KeyboardInterrupt):
        train(rounds=5, out=tmp_path / "run", checkpoint_every=every, reporter=StopAt(4))
    resumed = train(rounds=5, out=tmp_path / "run", checkpoint_every=every, resume=True)
    assert resumed.weights_sha256 == train(rounds=5).weights_sha256


def test_resuming_a_finished_run_changes_nothing_of_it(tmp_path: Path) -> None:
    run = train(STUDY, out=tmp_path / "run")
    before = {
        name: (tmp_path / "run" / name).read_bytes() for name in ("metrics.jsonl", "checkpoint/state.safetensors")
    }
    again = train(STUDY, out=tmp_path / "run", resume=True)
    assert again.summary() == run.summary()
    assert {name: (tmp_path / "run" / name).read_bytes() for name in before} == before


def test_seeds_make_runs_that_repeat_and_differ() -> None:
    first, same, other = (train(seed=seed).weights_sha256 for seed in (0, 0, 1))
    assert first == same != other


def test_torchs_own_generator_and_threads_are_left_as_they_were() -> None:
    before, threads = torch.random.get_rng_state(), torch.get_num_threads()
    train(STUDY, model=with_dropout, threads=2)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.get_num_threads() == threads


def test_a_run_does_not_depend_on_torchs_own_generator() -> None:
    hashes = set()
    for seed in (1, 2):
        torch.manual_seed(seed)
        hashes.add(train(model=with_dropout).weights_sha256)
    assert len(hashes) == 1


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, list[str]]]:
    """Which clients an engine was asked to train in which round."""
    seen: list[tuple[int, list[str]]] = []
    original = InProcess.train

    def spy(self: InProcess, broadcast: Broadcast, clients: Sequence[str]) -> Iterator[Any]:
        seen.append((broadcast.round, list(clients)))
        return original(self, broadcast, clients)

    monkeypatch.setattr(InProcess, "train", spy)
    return seen


@pytest.mark.parametrize(("share", "count"), [(1.0, 5), (0.6, 3), (0.4, 2), (0.01, 1)])
def test_a_share_of_the_clients_takes_part(asked: list[tuple[int, list[str]]], share: float, count: int) -> None:
    run = train(participation=share)
    assert [line["clients"] for line in run.history] == [count] * 3
    assert all(len(set(names)) == count and set(names) <= set(NAMES) for _, names in asked)


def test_who_takes_part_differs_by_round_and_repeats_with_the_seed(asked: list[tuple[int, list[str]]]) -> None:
    for seed in (0, 0, 1):
        train(participation=0.4, rounds=8, seed=seed)
    one, same, other = asked[:8], asked[8:16], asked[16:]
    assert one == same != other
    assert len({tuple(names) for _, names in one}) > 3


@pytest.mark.parametrize("model", ["mlp", with_batch_norm], ids=["mlp", "batch norm"])
def test_a_round_is_the_mean_of_what_its_clients_make_of_the_model_alone(model: Any) -> None:
    together = final_weights(model=model, rounds=1)
    alone = [final_weights(replace(FEDERATION, clients=[c]), model=model, rounds=1) for c in FEDERATION.clients]
    for name, tensor in together.items():
        mean = torch.stack([weights[name].double() for weights in alone]).mean(0)
        expected = mean if tensor.is_floating_point() else mean.round()
        assert_close(tensor.double(), expected, rtol=0, atol=1e-6)


def test_batch_norm_learns_and_its_counters_are_whole_numbers() -> None:
    run = train(STUDY, model=with_batch_norm, rounds=10, select="last")
    assert run.test_error is not None
    assert run.test_error < 0.4
    assert weights_of(run.classifier.module)["1.num_batches_tracked"] == 30


def test_the_l1_penalty_makes_weights_smaller() -> None:
    sizes = [sum(float(w.abs().sum()) for w in final_weights(l1=l1, rounds=5).values()) for l1 in (0.0, 1e-3, 1e-2)]
    assert sizes[0] > sizes[1] > sizes[2]


def test_a_users_module_is_copied_with_its_weights_and_not_changed() -> None:
    module = table_network(nn.ReLU())
    before = tensors_digest(weights_of(module))
    run = train(model=module, optimizer="sgd", learning_rate=0)
    assert tensors_digest(weights_of(run.classifier.module)) == before
    train(model=module)
    assert tensors_digest(weights_of(module)) == before
    assert run.classifier.model == "custom"


def test_a_factory_gets_the_shape_of_a_row_and_the_number_of_classes() -> None:
    def factory(shape: tuple[int, ...], classes: int) -> nn.Module:
        return nn.Linear(math.prod(shape), classes)

    assert {name: tuple(w.shape) for name, w in final_weights(model=factory).items()} == {
        "weight": (3, 2),
        "bias": (3,),
    }


def test_weights_to_start_from_are_those_of_the_file(tmp_path: Path) -> None:
    start = weights_of(nn.Sequential(nn.Flatten(), nn.Linear(2, 3)))
    save_file({"head.weight": start["1.weight"], "head.bias": start["1.bias"]}, tmp_path / "start.safetensors")
    file = str(tmp_path / "start.safetensors")
    found = final_weights(model="linear", start_weights=file, optimizer="sgd", learning_rate=0)
    assert torch.equal(found["head.weight"], start["1.weight"])


@pytest.mark.parametrize("precision", [np.float16, np.float32, np.float64])
def test_a_table_of_any_precision_trains_a_network_by_name(precision: Any) -> None:
    clients = [replace(c, inputs=torch.from_numpy(c.inputs.numpy().astype(precision))) for c in FEDERATION.clients]
    run = train(Study(replace(FEDERATION, clients=clients), STUDY.truth), select="validation-error")
    assert {w.dtype for w in weights_of(run.classifier.module).values()} == {torch.float32}
    assert run.test_error is not None


def test_a_double_precision_network_trains_in_double_precision_on_any_table() -> None:
    run = train(STUDY, model=nn.Linear(2, 3).double(), select="validation-error")
    assert {w.dtype for w in weights_of(run.classifier.module).values()} == {torch.float64}


def test_the_last_round_is_delivered_if_asked_for() -> None:
    run = train(STUDY, select="last", rounds=5, averaging=0)
    assert run.selected_round == 5
    assert tensors_digest(weights_of(run.classifier.module)) == run.weights_sha256


def test_the_first_round_with_the_lowest_labelled_error_is_delivered_if_asked_for() -> None:
    run = train(STUDY, select="validation-error", rounds=8, learning_rate=0.1)
    figures = [line["validation_error"] for line in run.history]
    assert run.selected_round == 1 + int(np.argmin(figures))
    upto = final_weights(STUDY, rounds=run.selected_round, learning_rate=0.1)
    assert tensors_digest(weights_of(run.classifier.module)) == tensors_digest(upto)


@torch.no_grad()
def held_out_of(module: nn.Module) -> HeldOut:
    return sum(
        (HeldOutRows([set_task(c, c.held_out, FEDERATION)]).judged(module) for c in FEDERATION.clients), HeldOut()
    )


@pytest.mark.parametrize("rate", [1e-3, 0.1])
def test_the_last_round_that_held_out_rows_cannot_tell_from_the_best_is_delivered(rate: float) -> None:
    settings = {"learning_rate": rate, "averaging": 0}
    run = train(STUDY, rounds=10, **settings)
    losses = [line["held_out_loss"] for line in run.history]
    best = int(np.argmin(losses))
    error = held_out_of(train(STUDY, select="last", rounds=best + 1, **settings).classifier.module).standard_error
    assert run.selected_round == 1 + max(np.flatnonzero(np.array(losses) <= losses[best] + error))
    upto = final_weights(STUDY, rounds=run.selected_round, **settings)
    assert tensors_digest(weights_of(run.classifier.module)) == tensors_digest(upto)


def test_the_validation_loss_and_the_temperature_are_those_of_the_delivered_weights_on_held_out_rows() -> None:
    run = train(STUDY)
    found = held_out_of(run.classifier.module)
    assert run.classifier.temperature == found.temperature
    assert run.validation_loss is not None
    rows = sum(len(c.held_out) for c in FEDERATION.clients)
    assert_allclose(run.validation_loss, min(found.losses) / rows, rtol=1e-6)


def test_the_test_error_is_that_of_the_delivered_classifier() -> None:
    run = train(STUDY, rounds=6, learning_rate=0.1)
    truth = STUDY.truth
    found = run.classifier.predict(truth.test_inputs) != np.array(FEDERATION.classes)[truth.test_labels]
    assert run.test_error == found.mean()
    assert_allclose(run.test_error_clients, [found[truth.test_clients == c].mean() for c in range(5)] @ np.full(5, 0.2))


@pytest.mark.parametrize(("every", "measured"), [(1, [1, 2, 3, 4]), (2, [2, 4]), (0, [])])
def test_the_test_error_is_measured_as_often_as_asked_for_and_at_the_end(every: int, measured: list[int]) -> None:
    run = train(STUDY, rounds=4, evaluate_every=every)
    assert [line["round"] for line in run.history if "test_error" in line] == measured
    assert run.test_error is not None


def test_measuring_changes_no_weight() -> None:
    runs = [
        train(STUDY, evaluate_every=every, select=select) for every, select in ((1, "validation-error"), (0, "last"))
    ]
    assert runs[0].weights_sha256 == runs[1].weights_sha256


def test_a_federation_without_truth_has_no_test_error_and_uses_no_label() -> None:
    run = train(FEDERATION)
    assert run.test_error is run.test_error_clients is None
    assert run.labels_used == 0
    assert all("test_error" not in line for line in run.history)


def test_the_truth_does_not_touch_what_fedul_learns() -> None:
    assert train(STUDY).weights_sha256 == train(FEDERATION).weights_sha256


def test_supervised_learning_says_how_many_labels_it_used() -> None:
    assert train(STUDY, method="supervised", method_option={"labels": 0.5}).labels_used == 5 * 24


def test_a_summary_is_plain_json() -> None:
    summary = train(STUDY).summary()
    assert json.loads(json.dumps(summary)) == summary
    assert summary["rounds"] == 3


def test_augmentation_changes_what_is_learned_from_images() -> None:
    study = fedul.load("digits")
    kinds = ("none", "rotate", "flip", "flip-crop")
    assert len({fedul.train(study, rounds=1, augment=kind).weights_sha256 for kind in kinds}) == 4


def test_a_run_in_a_folder_leaves_config_metrics_checkpoint_and_model(tmp_path: Path) -> None:
    run = train(STUDY, out=tmp_path / "run")
    assert list(contents(tmp_path / "run")) == [
        "checkpoint/state.safetensors",
        "config.json",
        "metrics.jsonl",
        "model/classifier.json",
        "model/weights.safetensors",
        "result.json",
    ]
    loaded = RunFolder(tmp_path / "run").load_classifier()
    inputs = STUDY.truth.test_inputs
    assert_array_equal(loaded.predict_proba(inputs), run.classifier.predict_proba(inputs))


def test_the_record_of_a_run_has_its_rounds_and_its_network_by_name(tmp_path: Path) -> None:
    train(out=tmp_path / "run", model="auto")
    train(out=tmp_path / "run", model="auto", rounds=5, resume=True)
    stored = RunFolder(tmp_path / "run").stored_config()
    assert stored is not None
    assert stored["training"]["model"] == "mlp"
    assert stored["training"]["rounds"] == 5


def test_a_folder_with_something_else_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("important")
    with pytest.raises(InputError, match="is not empty and not a run of fedul"):
        train(out=tmp_path)
    assert contents(tmp_path) == {"thesis.tex": b"important"}


OTHER_RUNS: dict[str, tuple[Callable[[], dict[str, Any]], str]] = {
    "seed": (lambda: {"seed": 1}, "seed is 0 there, 1 here"),
    "rate": (lambda: {"learning_rate": 0.5}, "learning-rate is 0.02 there, 0.5 here"),
    "data": (lambda: {"data": study_of(rows=61).federation}, "data fingerprint differs"),
    "network": (lambda: {"model": "linear"}, "network fingerprint differs|model is mlp there, linear here"),
    "option": (lambda: {"algorithm_option": {"step": 0.5}}, "algorithm-option is {} there"),
}


@pytest.mark.parametrize(("changes", "complaint"), OTHER_RUNS.values(), ids=OTHER_RUNS)
@pytest.mark.parametrize("resume", [True, False])
def test_a_folder_with_a_different_run_is_refused_and_left_as_it_is(
    tmp_path: Path, changes: Callable[[], dict[str, Any]], complaint: str, resume: bool
) -> None:
    train(out=tmp_path)
    before = contents(tmp_path)
    with pytest.raises(InputError, match=f"holds a different run \\(({complaint})"):
        train(out=tmp_path, resume=resume, **changes())
    assert contents(tmp_path) == before


def test_a_users_network_of_another_shape_cannot_go_on_with_a_run(tmp_path: Path) -> None:
    train(out=tmp_path, model=nn.Linear(2, 3))
    before = contents(tmp_path)
    with pytest.raises(InputError, match="holds a different run"):
        train(out=tmp_path, model=table_network(), rounds=5, resume=True)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("damage", ["altered", "cut"])
def test_a_damaged_checkpoint_is_refused_and_left_as_it_is(tmp_path: Path, damage: str) -> None:
    train(out=tmp_path)
    file = tmp_path / "checkpoint" / "state.safetensors"
    content = file.read_bytes()
    file.write_bytes(content[:-9] + bytes([content[-9] ^ 1]) + content[-8:] if damage == "altered" else content[:-1])
    before = contents(tmp_path)
    with pytest.raises(InputError, match=r"state\.safetensors: (altered since|damaged or cut)"):
        train(out=tmp_path, rounds=5, resume=True)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("select", ["held-out", "last"])
def test_a_loss_that_is_no_longer_finite_stops_the_run_with_a_sentence(select: str) -> None:
    with pytest.raises(FedulError, match=r"^the loss is no longer finite in round \d; use a smaller learning rate, or"):
        train(optimizer="sgd", learning_rate=1e30, select=select)


def test_a_last_step_into_infinity_is_noticed_without_held_out_rows() -> None:
    nothing_held_out = study_of(held_out=0).federation
    settings = {"optimizer": "sgd", "learning_rate": 1e39, "momentum": 0.9, "batch_size": "all", "rounds": 1}
    with pytest.raises(FedulError, match="no longer finite in round 1"):
        train(nothing_held_out, select="last", **settings)


def test_a_run_that_is_refused_makes_no_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        train(out=tmp_path / "run", method="supervised")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"select": "validation-error"}, "select validation-error: needs labels, and this federation has none"),
        ({"augment": "rotate"}, r"augment rotate: needs images, but a row has shape \(2,\)"),
        ({"model": with_batch_norm, "batch_size": 1}, "batch-size 1: batch norm needs two rows a step"),
        ({"model": nn.Linear(2, 3).requires_grad_(False)}, "the model has no weights to train"),
        ({"model": nn.Linear(2, 4)}, r"into \(2, 4\), not into logits of shape \(2, 3\)"),
        ({"model": "paper-cnn"}, "model 'paper-cnn' takes images"),
        ({"rouns": 3}, "unknown option 'rouns': did you mean 'rounds'"),
        ({"method": "fedl"}, "unknown method 'fedl': did you mean 'fedul'"),
        ({"algorithm": "fedprx"}, "unknown algorithm 'fedprx'"),
        ({"device": "abacus"}, "device: 'abacus' is not there"),
        ({"start_weights": "none.safetensors"}, "start weights none.safetensors are not a file"),
    ],
)
def test_a_run_that_cannot_be_is_refused(settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        train(**settings)


@pytest.mark.parametrize("select", ["held-out", "validation-error"])
def test_choosing_a_round_needs_held_out_rows(select: str) -> None:
    with pytest.raises(InputError, match=f"select {select}: no client has held-out rows"):
        train(study_of(held_out=0), select=select)


def test_batch_norm_with_a_single_labelled_row_is_refused() -> None:
    with pytest.raises(InputError, match="client 'north' has one row to train on; batch norm needs two"):
        train(STUDY, method="supervised", method_option={"labels": 1e-6}, model=with_batch_norm)


def test_labels_that_do_not_cover_the_rows_are_refused() -> None:
    with pytest.raises(InputError, match="client 'north': 48 rows but 0 labels"):
        Study(FEDERATION, replace(STUDY.truth, train_labels={}))


def test_sets_of_one_row_train() -> None:
    tiny = study_of(names=("north",), rows=4).federation
    assert len(tiny.clients[0].train) == 4
    assert len(train(tiny, select="last").history) == 3


def test_priors_that_cannot_tell_classes_apart_are_refused_unless_forced() -> None:
    blind = study_of(sets=2, names=("north",)).federation
    with pytest.raises(InputError, match="determine 1 of 2 directions"):
        train(blind)
    with pytest.warns(UserWarning, match="determine 1 of 2 directions"):
        assert len(train(blind, force=True).history) == 3


def test_a_client_that_would_not_suffice_alone_is_a_warning_at_the_callers_line() -> None:
    weak = study_of(sets=2, names=("north", "south", "east")).federation
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fedul.train(weak, rounds=1)
    assert [str(w.message).partition(" could")[0] for w in caught] == ["by itself north, south, east"]
    assert caught[0].filename == __file__


class Notes:
    """A reporter that remembers."""

    def __init__(self) -> None:
        self.warned: list[str] = []
        self.rounds: list[int] = []

    def warn(self, sentence: str) -> None:
        self.warned.append(sentence)

    def round(self, figures: Mapping[str, Any], rounds: int) -> None:
        self.rounds.append(figures["round"])


def test_a_reporter_hears_warnings_and_every_round_also_those_before_a_resume(tmp_path: Path) -> None:
    weak = study_of(sets=2, names=("north", "south", "east")).federation
    for rounds in (2, 4):
        notes = Notes()
        train(weak, rounds=rounds, out=tmp_path, resume=True, reporter=notes)
        assert len(notes.warned) == 1
        assert notes.rounds == list(range(1, rounds + 1))


def digits(method: str, seed: int, labels: float = 1.0) -> Run:
    options = {"labels": labels} if method == "supervised" else {}
    study = fedul.load("digits", seed=seed)
    return fedul.train(study, method=method, method_option=options, seed=seed)


def errors(runs: Sequence[Run]) -> list[float]:
    return [run.test_error for run in runs if run.test_error is not None]


@pytest.mark.slow
def test_digits_are_learned_without_a_label_about_as_well_as_with_all_and_better_than_with_a_tenth() -> None:
    without, full, tenth = (
        [digits(*contestant[:1], seed, *contestant[1:]) for seed in range(3)]
        for contestant in (("fedul",), ("supervised", 1.0), ("supervised", 0.1))
    )
    assert all(run.labels_used == 0 for run in without)
    assert max(errors(without)) < 0.10
    assert np.mean(errors(without)) <= 1.3 * np.mean(errors(full))
    assert np.mean(errors(without)) < 0.7 * np.mean(errors(tenth))
    assert errors(without)[0] < errors(tenth)[0]


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("recipe", ["boosted", "text"])
def test_probabilities_are_calibrated_without_a_label(recipe: str, overlap: bool) -> None:
    study = fedul.load("digits", sets=10, prior_recipe=recipe, sets_overlap=overlap, seed=2)
    assert fedul.train(study, rounds=20).calibration_error < 0.05


def test_what_was_found_of_a_classifier_is_dropped_when_another_is_trained(tmp_path: Path) -> None:
    study, found = fedul.load("digits", clients=2), tmp_path / "run" / "evaluation.json"
    fedul.train(study, rounds=1, out=tmp_path / "run")
    found.write_text("{}")
    fedul.train(study, rounds=1, out=tmp_path / "run", resume=True)
    assert found.exists()
    fedul.train(study, rounds=2, out=tmp_path / "run", resume=True)
    assert not found.exists()


def test_a_run_is_not_resumed_with_fewer_rounds_than_it_has(tmp_path: Path) -> None:
    study = fedul.load("digits", clients=2)
    fedul.train(study, rounds=3, out=tmp_path / "run")
    with pytest.raises(fedul.InputError, match="has 3 rounds already"):
        fedul.train(study, rounds=2, out=tmp_path / "run", resume=True)
    assert json.loads((tmp_path / "run" / "config.json").read_text())["training"]["rounds"] == 3


def test_supervised_training_does_not_need_identifiable_priors() -> None:
    study = fedul.load("digits", clients=2, sets=1)
    with pytest.warns(UserWarning, match="cannot tell the classes apart"):
        run = fedul.train(study, rounds=1, method="supervised")
    assert run.labels_used > 0


def test_a_device_that_computes_nothing_is_refused() -> None:
    with pytest.raises(fedul.InputError, match="device: 'meta' is not there"):
        fedul.train(fedul.load("digits", clients=2), rounds=1, device="meta")


class Masked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(64)
        self.head = nn.Linear(64, 10)
        self.register_buffer("mask", torch.tensor([0.0, float("-inf")]))
        self.register_buffer("flag", torch.tensor([True, False]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(self.norm(x.flatten(1)))
        return logits


def frozen(model: Masked) -> Masked:
    model.norm.eval()
    return model


def test_constant_buffers_with_infinities_and_flags_stay_as_they_are() -> None:
    run = fedul.train(fedul.load("digits", clients=2), rounds=2, model=Masked())
    assert torch.equal(run.classifier.module.mask, Masked().mask)
    assert torch.equal(run.classifier.module.flag, Masked().flag)


@pytest.mark.parametrize("averaging", [0, 0.5])
def test_a_run_with_constant_buffers_that_delivers_an_earlier_round_can_be_stopped_and_resumed(
    tmp_path: Path, averaging: float
) -> None:
    # So slow that no decision changes: the first of rounds that are as good is delivered, on every machine.
    settings = {"select": "validation-error", "learning_rate": 1e-12, "averaging": averaging}
    study = fedul.load("digits", clients=2)
    fedul.train(study, rounds=4, model=frozen(Masked()), out=tmp_path / "run", checkpoint_every=1, **settings)
    resumed = fedul.train(study, rounds=6, model=frozen(Masked()), out=tmp_path / "run", resume=True, **settings)
    assert resumed.selected_round == 1
    assert torch.equal(resumed.classifier.module.mask, Masked().mask)


def test_layers_that_the_user_froze_in_eval_mode_stay_frozen() -> None:
    run = fedul.train(fedul.load("digits", clients=2), rounds=2, model=frozen(Masked()))
    assert torch.equal(run.classifier.module.norm.running_mean, torch.zeros(64))
