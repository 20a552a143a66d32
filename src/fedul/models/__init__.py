"""Networks: seven by name, and any `nn.Module` or factory that a user passes.

The two networks of the paper are `paper-cnn` and `resnet18`. Importing this module does not import torch.
"""

from __future__ import annotations

import contextlib
import copy
import os
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeAlias

from fedul._utils.lazy import import_object
from fedul._utils.randomness import key_seed
from fedul.errors import InputError, first_line, unknown_name

if TYPE_CHECKING:
    from numpy.typing import ArrayLike
    from torch import Tensor, nn

__all__ = ["MODELS", "Factory", "Model", "build", "load_start_weights", "resolve"]

# Strings at run time, so that torch is not imported.
Factory: TypeAlias = "Callable[[tuple[int, ...], int], nn.Module]"
Model: TypeAlias = "str | nn.Module | Factory"

MODELS: dict[str, str] = {
    "linear": "fedul.models.mlp:linear",
    "mlp": "fedul.models.mlp:mlp",
    "small-mlp": "fedul.models.mlp:small_mlp",
    "small-cnn": "fedul.models.cnn:small_cnn",
    "paper-cnn": "fedul.models.cnn:paper_cnn",
    "resnet9": "fedul.models.resnet9:resnet9",
    "resnet18": "fedul.models.resnet:resnet18",
}

PLAIN_FLOATS = ("float16", "bfloat16", "float32", "float64")
"""Types of start weights; smaller ones need scales that a file of weights does not have."""

# Networks that take only images, with the smallest side length that their pooling allows.
_SMALLEST_IMAGE = {"small-cnn": 4, "paper-cnn": 4, "resnet9": 2, "resnet18": 1}


def build(model: Model, shape: tuple[int, ...], classes: int, seed: int, prior: ArrayLike | None = None) -> nn.Module:
    """Return a network from rows to logits. The random state of torch is unchanged.

    Parameters
    ----------
    model : str, nn.Module or callable
        A name of `MODELS`, "auto", "package.module:factory", a factory ``(shape, classes) -> nn.Module``, or a module,
        of which a copy with its weights is returned.
    shape : tuple of int
        Shape of one row.
    classes : int
        Number of logits.
    seed : int
        Seed of the initial weights.
    prior : array of shape (K,), optional
        Class mix that a network of `MODELS` starts from: without it a rare class takes many rounds to become rare in
        the predictions. Networks of the user start as they are.

    Raises
    ------
    InputError
        If the network cannot be built, or does not map rows of this shape to logits.
    """
    import torch
    from torch import nn

    named = model if isinstance(model, str) else getattr(model, "__name__", type(model).__name__)
    is_custom = isinstance(model, str) and ":" in model
    with (
        torch.random.fork_rng(devices=[]),
        _current_folder_importable() if is_custom else contextlib.nullcontext(),
    ):
        factory = _import_factory(resolve(model, shape)) if isinstance(model, str) else model
        if not callable(factory):
            raise InputError(
                f"model '{named}' is of type {type(factory).__name__}: it must be a torch.nn.Module, or a function of "
                "(shape, classes) that returns one."
            )
        # Not torch.manual_seed, which would also reseed the generators of every GPU.
        torch.default_generator.manual_seed(key_seed(seed, "model"))
        try:
            module = copy.deepcopy(factory) if isinstance(factory, nn.Module) else factory(shape, classes)
        except InputError:
            raise
        except Exception as error:
            hint = "; give a network, not its class" if isinstance(factory, type) else ""
            raise InputError(
                f"model '{named}' could not be built for rows of shape {shape} and {classes} classes: "
                f"{_reason(error)}{hint}."
            ) from error
        if not isinstance(module, nn.Module):
            raise InputError(
                f"model '{named}' returned a {type(module).__name__}, but a torch.nn.Module is needed: "
                "let the factory return the network."
            )
        _check_by_dry_run(module, named, shape, classes)
    if prior is not None and isinstance(model, str) and not is_custom:
        with torch.no_grad():
            log_prior = torch.log(torch.as_tensor(prior, dtype=torch.float64))
            bias = module.get_parameter(next(name for name in _head_names(module) if name.endswith("bias")))
            bias.add_((log_prior - log_prior.mean()).to(bias.dtype))
    return module


