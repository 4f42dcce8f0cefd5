"""The weights of a model in the shapes of TransformerLens.

All weights are read-only float32: a view of the mapped checkpoint if it stores float32, otherwise converted on access.
Biases and norms that a family does not have are None.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, Optional, TypeVar, overload

import numpy as np

from . import _options
from ._arrays import Array, LayerList, weights_as_kind
from ._engine import Config, InputError
from ._engine import Model as Engine
from ._factored import FactoredMatrix

T = TypeVar("T")
MaybeArray = Optional[np.ndarray]
Shown = Callable[[MaybeArray], Any]  # converts a weight to the library chosen by load(arrays=...)


def _heads(weight: np.ndarray, d_head: int) -> np.ndarray:
    """Reshapes [heads * d_head, d_model] to [heads, d_model, d_head]."""
    return weight.reshape(-1, d_head, weight.shape[1]).transpose(0, 2, 1)


def _transposed(weight: MaybeArray) -> MaybeArray:
    return None if weight is None else weight.T


def _shapes(weights: dict[str, Any]) -> str:
    """Lists names and shapes of the existing weights: "w [128], b [128]"."""
    return ", ".join(f"{name} {list(weight.shape)}" for name, weight in weights.items() if weight is not None)


# The functions below return properties, but their annotations give the type of the value, for type checkers.


def _weight(get: Callable[[Any], MaybeArray], shape: str) -> Array:
    """A property that converts a weight to the library chosen by load(arrays=...)."""
    return property(lambda self: self._shown(get(self)), doc=shape)  # type: ignore[return-value]


def _maybe(get: Callable[[Any], MaybeArray], shape: str) -> Array | None:
    """As _weight(), for a weight that some families do not have."""
    return _weight(get, shape)


def _each_layer(name: str, shape: str) -> ByLayer[Array]:
    """A property of Model with one weight per layer; name: "attn.W_Q"."""
    get = operator.attrgetter(name)
    return property(  # type: ignore[return-value]
        lambda self: ByLayer(self.cfg.n_layers, lambda layer: get(self.blocks[layer]), f"layers of {name}, {shape}"),
        doc=f"By layer: {shape}")


def _maybe_each_layer(name: str, shape: str) -> ByLayer[Array | None]:
    """As _each_layer(), for weights that some families do not have."""
    return _each_layer(name, shape)  # type: ignore[return-value]


class ByLayer(Sequence[T]):
    """A sequence with one lazily built value per layer or expert; np.stack makes one array.

    W_Q[2] is the value of layer 2, W_Q[2, 5] that of head 5 in layer 2.
    """

    def __init__(self, n_layers: int, get: Callable[[int], T], what: str = "layers"):
        self._layers = LayerList(range(n_layers))
        self._get = get
        self._what = what

    def __len__(self) -> int:
        return len(self._layers)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    @overload
    def __getitem__(self, index: tuple[Any, ...]) -> Array: ...
    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, tuple):
            return self._get(self._layers[index[0]])[index[1:]]  # type: ignore[index]
        if isinstance(index, slice):
            return [self._get(layer) for layer in self._layers[index]]
        return self._get(self._layers[index])

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of np.stack of the values, if each has the shape of the first."""
        return (len(self), *self._get(0).shape)  # type: ignore[attr-defined]

    def __repr__(self) -> str:
        return f"<{len(self)} {self._what}>"


class Norm:
    """Weight w and bias b of a norm. Both are None if the family has no such norm; b is None for RMSNorm."""

    def __init__(self, norm: Any, shown: Shown):
        self.w: Array | None = shown(norm.weight)
        self.b: Array | None = shown(norm.bias)

    def __repr__(self) -> str:
        return f"Norm({_shapes({'w': self.w, 'b': self.b})})"


