"""Networks have the layers they promise, start from their seed, and are refused if they do not fit."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from fedul.errors import InputError
from fedul.models import MODELS, build, resolve
from fedul.models.operations import operations

ROWS = (64,)
DIGITS = (1, 8, 8)
MNIST = (1, 28, 28)
CIFAR = (3, 32, 32)
IMAGE_MODELS = ["small-cnn", "paper-cnn", "resnet9", "resnet18"]


def size(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def dense(inputs: int, outputs: int) -> int:
    return inputs * outputs + outputs


def conv(inputs: int, outputs: int, kernel: int, bias: bool = True) -> int:
    return inputs * outputs * kernel**2 + bias * outputs


def batch_norm(width: int) -> int:
    return 2 * width


def weights(module: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def two_layers(shape: tuple[int, ...], classes: int) -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), 5), nn.Dropout(), nn.Linear(5, classes))


@pytest.mark.parametrize("shape", [DIGITS, MNIST, CIFAR, (2, 30, 21)], ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_every_model_maps_images_to_one_logit_per_class(name: str, shape: tuple[int, ...]) -> None:
    assert build(name, shape, classes=7, seed=0)(torch.zeros(3, *shape)).shape == (3, 7)


@pytest.mark.parametrize("name", ["linear", "mlp"])
def test_models_for_tables_map_rows_to_one_logit_per_class(name: str) -> None:
    assert build(name, ROWS, classes=7, seed=0)(torch.zeros(3, *ROWS)).shape == (3, 7)


def test_linear_is_one_layer() -> None:
    assert size(build("linear", DIGITS, 10, seed=0)) == dense(64, 10)


def test_mlp_has_two_hidden_layers_of_128() -> None:
    assert size(build("mlp", ROWS, 10, seed=0)) == dense(64, 128) + dense(128, 128) + dense(128, 10)


def test_small_cnn_has_two_convolutions_and_one_hidden_layer() -> None:
    layers = [conv(1, 16, 3), conv(16, 32, 3), dense(32 * 7 * 7, 64), dense(64, 10)]
    assert size(build("small-cnn", MNIST, 10, seed=0)) == sum(layers)


@pytest.mark.parametrize(("channels", "side", "dense_inputs"), [(3, 28, 6272), (1, 28, 6272), (3, 32, 128 * 8 * 8)])
def test_paper_cnn_has_the_six_layers_of_the_table(channels: int, side: int, dense_inputs: int) -> None:
    layers = [
        conv(channels, 64, 5) + batch_norm(64),
        conv(64, 64, 5) + batch_norm(64),
        conv(64, 128, 5) + batch_norm(128),
        dense(dense_inputs, 2048) + batch_norm(2048),
        dense(2048, 512) + batch_norm(512),
        dense(512, 10),
    ]
    assert size(build("paper-cnn", (channels, side, side), 10, seed=0)) == sum(layers)


def test_resnet18_has_the_layers_of_the_table() -> None:
    def convs(inputs: int, outputs: int, kernel: int) -> int:
        return conv(inputs, outputs, kernel, bias=False) + batch_norm(outputs)

    stem_and_first = convs(3, 64, 7) + 4 * convs(64, 64, 3)
    others = sum(
        convs(inputs, 2 * inputs, 3) + convs(inputs, 2 * inputs, 1) + 3 * convs(2 * inputs, 2 * inputs, 3)
        for inputs in (64, 128, 256)
    )
    assert size(build("resnet18", CIFAR, 10, seed=0)) == stem_and_first + others + dense(512, 10)


def test_resnet9_has_nine_layers_in_three_stages() -> None:
    def convs(inputs: int, outputs: int, kernel: int = 3) -> int:
        return conv(inputs, outputs, kernel, bias=False) + batch_norm(outputs)

    stages = [convs(24, 64) + convs(64, 64), convs(64, 128) + convs(128, 128), convs(128, 256) + 2 * convs(256, 256)]
    module = build("resnet9", CIFAR, 10, seed=0)
    assert size(module) == convs(3, 24, 2) + sum(stages) + dense(256, 10)
    assert sum(isinstance(layer, nn.Conv2d | nn.Linear) for layer in module.modules()) == 9


@pytest.mark.parametrize("side", [2, 3, 5, 8, 9, 17])
def test_resnet9_takes_images_of_any_size_from_two_pixels_on(side: int) -> None:
    logits = build("resnet9", (3, side, side + 1), 4, seed=0)(torch.rand(3, 3, side, side + 1))
    assert logits.shape == (3, 4)
    assert logits.isfinite().all()


def test_every_weight_of_resnet9_has_a_gradient() -> None:
    module = build("resnet9", CIFAR, 10, seed=0)
    rows = torch.rand(4, *CIFAR, generator=torch.Generator().manual_seed(0))
    module(rows).logsumexp(-1).sum().backward()
    assert [name for name, p in module.named_parameters() if p.grad is None or not p.grad.any()] == []


def test_resnet9_normalizes_its_inputs_so_that_their_unit_does_not_matter() -> None:
    module = build("resnet9", CIFAR, 10, seed=0)
    rows = torch.rand(8, *CIFAR, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(module(rows), module(255 * rows - 40), rtol=1e-2, atol=1e-2)


def test_resnet18_names_its_tensors_as_torchvision_does() -> None:
    def norm(prefix: str) -> list[str]:
        return [f"{prefix}.{part}" for part in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")]

    names = ["conv1.weight", *norm("bn1")]
    for layer in range(1, 5):
        for block in range(2):
            place = f"layer{layer}.{block}"
            names += [
                f"{place}.conv1.weight",
                *norm(f"{place}.bn1"),
                f"{place}.conv2.weight",
                *norm(f"{place}.bn2"),
            ]
            if layer > 1 and block == 0:
                names += [f"{place}.downsample.0.weight", *norm(f"{place}.downsample.1")]
    assert list(build("resnet18", CIFAR, 10, seed=0).state_dict()) == [*names, "fc.weight", "fc.bias"]


@pytest.mark.parametrize("name", ["small-cnn", "paper-cnn"])
def test_pooling_before_the_relu_changes_neither_logits_nor_gradients(name: str) -> None:
    module = build(name, DIGITS, 10, seed=0)
    layers = dict(module.named_children())
    order = list(layers)
    for i in (1, 2):  # as the paper's table has it
        pool, relu = order.index(f"pool{i}"), order.index(f"relu{i}")
        assert pool < relu
        order[pool], order[relu] = order[relu], order[pool]
    other = nn.Sequential(*(layers[each] for each in order))
    images = torch.randn(16, *DIGITS, generator=torch.Generator().manual_seed(0))
    found = []
    for network in (module, other):
        logits = network(images)
        found.append([logits, *torch.autograd.grad(logits.logsumexp(1).sum(), list(module.parameters()))])
    assert all(torch.equal(one, same) for one, same in zip(*found, strict=True))


@pytest.mark.parametrize(
    ("name", "shape", "classes", "printed"),
    [
        ("paper-cnn", (3, 28, 28), 10, 0.048125312),
        ("resnet18", (3, 32, 32), 10, 0.141595648),
        ("resnet18", (3, 224, 224), 6, 6.937938944),
    ],
    ids=["mnist", "cifar10", "real-world"],
)
def test_operations_are_those_the_paper_prints_in_billions(
    name: str, shape: tuple[int, ...], classes: int, printed: float
) -> None:
    assert operations(build(name, shape, classes, seed=0), shape) == round(printed * 1e9)


@pytest.mark.parametrize("name", MODELS)
def test_a_seed_decides_the_weights(name: str) -> None:
    first, again, other = (weights(build(name, MNIST, 10, seed=seed)) for seed in (3, 3, 4))
    assert same(first, again)
    assert not same(first, other)


@pytest.mark.parametrize("name", [*MODELS, "auto"])
def test_building_leaves_the_global_random_state_untouched(name: str) -> None:
    before = torch.get_rng_state()
    build(name, MNIST, 10, seed=0)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_factory_that_seeds_torch_leaves_the_global_random_state_untouched() -> None:
    def seeding(shape: tuple[int, ...], classes: int) -> nn.Module:
        torch.manual_seed(5)
        return two_layers(shape, classes)

    before = torch.get_rng_state()
    build(seeding, ROWS, 3, seed=0)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_global_random_state_does_not_change_the_weights() -> None:
    first = weights(build(two_layers, ROWS, 3, seed=0))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(99)
        assert same(first, weights(build(two_layers, ROWS, 3, seed=0)))


def test_a_built_model_is_ready_to_train() -> None:
    assert all(part.training for part in build("paper-cnn", MNIST, 10, seed=0).modules())


def test_a_users_module_is_copied_with_its_weights_and_modes() -> None:
    mine = two_layers(ROWS, 3)
    mine[2].eval()
    before = weights(mine)
    built = build(mine, ROWS, 3, seed=0)
    assert same(before, weights(built))
    assert [part.training for part in built.modules()] == [part.training for part in mine.modules()]
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.zero_()
    assert same(before, weights(mine))
    assert [part.training for part in mine] == [True, True, False, True]


@pytest.mark.parametrize(
    ("shape", "picked"),
    [
        (ROWS, "mlp"),
        (DIGITS, "mlp"),
        ((3, 16, 16), "mlp"),
        ((1, 17, 17), "small-cnn"),
        (MNIST, "small-cnn"),
        ((3, 24, 24), "small-cnn"),
        (CIFAR, "small-cnn"),
        ((1, 2, 100), "mlp"),
    ],
    ids=str,
)
def test_auto_picks_by_shape(shape: tuple[int, ...], picked: str) -> None:
    assert resolve("auto", shape) == picked
    assert same(weights(build("auto", shape, 4, seed=0)), weights(build(picked, shape, 4, seed=0)))


@pytest.mark.parametrize("name", [*MODELS, "package.module:factory"])
def test_any_other_name_stands_for_itself(name: str) -> None:
    assert resolve(name, MNIST) == name


@pytest.mark.parametrize("name", IMAGE_MODELS)
def test_an_image_model_refuses_rows_of_a_table(name: str) -> None:
    with pytest.raises(InputError, match=rf"'{name}' takes images .* shape \(64,\): use 'mlp'"):
        build(name, ROWS, 10, seed=0)


@pytest.mark.parametrize("name", ["small-cnn", "paper-cnn"])
def test_an_image_that_pooling_would_use_up_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=r"at least 4 pixels per side, but a row has shape \(1, 3, 28\)"):
        build(name, (1, 3, 28), 10, seed=0)


def test_an_unknown_name_gets_the_nearest_known_one() -> None:
    with pytest.raises(InputError, match="did you mean 'small-cnn'"):
        build("smallcnn", MNIST, 10, seed=0)


def test_a_module_with_another_number_of_outputs_is_refused() -> None:
    with pytest.raises(InputError, match=r"'Linear' turns two rows of shape \(64,\) into \(2, 3\), not .* \(2, 10\)"):
        build(nn.Linear(64, 3), ROWS, 10, seed=0)


def test_a_module_that_returns_no_tensor_is_refused() -> None:
    with pytest.raises(InputError, match="into a tuple"):
        build(nn.LSTM(64, 3), ROWS, 3, seed=0)


def test_a_module_for_another_shape_is_refused_with_shape_and_reason() -> None:
    with pytest.raises(InputError, match=r"'Linear' cannot take rows of shape \(64,\): RuntimeError: .*\.$"):
        build(nn.Linear(63, 3), ROWS, 3, seed=0)


def test_a_factory_that_fails_is_named_with_its_reason() -> None:
    def broken(shape: tuple[int, ...], classes: int) -> nn.Module:
        raise KeyError("widths")

    with pytest.raises(InputError, match=r"'broken' could not be built .* and 3 classes: KeyError: 'widths'\.$"):
        build(broken, ROWS, 3, seed=0)


def test_a_factory_that_returns_no_module_is_refused() -> None:
    with pytest.raises(InputError, match=r"'<lambda>' returned a NoneType, but a torch\.nn\.Module is needed"):
        build(lambda shape, classes: None, ROWS, 3, seed=0)  # type: ignore[arg-type, return-value]


USERS_FILE = """
import math
from torch import nn

