"""FedLLP-VAT: FedLLP at weight 0; else predictions are held where an input is moved in the direction that matters."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from torch import Tensor, nn

import fedul
from fedul._utils.randomness import torch_generator
from fedul.core import RoundMetrics, Study
from fedul.errors import InputError
from fedul.methods.consistency import consistency_loss
from fedul.methods.fedllp import FedLLP
from fedul.methods.fedllp_vat import FedLLPVAT
from fedul.methods.task import Step

from ..factories import dense_network, digits, gaussian_study, seeded_network
from ..worlds import repeatable, seeds
from .steps import SETTINGS, flat_gradient, gradient_of, padded, task_of_round

STUDY = gaussian_study(("north", "south"), rows=12, dtype=np.float64)


def one_step(method: FedLLPVAT, module: nn.Module, batch_size: int = 0) -> Step:
    task = method.task(STUDY.federation.clients[0], STUDY.federation.spec)
    return next(
        iter(task_of_round(method, task, module, {"consistency": method.weight}).plan(torch_generator(0), batch_size))
    )


def sha256(**settings: object) -> str:
    return fedul.train(STUDY, **{**SETTINGS, **settings}).weights_sha256


@pytest.mark.parametrize("mean", ["full", "batch"])
def test_at_weight_zero_it_is_fedllp(mean: str) -> None:
    with_it = sha256(method="fedllp-vat", method_option={"weight": 0, "mean": mean})
    assert with_it == sha256(method="fedllp", method_option={"mean": mean})
    assert with_it != sha256(method="fedllp-vat", method_option={"mean": mean, "ramp_rounds": 0})


def test_the_loss_is_the_proportion_loss_and_the_weighted_consistency() -> None:
    method, module = FedLLPVAT(weight=0.3, norm=0.5), seeded_network()
    step = one_step(method, module, 10)
    consistency = consistency_loss(module, step, module(step.inputs), method.norm).mean().item()
    assert_allclose(method.loss(module, step).item(), FedLLP().loss(module, step).item() + 0.3 * consistency)
    assert consistency > 0


class RecordInputs:
    """A prediction function that records its inputs."""

    def __init__(self, predict: Callable[[Tensor], Tensor]) -> None:
        self.predict, self.asked = predict, list[Tensor]()

    def __call__(self, inputs: Tensor) -> Tensor:
        self.asked.append(inputs.detach())
        return self.predict(inputs)


def perturbation(method: FedLLPVAT, module: Callable[[Tensor], Tensor], step: Step) -> Tensor:
    recorder = RecordInputs(module)
    consistency_loss(recorder, step, module(step.inputs), method.norm)
    return recorder.asked[-1] - step.inputs


@repeatable
@given(seeds, st.floats(1e-3, 10))
def test_a_perturbation_has_the_length_asked_for(seed: int, norm: float) -> None:
    module = seeded_network(seed=seed)
    method = FedLLPVAT(norm=norm)
    lengths = perturbation(method, module, one_step(method, module)).norm(dim=1)
    assert_allclose(lengths, norm, rtol=1e-9)


def test_with_two_classes_and_a_linear_model_a_perturbation_runs_along_the_weights() -> None:
    torch.manual_seed(0)
    module = nn.Linear(2, 2).double()
    step = one_step(FedLLPVAT(norm=0.5), seeded_network())
    found = perturbation(FedLLPVAT(norm=0.5), module, step)
    across = (module.weight[1] - module.weight[0]).detach()
    assert_allclose((found @ across).abs(), 0.5 * across.norm().item(), rtol=1e-6)


@repeatable
@given(seeds, st.sampled_from([0.03, 0.3]))
def test_a_perturbation_changes_predictions_more_than_random_ones_of_its_length(seed: int, norm: float) -> None:
    module, method = seeded_network(seed=seed), FedLLPVAT(norm=norm)
    step = one_step(method, module)
    clean = module(step.inputs).log_softmax(-1)
    found = consistency_loss(module, step, module(step.inputs), method.norm).mean().item()
    generator = torch.Generator().manual_seed(seed)
    changes = []
    for _ in range(20):
        direction = torch.randn(step.inputs.shape, generator=generator, dtype=torch.float64)
        moved = module(step.inputs + norm * direction / direction.norm(dim=1, keepdim=True)).log_softmax(-1)
        changes.append((clean.exp() * (clean - moved)).sum(-1).mean().item())
    assert found > 1.1 * np.mean(changes)


def test_no_gradient_runs_through_the_unchanged_rows_prediction_or_the_direction() -> None:
    method, module = FedLLPVAT(norm=0.5), seeded_network()
    step = one_step(method, module)
    change = perturbation(method, module, step)
    clean = module(step.inputs).detach().softmax(-1)
    moved = module(step.inputs + change).log_softmax(-1)
    expected = flat_gradient(nn.functional.kl_div(moved, clean, reduction="batchmean"), module)
    found = flat_gradient(consistency_loss(module, step, module(step.inputs), method.norm).mean(), module)
    assert_allclose(found, expected, rtol=0, atol=1e-12)


def test_padded_rows_change_neither_loss_nor_gradient() -> None:
    method, module = FedLLPVAT(weight=0.3, norm=0.5), seeded_network()
    step = one_step(method, module, 10)
    assert_allclose(method.loss(module, padded(step)).item(), method.loss(module, step).item(), rtol=1e-12)
    assert_allclose(gradient_of(method, module, padded(step)), gradient_of(method, module, step), rtol=0, atol=1e-13)


@given(st.floats(1e-4, 10), st.integers(1, 50), st.integers(0, 80))
@repeatable
def test_the_weight_grows_as_the_published_ramp(weight: float, ramp: int, rounds_done: int) -> None:
    directive = FedLLPVAT(weight=weight, ramp_rounds=ramp).directive([RoundMetrics(1, 1.0, 2)] * rounds_done)
    expected = weight * math.exp(-5 * (1 - min(rounds_done, ramp) / ramp) ** 2)
    assert_allclose(directive["consistency"], expected, rtol=1e-12)


def test_without_a_ramp_the_weight_is_whole_from_the_first_round() -> None:
    assert FedLLPVAT(weight=0.2, ramp_rounds=0).directive([]) == {"consistency": 0.2}


def test_the_weight_of_every_round_is_recorded() -> None:
    history = fedul.train(STUDY, **SETTINGS, method="fedllp-vat", method_option={"ramp_rounds": 2}).history
    expected = [0.05 * math.exp(-5), 0.05 * math.exp(-5 / 4), 0.05]
    assert_allclose([metrics.directive["consistency"] for metrics in history], expected)


def with_batch_norm() -> nn.Module:
    return seeded_network((2,), 3, nn.BatchNorm1d(6))


def test_batch_norms_running_statistics_do_not_see_perturbed_inputs() -> None:
    method, watched, plain = FedLLPVAT(norm=5.0), with_batch_norm(), with_batch_norm()
    step = one_step(method, watched.eval())
    method.loss(watched.train(), step)
    plain.train()(step.inputs)
    for name, buffer in plain.named_buffers():
        assert torch.equal(dict(watched.named_buffers())[name], buffer), name
    assert watched[2].track_running_stats


def test_batch_norm_tracks_statistics_again_after_an_error() -> None:
    method, module = FedLLPVAT(norm=5.0), with_batch_norm()
    step = one_step(method, module.eval())
    logits = module.train()(step.inputs)
    broken = Step(step.inputs, {**step.targets, "direction": torch.zeros(1, 7)}, step.shared)
    with pytest.raises(RuntimeError):
        consistency_loss(module, broken, logits, method.norm)
    assert module[2].track_running_stats


@pytest.mark.parametrize("option", [{"weight": -1}, {"norm": -1}, {"ramp_rounds": 1.5}, {"mean": "median"}])
def test_an_invalid_option_is_refused(option: dict[str, object]) -> None:
    with pytest.raises(InputError, match=f"^{next(iter(option)).replace('_', '-')}: "):
        FedLLPVAT(**option)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def trained_on_digits() -> tuple[Study, nn.Module]:
    """Handwritten digits, and a network that has learned from them for a few rounds."""
    study = digits(5, sets=10)
    run = fedul.train(study, method="fedllp", rounds=4, averaging=0, select="last", threads=1)
    return study, run.classifier.module


def share_of_the_consistency_term(study: Study, module: nn.Module, method: FedLLPVAT) -> float:
    """|consistency| / (|consistency| + |proportions|) of the gradients, in the mean over an epoch of one client."""
    module.eval()
    task = method.task(study.federation.clients[0], study.federation.spec)
    shares = []
    for step in task_of_round(method, task, module, {"consistency": method.weight}).plan(torch_generator(0), 32):
        logits = module(step.inputs)
        proportions = flat_gradient(FedLLP().proportion_loss(logits, step), module).norm()
        logits = module(step.inputs)
        consistency = (
            method.weight * flat_gradient(consistency_loss(module, step, logits, method.norm).mean(), module).norm()
        )
        shares.append((consistency / (consistency + proportions)).item())
    return float(np.mean(shares))


def test_by_default_the_consistency_term_is_on(trained_on_digits: tuple[Study, nn.Module]) -> None:
    assert share_of_the_consistency_term(*trained_on_digits, FedLLPVAT()) > 0.05


def test_with_the_settings_of_the_fedul_paper_the_consistency_term_has_almost_no_effect(
    trained_on_digits: tuple[Study, nn.Module],
) -> None:
    assert share_of_the_consistency_term(*trained_on_digits, FedLLPVAT(weight=5e-4, norm=0.01)) < 1e-3


def test_networks_in_double_precision_have_directions_in_double_precision() -> None:
    step = one_step(FedLLPVAT(), dense_network())
    assert step.targets["direction"].dtype == torch.float64
    assert_allclose(step.targets["direction"].norm(dim=1), 1, rtol=1e-6)
