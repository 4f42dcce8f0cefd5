"""Contributions of heads, neurons and biases to the residual stream, and the effect of norms on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Union

import numpy as np

from . import _options
from ._arrays import concatenate, filled, like, on_host, stack
from ._engine import DeviceArray, InputError

# Selection along a dimension: None, an index (removes the dimension), (stop,), (start, stop), (start, stop, step), a
# slice or a list.
SliceInput = Union[int, tuple[Any, ...], slice, Sequence[int], None]

LARGEST = 16 << 30  # bytes; limit of the size of a stack


class Contributions:
    """Private methods of ActivationCache."""

    model: Any
    has_batch_dim: bool

    def _at(self, key: Any, pos_slice: SliceInput = None, axis: int = -2) -> Any:
        array = self[key]  # type: ignore[index]
        array = array.numpy() if isinstance(array, DeviceArray) else array
        return self._sliced(array, pos_slice, axis, "pos_slice")

    def _sliced(self, array: Any, chosen: SliceInput, axis: int, argument: str) -> Any:
        """Slices one axis of an array."""
        if chosen is None:
            return array
        index: list[Any] = [slice(None)] * array.ndim
        if isinstance(chosen, tuple):
            index[axis] = slice(*chosen)
        else:
            index[axis] = chosen if isinstance(chosen, (int, np.integer, slice)) else on_host(chosen)
        try:
            return array[tuple(index)]
        except (IndexError, TypeError):
            raise InputError(
                f"{argument}: found {chosen!r}, expected numbers below {array.shape[axis]}: one, (start, stop), a "
                "slice or a list") from None

    def _upto(self, layer: int | None, mlp_input: bool = False) -> int:
        n_layers = self.model.cfg.n_layers
        upto = -1 if layer is None else layer
        if not isinstance(upto, (int, np.integer)) or not -1 <= upto <= n_layers:
            raise InputError(f"layer: found {layer!r}, expected 0 to {n_layers}, or -1 or None for all layers")
        upto = n_layers if upto == -1 else int(upto)
        if _options.flag("mlp_input", mlp_input) and upto == n_layers:
            raise InputError(f"mlp_input=True: layer {upto} is the unembedding, expected one below it")
        return upto

    def _layers(self, upto: int) -> list[int]:
        """Returns the layers below `upto` that run; cross-attention layers are skipped."""
        every = set(self.model.hook_names())
        return [i for i in range(upto) if f"blocks.{i}.hook_resid_pre" in every]

    def _refuse_mixers(self, call: str) -> None:
        """Raises InputError if some layers have another mixer than attention or multiply the residual stream."""
        if self.model.cfg.family == "gemma4_text":
            raise InputError(
                f"{call}: {self.model.cfg.family} adds per-layer inputs and multiplies the residual stream after each layer, "
                "which this call does not support; read hook_attn_out, hook_mlp_out and hook_per_layer_out")
        if any(name.endswith("mixer.hook_out") for name in self.model.hook_names()):
            raise InputError(
                f"{call}: {self.model.cfg.family} has layers without attention, or with another mixer beside it, which "
                "this call does not support; read mixer.hook_out")

    def _embeddings(self) -> list[Any]:
        return [key for key in ("hook_embed", "hook_pos_embed") if key in self.model.hook_names()]

    def _stream(self, layer: int, mlp_input: bool, pos_slice: SliceInput) -> Any:
        """Returns the residual stream before a layer, before its MLP, or before the final norm."""
        if layer == self.model.cfg.n_layers:
            return self._at(("resid_post", self._layers(layer)[-1]), pos_slice)
        parallel = self.model.cfg.parallel_attn_mlp
        return self._at(("resid_mid" if mlp_input and not parallel else "resid_pre", layer), pos_slice)

    def _norm(self, layer: int, mlp_input: bool) -> Any:
        """Returns the norm before the attention or MLP of a layer, or the final norm."""
        if layer == self.model.cfg.n_layers:
            return self.model.ln_final
        block = self.model.blocks[layer]
        norm = block.ln2 if mlp_input else block.ln1
        if norm.w is None:
            part = "MLP" if mlp_input else "attention"
            raise InputError(
                f"apply_ln: layer {layer} has no norm before its {part}: this family normalises what {part} adds. "
                "Leave apply_ln out, or apply the final norm")
        return norm

    def _scale(self, layer: int, mlp_input: bool, pos_slice: SliceInput) -> Any:
        """Returns the divisor of the norm before a layer, [..., 1]."""
        return self._scale_of(self._stream(layer, mlp_input, pos_slice))

    def _centred(self, stream: Any) -> Any:
        layer_norm = self.model.cfg.normalization_type == "LN"
        return stream - stream.mean(-1, keepdims=True) if layer_norm else stream

    def _scale_of(self, stream: Any) -> Any:
        return ((self._centred(stream) ** 2).mean(-1, keepdims=True) + self.model.cfg.eps) ** 0.5

    def _read_by(self, layer: int, mlp_input: bool, project: Any) -> Any:
        """Folds the norm into the directions `project`: stream @ result / scale equals normalised stream @ project."""
        if project is None:
            return None
        weighed = on_host(self._norm(layer, mlp_input).w)[:, None] * on_host(project)
        layer_norm = self.model.cfg.normalization_type == "LN"
        return weighed - weighed.mean(0, keepdims=True) if layer_norm else weighed

    def _head_results(self, layer: int, pos_slice: SliceInput) -> Any:
        """Returns the output of each head, [head, ..., d_model]."""
        z = self._at(("z", layer), pos_slice, axis=-3)
        W_O = like(self.model.blocks[layer].attn.W_O, z)
        results = stack([z[..., head, :] @ W_O[head] for head in range(len(W_O))])
        return results * self._passed_on(layer, "attn", pos_slice)

    def _neurons(self, layer: int, neuron_slice: SliceInput, pos_slice: SliceInput, project: Any) -> Any:
        """Returns the output of each neuron, [..., neuron, d_model], or projected, [..., neuron, directions]."""
        post = self._sliced(self._at(("post", layer), pos_slice), neuron_slice, -1, "neuron_slice")
        W_out = getattr(self.model.blocks[layer].mlp, "W_out", None)
        if W_out is None:
            raise InputError(
                f"layer {layer} has a mixture of experts, whose neurons differ from position to position: take what "
                "its MLP adds as a whole (expand_neurons=False, decompose_resid)")
        W_out = self._sliced(like(W_out, post), neuron_slice, 0, "neuron_slice")
        passed = self._passed_on(layer, "mlp", pos_slice)
        if isinstance(passed, float):
            return post[..., None] * (W_out * passed if project is None else W_out @ like(project, W_out) * passed)
        if project is None:
            return post[..., None] * W_out * passed[..., None, :]
        # The norm scale depends on position and dimension, so it must be applied before the projection.
        return post[..., None] * (W_out * passed[..., None, :] @ like(project, W_out))

    def _passed_on(self, layer: int, part: str, pos_slice: SliceInput) -> Any:
        """Returns the factor by which attention or MLP outputs are scaled before the residual stream.

        A number, or [..., d_model] if a norm follows attention or MLP.
        """
        block, factor = self.model.blocks[layer], float(self.model.cfg.residual_scale)
        norm = block.ln1_post if part == "attn" else block.ln2_post
        if norm.w is None:
            return factor
        if part == "attn":
            if f"blocks.{layer}.attn.hook_result" not in self.model.hook_names(on_request=True):
                raise InputError(f"{self.model.cfg.family} multiplies the outputs of heads by a gate: the contributions of "
                                 "single heads are not available; take hook_attn_out")
            inner = self._at(("z", layer), pos_slice, axis=-3)
            inner, weight, bias = inner.reshape(*inner.shape[:-2], -1), block.attn.W_O, block.attn.b_O
        else:
            inner, weight, bias = self._at(("post", layer), pos_slice), block.mlp.W_out, block.mlp.b_out
        added = inner @ like(weight, inner).reshape(inner.shape[-1], -1)
        added = (added if bias is None else added + like(bias, added)) * factor
        return like(norm.w, added) * factor / self._scale_of(added)

    def _biases(self, layer: int, mlp_input: bool, of_mlps: bool, pos_slice: SliceInput) -> Any:
        """Returns the sum of all biases in the residual stream, [..., d_model]."""
        stream = self._at(("resid_pre", 0), pos_slice)
        total = filled(stream, stream.shape, 0.0)
        for i in self._layers(layer + (1 if mlp_input else 0)):
            block = self.model.blocks[i]
            biases = {"attn": block.attn.b_O, "mlp": block.mlp.b_out if of_mlps and i < layer else None}
            for part, bias in biases.items():
                if bias is not None:
                    total = total + like(bias, total) * self._passed_on(i, part, pos_slice)
        return total

    def _with_remainder(self, components: Any, whole: Any) -> Any:
        return concatenate([components, (whole - components.sum(0))[None]])

    def _none(self, pos_slice: SliceInput, width: int | None = None) -> Any:
        """Returns an empty stack, [0, ..., d_model]."""
        stream = self._at(("resid_pre", 0), pos_slice)
        return filled(stream, (0, *stream.shape[:-1], width or stream.shape[-1]), 0.0)

    def _check_size(self, function: str, components: int, key: Any, pos_slice: SliceInput) -> None:
        """Raises InputError for stacks above LARGEST bytes. key: an activation with the same positions."""
        if not components:
            return
        rows = int(np.prod(self._at(key, pos_slice).shape[:-1]))
        needed = components * rows * self.model.cfg.d_model * 4
        if needed > LARGEST:
            raise InputError(
                f"{function}: {components} vectors at {rows} positions take {needed / 2**30:.1f} GiB, more than "
                f"{LARGEST >> 30}; choose positions with pos_slice, and of neurons some or project_output_onto")


def projection(directions: Any, d_model: int) -> tuple[Any, bool]:
    """Returns directions [d_model, n], and whether a single direction [d_model] was given."""
    if directions is None:
        return None, False
    shape = list(getattr(directions, "shape", ()))
    if len(shape) not in (1, 2) or shape[0] != d_model:
        raise InputError(f"project_output_onto: found shape {shape}, expected [{d_model}] or [{d_model}, n]")
    return (directions[:, None], True) if len(shape) == 1 else (directions, False)