number = 3

def net(shape, classes):
    from {sibling} import WIDTH
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), WIDTH), nn.Linear(WIDTH, classes))

ready = nn.Linear(64, 3)
"""


@pytest.fixture
def users_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module in the current folder, whose factory imports a sibling when called."""
    sibling = "sibling_of_users_networks"
    (tmp_path / "users_networks.py").write_text(USERS_FILE.format(sibling=sibling))
    (tmp_path / f"{sibling}.py").write_text("WIDTH = 6\n")
    (tmp_path / "exits_networks.py").write_text("raise SystemExit(2)\n")
    monkeypatch.chdir(tmp_path)
    for name in ("users_networks", sibling):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return "users_networks"


def test_a_factory_is_found_in_the_current_folder(users_module: str) -> None:
    path = list(sys.path)
    assert size(build(f"{users_module}:net", ROWS, 3, seed=0)) == dense(64, 6) + dense(6, 3)
    assert sys.path == path


def test_a_module_made_by_the_users_file_is_taken_as_it_is(users_module: str) -> None:
    built = build(f"{users_module}:ready", ROWS, 3, seed=0)
    assert same(weights(built), weights(sys.modules[users_module].ready))


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("users_networks:absent", "has no attribute 'absent'"),
        ("users_networks:number", "is of type int: it must be a torch.nn.Module, or a function"),
        ("absent_networks:net", "No module named 'absent_networks'"),
        ("exits_networks:net", "SystemExit: 2"),
        ("users_networks:", "could not be imported"),
        (":net", "could not be imported"),
    ],
)
def test_a_factory_that_cannot_be_found_is_an_input_error(users_module: str, name: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason) as caught:
        build(name, ROWS, 3, seed=0)
    assert f"'{name}'" in str(caught.value)


def test_importing_the_registry_imports_no_torch() -> None:
    code = "import sys, fedul.models; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("name", list(MODELS))
def test_a_network_can_start_from_a_class_mix(name: str) -> None:
    shape = (1, 8, 8)
    plain, shifted = (build(name, shape, 3, seed=1, prior=prior) for prior in (None, [0.7, 0.2, 0.1]))
    rows = torch.rand(4, *shape)
    difference = (shifted.eval()(rows) - plain.eval()(rows)).detach()
    expected = torch.tensor([0.7, 0.2, 0.1]).log()
    torch.testing.assert_close(difference, (expected - expected.mean()).expand(4, 3), atol=1e-5, rtol=1e-5)
    uniform = build(name, shape, 3, seed=1, prior=[1 / 3] * 3)
    assert torch.equal(uniform.eval()(rows), plain(rows))


def test_a_network_of_the_user_starts_as_it_is() -> None:
    own = torch.nn.Linear(4, 2)
    assert torch.equal(build(own, (4,), 2, seed=0, prior=[0.9, 0.1]).bias, own.bias)
