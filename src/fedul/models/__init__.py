"""The networks fedul can train: five by name, and any `nn.Module` or factory of the user's.

The two networks of the paper are `paper-cnn` and `resnet18`. Importing this module does not import torch.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeAlias

from fedul.errors import InputError, unknown
from fedul.randomness import key_seed

if TYPE_CHECKING:
    from torch import Tensor, nn

__all__ = ["MODELS", "Factory", "Model", "build", "load_start_weights", "resolve"]

# Both are strings at run time, so that naming a type costs no import of torch.
Factory: TypeAlias = "Callable[[tuple[int, ...], int], nn.Module]"
Model: TypeAlias = "str | nn.Module | Factory"

MODELS: dict[str, str] = {
    "linear": "fedul.models.mlp:linear",
    "mlp": "fedul.models.mlp:mlp",
    "small-cnn": "fedul.models.cnn:small_cnn",
    "paper-cnn": "fedul.models.cnn:paper_cnn",
    "resnet18": "fedul.models.resnet:resnet18",
}

# Models that take images only, with the fewest pixels a side that their pooling leaves something of.
_SMALLEST_IMAGE = {"small-cnn": 4, "paper-cnn": 4, "resnet18": 1}


def build(model: Model, shape: tuple[int, ...], classes: int, seed: int) -> nn.Module:
    """A network from rows of `shape` to `classes` logits; the same seed gives the same weights.

    `model` is a name of `MODELS`, "auto", "package.module:factory", a factory, or a module, of which a copy
    is returned with its weights as they are. Torch's global random state is left as it was.
    """
    import torch
    from torch import nn

    named = model if isinstance(model, str) else getattr(model, "__name__", type(model).__name__)
    is_users = isinstance(model, str) and ":" in model
    with (
        torch.random.fork_rng(devices=[]),
        _current_folder_importable() if is_users else contextlib.nullcontext(),
    ):
        maker = _found(resolve(model, shape)) if isinstance(model, str) else model
        # Not torch.manual_seed, which would also reseed the generators of every GPU.
        torch.default_generator.manual_seed(key_seed(seed, "model"))
        try:
            module = copy.deepcopy(maker) if isinstance(maker, nn.Module) else maker(shape, classes)
        except InputError:
            raise
        except Exception as error:
            raise InputError(
                f"model '{named}' could not be made for rows of shape {shape} and {classes} classes: {_reason(error)}."
            ) from error
        if not isinstance(module, nn.Module):
            raise InputError(
                f"model '{named}' made a {type(module).__name__} where a torch.nn.Module is needed: "
                "let the factory return the network."
            )
        _check_by_dry_run(module, named, shape, classes)
    return module


def resolve(model: str, shape: tuple[int, ...]) -> str:
    """The model that a name stands for, given the shape of a row; "auto" picks one that is quick on a CPU.

    That is `mlp` for rows of a table and for images of up to 16 pixels a side, and `small-cnn` for larger
    images, in colour too: `resnet18` takes hours on a CPU, so it is used only when asked for.

    >>> [resolve("auto", shape) for shape in [(64,), (1, 8, 8), (1, 28, 28), (3, 32, 32)]]
    ['mlp', 'mlp', 'small-cnn', 'small-cnn']
    """
    is_image = len(shape) == 3
    if model == "auto":
        too_thin = is_image and min(shape[1:]) < _SMALLEST_IMAGE["small-cnn"]
        return "small-cnn" if is_image and max(shape[1:]) > 16 and not too_thin else "mlp"
    if ":" in model:
        return model
    if model not in MODELS:
        raise unknown("model", model, [*MODELS, "auto", "package.module:factory"])
    if model in _SMALLEST_IMAGE and not is_image:
        raise InputError(
            f"model '{model}' takes images (channels, height, width), but a row has shape {shape}: "
            "use 'mlp' or 'linear'."
        )
    if model in _SMALLEST_IMAGE and min(shape[1:]) < _SMALLEST_IMAGE[model]:
        raise InputError(
            f"model '{model}' takes images of at least {_SMALLEST_IMAGE[model]} pixels a side, but a row has "
            f"shape {shape}: use 'mlp' or 'linear'."
        )
    return model


def load_start_weights(module: nn.Module, path: str | os.PathLike[str]) -> list[str]:
    """Copy the weights in a safetensors file into `module`, and name the tensors left as they were.

    Names and shapes must fit, with two exceptions: the head (the layer registered last) is left alone where
    the file has none or one of another shape, and batch counters may be missing. An error changes nothing.
    """
    import torch

    tensors = _read_safetensors(path)
    state = {name: own for name, own in module.state_dict().items() if isinstance(own, torch.Tensor)}
    left = {name for name in state if name.endswith("num_batches_tracked") and name not in tensors}
    head = _head_names(module) & state.keys()
    if any(name not in tensors or tensors[name].shape != state[name].shape for name in head):
        left |= head  # whole: a new layer with an old bias would be neither
    taken = [name for name in state if name not in left]
    faults = [fault for name in taken if (fault := _misfit(name, tensors.get(name), state[name]))]
    faults += [f"'{name}' is in the file only" for name in sorted(tensors.keys() - state.keys())]
    if not taken:
        faults.append("no tensor is the same in both")
    if faults:
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        raise InputError(
            f"start weights {os.fspath(path)} do not fit the network: {faults[0]}{more}; use weights of "
            "the same network under the same names."
        )
    with torch.no_grad():
        for name in taken:
            state[name].copy_(tensors[name])
    return [name for name in state if name in left]


def _found(name: str) -> nn.Module | Factory:
    """What "module:attribute" or a name of `MODELS` points to."""
    place, _, attribute = MODELS.get(name, name).partition(":")
    try:
        found = getattr(importlib.import_module(place), attribute)
    except (Exception, SystemExit) as error:  # a script without a main guard may exit when imported
        raise InputError(
            f"model '{name}' could not be imported: {_reason(error)}; write it as package.module:factory, "
            "importable from the current folder."
        ) from error
    if not callable(found):
        raise InputError(
            f"model '{name}' is of type {type(found).__name__}: it must be a function of (shape, classes) "
            "that returns a torch.nn.Module."
        )
    made: nn.Module | Factory = found
    return made


@contextlib.contextmanager
def _current_folder_importable() -> Iterator[None]:
    """Find modules in the current folder first, as `python -m` does, and no longer than needed."""
    sys.path.insert(0, "")
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):  # the user's code may have taken it out
            sys.path.remove("")


def _check_by_dry_run(module: nn.Module, named: str, shape: tuple[int, ...], classes: int) -> None:
    """Refuse a network that does not map (2, *shape) to (2, classes)."""
    import torch

    from fedul.models.weights import precision_of

    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        with torch.no_grad():
            logits = module(torch.zeros(2, *shape, dtype=precision_of(module)))
    except Exception as error:
        raise InputError(f"model '{named}' cannot take rows of shape {shape}: {_reason(error)}.") from error
    finally:
        for part, training in modes:  # one by one: a user may have frozen some layers in eval mode
            part.training = training
    got = tuple(logits.shape) if isinstance(logits, torch.Tensor) else f"a {type(logits).__name__}"
    if got != (2, classes):
        raise InputError(
            f"model '{named}' turns two rows of shape {shape} into {got}, not into logits of shape "
            f"{(2, classes)}: give it one output for each of the {classes} classes."
        )


def _reason(error: BaseException) -> str:
    """The first line of an error, to be put into a sentence."""
    first = next(iter(str(error).strip().splitlines()), "")
    return f"{type(error).__name__}: {first}".rstrip(" .:")


def _read_safetensors(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    name = os.fspath(path)
    if not os.path.isfile(name):
        raise InputError(f"start weights {name} are not a file: give the path of a local .safetensors file.")
    try:
        return load_file(name)
    except SafetensorError as error:
        raise InputError(
            f"start weights {name} are not a whole safetensors file ({_reason(error)}): copy it again, or "
            "export the weights to safetensors."
        ) from error
    except OSError as error:
        raise InputError(f"start weights {name} cannot be read: {_reason(error)}.") from error


def _head_names(module: nn.Module) -> set[str]:
    """The state-dict names of the last layer that has parameters."""
    head: set[str] = set()
    for prefix, part in module.named_modules():
        own = [name for name, _ in part.named_parameters(recurse=False)]
        if own:
            own += [name for name, _ in part.named_buffers(recurse=False)]
            head = {f"{prefix}.{name}" if prefix else name for name in own}
    return head


def _misfit(name: str, tensor: Tensor | None, own: Tensor) -> str:
    """What keeps a tensor of a file from replacing one of the network; empty if nothing does."""
    import torch

    if tensor is None:
        return f"'{name}' is missing from the file"
    if tensor.shape != own.shape:
        return f"'{name}' has shape {tuple(tensor.shape)} in the file and {tuple(own.shape)} in the network"
    plain = (torch.float16, torch.bfloat16, torch.float32, torch.float64)  # smaller kinds need scales we lack
    if own.is_floating_point() and tensor.dtype not in plain:
        return f"'{name}' holds {str(tensor.dtype).removeprefix('torch.')} where plain floats are needed"
    return "" if bool(torch.isfinite(tensor).all()) else f"'{name}' has values that are not finite"
