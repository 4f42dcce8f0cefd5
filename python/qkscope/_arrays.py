"""Conversions between NumPy arrays, torch tensors and arrays of the engine, on the host and on the GPU."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from ._engine import DeviceArray, InputError


class ArrayInput(Protocol):
    """An array argument: NumPy, torch, CuPy, JAX, DeviceArray."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any: ...


class Array(ArrayInput, Protocol):
    """The operations that NumPy arrays and torch tensors share; the type of activations for type checkers.

    CPU: NumPy, or torch tensors with load(arrays="torch"). CUDA: torch tensors, or DeviceArray if torch cannot use the
    GPU; attention scores and patterns are always on the host. np.asarray(array) is a NumPy array for type checkers.
    """

    @property
    def dtype(self) -> Any: ...
    @property
    def ndim(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def T(self) -> Array: ...
    @property
    def real(self) -> Array: ...
    @property
    def imag(self) -> Array: ...
    def __array__(self, *args: Any, **kwargs: Any) -> np.ndarray[Any, np.dtype[Any]]: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Any]: ...
    def __getitem__(self, index: Any) -> Array: ...
    def __setitem__(self, index: Any, value: Any) -> None: ...
    def __float__(self) -> float: ...
    def __int__(self) -> int: ...
    def __bool__(self) -> bool: ...
    def __eq__(self, other: Any) -> Array: ...  # type: ignore[override]  # by element
    def __ne__(self, other: Any) -> Array: ...  # type: ignore[override]
    def __invert__(self) -> Array: ...
    def __neg__(self) -> Array: ...
    def __abs__(self) -> Array: ...
    def __add__(self, other: Any) -> Array: ...
    def __radd__(self, other: Any) -> Array: ...
    def __sub__(self, other: Any) -> Array: ...
    def __rsub__(self, other: Any) -> Array: ...
    def __mul__(self, other: Any) -> Array: ...
    def __rmul__(self, other: Any) -> Array: ...
    def __truediv__(self, other: Any) -> Array: ...
    def __rtruediv__(self, other: Any) -> Array: ...
    def __pow__(self, other: Any) -> Array: ...
    def __matmul__(self, other: Any) -> Array: ...
    def __rmatmul__(self, other: Any) -> Array: ...
    def __lt__(self, other: Any) -> Array: ...
    def __le__(self, other: Any) -> Array: ...
    def __gt__(self, other: Any) -> Array: ...
    def __ge__(self, other: Any) -> Array: ...
    def sum(self, *args: Any, **kwargs: Any) -> Array: ...
    def mean(self, *args: Any, **kwargs: Any) -> Array: ...
    def max(self, *args: Any, **kwargs: Any) -> Array: ...
    def min(self, *args: Any, **kwargs: Any) -> Array: ...
    def argmax(self, *args: Any, **kwargs: Any) -> Array: ...
    def reshape(self, *shape: Any) -> Array: ...
    def squeeze(self, *args: Any, **kwargs: Any) -> Array: ...
    def swapaxes(self, axis1: int, axis2: int, /) -> Array: ...
    def diagonal(self, *args: Any, **kwargs: Any) -> Array: ...
    def all(self, *args: Any, **kwargs: Any) -> Array: ...
    def any(self, *args: Any, **kwargs: Any) -> Array: ...
    def item(self) -> Any: ...
    def tolist(self) -> Any: ...


class NoSuchIndex(InputError, IndexError):
    """An index out of range. Being an IndexError, it ends iteration over a sequence."""


class LayerList(list[Any]):
    """A list with one value per layer, such as cfg.rope. An invalid index names the existing layers."""

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
    """Checks the argument `arrays` of load()."""
    if kind not in KINDS:
        raise InputError(f"arrays: found {kind!r}, expected 'auto', 'numpy' or 'torch'")
    if kind == "torch" and torch_or_none() is None:
        raise InputError("arrays='torch': torch is not installed; pip install torch, or leave arrays out")
    return kind


def as_kind(array: Any, kind: str = "auto") -> Any:
    """Converts an array to the library chosen by load(arrays=...), without a copy.

    "auto" keeps NumPy arrays and converts GPU arrays to torch tensors if torch can use the GPU.
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
    """Converts weights, which are read-only views of the file. A torch tensor is a writable copy."""
    return torch_or_none().tensor(array) if kind == "torch" and array is not None else array


def is_torch(values: Any) -> bool:
    return hasattr(values, "detach")


def on_host(values: Any) -> np.ndarray:
    """Converts values on any device to a NumPy array."""
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
    """Converts values to the library, dtype and device of the reference."""
    if is_torch(reference):
        return values.to(reference) if is_torch(values) else reference.new_tensor(np.asarray(values))
    return np.asarray(on_host(values), dtype=reference.dtype)


def filled(reference: Any, shape: Sequence[int], value: float) -> Any:
    """Returns a new array of the library and device of the reference, filled with a value."""
    if is_torch(reference):
        return reference.new_full(tuple(shape), value)
    return np.full(tuple(shape), value, dtype=reference.dtype)


def stack(arrays: Sequence[Any]) -> Any:
    return torch_or_none().stack(list(arrays)) if is_torch(arrays[0]) else np.stack(arrays)


def concatenate(arrays: Sequence[Any]) -> Any:
    """Concatenates arrays along the first axis."""
    return torch_or_none().cat(list(arrays)) if is_torch(arrays[0]) else np.concatenate(arrays)


def moved(array: Any, axis: int, to: int) -> Any:
    return array.movedim(axis, to) if is_torch(array) else np.moveaxis(array, axis, to)


def dtype_of(values: Any) -> str:
    """Returns the dtype name without the prefix of torch: 'float32'."""
    return str(values.dtype).removeprefix("torch.")


def assign(array: Any, values: Any) -> None:
    """Copies values of the same shape and dtype into the array."""
    if isinstance(array, np.ndarray):
        array[...] = on_host(values)
    elif is_torch(array):
        array[...] = like(values, array)
    elif is_torch(values):
        array.assign(values.detach().contiguous())
    else:
        array.assign(values)
