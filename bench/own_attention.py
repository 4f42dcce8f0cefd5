"""Calls our Hopper attention on PyTorch tensors through build/bench/libattention_library.so (target attention_library)."""

import ctypes
from pathlib import Path

import torch

HEAD_DIM = 128
LIBRARY = Path(__file__).resolve().parent.parent / "build/bench/libattention_library.so"


def load():
    """Returns a function of q (batch, heads, tokens, 128), k and v (batch, key heads, tokens, 128) and the scale that
    computes z (batch, tokens, heads, 128); None if the library was not built or the GPU is not of the Hopper generation."""
    if not LIBRARY.exists() or not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0):
        return None
    function = ctypes.CDLL(str(LIBRARY)).qkscope_attention
    function.argtypes = [ctypes.c_void_p] * 4 + [ctypes.c_int] * 4 + [ctypes.c_float, ctypes.c_void_p]

    def attend(query, key, value, scale):
        q, k, v = (states.transpose(1, 2).contiguous() for states in (query, key, value))
        z = torch.empty_like(q)
        status = function(q.data_ptr(), k.data_ptr(), v.data_ptr(), z.data_ptr(), q.shape[0], q.shape[1], q.shape[2],
                          k.shape[2], scale, torch.cuda.current_stream().cuda_stream)
        if status != 0:
            raise RuntimeError(f"our attention kernel ended with CUDA error {status}")
        return z

    return attend
