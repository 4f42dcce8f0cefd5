"""Arrays of other libraries, on the host and on the GPU."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Union

import numpy as np

from ._engine import DeviceArray

if TYPE_CHECKING:
    import torch

# What activations come as: NumPy on the CPU. On CUDA torch tensors, or DeviceArray where there is no torch that can
# use the GPU; scores and patterns are NumPy there too.
Array = Union[np.ndarray, "torch.Tensor", DeviceArray]


@functools.cache
def _torch() -> Any:
    try:
        import torch
    except ImportError:
        return None
    return torch


def as_tensor(array: Any) -> Array:
    """A torch tensor of the same memory where torch can use it; otherwise, and for NumPy arrays, the array itself."""
    if not isinstance(array, DeviceArray):
        return array
    torch = _torch()
    if torch is None or (array.device != "cpu" and not torch.cuda.is_available()):
        return array
    return torch.from_dlpack(array)


def on_host(values: Any) -> np.ndarray:
    """As NumPy array, whatever GPU the values are on."""
    if hasattr(values, "detach"):  # torch
        values = values.detach().cpu()
    elif isinstance(values, DeviceArray):
        values = values.numpy()
    elif hasattr(values, "__cuda_array_interface__") and hasattr(values, "get"):  # CuPy
        values = values.get()
    return np.asarray(values)


def dtype_of(values: Any) -> str:
    """'float32', however the library spells it."""
    return str(values.dtype).removeprefix("torch.")


def assign(array: np.ndarray | DeviceArray, values: Any) -> None:
    """array = values, of the same shape and type."""
    if isinstance(array, np.ndarray):
        array[...] = on_host(values)
    elif hasattr(values, "detach"):  # torch
        array.assign(values.detach().contiguous())
    else:
        array.assign(values)
