"""Start weights are copied where they fit; the head may differ; other misfits are errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from fedul.errors import InputError
from fedul.models import build, load_start_weights

SHAPE = (1, 8, 8)
HEAD = ["fc3.weight", "fc3.bias"]


def network(seed: int, classes: int = 4) -> nn.Module:
    return build("paper-cnn", SHAPE, classes, seed)


def tensors(module: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def saved(folder: Path, content: dict[str, Tensor]) -> Path:
    path = folder / "start.safetensors"
    save_file(content, path)
    return path


def refusal(path: Path) -> str:
    """The sentence with which a fresh network refuses the file, having kept its own weights."""
    module = network(seed=0)
    before = tensors(module)
    with pytest.raises(InputError) as caught:
        load_start_weights(module, path)
    assert same(tensors(module), before)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_weights_of_the_same_network_are_all_taken(tmp_path: Path) -> None:
    source = tensors(network(seed=1))
    module = network(seed=0)
    assert load_start_weights(module, saved(tmp_path, source)) == []
    assert same(tensors(module), source)


def test_the_path_may_be_text(tmp_path: Path) -> None:
    assert load_start_weights(network(seed=0), str(saved(tmp_path, tensors(network(seed=1))))) == []


def test_a_head_for_other_classes_is_left_as_initialised(tmp_path: Path) -> None:
    source = tensors(network(seed=1, classes=9))
    module = network(seed=0)
    own = tensors(module)
    assert load_start_weights(module, saved(tmp_path, source)) == HEAD
    assert same(tensors(module), source | {name: own[name] for name in HEAD})


def test_a_head_that_half_fits_is_left_whole(tmp_path: Path) -> None:
    source = tensors(network(seed=1)) | {"fc3.weight": torch.zeros(4, 99)}
    module = network(seed=0)
    own = tensors(module)
    assert load_start_weights(module, saved(tmp_path, source)) == HEAD
    assert torch.equal(tensors(module)["fc3.bias"], own["fc3.bias"])


def test_a_head_may_be_missing(tmp_path: Path) -> None:
    source = {name: tensor for name, tensor in tensors(network(seed=1)).items() if name not in HEAD}
    assert load_start_weights(network(seed=0), saved(tmp_path, source)) == HEAD


def test_batch_counters_may_be_missing(tmp_path: Path) -> None:
    source = {name: tensor for name, tensor in tensors(network(seed=1)).items() if "num_batches" not in name}
    counters = [f"bn{layer}.num_batches_tracked" for layer in range(1, 6)]
    assert load_start_weights(network(seed=0), saved(tmp_path, source)) == counters


def test_imagenet_weights_start_a_resnet18_for_ten_classes(tmp_path: Path) -> None:
    imagenet = tensors(build("resnet18", (3, 224, 224), 1000, seed=1))
    module = build("resnet18", (3, 32, 32), 10, seed=0)
    assert load_start_weights(module, saved(tmp_path, imagenet)) == ["fc.weight", "fc.bias"]
    assert torch.equal(tensors(module)["layer4.1.conv2.weight"], imagenet["layer4.1.conv2.weight"])


def test_weights_in_half_precision_are_taken(tmp_path: Path) -> None:
    source = {
        name: tensor.half() if tensor.is_floating_point() else tensor for name, tensor in tensors(network(1)).items()
    }
    module = network(seed=0)
    assert load_start_weights(module, saved(tmp_path, source)) == []
    assert module.get_parameter("fc1.weight").dtype == torch.float32
    assert torch.equal(tensors(module)["fc1.weight"], source["fc1.weight"].float())


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    source = tensors(network(seed=1))
    del source["bn2.running_mean"]
    assert "'bn2.running_mean' is missing from the file" in refusal(saved(tmp_path, source))


def test_a_tensor_of_another_shape_is_named_with_both_shapes(tmp_path: Path) -> None:
    source = tensors(network(seed=1)) | {"conv1.weight": torch.zeros(64, 3, 5, 5)}
    assert "'conv1.weight' has shape (64, 3, 5, 5) in the file and (64, 1, 5, 5)" in refusal(saved(tmp_path, source))


def test_a_tensor_the_network_lacks_is_named(tmp_path: Path) -> None:
    source = tensors(network(seed=1)) | {"conv9.weight": torch.zeros(1)}
    assert "'conv9.weight' is in the file only" in refusal(saved(tmp_path, source))


def test_several_faults_are_counted(tmp_path: Path) -> None:
    source = tensors(network(seed=1))
    del source["conv1.weight"], source["conv2.weight"], source["conv3.weight"]
    assert "'conv1.weight' is missing from the file (and 2 more)" in refusal(saved(tmp_path, source))


@pytest.mark.parametrize("name", ["conv1.weight", "fc3.weight"])
def test_quantised_weights_are_refused(tmp_path: Path, name: str) -> None:
    source = tensors(network(seed=1))
    source[name] = source[name].to(torch.int8)
    assert f"'{name}' holds int8 where plain floats are needed" in refusal(saved(tmp_path, source))


@pytest.mark.parametrize("name", ["conv1.weight", "fc3.bias"])
def test_weights_that_are_not_finite_are_refused(tmp_path: Path, name: str) -> None:
    source = tensors(network(seed=1))
    source[name].view(-1)[0] = torch.nan
    assert f"'{name}' has values that are not finite" in refusal(saved(tmp_path, source))


def test_a_file_of_which_nothing_fits_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path, {"head.weight": torch.zeros(2, 2), "head.bias": torch.zeros(2)})
    with pytest.raises(InputError, match="no tensor is the same in both"):
        load_start_weights(build("linear", SHAPE, 4, seed=0), path)


@pytest.mark.parametrize("length", [0, 5, 100, -1])
def test_a_cut_file_is_refused(tmp_path: Path, length: int) -> None:
    path = saved(tmp_path, tensors(network(seed=1)))
    path.write_bytes(path.read_bytes()[:length])
    assert f"{path} are not a complete safetensors file" in refusal(path)


def test_a_file_whose_header_was_tampered_with_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path, tensors(network(seed=1)))
    whole = path.read_bytes()
    length = int.from_bytes(whole[:8], "little")
    header = json.loads(whole[8 : 8 + length])
    header["fc3.bias"]["data_offsets"][1] += 4
    forged = json.dumps(header).encode()
    path.write_bytes(len(forged).to_bytes(8, "little") + forged + whole[8 + length :])
    assert "are not a complete safetensors file" in refusal(path)


def test_a_file_of_another_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "weights.pth"
    path.write_bytes(b"PK\x03\x04" + bytes(200))
    assert "export the weights to safetensors" in refusal(path)


@pytest.mark.parametrize("name", ["", "absent.safetensors"])
def test_a_path_that_is_no_file_is_refused(tmp_path: Path, name: str) -> None:
    assert "give the path of a local .safetensors file" in refusal(tmp_path / name)
