"""The weights of a model in the shapes of TransformerLens.

Everything is float32 and read-only: a view into the mapped checkpoint where it stores float32, otherwise widened when
asked for. Biases and norms that a family does not have are None.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Optional

import numpy as np

from ._engine import Config, Error

MaybeArray = Optional[np.ndarray]


def _heads(weight: np.ndarray, d_head: int) -> np.ndarray:
    """[heads * d_head, d_model] -> [heads, d_model, d_head]"""
    return weight.reshape(-1, d_head, weight.shape[1]).transpose(0, 2, 1)


class ByLayer(Sequence):
    """Something of every layer or expert, made when it is asked for; np.stack makes one array of it."""

    def __init__(self, n_layers: int, get: Callable[[int], Any]):
        self._layers = range(n_layers)
        self._get = get

    def __len__(self) -> int:
        return len(self._layers)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self._get(layer) for layer in self._layers[index]]
        return self._get(self._layers[index])


class Norm:
    """w and b, both None where the family has no such norm; b is None where its norms add nothing."""

    def __init__(self, norm: Any):
        self.w: MaybeArray = norm.weight
        self.b: MaybeArray = norm.bias


class Attention:
    """Weights of one attention layer. Key and value heads are as the model stores them; expanded() repeats them."""

    def __init__(self, layer: Any, cfg: Config):
        self._layer = layer
        self._cfg = cfg

    @property
    def W_Q(self) -> np.ndarray:
        """[n_heads, d_model, d_head]"""
        return _heads(self._layer.q.weight, self._cfg.d_head)

    @property
    def W_K(self) -> np.ndarray:
        """[n_key_value_heads, d_model, d_head]"""
        return _heads(self._layer.k.weight, self._cfg.d_head)

    @property
    def W_V(self) -> np.ndarray:
        """[n_key_value_heads, d_model, d_head]"""
        return _heads(self._layer.v.weight, self._cfg.d_head)

    @property
    def W_O(self) -> np.ndarray:
        """[n_heads, d_head, d_model]"""
        weight = self._layer.o.weight
        return weight.T.reshape(self._cfg.n_heads, self._cfg.d_head, weight.shape[0])

    @property
    def b_Q(self) -> MaybeArray:
        """[n_heads, d_head]"""
        return self._bias(self._layer.q)

    @property
    def b_K(self) -> MaybeArray:
        """[n_key_value_heads, d_head]"""
        return self._bias(self._layer.k)

    @property
    def b_V(self) -> MaybeArray:
        """[n_key_value_heads, d_head]"""
        return self._bias(self._layer.v)

    @property
    def b_O(self) -> MaybeArray:
        """[d_model]"""
        return self._layer.o.bias

    @property
    def sinks(self) -> MaybeArray:
        """[n_heads] a score without a value that joins every softmax, or None"""
        return self._layer.sinks

    @property
    def q_norm(self) -> Norm:
        """w: [d_head], or [n_heads * d_head] where the norm runs over all heads together"""
        return Norm(self._layer.q_norm)

    @property
    def k_norm(self) -> Norm:
        """w: [d_head], or [n_key_value_heads * d_head]"""
        return Norm(self._layer.k_norm)

    def expanded(self, name: str) -> MaybeArray:
        """W_K, W_V, b_K or b_V with each head repeated for the query heads that share it: [n_heads, ...]."""
        if name not in ("W_K", "W_V", "b_K", "b_V"):
            raise Error(f"expanded: found {name!r}, expected W_K, W_V, b_K or b_V")
        array = getattr(self, name)
        return None if array is None else np.repeat(array, self._cfg.n_heads // self._cfg.n_key_value_heads, axis=0)

    def _bias(self, linear: Any) -> MaybeArray:
        return None if linear.bias is None else linear.bias.reshape(-1, self._cfg.d_head)


class Mlp:
    """Weights of one MLP, or of one of a mixture of experts."""

    def __init__(self, layer: Any):
        self._layer = layer

    @property
    def W_gate(self) -> MaybeArray:
        """[d_model, d_mlp], or None where the MLP has no gate"""
        weight = self._layer.gate.weight
        return None if weight is None else weight.T

    @property
    def W_in(self) -> np.ndarray:
        """[d_model, d_mlp]"""
        return self._layer.up.weight.T

    @property
    def W_out(self) -> np.ndarray:
        """[d_mlp, d_model]"""
        return self._layer.down.weight.T

    @property
    def b_gate(self) -> MaybeArray:
        """[d_mlp]"""
        return self._layer.gate.bias

    @property
    def b_in(self) -> MaybeArray:
        """[d_mlp]"""
        return self._layer.up.bias

    @property
    def b_out(self) -> MaybeArray:
        """[d_model]"""
        return self._layer.down.bias


class Experts:
    """Weights of a mixture of experts: W_gate and b_gate are the router's, and experts has an Mlp for each."""

    def __init__(self, layer: Any):
        self._layer = layer

    @property
    def W_gate(self) -> np.ndarray:
        """[d_model, n_experts]"""
        return self._layer.router.weight.T

    @property
    def b_gate(self) -> MaybeArray:
        """[n_experts]"""
        return self._layer.router.bias

    @property
    def experts(self) -> ByLayer:
        """By expert: W_gate, W_in, W_out and their biases."""
        return ByLayer(self._layer.n_experts, lambda expert: Mlp(self._layer.expert(expert)))

    def __getattr__(self, name: str) -> Any:
        if name in ("W_in", "W_out", "b_in", "b_out"):
            raise AttributeError(f"{name}: this MLP is a mixture of experts; ask experts[i].{name}")
        raise AttributeError(name)


class Block:
    """Weights of one block: ln1, attn, ln1_post, ln2, mlp, ln2_post. Norms that a family lacks have w = None."""

    def __init__(self, layer: Any, cfg: Config):
        self.attn = Attention(layer, cfg)
        self.mlp = Experts(layer) if layer.n_experts > 0 else Mlp(layer)
        self._layer = layer

    @property
    def ln1(self) -> Norm:
        return Norm(self._layer.input_norm)

    @property
    def ln1_post(self) -> Norm:
        return Norm(self._layer.post_attention_norm)

    @property
    def ln2(self) -> Norm:
        return Norm(self._layer.mlp_norm)

    @property
    def ln2_post(self) -> Norm:
        return Norm(self._layer.post_mlp_norm)
