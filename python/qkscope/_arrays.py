"""Arrays of other libraries, on the host and on the GPU."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Union

import numpy as np

from ._engine import DeviceArray, InputError

if TYPE_CHECKING:
    import torch

# What activations come as: NumPy on the CPU, or torch tensors where load() was asked for them. On CUDA torch tensors,
# or DeviceArray where there is no torch that can use the GPU; scores and patterns are on the host there too.
Array = Union[np.ndarray, "torch.Tensor", DeviceArray]


class NoSuchIndex(InputError, IndexError):
    """An index beyond the last; as IndexError it ends loops."""


class LayerList(list[Any]):
    """A value for each layer, as cfg.rope has them; says which layers there are where another is asked for."""

    def __getitem__(self, index: Any) -> Any:
        try:
            return super().__getitem__(index)
        except TypeError:
            raise InputError(f"layer {index!r}: expected a number from 0 to {len(self) - 1}") from None
        except IndexError:
            raise NoSuchIndex(f"layer {index}: the model has layers 0 to {len(self) - 1}") from None


KINDS = ("auto", "numpy", "torch")


@functools.cache
def torch_or_none() -> Any:
    try:
        import torch
    except ImportError:
        return None
    return torch


def check_kind(kind: str) -> str:
    """Of load(arrays=...)."""
    if kind not in KINDS:
        raise InputError(f"arrays: found {kind!r}, expected 'auto', 'numpy' or 'torch'")
    if kind == "torch" and torch_or_none() is None:
        raise InputError("arrays='torch': torch is not installed; pip install torch, or leave arrays out")
    return kind


def as_kind(array: Any, kind: str = "auto") -> Any:
    """The same memory as the library that load(arrays=...) asked for shows it.

    "auto": NumPy arrays stay, and what is on a GPU becomes a torch tensor where torch can use it.
    """
    torch = torch_or_none()
    if isinstance(array, DeviceArray):
        if torch is None or (array.device != "cpu" and not torch.cuda.is_available()):
            return array
        return torch.from_dlpack(array)
    if kind == "torch" and isinstance(array, np.ndarray):
        return torch.from_numpy(array)
    return array


def weights_as_kind(array: np.ndarray | None, kind: str) -> Any:
    """Weights are read-only views of the file; a torch tensor of them is a copy, which may be written into."""
    return torch_or_none().tensor(array) if kind == "torch" and array is not None else array


def is_torch(values: Any) -> bool:
    return hasattr(values, "detach")


def on_host(values: Any) -> np.ndarray:
    """As NumPy array, whatever GPU the values are on."""
    if is_torch(values):
        values = values.detach().cpu()
    elif isinstance(values, DeviceArray):
        values = values.numpy()
    elif hasattr(values, "__cuda_array_interface__") and hasattr(values, "get"):  # CuPy
        values = values.get()
    try:
        return np.asarray(values)
    except ValueError as error:  # lists of different lengths
        raise InputError(f"found {type(values).__name__} that is no array: {error}") from None


def like(values: Any, reference: Any) -> Any:
    """The values in the library, type and place of the reference."""
    if is_torch(reference):
        return values.to(reference) if is_torch(values) else reference.new_tensor(np.asarray(values))
    return np.asarray(on_host(values), dtype=reference.dtype)


def filled(reference: Any, shape: Sequence[int], value: float) -> Any:
    """A new array in the library and place of the reference."""
    if is_torch(reference):
        return reference.new_full(tuple(shape), value)
    return np.full(tuple(shape), value, dtype=reference.dtype)


def stack(arrays: Sequence[Any]) -> Any:
    return torch_or_none().stack(list(arrays)) if is_torch(arrays[0]) else np.stack(arrays)


def concatenate(arrays: Sequence[Any]) -> Any:
    """Along the first axis."""
    return torch_or_none().cat(list(arrays)) if is_torch(arrays[0]) else np.concatenate(arrays)


def moved(array: Any, axis: int, to: int) -> Any:
    return array.movedim(axis, to) if is_torch(array) else np.moveaxis(array, axis, to)


def dtype_of(values: Any) -> str:
    """'float32', however the library spells it."""
    return str(values.dtype).removeprefix("torch.")


def assign(array: Any, values: Any) -> None:
    """array = values, of the same shape and type."""
    if isinstance(array, np.ndarray):
        array[...] = on_host(values)
    elif is_torch(array):
        array[...] = like(values, array)
    elif is_torch(values):
        array.assign(values.detach().contiguous())
    else:
        array.assign(values)
