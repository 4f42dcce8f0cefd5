"""ActivationCache: the result of cache() and run_with_cache()."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Union

import numpy as np

from . import _looks, _options, plot
from ._arrays import Array, as_kind, on_host, stack, torch_or_none
from ._batch import Batch, Positions
from ._engine import Error, InputError
from ._residual import ResidualMethods
from ._svg import Picture

# Key of an activation cache: a hook name, a short name ("embed", "q3"), or a tuple (short name, layer[, part]).
Key = Union[str, tuple[Any, ...]]

_IN_ATTENTION = (
    "q", "k", "v", "z", "rot_q", "rot_k", "q_normed", "k_normed", "result", "pattern", "attn_scores",
)
_IN_MLP = ("pre", "post", "pre_linear", "router_logits", "expert_indices", "expert_weights")
_SAME = {
    "attn": "pattern", "attn_logits": "attn_scores", "query": "q", "key": "k", "value": "v", "mlp_pre": "pre",
    "mlp_post": "post",
}
_PARTS = {"a": "attn", "attention": "attn", "m": "mlp", "b": "", "block": "", "blocks": ""}


class MissingActivation(InputError, KeyError):
    """The cache has no activation of this name."""

    __str__ = Exception.__str__


@_options.checked
def get_act_name(name: str, layer: int | None = None, part: str | None = None) -> str:
    """Returns the hook name of a short name: ("q", 3) is 'blocks.3.attn.hook_q', "embed" is 'hook_embed'.

    part: "attn", "mlp", "ln1" or "ln2", if the short name is ambiguous: ("normalized", 3, "ln1"). The name may contain
    layer and part: "q3", "scale4ln1".
    """
    if not isinstance(name, str):
        raise InputError(f"get_act_name: found {name!r}, expected a text")
    if layer is None and part is None:
        if "." in name or name.startswith("hook_") or name == "logits":
            return name
        if found := re.fullmatch(r"([a-z_]+?)(\d+)([a-z].*)?", name):
            name, layer, part = found[1], int(found[2]), found[3]
    name = _SAME.get(name, name)
    part = "attn" if name in _IN_ATTENTION else "mlp" if name in _IN_MLP else _PARTS.get(part or "", part or "")
    block = "" if layer is None else f"blocks.{layer}."
    if name in ("scale", "normalized") and layer is None:
        block = "ln_final."
    return f"{block}{part + '.' if part else ''}hook_{name}"


class ActivationCache(ResidualMethods, Mapping[str, Array]):
    """A mapping from hook names to activations, in order of firing, with methods that decompose the residual stream.

    Keys are hook names or short: cache["blocks.3.hook_resid_post"] is cache["resid_post", 3], cache["q", 0] the queries
    of layer 0, cache["pattern", -1] the last layer's pattern, cache["normalized", 2, "ln1"], cache["embed"]. With
    several sequences every array has a leading batch dimension (has_batch_dim).
    """

    def __init__(
        self, arrays: Mapping[str, Any], model: Any, has_batch_dim: bool, batch: Batch | None = None,
        positions: Positions = None
    ):
        """batch, positions: the texts of the cache and the positions that the arrays hold, for show_attention()."""
        self._arrays = dict(arrays)
        self.model = model
        self.has_batch_dim = has_batch_dim
        self._batch = batch
        self._positions: Positions = positions

    def __getitem__(self, key: Key) -> Array:
        name = self._name(key)
        if name not in self._arrays:
            raise MissingActivation(self._why_missing(name))
        return self._arrays[name]

    def __contains__(self, key: object) -> bool:
        try:
            return self._name(key) in self._arrays  # type: ignore[arg-type]
        except InputError:
            return False

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def __repr__(self) -> str:
        return _looks.cache_text(self._arrays, self.has_batch_dim)

    def _repr_html_(self) -> str:
        return _looks.cache_html(self._arrays, self.has_batch_dim)

    def _ipython_key_completions_(self) -> list[str]:
        return list(self._arrays)

    @_options.checked
    def show_attention(
        self, layer: int, heads: int | Iterable[int] | None = None, *, sequence: int = 0, scores: bool = False
    ) -> Picture:
        """Draws the attention patterns of some heads of a layer, with tokens as hover text.

        heads: a head, or several; None: all. sequence: index of the text in a batch. scores: draws "attn_scores", the
        scores before the softmax. See plot.attention().
        """
        array = on_host(self["attn_scores" if _options.flag("scores", scores) else "pattern", layer])
        number = _options.whole("sequence", sequence, 0, len(array) - 1 if self.has_batch_dim else 0)
        array = array[number] if self.has_batch_dim else array  # [head, query, key]
        chosen = list(range(len(array))) if heads is None else _options.layers("heads", heads)
        if any(head >= len(array) for head in chosen):
            raise InputError(f"heads: found {chosen}, expected 0 to {len(array) - 1}")
        layer = int(layer) + self.model.cfg.n_layers if layer < 0 else int(layer)
        labels = [f"L{layer}H{head}" for head in chosen]
        words = queries = None
        if self._batch is not None:
            ids = self._batch.sequences[number]
            queries = self._batch.positions(self._positions)[number]
            right = self._batch.padding_side == "right"
            array = array[:, : len(queries), : len(ids)] if right else array[:, -len(queries) :, -len(ids) :]
            words = self._words(ids)
        return plot.attention(array[chosen], words, queries=queries, labels=labels, title=f"attention of layer {layer}")

    def _words(self, ids: np.ndarray) -> list[str]:
        """Returns the text of each token, or its id if the model has no tokenizer."""
        try:
            return [self.model.to_single_str_token(int(token)) for token in ids]
        except Error:
            return [str(token) for token in ids]

    def _name(self, key: Key) -> str:
        parts = key if isinstance(key, tuple) else (key,)
        if not 1 <= len(parts) <= 3 or not isinstance(parts[0], str):
            raise InputError(f"cache: found the key {key!r}, expected a name or (name, layer[, part])")
        name = parts[0]
        layer, part = (*parts[1:], None, None)[:2]
        if layer is not None:
            if not isinstance(layer, (int, np.integer)):
                raise InputError(f"cache: found layer {layer!r} in the key {key!r}, expected a number")
            layer = int(layer) + self.model.cfg.n_layers if layer < 0 else int(layer)
        return get_act_name(name, layer, part)

    def _why_missing(self, name: str) -> str:
        """Explains a missing key: the activation was not recorded, or the name is no hook point."""
        try:
            self.model._engine.match_hooks([name])
        except InputError as error:
            return str(error)
        return f"{name} is not in this cache: it was not asked for when the model ran"

    # Conversion of the arrays

    def numpy(self) -> ActivationCache:
        """Returns a cache of NumPy arrays on the host."""
        arrays = {name: on_host(array) for name, array in self.items()}
        return ActivationCache(arrays, self.model, self.has_batch_dim, self._batch, self._positions)

    @_options.checked
    def to(self, device: Any) -> ActivationCache:
        """Moves this cache to torch tensors on a device ("cpu", "cuda", ...), or to NumPy arrays ("numpy")."""
        if isinstance(device, str) and device == "numpy":
            self._arrays = self.numpy()._arrays
            return self
        if torch_or_none() is None:
            raise InputError(f"cache.to({device!r}): torch is not installed; cache.numpy() gives NumPy arrays")
        self._arrays = {name: as_kind(array, "torch").to(device) for name, array in self.items()}
        return self

    # The batch dimension

    def remove_batch_dim(self) -> ActivationCache:
        """Removes the batch dimension, which must be 1, from this cache. A cache of one sequence has none."""
        if self.has_batch_dim:
            sequences = {len(array) for array in self.values()}
            if sequences - {1}:
                raise InputError(f"remove_batch_dim: the cache has {max(sequences)} sequences, expected one")
            self._arrays = {name: array[0] for name, array in self.items()}
            self.has_batch_dim = False
        return self

    @_options.checked
    def apply_slice_to_batch_dim(self, batch_slice: Any) -> ActivationCache:
        """Returns a cache of some sequences: an index (removes the dimension), a slice, (start, stop) or a list."""
        if not self.has_batch_dim:
            raise InputError("apply_slice_to_batch_dim: the cache has no batch dimension")
        chosen = {name: self._sliced(array, batch_slice, 0, "batch_slice") for name, array in self.items()}
        batch = self._batch
        if batch is not None:
            kept = np.atleast_1d(self._sliced(np.arange(len(batch.sequences)), batch_slice, 0, "batch_slice"))
            batch = Batch([batch.sequences[i] for i in kept], batch.batched, batch.padding_side)
        return ActivationCache(
            chosen, self.model, not isinstance(batch_slice, (int, np.integer)), batch, self._positions)

    @_options.checked
    def stack_activation(self, activation_name: str, layer: int = -1, sublayer_type: str | None = None) -> Array:
        """Stacks one activation of all layers below `layer` (-1: all), [layer, ...]: stack_activation("pattern")."""
        return stack([self._at((activation_name, i, sublayer_type)) for i in self._layers(self._upto(layer))])
