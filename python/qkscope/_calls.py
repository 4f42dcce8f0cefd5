"""One forward pass of a model: recorded activations, hook functions and return values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

import numpy as np

from . import _options
from ._arrays import Array, as_kind, is_torch, on_host, torch_or_none
from ._batch import Batch, Layout, Positions, is_square, span
from ._engine import DeviceArray, InputError
from ._engine import Model as Engine
from ._hooks import Functions, HookPoint, apply


class RunOptions(TypedDict, total=False):
    """Keyword arguments that all calls of a model share, for type checkers."""

    loss_per_token: bool
    prepend_bos: bool | None
    padding_side: str
    start_at_layer: int | None


@dataclass(frozen=True)
class Call:
    """Arguments that all calls of a model share."""

    return_type: str | None
    loss_per_token: bool
    positions: Positions  # positions of returned and recorded activations
    queries: Positions  # query positions of scores and patterns that hook functions see
    prepend_bos: bool | None
    padding_side: str
    start_at_layer: int | None
    stop_at_layer: int | None

    def check(self) -> None:
        words = ("logits", "loss", "both")
        if self.return_type is not None and not (isinstance(self.return_type, str) and self.return_type in words):
            raise InputError(f"return_type: found {self.return_type!r}, expected 'logits', 'loss', 'both' or None")
        _options.flag("loss_per_token", self.loss_per_token)
        of_whole_texts = self.positions is self.start_at_layer is self.stop_at_layer is None
        if self.return_type in ("loss", "both") and not of_whole_texts:
            raise InputError(
                f"return_type={self.return_type!r}: a loss is that of whole texts, without positions, start_at_layer "
                "or stop_at_layer")


@dataclass(frozen=True)
class Start:
    """Residual stream [rows, d_model] before a layer, from which a pass starts."""

    residual: Any
    layer: int


@dataclass(frozen=True)
class Pass:
    """One forward pass of the engine over a batch."""

    engine: Engine
    batch: Batch
    kind: str  # `arrays` of load()
    start: Start | None = None

    def _from(self) -> dict[str, Any]:
        return {} if self.start is None else {"residual": self.start.residual, "start_at_layer": self.start.layer}

    def record(self, names: Sequence[str], positions: Positions) -> dict[str, Any]:
        """Records the activations of hook points at the positions. The pass ends after the last hook point."""
        recorded = self.engine.record(self.batch.sequences, list(names), self.batch.rows(positions), **self._from())
        layout = Layout(self.batch, positions)
        return {name: as_kind(layout.shaped(name, recorded[name]), self.kind) for name in names}

    def record_with(
        self, functions: Functions, names: Sequence[str], positions: Positions, queries: Positions = None
    ) -> dict[str, Any]:
        """Like record(), with hook functions that may edit activations. Records the activations after the edits.

        queries: query positions of scores and patterns that the functions see.
        """
        edits_squares = any(is_square(name) for name in functions)
        if not edits_squares and queries is None:
            queries = positions  # hook points that are recorded only
        every = self.engine.match_hooks([*functions, *names])
        run = _HookedRun(self, functions, set(names), positions, queries)
        self.engine.run(
            self.batch.sequences, every, self.batch.rows(queries), self.batch.rows(positions),
            lambda number, array: run.at(every[number], array), **self._from())
        return {name: run.kept[name] for name in names}


class _HookedRun:
    """Calls hook functions with reshaped activations and records the chosen activations."""

    def __init__(self, of: Pass, functions: Functions, names: set[str], positions: Positions, queries: Positions):
        self._of = of
        self._functions = functions
        self._names = names
        self._positions = positions
        self._whole = Layout(of.batch, None)
        self._at_queries = Layout(of.batch, queries)
        self._at_positions = Layout(of.batch, positions)
        self._squares_are_chosen = queries is positions
        self.kept: dict[str, Any] = {}

    def at(self, name: str, array: Any) -> None:
        layout, flat = self._layout(name), None
        is_view = layout.is_view(name)
        if is_view:
            shown = layout.shaped(name, array)
            activation = as_kind(shown, self._of.kind)
        else:  # sequences of different lengths: functions get a padded copy
            flat = self._indexed(array)
            shown = activation = layout.shaped(name, flat)
        for function in self._functions.get(name, ()):
            apply(function, activation, shown, HookPoint(name))
        if name in self._functions and not is_view:
            layout.put_back(name, flat, shown)
            if isinstance(array, DeviceArray) and isinstance(flat, np.ndarray):
                array.assign(flat)
        if name in self._names:
            self.kept[name] = self._chosen(name, array, activation)

    def _indexed(self, array: Any) -> Any:
        """Returns an array that supports indexing: a DeviceArray is copied to the host."""
        array = as_kind(array, self._of.kind)
        return array.numpy() if isinstance(array, DeviceArray) else array

    def _layout(self, name: str) -> Layout:
        if name == "logits":
            return self._at_positions
        return self._at_queries if is_square(name) else self._whole

    def _chosen(self, name: str, array: Any, activation: Any) -> Any:
        if self._positions is None or name == "logits" or (is_square(name) and self._squares_are_chosen):
            return activation
        rows = self._of.batch.rows(self._positions)
        array = self._indexed(array)
        array = array[:, rows] if is_square(name) else array[rows]
        return self._at_positions.shaped(name, array)


def output(last: Any, batch: Batch, call: Call) -> Any:
    """Returns logits, loss or (logits, loss) by return_type; the residual stream if the call stops at a layer."""
    if call.return_type is None:
        return None
    if call.return_type == "logits":
        return last
    loss = cross_entropy(last, batch, call.loss_per_token)
    return loss if call.return_type == "loss" else (last, loss)


def cross_entropy(logits: Any, batch: Batch, per_token: bool) -> Array:
    """Returns -log p of each next token, [pos - 1] or [batch, pos - 1] padded with NaN, or the mean over all tokens."""
    if max(batch.lengths) < 2:
        raise InputError("return_type='loss': found a text of one token, expected two: the loss is that of the next")
    longest = max(batch.lengths)
    places = [span(length, longest, batch.padding_side) for length in batch.lengths]
    rows = on_host(logits) if batch.batched else on_host(logits)[None]
    losses = [_losses(rows[i, place], ids) for i, (place, ids) in enumerate(zip(places, batch.sequences))]
    loss: Any
    if not per_token:
        loss = np.float32(np.concatenate(losses).mean())
    elif batch.batched:
        loss = np.full((len(losses), longest - 1), np.nan, dtype=np.float32)
        for row, own in zip(loss, losses):
            row[span(len(own), longest - 1, batch.padding_side)] = own
    else:
        loss = losses[0].astype(np.float32)
    return torch_or_none().as_tensor(loss).to(logits.device) if is_torch(logits) else loss


def _losses(logits: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Returns -log p of each next token, [pos - 1], summed in float64 row by row of the logits."""
    losses = np.empty(len(ids) - 1)
    for position, following in enumerate(ids[1:]):
        row = logits[position]
        highest = row.max()
        losses[position] = highest + np.log(np.exp(row - highest).sum(dtype=np.float64)) - row[following]
    return losses
