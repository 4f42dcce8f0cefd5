"""A model that runs: logits, caches, hooks."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Mapping
from os import PathLike, fspath
from typing import Any, Union

import numpy as np

from . import _engine, _hooks
from ._arrays import Array, as_tensor, on_host
from ._engine import Config, Error
from ._hooks import FwdHook, HookPoint, NamesFilter, Positions
from ._weights import Block, ByLayer, Norm

# A text, token ids of one sequence [pos], or of several of one length [batch, pos]; arrays on any device.
Tokens = Union[str, Iterable[int], Iterable[Iterable[int]], Array]


def load(
    name_or_path: str | PathLike[str],
    revision: str | None = None,
    device: str = "auto",
    dtype: str | None = None,
    fold_norms: bool = False,
    config_overrides: Mapping[str, Any] | None = None,
) -> Model:
    """A checkpoint folder, a GGUF file, or a model id: what the Hugging Face cache on disk lacks of it is downloaded.

    device: "auto" (a GPU where there is one that this build can use), "cpu", "cuda" or "cuda:N". dtype: the type that
    the GPU computes in, "float32", "bfloat16" or "float16"; None is the checkpoint's where that has 16 bits, else
    float32. The CPU computes in float32. Activations are float32 arrays everywhere: NumPy on the CPU, torch tensors on
    the GPU.

    Weights stay in the mapped file, and a GPU gets a copy. fold_norms moves the weights of the norms before attention, MLP and output into
    the matrices after them: the model computes the same up to rounding, and `ln1.hook_normalized` shows the vector
    before those weights. config_overrides are merged into config.json.
    """
    chosen = _engine.choose_device(str(device))
    wanted = _dtype_name(dtype)
    if chosen == "cpu" and wanted not in ("", "float32"):
        warnings.warn(f"dtype={wanted!r}: the CPU computes in float32", stacklevel=2)
    folder = _engine.fetch_checkpoint(fspath(name_or_path), revision or "")
    overrides = json.dumps(dict(config_overrides or {}))
    return Model(_engine.load_model(folder, overrides, fold_norms, chosen, wanted), folder)


def _dtype_name(dtype: Any) -> str:
    """Of a name or a torch.dtype; "" where none is asked for."""
    name = "" if dtype is None else str(dtype).removeprefix("torch.")
    if name not in ("", "float32", "float16", "bfloat16"):
        raise Error(f"dtype={name!r}: expected 'float32', 'float16' or 'bfloat16'")
    return name


class Model:
    """What load() gives. Arrays are float32; with tokens [batch, pos] each has a leading batch dimension.

    On the CPU they are NumPy arrays. On CUDA they are torch tensors on the GPU, or where torch is missing DeviceArray,
    which other libraries take through DLPack; scores and patterns are NumPy arrays there too.
    """

    def __init__(self, engine: Any, folder: str):
        self._engine = engine
        self._tokenizer: Any = None
        self.folder = folder

    def __repr__(self) -> str:
        return f"Model({self.folder!r}, {self.cfg!r}, device={self.device!r}, dtype={self.dtype!r})"

    @property
    def cfg(self) -> Config:
        return self._engine.config

    @property
    def device(self) -> str:
        """'cpu' or 'cuda:0'"""
        return self._engine.device

    @property
    def dtype(self) -> str:
        """What the device computes in: 'float32', 'bfloat16' or 'float16'."""
        return self._engine.dtype

    # Text

    @property
    def tokenizer(self) -> Any:
        if self._tokenizer is None:
            self._tokenizer = _engine.Tokenizer.load(self.folder)
        return self._tokenizer

    def to_tokens(self, text: str, add_special_tokens: bool = True, max_length: int = 0) -> np.ndarray:
        """Token ids [pos], int32; max_length 0 is no limit."""
        return np.array(self.tokenizer.encode(text, add_special_tokens, max_length), dtype=np.int32)

    def to_string(self, tokens: Any) -> str:
        """The text of token ids, special ones included."""
        return self.tokenizer.decode([int(t) for t in np.atleast_1d(on_host(tokens))])

    def to_str_tokens(self, tokens: Tokens) -> list[str]:
        """Each token as a text of its own."""
        ids = self.to_tokens(tokens) if isinstance(tokens, str) else on_host(tokens)
        return [self.to_string(token) for token in ids]

    # Running

    def __call__(self, tokens: Tokens, positions: Positions = None) -> Array:
        """Logits [pos, d_vocab], or of the given positions alone, which cost less."""
        return self.run_with_cache(tokens, "logits", positions)["logits"]

    def run_with_cache(
        self,
        tokens: Tokens,
        names_filter: NamesFilter = None,
        positions: Positions = None,
        stop_at_layer: int | None = None,
    ) -> dict[str, Array]:
        """Hook name -> array, in order of firing; the pass ends after the last one asked for.

        names_filter: a name, a pattern with *, a list of them, or a function of the name; None: all, logits included.
        positions: a position, a slice or a list; of scores and patterns the query positions, and only those are
        computed. stop_at_layer: hook points of this layer and later ones are left out; negative from the end.
        """
        ids, sequences = self._ids(tokens)
        names = self._before(_hooks.select(self._engine, names_filter), stop_at_layer)
        rows = _hooks.rows_of(positions, ids.shape[1], ids.shape[0])
        recorded = self._engine.record(ids, names, rows)
        return {name: as_tensor(_hooks.shaped(name, recorded[name], sequences)) for name in names}

    def run_with_hooks(
        self, tokens: Tokens, fwd_hooks: Iterable[FwdHook], positions: Positions = None
    ) -> Array:
        """Logits [pos, d_vocab] of a pass in which functions look at activations and change them.

        fwd_hooks: pairs (name, pattern or function of the name; f). f(activation, hook) gets an array of its own: it
        may keep it, write into it, or return another of the same shape; hook.name and hook.layer() say where it is. A
        function of the activation alone is fine too. Functions at one point run in the order given. positions: query
        positions of scores and patterns; other activations come whole.
        """
        ids, sequences = self._ids(tokens)
        functions = _hooks.collect(self._engine, fwd_hooks)
        names = self._engine.match_hooks([*functions, "logits"])
        rows = _hooks.rows_of(positions, ids.shape[1], ids.shape[0])
        logits: list[Array] = []

        def call(number: int, array: Any) -> None:
            name = names[number]
            array = _hooks.shaped(name, array, sequences)
            activation = as_tensor(array)
            for function in functions.get(name, []):
                _hooks.apply(function, activation, array, HookPoint(name))
            if name == "logits":
                logits.append(activation)

        self._engine.run(ids, names, rows, call)
        return logits[0]

    def hook_names(self) -> list[str]:
        """Every hook point of this model, in order of firing."""
        return self._engine.hook_names()

    # Weights

    @property
    def blocks(self) -> ByLayer:
        """Block by layer: ln1, attn, ln2, mlp."""
        return ByLayer(self.cfg.n_layers, lambda layer: Block(self._engine.weights.layer(layer), self.cfg))

    @property
    def W_Q(self) -> ByLayer:
        """By layer: [n_heads, d_model, d_head]"""
        return ByLayer(self.cfg.n_layers, lambda layer: self.blocks[layer].attn.W_Q)

    @property
    def W_K(self) -> ByLayer:
        """By layer: [n_key_value_heads, d_model, d_head]"""
        return ByLayer(self.cfg.n_layers, lambda layer: self.blocks[layer].attn.W_K)

    @property
    def W_V(self) -> ByLayer:
        """By layer: [n_key_value_heads, d_model, d_head]"""
        return ByLayer(self.cfg.n_layers, lambda layer: self.blocks[layer].attn.W_V)

    @property
    def W_O(self) -> ByLayer:
        """By layer: [n_heads, d_head, d_model]"""
        return ByLayer(self.cfg.n_layers, lambda layer: self.blocks[layer].attn.W_O)

    @property
    def W_gate(self) -> ByLayer:
        """By layer: [d_model, d_mlp], or None where the MLP has no gate"""
        return ByLayer(self.cfg.n_layers, lambda layer: self.blocks[layer].mlp.W_gate)

    @property
    def W_in(self) -> ByLayer:
        """By layer: [d_model, d_mlp]"""
        return ByLayer(self.cfg.n_layers, lambda layer: self.blocks[layer].mlp.W_in)

    @property
    def W_out(self) -> ByLayer:
        """By layer: [d_mlp, d_model]"""
        return ByLayer(self.cfg.n_layers, lambda layer: self.blocks[layer].mlp.W_out)

    @property
    def W_E(self) -> np.ndarray:
        """[d_vocab, d_model]; some families have more rows."""
        return self._engine.weights.embedding

    @property
    def W_pos(self) -> np.ndarray | None:
        """[n_ctx, d_model], or None where positions are not learned"""
        return self._engine.weights.positions

    @property
    def W_U(self) -> np.ndarray:
        """[d_model, d_vocab]"""
        return self._engine.weights.head.weight.T

    @property
    def b_U(self) -> np.ndarray | None:
        """[d_vocab], where folding left one"""
        return self._engine.weights.head.bias

    @property
    def ln_final(self) -> Norm:
        return Norm(self._engine.weights.final_norm)

    # How arguments are read

    def _ids(self, tokens: Tokens) -> tuple[np.ndarray, int | None]:
        """ids [sequences, pos], and the number of sequences where the caller gave a batch."""
        if isinstance(tokens, str):
            tokens = self.to_tokens(tokens)
        ids = on_host(tokens)
        if ids.ndim not in (1, 2) or ids.size == 0 or not np.issubdtype(ids.dtype, np.integer):
            found = f"{ids.dtype} of shape {list(ids.shape)}"
            raise Error(f"tokens: found {found}, expected a text or integers [pos] or [batch, pos]")
        if ids.min() < 0 or ids.max() >= 2**31:
            raise Error(f"tokens: found ids from {ids.min()} to {ids.max()}, expected 0 to {self.cfg.d_vocab - 1}")
        sequences = ids.shape[0] if ids.ndim == 2 else None
        return np.ascontiguousarray(np.atleast_2d(ids), dtype=np.int32), sequences

    def _before(self, names: list[str], stop_at_layer: int | None) -> list[str]:
        if stop_at_layer is None:
            return names
        n_layers = self.cfg.n_layers
        stop = stop_at_layer + n_layers if stop_at_layer < 0 else stop_at_layer
        if not 0 <= stop <= n_layers:
            raise Error(f"stop_at_layer={stop_at_layer}: the model has layers 0 to {n_layers - 1}")
        kept = [n for n in names if n in ("hook_embed", "hook_pos_embed") or 0 <= _hooks.layer_of(n) < stop]
        if not kept:
            raise Error(f"stop_at_layer={stop_at_layer}: no hook point that names_filter chooses comes before it")
        return kept
