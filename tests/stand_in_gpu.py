"""A stand-in for a GPU: tensors whose device is "meta" and whose values are on the CPU.

Operations follow the rules of a GPU. They fail if tensors of both devices are mixed, if a generator of the CPU draws
for the device, or if NumPy is to read the memory of the device. So code that makes a tensor on the wrong device is
found without a GPU, and the result of a run can be compared with one on the CPU. Kernels of a GPU, their rounding and
their limits are not tested.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

GPU = torch.device("meta")
"""Name of the device."""
INDEXING = ("index", "index_put", "index_put_", "_index_put_impl_")
"""Operations that take positions on the CPU for values on a GPU, but not the reverse."""
COPYING = ("copy_", "_to_copy", "_foreach_copy_")
"""Operations between devices."""


class GPUTensor(Tensor):
    """A tensor on the device; `values` is the same on the CPU."""

    values: Tensor

    @staticmethod
    def __new__(cls, values: Tensor) -> GPUTensor:
        tensor: GPUTensor = torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls,
            values.shape,
            strides=values.stride(),
            storage_offset=values.storage_offset(),
            dtype=values.dtype,
            device=GPU,
        )
        tensor.values = values
        return tensor

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _compute(func, args, kwargs or {})

    def __repr__(self) -> str:  # type: ignore[override]
        return f"GPUTensor({self.values})"

    def data_ptr(self) -> int:
        return self.values.data_ptr()

    def tolist(self) -> Any:
        return self.values.tolist()

    def numpy(self, *, force: bool = False) -> Any:
        raise TypeError("can't convert a tensor of a GPU to numpy; use Tensor.cpu().")


class _CreatesOnGPU(TorchDispatchMode):
    """Mode in which functions that create or move a tensor know the device."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if _device(kwargs) == GPU or any(isinstance(leaf, GPUTensor) for leaf in tree_leaves((args, kwargs))):
            if not _is_composed(func):
                return _compute(func, args, kwargs)
            with self:
                return func.decompose(*args, **kwargs)
        return func(*args, **kwargs)


class _CopiesNumbersToGPU(TorchFunctionMode):
    """Mode in which numbers of Python become a tensor on the device; torch copies them below the other mode."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in (torch.tensor, torch.as_tensor) and _device(kwargs) == GPU:
            return func(*args, **{**kwargs, "device": None}).to(GPU)
        if func is Tensor.new_tensor and isinstance(args[0], GPUTensor):
            return torch.tensor(*args[1:], **{"dtype": args[0].dtype, **kwargs}).to(GPU)
        if func is torch.split and isinstance(args[0], GPUTensor) and torch.is_inference_mode_enabled():
            return tuple(map(GPUTensor, torch.split(args[0].values, *args[1:])))  # torch cannot in this mode
        return func(*args, **kwargs)


def _is_composed(func: Any) -> bool:
    """Return whether an operation consists of others; torch takes it apart itself unless in inference mode."""
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd"))


def _device(kwargs: dict[str, Any]) -> torch.device | None:
    return None if kwargs.get("device") is None else torch.device(kwargs["device"])


def _compute(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Compute an operation of the device on the CPU."""
    name, leaves = func.overloadpacket.__name__, tree_leaves((args, kwargs))
    _refuse_what_a_gpu_refuses(func, name, args, leaves)
    on_gpu = {id(leaf.values): leaf for leaf in leaves if isinstance(leaf, GPUTensor)}
    goes_to_cpu = not isinstance(args[0], GPUTensor) if name == "copy_" else _device(kwargs) == torch.device("cpu")
    plain_args, plain_kwargs = tree_map(_on_cpu, (args, kwargs))
    with _device_generator() if torch.Tag.nondeterministic_seeded in func.tags else nullcontext():
        result = func(*plain_args, **plain_kwargs)
    if name == "_to_copy" and any(result is leaf for leaf in tree_leaves(plain_args)):
        result = result.clone()

    def on_its_device(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor) or goes_to_cpu:
            return leaf
        return on_gpu.get(id(leaf)) if id(leaf) in on_gpu else GPUTensor(leaf)

    return tree_map(on_its_device, result)


def _on_cpu(leaf: Any) -> Any:
    if isinstance(leaf, torch.device):
        return torch.device("cpu")
    return leaf.values if isinstance(leaf, GPUTensor) else leaf


def _refuse_what_a_gpu_refuses(func: Any, name: str, args: Any, leaves: list[Any]) -> None:
    """Raise the error of a GPU for tensors and generators on several devices."""
    if any(isinstance(leaf, torch.Generator) for leaf in leaves):
        raise RuntimeError(f"{func}: expected a generator of the GPU, found one of the CPU")
    others = [leaf for leaf in leaves if isinstance(leaf, Tensor) and not isinstance(leaf, GPUTensor)]
    if name in INDEXING and not isinstance(args[0], GPUTensor):
        raise RuntimeError(f"{func}: positions on the GPU for values on the CPU")
    if name in (*COPYING, *INDEXING):
        return
    combines = torch.Tag.pointwise in func.tags or name.startswith("_foreach")
    if any(not combines or leaf.dim() for leaf in others):  # a number may be on the CPU
        raise RuntimeError(f"{func}: expected all tensors to be on the same device, found the GPU and the CPU")


_generator = torch.Generator()


@contextmanager
def _device_generator() -> Iterator[None]:
    """Context in which operations draw from the generator of the device."""
    before = torch.default_generator.get_state()
    torch.default_generator.set_state(_generator.get_state())
    try:
        yield
    finally:
        _generator.set_state(torch.default_generator.get_state())
        torch.default_generator.set_state(before)


@contextmanager
def stand_in_gpu() -> Iterator[torch.device]:
    """Context in which the device exists, as a GPU does."""
    module = SimpleNamespace(
        device=lambda _: nullcontext(),
        manual_seed=_generator.manual_seed,
        get_rng_state=lambda _=None: _generator.get_state(),
        set_rng_state=lambda state, _=None: _generator.set_state(state),
    )
    with pytest.MonkeyPatch.context() as patch, _CreatesOnGPU(), _CopiesNumbersToGPU():
        patch.setattr(torch, GPU.type, module, raising=False)
        yield GPU
