"""Reruns a base run with a changed residual stream, and recomputes only the rows that the change can affect.

Attention is causal: a change at a position reaches that and later positions, in that and later layers. All other rows
keep the values of the base run. On the CPU a row has the same bits whether or not other rows are computed, so that the
results are bit-identical to whole runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _options
from ._arrays import as_kind, concatenate, is_torch, on_host, stack
from ._batch import Batch, Positions, is_square
from ._engine import DeviceArray, InputError
from ._lazy_logits import LazyLogits
from .heads import text_ids

if TYPE_CHECKING:
    from .model import Model

BATCH_ROWS = 2048  # tokens per batch


class BaseRun:
    """The residual stream of a run before every layer, and runs that start from changes of it."""

    def __init__(self, model: Model, tokens: Any, positions: Positions):
        _options.check_model(model)
        self.model = model
        self.ids, self.batched = same_length(model, tokens)
        self.positions = None if positions is None else Batch([self.ids[0]], False).positions(positions)[0]
        self.read: set[int] = set()  # positions whose logits a metric has read
        names = hooks_by_layer(model, "resid_pre")
        self.layers = list(names)  # without the cross-attention layers, which are skipped for text
        last = f"blocks.{self.layers[-1]}.hook_resid_post"
        kept = model.cache(self.ids, [*names.values(), last])
        self.residuals = {layer: indexable(kept[name]) for layer, name in names.items()}
        self.residuals[model.cfg.n_layers] = indexable(kept[last])
        self._logits: dict[tuple[int, int], Any] = {}  # (sequence, position) -> [d_vocab]

    @property
    def starts_anywhere(self) -> bool:
        """Whether rows before a change can be skipped: only if no function of add_hook() observes them."""
        return not self.model._added

    def together(self, batch_size: int | None) -> int:
        """Number of copies of the batch per forward pass."""
        if batch_size is not None:
            return _options.whole("batch_size", batch_size, 1)
        return max(1, BATCH_ROWS // self.ids.size)

    def layer_after(self, layer: int) -> int:
        return next((later for later in self.layers if later > layer), self.model.cfg.n_layers)

    def copies_of(self, layer: int, count: int) -> Any:
        """Returns the residual stream before a layer `count` times, [count * batch, pos, d_model]."""
        return concatenate([self.residuals[layer]] * count)

    def record(self, name: str, residual: Any, layer: int, rows: Sequence[int]) -> Any:
        """Starts from the residual stream [sequence, pos, d_model] before a layer; returns the activation at rows."""
        if not self.starts_anywhere:
            whole = indexable(self.model.cache(residual, name, start_at_layer=layer)[name])
            return whole.reshape(-1, *whole.shape[2:])[list(rows)]
        batch, start = self.model._residual(residual, layer)
        kept = self.model._engine.record(
            batch.sequences, [name], list(rows), residual=start.residual, start_at_layer=layer)
        return indexable(as_kind(kept[name], self.model.arrays))

    def base_logits(self, places: Sequence[tuple[int, int]]) -> dict[tuple[int, int], Any]:
        """Returns logits [d_vocab] of the base run by (sequence, position)."""
        length, end = self.ids.shape[1], self.model.cfg.n_layers
        missing = sorted(set(places).difference(self._logits))
        if missing:
            rows = [sequence * length + position for sequence, position in missing]
            self._logits.update(zip(missing, self.record("logits", self.residuals[end], end, rows)))
        return self._logits

    def continued(self, changes: Sequence[tuple[int, Any]]) -> list[Any]:
        """Returns logits for each change: (layer, residual stream [batch, pos, d_model] before that layer)."""
        return _ChangedRuns(self, changes).logits()


class Copies:
    """Logits of several copies of the base batch; subclasses compute them."""

    def __init__(self, base: BaseRun, count: int):
        self.base = base
        self._count = count
        self._known: set[int] = set()
        self._rows: dict[tuple[int, int, int], Any] = {}  # (copy, sequence, position) -> [d_vocab]

    def compute(self, positions: list[int]) -> dict[tuple[int, int, int], Any]:
        """Returns logits [d_vocab] by (copy, sequence, position) that differ from the base run."""
        raise NotImplementedError

    def logits(self) -> list[Any]:
        """Returns the logits of each copy, with a batch dimension if the tokens have one."""
        batch, length = self.base.ids.shape
        positions = self.base.positions
        if positions is None and is_torch(self.base.residuals[self.base.layers[0]]):
            positions = list(range(length))  # torch functions accept only tensors, not lazy logits
        if positions is not None:
            return [self._chosen(copy, positions) for copy in range(self._count)]
        shape = [batch, length, self.base.model.cfg.d_vocab][0 if self.base.batched else 1 :]

        def lazy(copy: int) -> LazyLogits:
            def fill(positions: list[int], array: np.ndarray) -> None:
                array[..., positions, :] = self._chosen(copy, positions)

            return LazyLogits(shape, fill)

        return [lazy(copy) for copy in range(self._count)]

    def _chosen(self, copy: int, positions: list[int]) -> Any:
        self._know(positions)
        sequences = range(self.base.ids.shape[0])
        places = [(sequence, position) for sequence in sequences for position in positions]
        base = self.base.base_logits([place for place in places if (copy, *place) not in self._rows])
        rows = stack([self._rows[key] if (key := (copy, *place)) in self._rows else base[place] for place in places])
        return rows.reshape(len(sequences), len(positions), -1) if self.base.batched else rows

    def _know(self, positions: list[int]) -> None:
        """Computes the positions for all copies at once, with those that the metric read in earlier batches."""
        if self._known.issuperset(positions):
            return
        self.base.read.update(positions)
        missing = sorted(self.base.read - self._known)
        self._rows.update(self.compute(missing))
        self._known.update(missing)


@dataclass
class _ChangedSequence:
    copy: int
    sequence: int  # of the base batch
    layer: int
    start: int  # first changed position
    rows: Any  # [pos - start, d_model] residual stream before the layer


class _ChangedRuns(Copies):
    """Copies of the base run with a changed residual stream before a layer."""

    def __init__(self, base: BaseRun, changes: Sequence[tuple[int, Any]]):
        super().__init__(base, len(changes))
        changed = [one for copy, (layer, residual) in enumerate(changes) for one in self._changed(copy, layer, residual)]
        for layer in base.layers[:-1]:
            running = [one for one in changed if one.layer == layer]
            if not running:
                continue
            after = self._run(f"blocks.{layer}.hook_resid_post", running, layer, range(base.ids.shape[1]))
            for one, rows in zip(running, after):
                one.layer, one.rows = base.layer_after(layer), rows
        self._ends = changed  # before the last layer or after it

    def _changed(self, copy: int, layer: int, residual: Any) -> list[_ChangedSequence]:
        differs = on_host((residual != self.base.residuals[layer]).any(-1))  # [batch, pos]
        return [
            _ChangedSequence(copy, sequence, layer, start, residual[sequence, start:])
            for sequence, row in enumerate(differs) if row.any()
            for start in [int(row.argmax()) if self.base.starts_anywhere else 0]
        ]

    def _run(self, name: str, running: list[_ChangedSequence], layer: int, positions: Sequence[int]) -> list[Any]:
        """Runs the layer and returns an activation of each sequence at those positions that are not before its start."""
        length = self.base.ids.shape[1]
        inputs = self.base.residuals[layer][[one.sequence for one in running]]
        for one, whole in zip(running, inputs):
            whole[one.start :] = one.rows
        rows = [[i * length + p for p in positions if p >= one.start] for i, one in enumerate(running)]
        if not any(rows):
            return [[] for _ in running]
        found = self.base.record(name, inputs, layer, sum(rows, []))
        ends = np.cumsum([len(own) for own in rows])
        return [found[end - len(own) : end] for own, end in zip(rows, ends)]

    def compute(self, positions: list[int]) -> dict[tuple[int, int, int], Any]:
        found = {}
        for layer in (self.base.layers[-1], self.base.model.cfg.n_layers):
            running = [one for one in self._ends if one.layer == layer]
            for one, rows in zip(running, self._run("logits", running, layer, positions) if running else []):
                places = [p for p in positions if p >= one.start]
                found.update({(one.copy, one.sequence, p): row for p, row in zip(places, rows)})
        return found


def indexable(array: Any) -> Any:
    """Returns an array that supports indexing: a DeviceArray is copied to the host."""
    return array.numpy() if isinstance(array, DeviceArray) else array


def same_length(model: Model, tokens: Any) -> tuple[np.ndarray, bool]:
    """Returns ids [batch, pos], and whether the tokens were a batch."""
    texts = text_ids(model, tokens)
    if len({len(ids) for ids in texts}) != 1:
        lengths = ", ".join(str(len(ids)) for ids in texts)
        raise InputError(f"tokens: found texts of {lengths} tokens, expected one length")
    one = isinstance(tokens, str) or np.ndim(tokens) == 1 and not isinstance(tokens[0], str)
    return np.stack(texts), not one


def hooks_by_layer(model: Model, activation: str) -> dict[int, str]:
    """Maps layers to the hook names of an activation named as in TransformerLens: "resid_pre", "z", "mlp_out"."""
    names = set(model.hook_names())
    found = {}
    for layer in range(model.cfg.n_layers):
        for place in ("", "attn.", "mlp."):
            if (name := f"blocks.{layer}.{place}hook_{activation}") in names:
                found[layer] = name
    if not found:
        known = sorted({name.rpartition("hook_")[2] for name in names if name.startswith("blocks.")})
        raise InputError(f"activation {activation!r}: the model has none of that name; expected {', '.join(known)}")
    return found


def clean_activations(model: Model, clean: Any, names: Any, shape: tuple[int, ...]) -> dict[str, Any]:
    """Returns activations [batch, pos, ...] by hook name, from a cache or from tokens."""
    names = list(names)
    cache = clean if hasattr(clean, "keys") else model.cache(same_length(model, clean)[0], names)
    found = {}
    for name in names:
        if name not in cache:
            raise InputError(f"clean_cache: there is no {name}; ask run_with_cache() for it, or give the tokens")
        array = cache[name]
        rank = 4 if is_square(name) or "attn.hook" in name else 3
        array = array if array.ndim == rank else array[None]
        length = array.shape[2] if is_square(name) else array.shape[1]
        if (array.shape[0], length) != shape:
            found_shape = [array.shape[0], length]
            raise InputError(f"clean_cache: {name} is of tokens {found_shape}, expected those of {list(shape)}")
        found[name] = array
    return found