def resolve(model: str, shape: tuple[int, ...]) -> str:
    """Return the name of the network for rows of a shape; "auto" chooses one that is fast on a CPU.

    That is `mlp` for rows of a table and for images of up to 16 pixels per side, and `small-cnn` for larger images.
    `resnet18` takes hours on a CPU, so it is never chosen automatically.

    Examples
    --------
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
        raise unknown_name("model", model, [*MODELS, "auto", "package.module:factory"])
    if model in _SMALLEST_IMAGE and not is_image:
        raise InputError(
            f"model '{model}' takes images (channels, height, width), but a row has shape {shape}: "
            "use 'mlp' or 'linear'."
        )
    if model in _SMALLEST_IMAGE and min(shape[1:]) < _SMALLEST_IMAGE[model]:
        raise InputError(
            f"model '{model}' takes images of at least {_SMALLEST_IMAGE[model]} pixels per side, but a row has "
            f"shape {shape}: use 'mlp' or 'linear'."
        )
    return model


def load_start_weights(module: nn.Module, path: str | os.PathLike[str]) -> list[str]:
    """Copy the weights of a safetensors file into a module, and return the names of the tensors left unchanged.

    Names and shapes must fit, with two exceptions: the head (the layer registered last) is left unchanged if the file
    has none or one of another shape, and batch counters may be missing. On an error nothing is changed.
    """
    import torch

    tensors = _read_safetensors(path)
    state = {name: own for name, own in module.state_dict().items() if isinstance(own, torch.Tensor)}
    left = {name for name in state if name.endswith("num_batches_tracked") and name not in tensors}
    head = _head_names(module) & state.keys()
    if any(name not in tensors or tensors[name].shape != state[name].shape for name in head):
        left |= head  # all of it: weights and bias belong together
    copied = [name for name in state if name not in left]
    problems = [problem for name in copied if (problem := _tensor_problem(name, tensors.get(name), state[name]))]
    problems += [f"'{name}' is in the file only" for name in sorted(tensors.keys() - state.keys())]
    if not copied:
        problems.append("no tensor is the same in both")
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise InputError(
            f"start weights {os.fspath(path)} do not fit the network: {problems[0]}{more}; use weights of "
            "the same network under the same names."
        )
    with torch.no_grad():
        for name in copied:
            state[name].copy_(tensors[name])
    return [name for name in state if name in left]


def _import_factory(name: str) -> nn.Module | Factory:
    """Import a factory, given as "module:attribute" or as a name of `MODELS`."""
    try:
        factory: nn.Module | Factory = import_object(MODELS.get(name, name))
    except (Exception, SystemExit) as error:  # a script without a main guard may exit when imported
        raise InputError(
            f"model '{name}' could not be imported: {_reason(error)}; write it as package.module:factory, "
            "importable from the current folder."
        ) from error
    return factory


@contextlib.contextmanager
def _current_folder_importable() -> Iterator[None]:
    """Context in which modules are searched in the current folder first, as `python -m` does."""
    sys.path.insert(0, "")
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):  # the user's code may have removed it
            sys.path.remove("")


def _check_by_dry_run(module: nn.Module, named: str, shape: tuple[int, ...], classes: int) -> None:
    """Raise an InputError if a network does not map (2, *shape) to (2, classes)."""
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
    """Return the type and the first line of an error."""
    kind, line = type(error).__name__, first_line(error)
    return kind if line == kind else f"{kind}: {line}"


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
            f"start weights {name} are not a complete safetensors file ({_reason(error)}): copy it again, or "
            "export the weights to safetensors."
        ) from error
    except OSError as error:
        raise InputError(f"start weights {name} cannot be read: {_reason(error)}.") from error


def _head_names(module: nn.Module) -> set[str]:
    """Return the state-dict names of the last layer that has parameters."""
    head: set[str] = set()
    for prefix, part in module.named_modules():
        own = [name for name, _ in part.named_parameters(recurse=False)]
        if own:
            own += [name for name, _ in part.named_buffers(recurse=False)]
            head = {f"{prefix}.{name}" if prefix else name for name in own}
    return head


def _tensor_problem(name: str, tensor: Tensor | None, own: Tensor) -> str:
    """Return why a tensor of a file cannot replace one of the network; empty if it can."""
    if tensor is None:
        return f"'{name}' is missing from the file"
    if tensor.shape != own.shape:
        return f"'{name}' has shape {tuple(tensor.shape)} in the file and {tuple(own.shape)} in the network"
    dtype = str(tensor.dtype).removeprefix("torch.")
    if own.is_floating_point() and dtype not in PLAIN_FLOATS:
        return f"'{name}' holds {dtype} where plain floats are needed"
    return "" if bool(tensor.isfinite().all()) else f"'{name}' has values that are not finite"
