"""`fedul.train`: the same run gives the same weights, resumes where it stopped, and learns without labels."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
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
from fedul._utils.files import tensors_digest
from fedul.core import Federation, Study
from fedul.engines.base import Broadcast
from fedul.engines.held_out import HeldOutSums
from fedul.engines.held_out_evaluator import HeldOutEvaluator
from fedul.engines.simulation.engine import SimulationEngine
from fedul.errors import FedulError, InputError
from fedul.methods.fedul import set_task
from fedul.models.weights import weights_of
from fedul.training import Run, RunFolder
from fedul.training.selection import TOLERANCE

from ..callbacks import Recorder, StopAt
from ..factories import NAMES, batch_norm_network, dense_network, digits, gaussian_study
from ..runs import contents, without_seconds

STUDY = gaussian_study()
FEDERATION = STUDY.federation


def train(data: Federation | Study = FEDERATION, **settings: Any) -> Run:
    return fedul.train(data, **{"method": "fedul", "rounds": 3, "batch_size": 16, "learning_rate": 0.02, **settings})


def final_weights(data: Federation | Study = FEDERATION, **settings: Any) -> dict[str, Tensor]:
    return weights_of(train(data, select="last", **settings).classifier.module)


def with_dropout(shape: tuple[int, ...], classes: int) -> nn.Module:
    return dense_network(shape, classes, nn.Dropout(0.5)).float()


SETTINGS: dict[str, dict[str, Any]] = {
    "adam": {},
    "sgd with momentum": {"optimizer": "sgd", "momentum": 0.9},
    "sgd with Nesterov momentum": {"optimizer": "sgd", "momentum": 0.9, "nesterov": True},
    "several epochs": {"epochs": 3},
    "some of the clients": {"participation": 0.4},
    "dropout": {"model": with_dropout},
    "batch norm": {"model": batch_norm_network},
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
    assert without_seconds(resumed.history) == without_seconds(whole.history)
    assert resumed.selected_round == whole.selected_round
    assert_array_equal(
        resumed.classifier.predict_proba(STUDY.truth.test_inputs),
        whole.classifier.predict_proba(STUDY.truth.test_inputs),
    )


@pytest.mark.parametrize("every", [1, 2, 0])
def test_an_interrupted_run_resumes_from_its_last_checkpoint(tmp_path: Path, every: int) -> None:
    with pytest.raises(KeyboardInterrupt):
        train(rounds=5, out=tmp_path / "run", checkpoint_every=every, callbacks=[StopAt(4)])
    resumed = train(rounds=5, out=tmp_path / "run", checkpoint_every=every, resume=True)
    assert resumed.weights_sha256 == train(rounds=5).weights_sha256


def test_resuming_a_finished_run_changes_nothing_of_it(tmp_path: Path) -> None:
    run = train(STUDY, out=tmp_path / "run")
    before = {
        name: (tmp_path / "run" / name).read_bytes() for name in ("metrics.jsonl", "checkpoint/state.safetensors")
    }
    again = train(STUDY, out=tmp_path / "run", resume=True)
    assert again.to_dict() == run.to_dict()
    assert {name: (tmp_path / "run" / name).read_bytes() for name in before} == before


def test_a_finished_run_that_is_resumed_keeps_the_record_of_how_it_was_trained(tmp_path: Path) -> None:
    train(STUDY, rounds=2, out=tmp_path / "run")
    config = tmp_path / "run" / "config.json"
    before = config.read_bytes()
    train(STUDY, rounds=2, threads=1, engine_mode="loop", out=tmp_path / "run", resume=True)
    assert config.read_bytes() == before
    train(STUDY, rounds=3, threads=1, out=tmp_path / "run", resume=True)
    assert json.loads(config.read_text())["training"]["threads"] == 1


def test_seeds_make_runs_that_repeat_and_differ() -> None:
    first, same, other = (train(seed=seed).weights_sha256 for seed in (0, 0, 1))
    assert first == same != other


def test_the_generator_and_threads_of_torch_are_not_changed() -> None:
    before, threads = torch.random.get_rng_state(), torch.get_num_threads()
    train(STUDY, model=with_dropout, threads=2)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.get_num_threads() == threads


def test_a_run_does_not_depend_on_the_generator_of_torch() -> None:
    hashes = set()
    for seed in (1, 2):
        torch.manual_seed(seed)
        hashes.add(train(model=with_dropout).weights_sha256)
    assert len(hashes) == 1


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, list[str]]]:
    """Which clients an engine was asked to train in which round."""
    seen: list[tuple[int, list[str]]] = []
    original = SimulationEngine.train

    def spy(self: SimulationEngine, broadcast: Broadcast, clients: Sequence[str]) -> Iterator[Any]:
        seen.append((broadcast.round, list(clients)))
        return original(self, broadcast, clients)

    monkeypatch.setattr(SimulationEngine, "train", spy)
    return seen


@pytest.mark.parametrize(("share", "count"), [(1.0, 5), (0.6, 3), (0.4, 2), (0.01, 1)])
def test_a_share_of_the_clients_participates(asked: list[tuple[int, list[str]]], share: float, count: int) -> None:
    run = train(participation=share)
    assert [metrics.clients for metrics in run.history] == [count] * 3
    assert all(len(set(names)) == count and set(names) <= set(NAMES) for _, names in asked)


def test_participants_differ_by_round_and_repeat_with_the_seed(asked: list[tuple[int, list[str]]]) -> None:
    for seed in (0, 0, 1):
        train(participation=0.4, rounds=8, seed=seed)
    one, same, other = asked[:8], asked[8:16], asked[16:]
    assert one == same != other
    assert len({tuple(names) for _, names in one}) > 3


@pytest.mark.parametrize("model", ["mlp", batch_norm_network], ids=["mlp", "batch norm"])
def test_a_round_is_the_mean_of_the_models_that_its_clients_train_alone(model: Any) -> None:
    settings = {"model": model, "rounds": 1, "optimizer": "sgd"}  # the first steps of Adam amplify rounding
    round_weights = final_weights(**settings)
    alone = [final_weights(replace(FEDERATION, clients=[c]), **settings) for c in FEDERATION.clients]
    for name, tensor in round_weights.items():
        mean = torch.stack([weights[name].double() for weights in alone]).mean(0)
        expected = mean if tensor.is_floating_point() else mean.round()
        assert_close(tensor.double(), expected, rtol=0, atol=1e-6)


def test_batch_norm_learns_and_its_counters_are_whole_numbers() -> None:
    run = train(STUDY, model=batch_norm_network, rounds=10, select="last")
    assert run.test_error is not None
    assert run.test_error < 0.4
    assert weights_of(run.classifier.module)["2.num_batches_tracked"] == 30


def test_the_l1_penalty_makes_weights_smaller() -> None:
    sizes = [sum(float(w.abs().sum()) for w in final_weights(l1=l1, rounds=5).values()) for l1 in (0.0, 1e-3, 1e-2)]
    assert sizes[0] > sizes[1] > sizes[2]


def test_a_users_module_is_copied_with_its_weights_and_not_changed() -> None:
    module = dense_network().float()
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
    run = train(Study(replace(FEDERATION, clients=clients), STUDY.truth), select="held-out-error")
    assert {w.dtype for w in weights_of(run.classifier.module).values()} == {torch.float32}
    assert run.test_error is not None


def test_a_double_precision_network_trains_in_double_precision_on_any_table() -> None:
    run = train(STUDY, model=nn.Linear(2, 3).double(), select="held-out-error")
    assert {w.dtype for w in weights_of(run.classifier.module).values()} == {torch.float64}


def test_the_last_round_is_delivered_if_asked_for() -> None:
    run = train(STUDY, select="last", rounds=5, averaging=0)
    assert run.selected_round == 5
    assert tensors_digest(weights_of(run.classifier.module)) == run.weights_sha256


def test_the_first_round_with_the_lowest_labelled_error_is_delivered_if_asked_for() -> None:
    run = train(STUDY, select="held-out-error", rounds=8, learning_rate=0.1)
    figures = [metrics.held_out_error for metrics in run.history]
    assert run.selected_round == 1 + int(np.argmin(figures))
    upto = final_weights(STUDY, rounds=run.selected_round, learning_rate=0.1)
    assert tensors_digest(weights_of(run.classifier.module)) == tensors_digest(upto)


EVALUATORS = [HeldOutEvaluator([set_task(c, c.held_out, FEDERATION.spec)]) for c in FEDERATION.clients]


@torch.no_grad()
def difference_of(module: nn.Module, best: nn.Module, temperature: float) -> HeldOutSums:
    """Held-out sums with the reference `best`."""
    parts = (each.sums(each.logits(module), each.logits(best), temperature) for each in EVALUATORS)
    return sum(parts, HeldOutSums())


@torch.no_grad()
def held_out_of(module: nn.Module) -> HeldOutSums:
    return sum(
        (each.sums(each.logits(module)) for each in EVALUATORS),
        HeldOutSums(),
    )


@pytest.mark.filterwarnings("ignore:the classifier is worse than one that says nothing")
@pytest.mark.parametrize("rate", [1e-3, 0.1])
def test_the_last_round_whose_paired_difference_from_the_best_is_small_is_delivered(rate: float) -> None:
    settings = {"learning_rate": rate, "averaging": 0}
    run = train(STUDY, rounds=10, **settings)
    best = 1 + int(np.argmin([metrics.held_out_loss for metrics in run.history]))
    modules = {
        number: train(STUDY, select="last", rounds=number, **settings).classifier.module for number in range(best, 11)
    }
    temperature = held_out_of(modules[best]).grid_temperature
    compared = {number: difference_of(module, modules[best], temperature) for number, module in modules.items()}
    ties = [number for number, sums in compared.items() if sums.difference <= TOLERANCE * sums.standard_error]
    assert run.selected_round == max(ties)
    upto = final_weights(STUDY, rounds=run.selected_round, **settings)
    assert tensors_digest(weights_of(run.classifier.module)) == tensors_digest(upto)


def test_held_out_loss_and_temperature_are_those_of_the_delivered_weights() -> None:
    run = train(STUDY)
    found = held_out_of(run.classifier.module)
    assert run.classifier.temperature == found.temperature
    assert run.held_out_loss is not None
    rows = sum(len(c.held_out) for c in FEDERATION.clients)
    assert_allclose(run.held_out_loss, min(found.losses) / rows, rtol=1e-6)


def test_the_test_error_is_that_of_the_delivered_classifier() -> None:
    run = train(STUDY, rounds=6, learning_rate=0.1)
    truth = STUDY.truth
    found = run.classifier.predict(truth.test_inputs) != np.array(FEDERATION.classes)[truth.test_labels]
    assert run.test_error == found.mean()
    assert_allclose(
        run.result.test_error_clients, [found[truth.test_clients == c].mean() for c in range(5)] @ np.full(5, 0.2)
    )


@pytest.mark.parametrize(("every", "measured"), [(1, [1, 2, 3, 4]), (2, [2, 4]), (0, [])])
def test_the_test_error_is_measured_as_often_as_asked_for_and_at_the_end(every: int, measured: list[int]) -> None:
    run = train(STUDY, rounds=4, evaluate_every=every)
    assert [metrics.round for metrics in run.history if metrics.test_error is not None] == measured
    assert run.test_error is not None


def test_measuring_changes_no_weight() -> None:
    runs = [train(STUDY, evaluate_every=every, select=select) for every, select in ((1, "held-out-error"), (0, "last"))]
    assert runs[0].weights_sha256 == runs[1].weights_sha256


def test_a_federation_without_truth_has_no_test_error_and_uses_no_label() -> None:
    run = train(FEDERATION)
    assert run.test_error is run.result.test_error_clients is None
    assert run.labels_used == 0
    assert all(metrics.test_error is None for metrics in run.history)


def test_the_truth_does_not_touch_what_fedul_learns() -> None:
    assert train(STUDY).weights_sha256 == train(FEDERATION).weights_sha256


def test_supervised_learning_says_how_many_labels_it_used() -> None:
    assert train(STUDY, method="supervised", method_option={"labels": 0.5}).labels_used == 5 * 24


def test_a_summary_is_plain_json() -> None:
    summary = train(STUDY).to_dict()
    assert json.loads(json.dumps(summary)) == summary
    assert summary["rounds"] == 3


def test_augmentation_changes_what_is_learned_from_images() -> None:
    study = fedul.load("digits")
    kinds = ("none", "rotate", "flip", "flip-crop")
    assert len({fedul.train(study, rounds=1, augment=kind).weights_sha256 for kind in kinds}) == 4


def test_a_run_in_a_folder_leaves_config_metrics_checkpoint_status_and_model(tmp_path: Path) -> None:
    run = train(STUDY, out=tmp_path / "run")
    assert list(contents(tmp_path / "run")) == [
        "checkpoint",
        "checkpoint/state.safetensors",
        "config.json",
        "metrics.jsonl",
        "model",
        "model/classifier.json",
        "model/weights.safetensors",
        "result.json",
        "status.json",
    ]
    loaded = RunFolder(tmp_path / "run").load_classifier()
    inputs = STUDY.truth.test_inputs
    assert_array_equal(loaded.predict_proba(inputs), run.classifier.predict_proba(inputs))


def test_the_record_of_a_run_has_its_rounds_and_its_network_by_name(tmp_path: Path) -> None:
    train(out=tmp_path / "run", model="auto")
    train(out=tmp_path / "run", model="auto", rounds=5, resume=True)
    stored = RunFolder(tmp_path / "run").stored_config()
    assert stored is not None
    assert stored.training.model == "mlp"
    assert stored.training.rounds == 5


def test_a_folder_with_other_files_is_refused_and_not_changed(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("important")
    with pytest.raises(InputError, match="is not empty and not a run of fedul"):
        train(out=tmp_path)
    assert contents(tmp_path) == {"thesis.tex": b"important"}


OTHER_RUNS: dict[str, tuple[Callable[[], dict[str, Any]], str]] = {
    "seed": (lambda: {"seed": 1}, "seed is 0 there, 1 here"),
    "rate": (lambda: {"learning_rate": 0.5}, "learning-rate is 0.02 there, 0.5 here"),
    "data": (lambda: {"data": gaussian_study(rows=16).federation}, "data fingerprint differs"),
    "network": (lambda: {"model": "linear"}, "network fingerprint differs|model is mlp there, linear here"),
    "option": (lambda: {"algorithm_option": {"step": 0.5}}, "algorithm-option is {} there"),
}


@pytest.mark.parametrize(("changes", "complaint"), OTHER_RUNS.values(), ids=OTHER_RUNS)
@pytest.mark.parametrize("resume", [True, False])
def test_a_folder_with_a_different_run_is_refused_and_not_changed(
    tmp_path: Path, changes: Callable[[], dict[str, Any]], complaint: str, resume: bool
) -> None:
    train(out=tmp_path)
    before = contents(tmp_path)
    with pytest.raises(InputError, match=f"holds a different run \\(({complaint})"):
        train(out=tmp_path, resume=resume, **changes())
    assert contents(tmp_path) == before


def test_a_custom_network_of_another_shape_cannot_resume_a_run(tmp_path: Path) -> None:
    train(out=tmp_path, model=nn.Linear(2, 3))
    before = contents(tmp_path)
    with pytest.raises(InputError, match="holds a different run"):
        train(out=tmp_path, model=dense_network().float(), rounds=5, resume=True)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("damage", ["altered", "cut"])
def test_a_damaged_checkpoint_is_refused_and_not_changed(tmp_path: Path, damage: str) -> None:
    train(out=tmp_path)
    file = tmp_path / "checkpoint" / "state.safetensors"
    content = file.read_bytes()
    file.write_bytes(content[:-9] + bytes([content[-9] ^ 1]) + content[-8:] if damage == "altered" else content[:-1])
    before = contents(tmp_path)
    with pytest.raises(InputError, match=r"state\.safetensors: (altered since|damaged or truncated)"):
        train(out=tmp_path, rounds=5, resume=True)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("select", ["held-out-loss", "last"])
def test_a_loss_that_is_no_longer_finite_stops_the_run_with_a_sentence(select: str) -> None:
    with pytest.raises(
        FedulError,
        match=r"^the loss is no longer finite in round \d of method [a-z-]+; use a smaller",
    ):
        train(optimizer="sgd", learning_rate=1e30, select=select)


def test_a_last_step_into_infinity_is_noticed_without_held_out_rows() -> None:
    nothing_held_out = gaussian_study(held_out=0).federation
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
        ({"select": "held-out-error"}, "select held-out-error: needs labels, and this federation has none"),
        ({"augment": "rotate"}, r"augment rotate: needs images, but a row has shape \(2,\)"),
        ({"model": batch_norm_network, "batch_size": 1}, "batch-size 1: batch norm needs two rows a step"),
        ({"model": nn.Linear(2, 3).requires_grad_(False)}, "the model has no weights to train"),
        ({"model": nn.Linear(2, 4)}, r"into \(2, 4\), not into logits of shape \(2, 3\)"),
        ({"model": "paper-cnn"}, "model 'paper-cnn' takes images"),
        ({"rouns": 3}, "unknown option 'rouns': did you mean 'rounds'"),
        ({"method": "fedl"}, "unknown method 'fedl': did you mean 'fedul'"),
        ({"algorithm": "fedprx"}, "unknown algorithm 'fedprx'"),
        ({"device": "abacus"}, "device: 'abacus' is not available"),
        ({"start_weights": "none.safetensors"}, "start weights none.safetensors are not a file"),
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        train(**settings)


@pytest.mark.parametrize("select", ["held-out-loss", "held-out-error"])
def test_selecting_a_round_needs_held_out_rows(select: str) -> None:
    with pytest.raises(InputError, match="no rows are held out to select the round by"):
        train(gaussian_study(held_out=0), select=select)


def test_batch_norm_with_a_single_labelled_row_is_refused() -> None:
    with pytest.raises(InputError, match="client 'north' has one row to train on; batch norm needs two"):
        train(STUDY, method="supervised", method_option={"labels": 1e-6}, model=batch_norm_network)


def test_labels_that_do_not_cover_the_rows_are_refused() -> None:
    with pytest.raises(InputError, match="client 'north': 48 rows but 0 labels"):
        Study(FEDERATION, replace(STUDY.truth, train_labels={}))


def test_sets_of_one_row_train() -> None:
    tiny = gaussian_study(names=("north",), rows=1, held_out=0.8).federation
    assert sorted(tiny.clients[0].train.sets.tolist()) == [0, 1, 2, 3]  # no set gives up its only row
    assert len(tiny.clients[0].held_out) == 0
    losses = [metrics.loss for metrics in train(tiny, select="last", rounds=20).history]
    assert all(math.isfinite(loss) for loss in losses)
    assert losses[-1] < losses[0]


def test_priors_that_cannot_tell_classes_apart_are_refused_unless_forced() -> None:
    blind = gaussian_study(sets=2, names=("north",)).federation
    with pytest.raises(InputError, match="determine 1 of 2 directions"):
        train(blind)
    with pytest.warns(UserWarning, match="determine 1 of 2 directions"):
        assert len(train(blind, force=True).history) == 3


def test_a_client_that_would_not_suffice_alone_is_a_warning_at_the_callers_line() -> None:
    weak = gaussian_study(sets=2, names=("north", "south", "east")).federation
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fedul.train(weak, method="fedul", rounds=1)
    assert [str(w.message).partition(" could")[0] for w in caught] == ["alone, north, south, east"]
    assert caught[0].filename == __file__


def test_a_callback_gets_warnings_new_rounds_and_the_history_of_a_resumed_run(tmp_path: Path) -> None:
    weak = gaussian_study(sets=2, names=("north", "south", "east")).federation
    for before, rounds in ((0, 2), (2, 4)):
        recorder = Recorder()
        train(weak, rounds=rounds, out=tmp_path, resume=True, callbacks=[recorder])
        assert len(recorder.messages) == 1
        assert [metrics.round for metrics in recorder.rounds] == list(range(before + 1, rounds + 1))
        assert len(recorder.history) == before


def train_on_digits(method: str, seed: int, labels: float = 1.0) -> Run:
    options = {"labels": labels} if method == "supervised" else {}
    study = fedul.load("digits", seed=seed)
    return fedul.train(study, method=method, method_option=options, seed=seed)


def errors(runs: Sequence[Run]) -> list[float]:
    return [run.test_error for run in runs if run.test_error is not None]


@pytest.mark.slow
def test_digits_are_learned_without_a_label_about_as_well_as_with_all_and_better_than_with_a_tenth() -> None:
    without, full, tenth = (
        [train_on_digits(*variant[:1], seed, *variant[1:]) for seed in range(3)]
        for variant in (("fedul",), ("supervised", 1.0), ("supervised", 0.1))
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
    assert fedul.train(study, method="fedul", rounds=20).result.calibration_error < 0.05


def test_an_evaluation_is_deleted_when_training_continues(tmp_path: Path) -> None:
    study, found = digits(), tmp_path / "run" / "evaluation.json"
    fedul.train(study, rounds=1, out=tmp_path / "run")
    found.write_text("{}")
    fedul.train(study, rounds=1, out=tmp_path / "run", resume=True)
    assert found.exists()
    fedul.train(study, rounds=2, out=tmp_path / "run", resume=True)
    assert not found.exists()


def test_a_run_is_not_resumed_with_fewer_rounds_than_it_has(tmp_path: Path) -> None:
    study = digits()
    fedul.train(study, rounds=3, out=tmp_path / "run")
    with pytest.raises(fedul.InputError, match="already has 3 rounds"):
        fedul.train(study, rounds=2, out=tmp_path / "run", resume=True)
    assert json.loads((tmp_path / "run" / "config.json").read_text())["training"]["rounds"] == 3


def test_supervised_training_does_not_need_identifiable_priors() -> None:
    study = digits(sets=1)
    with pytest.warns(UserWarning, match="cannot tell the classes apart"):
        run = fedul.train(study, rounds=1, method="supervised")
    assert run.labels_used > 0


def test_a_device_that_computes_nothing_is_refused() -> None:
    with pytest.raises(fedul.InputError, match="device: 'meta' is not available"):
        fedul.train(digits(), rounds=1, device="meta")


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
    run = fedul.train(digits(), rounds=2, model=Masked())
    assert torch.equal(run.classifier.module.mask, Masked().mask)
    assert torch.equal(run.classifier.module.flag, Masked().flag)


@pytest.mark.parametrize("averaging", [0, 0.5])
def test_a_run_with_constant_buffers_that_delivers_an_earlier_round_can_be_stopped_and_resumed(
    tmp_path: Path, averaging: float
) -> None:
    # So slow that no decision changes: the first of rounds that are as good is delivered, on every machine.
    settings = {"select": "held-out-error", "learning_rate": 1e-12, "averaging": averaging}
    study = digits()
    fedul.train(study, rounds=4, model=frozen(Masked()), out=tmp_path / "run", checkpoint_every=1, **settings)
    resumed = fedul.train(study, rounds=6, model=frozen(Masked()), out=tmp_path / "run", resume=True, **settings)
    assert resumed.selected_round == 1
    assert torch.equal(resumed.classifier.module.mask, Masked().mask)


def test_layers_that_the_user_froze_in_eval_mode_stay_frozen() -> None:
    run = fedul.train(digits(), rounds=2, model=frozen(Masked()))
    assert torch.equal(run.classifier.module.norm.running_mean, torch.zeros(64))
