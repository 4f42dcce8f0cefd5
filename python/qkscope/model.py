"""Model: forward passes, losses, caches and hooks."""

from __future__ import annotations

import contextlib
import json
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Literal, overload

import numpy as np

from . import _engine, _hooks, _looks, _options
from ._arrays import Array, check_kind, is_torch
from ._batch import Batch, Positions, Tokens as Tokens, batch_of_ids
from ._cache import ActivationCache
from ._calls import Call, Pass, RunOptions, Start, output
from ._circuits import CircuitMethods
from ._engine import InputError
from ._generate import GenerateMethods
from ._hooks import Added, FwdHook, Functions, HookFunction, NamesFilter
from ._tokens import is_texts

if TYPE_CHECKING:
    from typing_extensions import Unpack

OneValue = Literal["logits", "loss"]


@_options.checked
def load(
    name_or_path: str | PathLike[str],
    revision: str | None = None,
    device: str = "auto",
    dtype: str | None = None,
    fold_norms: bool = False,
    config_overrides: Mapping[str, Any] | None = None,
    *,
    arrays: str = "auto",
    fold_ln: bool = False,
    center_writing_weights: bool = False,
    center_unembed: bool = False,
    fold_value_biases: bool = False,
) -> Model:
    """Loads a checkpoint folder, a GGUF file, or a model id; missing files of a model id are downloaded.

    device: "auto" (a GPU if this build can use one), "cpu", "cuda" or "cuda:N". dtype: the type that the GPU computes
    in, "float32", "bfloat16" or "float16"; None: the type of the checkpoint if it has 16 bits, else float32. The CPU
    computes in float32. Activations are always float32 arrays.

    arrays: type of the activations. "auto": NumPy on the CPU and torch tensors on the GPU; "torch": torch tensors on
    the CPU too, sharing memory without a copy; "numpy": NumPy arrays on the host for every device.

    Weights stay in the memory-mapped file; a GPU gets a copy. They can be rewritten as in TransformerLens, which keeps
    probabilities up to rounding; rewritings that a family does not allow raise InputError.

    fold_ln (also: fold_norms) moves the weights of the norms before attention, MLP and output into the next matrices;
    `ln1.hook_normalized` is then the vector before those weights, and matrices after a LayerNorm are centred.
    center_writing_weights (LayerNorm only) removes the mean from all writes to the residual stream. center_unembed
    subtracts the mean over the vocabulary from the logits. fold_value_biases moves b_V into b_O. config_overrides are
    merged into config.json.
    """
    kind = check_kind(arrays)
    chosen = _engine.choose_device(str(device))
    wanted = _dtype_name(dtype)
    if chosen == "cpu" and wanted not in ("", "float32"):
        warnings.warn(f"dtype={wanted!r}: the CPU computes in float32", stacklevel=3)  # the caller of load()
    folder = _engine.fetch_checkpoint(_options.path("name_or_path", name_or_path), _options.text("revision", revision or ""))
    if not isinstance(config_overrides, (Mapping, type(None))):
        raise InputError(f"config_overrides={config_overrides!r}: expected a mapping of keys of config.json")
    overrides = json.dumps(dict(config_overrides or {}))
    rewriting = _engine.Rewriting()
    rewriting.fold_norms = _options.flag("fold_norms", fold_norms) or _options.flag("fold_ln", fold_ln)
    rewriting.center_writing_weights = _options.flag("center_writing_weights", center_writing_weights)
    rewriting.center_unembed = _options.flag("center_unembed", center_unembed)
    rewriting.fold_value_biases = _options.flag("fold_value_biases", fold_value_biases)
    return Model(_engine.load_model(folder, overrides, rewriting, chosen, wanted), folder, kind)


@_options.checked
def set_threads(count: int) -> None:
    """Sets the number of threads; 0: one per core."""
    _engine.set_threads(_options.whole("count", count, 0, 4096))


def _dtype_name(dtype: Any) -> str:
    """Returns the name of a dtype given as text or torch.dtype; "" for None."""
    name = "" if dtype is None else str(dtype).removeprefix("torch.")
    if name not in ("", "float32", "float16", "bfloat16"):
        raise InputError(f"dtype={name!r}: expected 'float32', 'float16' or 'bfloat16'")
    return name