class Attention:
    """Weights of one attention layer. Key and value heads are not repeated for GQA; see expanded()."""

    def __init__(self, layer: Any, cfg: Config, shown: Shown):
        self._layer = layer
        self._cfg = cfg
        self._shown = shown

    W_Q = _weight(lambda self: self._input_heads(self._layer.q), "[n_heads, d_model, d_head]")
    W_K = _weight(lambda self: self._input_heads(self._layer.k), "[n_key_value_heads, d_model, d_head]")
    W_V = _weight(lambda self: self._input_heads(self._layer.v), "[n_key_value_heads, d_model, d_head]")
    W_O = _weight(lambda self: self._layer.o.weight.T.reshape(self._cfg.n_heads, -1, self._cfg.d_model),
                  "[n_heads, d_head, d_model]")
    b_Q = _maybe(lambda self: self._by_head(self._layer.q.bias), "[n_heads, d_head], or None")
    b_K = _maybe(lambda self: self._by_head(self._layer.k.bias), "[n_key_value_heads, d_head], or None")
    b_V = _maybe(lambda self: self._by_head(self._layer.v.bias), "[n_key_value_heads, d_head], or None")
    b_O = _maybe(lambda self: self._layer.o.bias, "[d_model], or None")
    sinks = _maybe(lambda self: self._layer.sinks,
                    "[n_heads]: learned attention sink, a score without a value in every softmax, or None")

    @property
    def q_norm(self) -> Norm:
        """w: [d_head], or [n_heads * d_head] if the norm covers all heads together"""
        return Norm(self._layer.q_norm, self._shown)

    @property
    def k_norm(self) -> Norm:
        """w: [d_head], or [n_key_value_heads * d_head]"""
        return Norm(self._layer.k_norm, self._shown)

    @_options.checked
    def expanded(self, name: str) -> Array | None:
        """Returns W_K, W_V, b_K or b_V with each head repeated for its group of query heads (GQA): [n_heads, ...]."""
        if not isinstance(name, str) or name not in ("W_K", "W_V", "b_K", "b_V"):
            raise InputError(f"expanded: found {name!r}, expected W_K, W_V, b_K or b_V")
        array = getattr(self, name)
        return None if array is None else self._repeated(array)

    def _input_heads(self, linear: Any) -> np.ndarray:
        if self._cfg.latent_ranks is not None:
            raise InputError(f"{self._cfg.family} projects q, k and v from normalised latents: W_Q, W_K and W_V are no single "
                             "matrices; take hook_q, hook_k, hook_v and hook_kv_latent")
        if linear.weight is None:
            raise InputError(f"this layer of {self._cfg.family} uses the keys and values of an earlier layer and has no W_K and "
                             "W_V of its own")
        return _heads(linear.weight, self._d_head)

    @property
    def _d_head(self) -> int:
        """Width of a head, which may differ by layer."""
        return int(self._layer.q.weight.shape[0]) // self._cfg.n_heads

    def __repr__(self) -> str:
        cfg = self._cfg
        if cfg.latent_ranks is not None:
            return f"Attention(latents {list(cfg.latent_ranks)}, W_O [{cfg.n_heads}, {cfg.d_value}, {cfg.d_model}])"
        d_head = self._d_head
        keys = self._layer.k.weight
        of_keys = "of an earlier layer" if keys is None else f"[{keys.shape[0] // d_head}, {cfg.d_model}, {d_head}]"
        biases = {"b_Q": self.b_Q, "b_K": self.b_K, "b_V": self.b_V, "b_O": self.b_O, "sinks": self.sinks}
        matrices = [
            f"W_Q [{cfg.n_heads}, {cfg.d_model}, {d_head}]", f"W_K {of_keys}", f"W_V {of_keys}",
            f"W_O [{cfg.n_heads}, {d_head}, {cfg.d_model}]", *filter(None, [_shapes(biases)]),
        ]
        return f"Attention({', '.join(matrices)})"

    def _repeated(self, array: Array) -> Array:
        groups = self._cfg.n_heads // len(array)
        # GQA: consecutive query heads share a key head, so the indices are [0, 0, 0, 1, 1, 1, ...].
        return array[np.arange(self._cfg.n_heads) // groups]

    @property
    def QK(self) -> FactoredMatrix:
        """W_Q W_K^T by head, [n_heads, d_model, d_model]"""
        return FactoredMatrix(self.W_Q, self._repeated(self.W_K).swapaxes(-1, -2))

    @property
    def OV(self) -> FactoredMatrix:
        """W_V W_O by head, [n_heads, d_model, d_model]"""
        return FactoredMatrix(self._repeated(self.W_V), self.W_O)

    def _by_head(self, bias: MaybeArray) -> MaybeArray:
        return None if bias is None else bias.reshape(-1, self._d_head)


class Mlp:
    """Weights of one MLP, or of one expert of a mixture of experts."""

    def __init__(self, layer: Any, shown: Shown):
        self._layer = layer
        self._shown = shown

    W_gate = _maybe(lambda self: _transposed(self._layer.gate.weight), "[d_model, d_mlp], or None without a gate")
    W_in = _weight(lambda self: self._layer.up.weight.T, "[d_model, d_mlp]")
    W_out = _weight(lambda self: self._layer.down.weight.T, "[d_mlp, d_model]")
    b_gate = _maybe(lambda self: self._layer.gate.bias, "[d_mlp], or None")
    b_in = _maybe(lambda self: self._layer.up.bias, "[d_mlp], or None")
    b_out = _maybe(lambda self: self._layer.down.bias, "[d_model], or None")

    def __repr__(self) -> str:
        named = {"W_gate": self.W_gate, "W_in": self.W_in, "W_out": self.W_out}
        return f"Mlp({_shapes({**named, 'b_gate': self.b_gate, 'b_in': self.b_in, 'b_out': self.b_out})})"


class Experts:
    """Weights of a mixture of experts: W_gate and b_gate belong to the router; experts has one Mlp per expert."""

    def __init__(self, layer: Any, shown: Shown):
        self._layer = layer
        self._shown = shown

    W_gate = _weight(lambda self: self._layer.router.weight.T, "[d_model, n_experts]")
    b_gate = _maybe(lambda self: self._layer.router.bias, "[n_experts], or None")

    @property
    def experts(self) -> ByLayer[Mlp]:
        """One Mlp per expert: W_gate, W_in, W_out and biases."""
        return ByLayer(self._layer.n_experts, lambda i: Mlp(self._layer.expert(i), self._shown), "experts")

    def __repr__(self) -> str:
        return f"Experts({_shapes({'W_gate': self.W_gate, 'b_gate': self.b_gate})}, experts={self.experts!r})"

    def __getattr__(self, name: str) -> NoReturn:
        if name in ("W_in", "W_out", "b_in", "b_out"):
            raise AttributeError(f"{name}: this MLP is a mixture of experts; ask experts[i].{name}")
        raise AttributeError(name)


class Block:
    """Weights of one block: ln1, attn, ln1_post, ln2, mlp, ln2_post. Missing norms have w = None."""

    def __init__(self, layer: Any, cfg: Config, shown: Shown):
        self.attn = Attention(layer, cfg, shown)
        self.mlp: Mlp | Experts = Experts(layer, shown) if layer.n_experts > 0 else Mlp(layer, shown)
        self._layer = layer
        self._shown = shown

    def __repr__(self) -> str:
        norms = {"ln1": self.ln1, "ln1_post": self.ln1_post, "ln2": self.ln2, "ln2_post": self.ln2_post}
        present = ", ".join(f"{name}={norm!r}" for name, norm in norms.items() if norm.w is not None)
        return f"Block({present}{', ' if present else ''}attn={self.attn!r}, mlp={self.mlp!r})"

    @property
    def ln1(self) -> Norm:
        return Norm(self._layer.input_norm, self._shown)

    @property
    def ln1_post(self) -> Norm:
        return Norm(self._layer.post_attention_norm, self._shown)

    @property
    def ln2(self) -> Norm:
        return Norm(self._layer.mlp_norm, self._shown)

    @property
    def ln2_post(self) -> Norm:
        return Norm(self._layer.post_mlp_norm, self._shown)


class WeightMethods:
    """Properties of Model for its weights."""

    _engine: Engine
    arrays: str

    @property
    def cfg(self) -> Config:
        """n_layers, n_heads, n_key_value_heads, d_model, d_head, d_mlp, d_vocab, n_ctx, rope, ..."""
        return self._engine.config

    def _shown(self, weight: MaybeArray) -> Any:
        return weights_as_kind(weight, self.arrays)

    @property
    def blocks(self) -> ByLayer[Block]:
        """Block by layer: ln1, attn, ln2, mlp."""
        weights = self._engine.weights
        return ByLayer(self.cfg.n_layers, lambda layer: Block(weights.layer(layer), self.cfg, self._shown), "blocks")

    W_Q = _each_layer("attn.W_Q", "[n_heads, d_model, d_head]")
    W_K = _each_layer("attn.W_K", "[n_key_value_heads, d_model, d_head]")
    W_V = _each_layer("attn.W_V", "[n_key_value_heads, d_model, d_head]")
    W_O = _each_layer("attn.W_O", "[n_heads, d_head, d_model]")
    W_gate = _maybe_each_layer("mlp.W_gate", "[d_model, d_mlp], or None without a gate; of the router with experts")
    W_in = _each_layer("mlp.W_in", "[d_model, d_mlp]")
    W_out = _each_layer("mlp.W_out", "[d_mlp, d_model]")
    b_Q = _maybe_each_layer("attn.b_Q", "[n_heads, d_head], or None")
    b_K = _maybe_each_layer("attn.b_K", "[n_key_value_heads, d_head], or None")
    b_V = _maybe_each_layer("attn.b_V", "[n_key_value_heads, d_head], or None")
    b_O = _maybe_each_layer("attn.b_O", "[d_model], or None")
    b_in = _maybe_each_layer("mlp.b_in", "[d_mlp], or None")
    b_out = _maybe_each_layer("mlp.b_out", "[d_model], or None")
    W_E = _weight(lambda self: self._engine.weights.embedding, "[d_vocab, d_model]; some families have additional rows")
    W_pos = _maybe(lambda self: self._engine.weights.positions, "[n_ctx, d_model], or None without learned positions")
    W_U = _weight(lambda self: self._engine.weights.head.weight.T, "[d_model, d_vocab]")
    b_U = _maybe(lambda self: self._engine.weights.head.bias, "[d_vocab], a bias that folding created, or None")

    @property
    def ln_final(self) -> Norm:
        """Final norm: w [d_model], and b for LayerNorm"""
        return Norm(self._engine.weights.final_norm, self._shown)
