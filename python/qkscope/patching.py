"""Activation patching: replaces one activation of a run by that of another run and measures the effect.

The functions have the names, arguments and axes of `patching` in TransformerLens; patches run in batches.

    clean_cache = model.cache(clean_tokens, "*hook_z")
    patching.get_act_patch_attn_head_out_all_pos(model, corrupted_tokens, clean_cache, metric)  # [layer, head]
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypedDict, overload

import numpy as np

from . import _options
from ._arrays import Array, like, on_host
from ._batch import Positions
from ._engine import InputError
from ._lazy_logits import LazyLogits
from ._progress import Bar
from ._reruns import BaseRun, clean_activations, hooks_by_layer

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .model import Model, Tokens

# Callbacks: metric(logits) returns a number; setter(corrupted, index, clean) edits or
# replaces `corrupted`, [batch, pos, ...].
Metric = Callable[[Any], Any]
PatchSetter = Callable[[Any, Sequence[int], Any], Any]

_KEY_ACTIVATIONS = ("k", "v", "k_normed", "rot_k")  # names of key heads


class PatchOptions(TypedDict, total=False):
    """Keyword arguments of all patching functions, for type checkers."""

    index_df: Any
    positions: Positions
    batch_size: int | None
    progress: bool | None


class PatchFunction(Protocol):
    """A patching function with fixed activation and axes: get_act_patch_resid_pre and the others."""

    __name__: str

    @overload
    def __call__(
        self, model: Model, corrupted_tokens: Tokens, clean_cache: Any, patching_metric: Metric, *,
        return_index_df: Literal[False] = ..., **options: Unpack[PatchOptions]
    ) -> np.ndarray: ...
    @overload
    def __call__(
        self, model: Model, corrupted_tokens: Tokens, clean_cache: Any, patching_metric: Metric, *,
        return_index_df: Literal[True], **options: Unpack[PatchOptions]
    ) -> tuple[np.ndarray, np.ndarray]: ...


@overload
def generic_activation_patch(
    model: Model, corrupted_tokens: Tokens, clean_cache: Any, patching_metric: Metric, patch_setter: PatchSetter,
    activation_name: str, index_axis_names: Sequence[str] | None = ..., *, return_index_df: Literal[False] = ...,
    **options: Unpack[PatchOptions]
) -> np.ndarray: ...
@overload
def generic_activation_patch(
    model: Model, corrupted_tokens: Tokens, clean_cache: Any, patching_metric: Metric, patch_setter: PatchSetter,
    activation_name: str, index_axis_names: Sequence[str] | None = ..., *, return_index_df: Literal[True],
    **options: Unpack[PatchOptions]
) -> tuple[np.ndarray, np.ndarray]: ...
@_options.checked
def generic_activation_patch(
    model: Model,
    corrupted_tokens: Tokens,
    clean_cache: Mapping[str, Array] | Any,
    patching_metric: Metric,
    patch_setter: PatchSetter,
    activation_name: str,
    index_axis_names: Sequence[str] | None = None,
    index_df: Any = None,
    return_index_df: bool = False,
    *,
    positions: Positions = None,
    batch_size: int | None = None,
    progress: bool | None = None,
) -> Any:
    """Returns the metric after each of many patches, as a float64 array with one dimension per axis.

    corrupted_tokens: a text, [pos] or [batch, pos]. clean_cache: cache of a run of tokens of the same
    shape, or those tokens. patching_metric: f(logits) -> number, with logits [batch, pos, d_vocab], or [pos, d_vocab]
    for one sequence, computed when the metric reads them; positions: only these logits. patch_setter:
    f(corrupted, index, clean), with activations [batch, pos, ...] (patterns [batch, head, query, key]), copies a part of
    `clean` into `corrupted`. activation_name: "resid_pre", "attn_out", "z", "q", "pattern", ...

    index_axis_names: some of "layer" (first), "pos", "head", "head_index", "src_pos", "dest_pos"; all combinations are
    patched. Or index_df: rows of indices, as a table or an array; the result is then flat. return_index_df: also return
    the rows as an array. batch_size: patches per batch. Layers without such an activation give NaN.
    """
    sweep = _Sweep(model, corrupted_tokens, clean_cache, activation_name, positions)
    if (index_axis_names is None) == (index_df is None):
        raise InputError("index_axis_names, index_df: expected one of the two")
    shape = None if index_axis_names is None else [sweep.axis(name) for name in index_axis_names]
    if not callable(patch_setter):
        raise InputError(f"patch_setter: found {patch_setter!r}, expected a function of (corrupted, index, clean)")
    index = _rows(index_df) if shape is None else _every(shape)
    if index.ndim != 2 or (len(index) and not 0 <= index[:, 0].min() <= index[:, 0].max() < model.cfg.n_layers):
        raise InputError(f"index_df: expected rows of indices, the first a layer from 0 to {model.cfg.n_layers - 1}")
    values = sweep.run(index, patch_setter, patching_metric, batch_size, progress)
    if shape is not None:
        values = values.reshape(shape)
    return (values, index) if return_index_df else values


class _Sweep(BaseRun):
    """Patches of one activation of a corrupted run."""

    def __init__(self, model: Model, tokens: Any, clean: Any, activation: str, positions: Positions):
        super().__init__(model, tokens, positions)
        self.activation = activation
        self.names = hooks_by_layer(model, activation)
        self.clean = clean_activations(model, clean, self.names.values(), self.ids.shape)

    def axis(self, name: str) -> int:
        cfg = self.model.cfg
        heads = cfg.n_key_value_heads if self.activation in _KEY_ACTIVATIONS else cfg.n_heads
        pos = self.ids.shape[1]
        sizes = {
            "layer": cfg.n_layers, "pos": pos, "head": heads, "head_index": heads, "src_pos": pos, "dest_pos": pos,
        }
        if name not in sizes:
            raise InputError(f"index_axis_names: found {name!r}, expected some of {', '.join(sizes)}")
        return sizes[name]

    def run(
        self, index: np.ndarray, setter: PatchSetter, metric: Metric, batch_size: int | None, progress: bool | None
    ) -> np.ndarray:
        values = np.full(len(index), np.nan)
        places = [i for i in range(len(index)) if int(index[i, 0]) in self.names]
        places.sort(key=lambda i: int(index[i, 0]))
        size = self.together(batch_size)
        with Bar(len(places), f"patching {self.activation}", progress) as bar:
            for begin in range(0, len(places), size):
                chunk = places[begin : begin + size]
                changes: list[tuple[int, Any]] = []
                for layer, cells in itertools.groupby([index[i] for i in chunk], lambda cell: int(cell[0])):
                    changes += self._patched(layer, list(cells), setter)
                for i, logits in zip(chunk, self.continued(changes)):
                    values[i] = measured(metric, logits)
                bar.to(begin + len(chunk))
        return values

    def _patched(self, layer: int, cells: list[np.ndarray], setter: PatchSetter) -> list[tuple[int, Any]]:
        """Returns the residual stream after each patch, and the layer before which it is."""
        name = self.names[layer]

        def patch(activation: Any, hook: Any = None) -> None:
            for copy, index in zip(copies(activation, len(cells)), cells):
                where = [int(i) for i in index]
                try:
                    patched = setter(copy, where, self.clean[name])
                except IndexError as error:
                    raise InputError(f"patching {self.activation}: index {where}: {error}") from None
                if patched is not None and patched is not copy:
                    _put(copy, patched)

        residual = self.copies_of(layer, len(cells))
        if self.activation == "resid_pre" and self.starts_anywhere:
            patch(residual)
        else:
            residual = self.model.run_with_hooks(
                residual, [(name, patch)], start_at_layer=layer, stop_at_layer=layer + 1)
            layer = self.layer_after(layer)
        return [(layer, copy) for copy in copies(residual, len(cells))]


def _put(activation: Any, patched: Any) -> None:
    """Copies the result of a setter into the activation."""
    try:
        if isinstance(patched, (str, bytes)):  # NumPy would broadcast a number
            raise TypeError
        activation[...] = like(patched, activation)
    except (TypeError, ValueError, RuntimeError):
        shape = getattr(patched, "shape", None)
        found = repr(patched) if shape is None else f"shape {list(shape)}"
        expected = f"the activation, of shape {list(activation.shape)}"
        raise InputError(f"patch_setter: it gave {found}, expected {expected}, or None where that was edited") from None


def measured(metric: Metric, logits: Any) -> float:
    if not callable(metric):
        raise InputError(f"metric: found {metric!r}, expected a function of the logits")
    try:
        value = metric(logits)
    except Exception:
        if type(logits) is not LazyLogits:
            raise
        value = metric(logits.filled())  # the metric needs an array, for example for torch.from_numpy
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError):
        found = f"shape {list(value.shape)}" if hasattr(value, "shape") else repr(value)
        raise InputError(f"metric: it gave {found}, expected a number for logits {list(logits.shape)}") from None


def copies(activation: Any, count: int) -> list[Any]:
    """Splits an activation of several copies of a batch into parts [batch, ...]."""
    batch = activation.shape[0] // count
    return [activation[i * batch : (i + 1) * batch] for i in range(count)]


def _rows(index: Any) -> np.ndarray:
    rows = on_host(index)
    if not np.issubdtype(rows.dtype, np.integer):
        raise InputError(f"index_df: found {rows.dtype}, expected rows of whole numbers")
    return rows.astype(np.int64)


def _every(shape: Sequence[int]) -> np.ndarray:
    return np.array(list(itertools.product(*map(range, shape))), dtype=np.int64).reshape(-1, len(shape))


# Setters, named as in TransformerLens.


def _setter(axes: str, place: Callable[[Sequence[int]], tuple[Any, ...]]) -> PatchSetter:
    """Returns a setter that copies clean[place(index)]; axes: meaning of the index."""

    def setter(corrupted: Any, index: Sequence[int], clean: Any) -> Any:
        corrupted[place(index)] = clean[place(index)]
        return corrupted

    setter.__doc__ = f"index: {axes}"
    return setter


_ALL = slice(None)
layer_pos_patch_setter = _setter("layer, position", lambda i: (_ALL, i[1]))
layer_pos_head_vector_patch_setter = _setter("layer, position, head", lambda i: (_ALL, i[1], i[2]))
layer_head_vector_patch_setter = _setter("layer, head", lambda i: (_ALL, _ALL, i[1]))
layer_head_pattern_patch_setter = _setter("layer, head", lambda i: (_ALL, i[1]))
layer_head_pos_pattern_patch_setter = _setter("layer, head, query", lambda i: (_ALL, i[1], i[2]))
layer_head_dest_src_pos_pattern_patch_setter = _setter("layer, head, query, key", lambda i: (_ALL, i[1], i[2], i[3]))


def _named(activation: str, axes: tuple[str, ...], setter: PatchSetter, what: str) -> PatchFunction:
    name = "out" if activation == "z" else activation
    if "head" in axes:
        where = "dest_src_pos" if "src_pos" in axes else "by_pos" if len(axes) == 3 else "all_pos"
        name = f"attn_head_{name}_{where}"

    def sweep(
        model: Model, corrupted_tokens: Tokens, clean_cache: Any, patching_metric: Metric, **options: Any
    ) -> Any:
        if "index_df" not in options:
            options["index_axis_names"] = axes
        return generic_activation_patch(
            model, corrupted_tokens, clean_cache, patching_metric, setter, activation, **options)

    sweep.__name__ = sweep.__qualname__ = f"get_act_patch_{name}"
    sweep.__doc__ = (
        f"The metric with {what} taken from the clean run: [{', '.join(axes)}].\n\n"
        "Arguments as generic_activation_patch(): positions, batch_size, index_df, return_index_df, progress by name."
    )
    return _options.checked(sweep)


_POS = ("layer", "pos")
_POS_HEAD = ("layer", "pos", "head")
_HEAD = ("layer", "head")

get_act_patch_resid_pre = _named("resid_pre", _POS, layer_pos_patch_setter, "the residual stream before a block")
get_act_patch_resid_mid = _named("resid_mid", _POS, layer_pos_patch_setter, "the residual stream after attention")
get_act_patch_attn_out = _named("attn_out", _POS, layer_pos_patch_setter, "the output of attention")
get_act_patch_mlp_out = _named("mlp_out", _POS, layer_pos_patch_setter, "the output of the MLP")
get_act_patch_attn_head_out_by_pos = _named("z", _POS_HEAD, layer_pos_head_vector_patch_setter, "the output of a head")
get_act_patch_attn_head_q_by_pos = _named("q", _POS_HEAD, layer_pos_head_vector_patch_setter, "the query of a head")
get_act_patch_attn_head_k_by_pos = _named("k", _POS_HEAD, layer_pos_head_vector_patch_setter, "the key of a head")
get_act_patch_attn_head_v_by_pos = _named("v", _POS_HEAD, layer_pos_head_vector_patch_setter, "the value of a head")
get_act_patch_attn_head_pattern_by_pos = _named(
    "pattern", ("layer", "head", "dest_pos"), layer_head_pos_pattern_patch_setter, "a query's row of the pattern"
)
get_act_patch_attn_head_pattern_dest_src_pos = _named(
    "pattern", ("layer", "head", "dest_pos", "src_pos"), layer_head_dest_src_pos_pattern_patch_setter,
    "one element of the pattern",
)
get_act_patch_attn_head_out_all_pos = _named("z", _HEAD, layer_head_vector_patch_setter, "the output of a head")
get_act_patch_attn_head_q_all_pos = _named("q", _HEAD, layer_head_vector_patch_setter, "the queries of a head")
get_act_patch_attn_head_k_all_pos = _named("k", _HEAD, layer_head_vector_patch_setter, "the keys of a head")
get_act_patch_attn_head_v_all_pos = _named("v", _HEAD, layer_head_vector_patch_setter, "the values of a head")
get_act_patch_attn_head_pattern_all_pos = _named(
    "pattern", _HEAD, layer_head_pattern_patch_setter, "the pattern of a head"
)


@_options.checked
def get_act_patch_attn_head_all_pos_every(
    model: Model, corrupted_tokens: Tokens, clean_cache: Any, metric: Metric, **options: Unpack[PatchOptions]
) -> np.ndarray:
    """[5, layer, head]: out, q, k, v and pattern, at all positions. With GQA, missing key heads are NaN."""
    sweeps = (
        get_act_patch_attn_head_out_all_pos, get_act_patch_attn_head_q_all_pos, get_act_patch_attn_head_k_all_pos,
        get_act_patch_attn_head_v_all_pos, get_act_patch_attn_head_pattern_all_pos,
    )
    return _stack([sweep(model, corrupted_tokens, clean_cache, metric, **options) for sweep in sweeps])


@_options.checked
def get_act_patch_attn_head_by_pos_every(
    model: Model, corrupted_tokens: Tokens, clean_cache: Any, metric: Metric, **options: Unpack[PatchOptions]
) -> np.ndarray:
    """[5, layer, pos, head]: out, q, k, v and pattern (by query). With GQA, missing key heads are NaN."""
    sweeps = (
        get_act_patch_attn_head_out_by_pos, get_act_patch_attn_head_q_by_pos, get_act_patch_attn_head_k_by_pos,
        get_act_patch_attn_head_v_by_pos,
    )
    found = [sweep(model, corrupted_tokens, clean_cache, metric, **options) for sweep in sweeps]
    pattern = get_act_patch_attn_head_pattern_by_pos(model, corrupted_tokens, clean_cache, metric, **options)
    return _stack([*found, pattern.transpose(0, 2, 1)])


@_options.checked
def get_act_patch_block_every(
    model: Model, corrupted_tokens: Tokens, clean_cache: Any, metric: Metric, **options: Unpack[PatchOptions]
) -> np.ndarray:
    """[3, layer, pos]: residual stream before a block, attention output, MLP output."""
    sweeps = (get_act_patch_resid_pre, get_act_patch_attn_out, get_act_patch_mlp_out)
    return _stack([sweep(model, corrupted_tokens, clean_cache, metric, **options) for sweep in sweeps])


def _stack(arrays: list[np.ndarray]) -> np.ndarray:
    """Stacks arrays; a shorter last dimension is padded with NaN."""
    stacked = np.full((len(arrays), *arrays[0].shape), np.nan)
    for i, array in enumerate(arrays):
        stacked[i, ..., : array.shape[-1]] = array
    return stacked