class Model(CircuitMethods, GenerateMethods, _options.ModelType):
    """A loaded model. Arrays are float32; with several sequences they have a leading batch dimension.

    On the CPU, arrays are NumPy arrays, or torch tensors with load(arrays="torch"). On CUDA, they are torch tensors on
    the GPU, or without torch DeviceArray, which other libraries import through DLPack; attention scores and patterns
    are on the host.

    Tokens are a text, ids [pos] or [batch, pos], or a list of texts or of id sequences of any length. Each sequence of
    a batch gives the same bits as alone; shorter ones are padded with NaN on the padding_side. prepend_bos: as in
    to_tokens().
    """

    def __init__(self, engine: _engine.Model, folder: str, arrays: str = "auto"):
        self._engine = engine
        self._tokenizer: _engine.Tokenizer | None = None
        self._added: list[Added] = []
        self.folder = folder
        self.arrays = arrays
        if arrays == "numpy":
            engine.keeps_on_device = False

    def __repr__(self) -> str:
        name = f"{type(self).__name__}({Path(self.folder).name!r}"
        return f"{name}, {self.cfg!r}, device={self.device!r}, dtype={self.dtype!r})"

    def _repr_html_(self) -> str:
        return _looks.model_html(Path(self.folder).name, self.cfg, self.device, self.dtype)

    @property
    def device(self) -> str:
        """'cpu' or 'cuda:0'"""
        return self._engine.device

    @property
    def dtype(self) -> str:
        """Compute type of the device: 'float32', 'bfloat16' or 'float16'."""
        return self._engine.dtype

    # Running

    @overload
    def __call__(
        self, tokens: Tokens, return_type: OneValue = ..., *, positions: Positions = ...,
        stop_at_layer: int | None = ..., **options: Unpack[RunOptions]
    ) -> Array: ...
    @overload
    def __call__(
        self, tokens: Tokens, return_type: Literal["both"], **options: Unpack[RunOptions]
    ) -> tuple[Array, Array]: ...
    @overload
    def __call__(self, tokens: Tokens, return_type: None, **options: Unpack[RunOptions]) -> None: ...
    @_options.checked
    def __call__(
        self,
        tokens: Tokens,
        return_type: str | None = "logits",
        *,
        positions: Positions = None,
        loss_per_token: bool = False,
        prepend_bos: bool | None = None,
        padding_side: str = "right",
        start_at_layer: int | None = None,
        stop_at_layer: int | None = None,
    ) -> Any:
        """Runs the model and returns logits [pos, d_vocab] or [batch, pos, d_vocab].

        return_type: "logits"; "loss", the mean of -log p of the next token, or with loss_per_token one value per token,
        [pos - 1]; "both", (logits, loss). positions: compute logits of these positions only: a position, a slice or a
        list, relative to each sequence, so that -1 is the last token of each. start_at_layer: tokens is the residual
        stream [pos, d_model] or [batch, pos, d_model] before that layer. stop_at_layer: return the residual stream
        before that layer instead of logits; negative values count from the end.
        """
        call = Call(
            return_type, loss_per_token, positions, None, prepend_bos, padding_side, start_at_layer, stop_at_layer)
        return self._run(tokens, call)[0]

    @overload
    def run_with_cache(
        self, tokens: Tokens, names_filter: NamesFilter = ..., positions: Positions = ...,
        stop_at_layer: int | None = ..., *, return_type: OneValue = ..., remove_batch_dim: bool = ...,
        **options: Unpack[RunOptions]
    ) -> tuple[Array, ActivationCache]: ...
    @overload
    def run_with_cache(
        self, tokens: Tokens, names_filter: NamesFilter = ..., *, return_type: Literal["both"],
        remove_batch_dim: bool = ..., **options: Unpack[RunOptions]
    ) -> tuple[tuple[Array, Array], ActivationCache]: ...
    @overload
    def run_with_cache(
        self, tokens: Tokens, names_filter: NamesFilter = ..., positions: Positions = ...,
        stop_at_layer: int | None = ..., *, return_type: None, remove_batch_dim: bool = ...,
        **options: Unpack[RunOptions]
    ) -> tuple[None, ActivationCache]: ...
    @_options.checked
    def run_with_cache(
        self,
        tokens: Tokens,
        names_filter: NamesFilter = None,
        positions: Positions = None,
        stop_at_layer: int | None = None,
        *,
        return_type: str | None = "logits",
        loss_per_token: bool = False,
        prepend_bos: bool | None = None,
        padding_side: str = "right",
        start_at_layer: int | None = None,
        remove_batch_dim: bool = False,
    ) -> Any:
        """Runs the model and returns (logits, cache) as TransformerLens does; cache: hook name -> array.

        return_type: "logits", "loss" or "both" as in a call; None: (None, cache), and the pass ends after the last
        recorded hook point; cache() returns the cache alone. names_filter, positions, stop_at_layer, start_at_layer
        and remove_batch_dim: as in cache(). positions also chooses the logits.
        """
        call = Call(
            return_type, loss_per_token, positions, None, prepend_bos, padding_side, start_at_layer, stop_at_layer)
        return self._cached(tokens, names_filter, call, remove_batch_dim)

    @_options.checked
    def cache(
        self,
        tokens: Tokens,
        names_filter: NamesFilter = None,
        positions: Positions = None,
        stop_at_layer: int | None = None,
        *,
        prepend_bos: bool | None = None,
        padding_side: str = "right",
        start_at_layer: int | None = None,
        remove_batch_dim: bool = False,
    ) -> ActivationCache:
        """Runs the model up to the last recorded hook point and returns an ActivationCache: hook name -> array.

        names_filter: a name, a pattern with *, a list, or a function of the name; None: all, including logits.
        positions: a position, a slice or a list; for scores and patterns the query positions, and only those are
        computed. stop_at_layer: leave out hook points of this and later layers; negative values count from the end.
        start_at_layer: as in a call; leaves out earlier hook points. remove_batch_dim: removes the batch dimension of a
        batch of one.
        """
        call = Call(None, False, positions, None, prepend_bos, padding_side, start_at_layer, stop_at_layer)
        return self._cached(tokens, names_filter, call, remove_batch_dim)[1]

    @overload
    def run_with_hooks(
        self, tokens: Tokens, fwd_hooks: Iterable[FwdHook] = ..., positions: Positions = ..., *,
        queries: Positions = ..., return_type: OneValue = ..., stop_at_layer: int | None = ...,
        **options: Unpack[RunOptions]
    ) -> Array: ...
    @overload
    def run_with_hooks(
        self, tokens: Tokens, fwd_hooks: Iterable[FwdHook] = ..., *, queries: Positions = ...,
        return_type: Literal["both"], **options: Unpack[RunOptions]
    ) -> tuple[Array, Array]: ...
    @overload
    def run_with_hooks(
        self, tokens: Tokens, fwd_hooks: Iterable[FwdHook] = ..., *, queries: Positions = ..., return_type: None,
        stop_at_layer: int | None = ..., **options: Unpack[RunOptions]
    ) -> None: ...
    @_options.checked
    def run_with_hooks(
        self,
        tokens: Tokens,
        fwd_hooks: Iterable[FwdHook] = (),
        positions: Positions = None,
        *,
        queries: Positions = None,
        return_type: str | None = "logits",
        loss_per_token: bool = False,
        prepend_bos: bool | None = None,
        padding_side: str = "right",
        start_at_layer: int | None = None,
        stop_at_layer: int | None = None,
    ) -> Any:
        """Runs the model with hook functions that read and edit activations; returns the same as a call.

        fwd_hooks: pairs (name, pattern or function of the name; f). f(activation, hook) gets its own array: it may keep
        it, write into it, or return another of the same shape; hook.name and hook.layer() name the hook point. f may
        also take the activation alone. Functions at one point run in the given order, after those of add_hook.
        positions: compute logits of these positions only. queries: query positions of scores and patterns that
        functions see; None: all. Other activations have all positions.
        """
        call = Call(
            return_type, loss_per_token, positions, queries, prepend_bos, padding_side, start_at_layer, stop_at_layer)
        return self._run(tokens, call, fwd_hooks=fwd_hooks)[0]

    @_options.checked
    def hook_names(self, on_request: bool = False) -> list[str]:
        """Lists the hook points of this model in order of firing, or the optional ones.

        Optional hook points (hook_result, hook_q_input, hook_scale, ...) fire only if a name or pattern selects them,
        or a function that accepts no other.
        """
        derived = _options.flag("on_request", on_request)
        return self._engine.derived_hook_names() if derived else self._engine.hook_names()

    # Persistent hooks

    @_options.checked
    def add_hook(
        self, name: str | Callable[[str], bool], hook: HookFunction, dir: str = "fwd", is_permanent: bool = False
    ) -> None:
        """Adds a hook function to every later pass, until reset_hooks(). Permanent hooks outlast a plain reset.

        dir: "fwd", the only direction.
        """
        _options.choice("dir", dir, ("fwd",))
        _hooks.collect(self._engine, [(name, hook)])
        self._added.append(Added(name, hook, _options.flag("is_permanent", is_permanent)))

    @_options.checked
    def reset_hooks(self, including_permanent: bool = False) -> None:
        """Removes the functions added by add_hook()."""
        everything = _options.flag("including_permanent", including_permanent)
        self._added = [added for added in self._added if added.permanent and not everything]

    @_options.checked
    @contextlib.contextmanager
    def hooks(self, fwd_hooks: Iterable[FwdHook] = ()) -> Iterator[Model]:
        """Adds hook functions to every pass inside a with block: with model.hooks([(name, f)]): model(tokens)"""
        fwd_hooks = _hooks.pairs(fwd_hooks)
        _hooks.collect(self._engine, fwd_hooks)
        added = [Added(name, function, True) for name, function in fwd_hooks]
        self._added = [*self._added, *added]
        try:
            yield self
        finally:
            self._added = [one for one in self._added if not any(one is own for own in added)]

    # Implementation of calls

    def _run(
        self, tokens: Tokens, call: Call, names: Sequence[str] = (), fwd_hooks: Iterable[FwdHook] = ()
    ) -> tuple[Any, ActivationCache]:
        """Returns the result of the call, and the activations of the names."""
        call.check()
        batch, start = self._input(tokens, call)
        last = "logits" if call.stop_at_layer is None else self._residual_before(call.stop_at_layer)
        wanted = names if call.return_type is None or last in names else [*names, last]
        functions = self._functions(fwd_hooks, call)
        run = Pass(self._engine, batch, self.arrays, start)
        if functions:
            kept = run.record_with(functions, wanted, call.positions, call.queries)
        else:
            kept = run.record(wanted, call.positions) if wanted else {}
        recorded = {name: kept[name] for name in names}
        texts = batch if start is None else None
        cache = ActivationCache(recorded, self, batch.batched, texts, call.positions)
        return output(kept.get(last), batch, call), cache

    def _cached(
        self, tokens: Tokens, names_filter: NamesFilter, call: Call, remove_batch_dim: bool
    ) -> tuple[Any, ActivationCache]:
        without_batch = _options.flag("remove_batch_dim", remove_batch_dim)
        names = self._between(_hooks.select(self._engine, names_filter), call)
        if not names:
            start, stop = call.start_at_layer, call.stop_at_layer
            where, side = (f"stop_at_layer={stop}", "before") if start is None else (f"start_at_layer={start}", "after")
            raise InputError(f"{where}: no hook point that names_filter chooses comes {side} it")
        result, cache = self._run(tokens, call, names)
        return result, cache.remove_batch_dim() if without_batch else cache

    def _input(self, tokens: Tokens, call: Call) -> tuple[Batch, Start | None]:
        if call.start_at_layer is not None:
            return self._residual(tokens, self._layer(call.start_at_layer, "start_at_layer"))
        if isinstance(tokens, str):
            tokens = self._encode(tokens, call.prepend_bos)
        elif is_texts(tokens):
            tokens = [self._encode(text, call.prepend_bos) for text in tokens]
        return batch_of_ids(tokens, self.cfg.d_vocab, call.padding_side), None

    def _residual(self, residual: Any, layer: int) -> tuple[Batch, Start]:
        width = self.cfg.d_model
        shape = list(getattr(residual, "shape", ()))
        if len(shape) not in (2, 3) or shape[-1] != width or 0 in shape:
            raise InputError(
                f"start_at_layer: found an input of shape {shape}, expected the residual stream [pos, {width}] or "
                f"[batch, pos, {width}]")
        sequences, length = shape[0] if len(shape) == 3 else 1, shape[-2]
        values = residual.reshape(-1, width)
        values = values.detach().float().contiguous() if is_torch(values) else np.ascontiguousarray(values, np.float32)
        nothing = [np.zeros(length, np.int32) for _ in range(sequences)]  # unused
        return Batch(nothing, len(shape) == 3), Start(values, layer)

    def _functions(self, fwd_hooks: Iterable[FwdHook], call: Call) -> Functions:
        """Returns functions by hook point that the call reaches; functions of add_hook() come first."""
        added = [(one.names, one.function) for one in self._added]
        functions = _hooks.collect(self._engine, [*added, *_hooks.pairs(fwd_hooks)])
        return {name: functions[name] for name in self._between(list(functions), call)}

    def _layer(self, layer: int, argument: str) -> int:
        n_layers = self.cfg.n_layers
        if not isinstance(layer, (int, np.integer)):
            raise InputError(f"{argument}: found {layer!r}, expected the number of a layer")
        found = layer + n_layers if layer < 0 else layer
        if not 0 <= found <= n_layers:
            raise InputError(f"{argument}={layer}: the model has layers 0 to {n_layers - 1}")
        return int(found)

    def _residual_before(self, stop_at_layer: int) -> str:
        """Returns the hook point of the residual stream before a layer; cross-attention layers are skipped."""
        stop = self._layer(stop_at_layer, "stop_at_layer")
        every = self.hook_names()
        before = [name for layer in range(stop) if (name := f"blocks.{layer}.hook_resid_post") in every]
        return before[-1] if before else "blocks.0.hook_resid_pre"

    def _between(self, names: list[str], call: Call) -> list[str]:
        """Returns the hook points between start_at_layer and stop_at_layer."""
        if call.start_at_layer is not None:
            start = self._layer(call.start_at_layer, "start_at_layer")
            names = [n for n in names if _hooks.layer_of(n) >= start or n.startswith(("ln_final", "logits"))]
        if call.stop_at_layer is not None:
            stop = self._layer(call.stop_at_layer, "stop_at_layer")
            names = [n for n in names if n in ("hook_embed", "hook_pos_embed") or 0 <= _hooks.layer_of(n) < stop]
        return names
