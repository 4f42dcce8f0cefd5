"""Converts token arguments to sequences of ids, and results of sequences of different lengths to padded arrays.

Padding is -1 in token ids and NaN in activations. The engine never sees padding: each sequence of a padded batch gives
the same bits as the sequence alone.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Union

import numpy as np

from ._arrays import ArrayInput, filled, on_host
from ._engine import DeviceArray, InputError

Positions = Union[int, slice, Sequence[int], np.ndarray, None]
# Input of a forward pass: a text, token ids [pos] or [batch, pos], or a list of texts or id sequences of any length.
# Arrays may be on any device and use -1 for padding.
Tokens = Union[str, Iterable[str], Iterable[int], Iterable[Iterable[int]], ArrayInput]

PADDING = -1  # in token ids
SCORES = "attn.hook_attn_scores"
PATTERN = "attn.hook_pattern"
STATE = "mixer.hook_state"


def is_square(name: str) -> bool:
    return name.endswith((SCORES, PATTERN))


def check_side(padding_side: str) -> str:
    if not isinstance(padding_side, str) or padding_side not in ("left", "right"):
        raise InputError(f"padding_side: found {padding_side!r}, expected 'left' or 'right'")
    return padding_side


def padded_ids(sequences: Sequence[np.ndarray], padding_side: str = "right", pad: int = PADDING) -> np.ndarray:
    """Returns an int32 array [batch, longest] of padded sequences."""
    longest = max(len(ids) for ids in sequences)
    padded = np.full((len(sequences), longest), pad, dtype=np.int32)
    for row, ids in zip(padded, sequences):
        row[span(len(ids), longest, check_side(padding_side))] = ids
    return padded


def span(length: int, longest: int, padding_side: str) -> slice:
    """Returns the slice of a padded row that holds the sequence."""
    return slice(0, length) if padding_side == "right" else slice(longest - length, longest)


def _unpadded(ids: np.ndarray, row: int) -> np.ndarray:
    kept = np.flatnonzero(ids != PADDING)
    if kept.size == 0:
        raise InputError(f"tokens: sequence {row} is nothing but padding ({PADDING})")
    inside = ids[kept[0] : kept[-1] + 1]
    if inside.size != kept.size:
        raise InputError(f"tokens: sequence {row} has padding ({PADDING}) between its tokens, expected it at an end")
    return inside


@dataclass(frozen=True)
class Batch:
    """Sequences that run in one forward pass, and the layout of their results."""

    sequences: list[np.ndarray]  # int32 token ids of each sequence
    batched: bool  # results have a leading batch dimension
    padding_side: str = "right"

    @property
    def lengths(self) -> list[int]:
        return [len(ids) for ids in self.sequences]

    @property
    def ragged(self) -> bool:
        return len(set(self.lengths)) > 1

    def positions(self, chosen: Positions) -> list[list[int]]:
        """Returns the chosen positions of each sequence, without padding: -1 is the last token of each sequence."""
        return [_chosen(chosen, length) for length in self.lengths]

    def rows(self, chosen: Positions) -> list[int]:
        """Returns the rows of the engine's batch for the chosen positions; an empty list means all rows."""
        if chosen is None:
            return []
        begins = np.cumsum([0, *self.lengths])
        return [int(begin) + p for begin, own in zip(begins, self.positions(chosen)) for p in own]


def batch_of_ids(tokens: Any, d_vocab: int, padding_side: str) -> Batch:
    """Builds a batch from ids [pos] or [batch, pos] on any device, or from a list of sequences."""
    check_side(padding_side)
    if isinstance(tokens, (list, tuple)) and tokens and not np.isscalar(tokens[0]):
        rows = [_integers(on_host(row), 1) for row in tokens]
        batched = True
    else:
        ids = _integers(on_host(tokens), 2)
        batched = ids.ndim == 2
        rows = list(np.atleast_2d(ids))
        padding_side = _side_of(rows, padding_side)
    sequences = [_unpadded(ids, row) for row, ids in enumerate(rows)]
    for ids in sequences:
        if ids.min() < 0 or ids.max() >= 2**31:
            raise InputError(f"tokens: found ids from {ids.min()} to {ids.max()}, expected 0 to {d_vocab - 1}")
    return Batch([np.ascontiguousarray(ids, dtype=np.int32) for ids in sequences], batched, padding_side)


def _side_of(rows: list[np.ndarray], default: str) -> str:
    """Returns the side on which an array of ids is padded."""
    rows = [ids for ids in rows if (ids != PADDING).any()]
    left = any(ids[0] == PADDING for ids in rows)
    right = any(ids[-1] == PADDING for ids in rows)
    if left and right:
        raise InputError(f"tokens: found padding ({PADDING}) on both sides, expected it on one")
    return "left" if left else "right" if right else default


def _integers(ids: np.ndarray, most: int) -> np.ndarray:
    if not 1 <= ids.ndim <= most or ids.size == 0 or not np.issubdtype(ids.dtype, np.integer):
        found = f"{ids.dtype} of shape {list(ids.shape)}"
        raise InputError(
            f"tokens: found {found}, expected a text, integers [pos] or [batch, pos], or a list of texts or of ids")
    return ids


def _places(positions: Any) -> np.ndarray:
    places = np.atleast_1d(on_host(positions))
    if places.dtype == bool:
        raise TypeError("flags are no positions")
    return places


def _chosen(positions: Positions, length: int) -> list[int]:
    every = range(length)
    try:
        if positions is None:
            return list(every)
        if isinstance(positions, slice):
            chosen = list(every[positions])
        else:
            chosen = [every[operator.index(p)] for p in _places(positions)]
    except IndexError:
        raise InputError(
            f"positions: {positions} reaches outside the text, which has positions 0 to {length - 1}") from None
    except (TypeError, ValueError):
        raise InputError(f"positions: found {positions!r}, expected a position, a slice or a list of them") from None
    if not chosen:
        raise InputError(f"positions: {positions} names no position")
    return chosen


class Layout:
    """Reshapes activations of the engine, [rows, ...] or [head, rows, key], to the batch of the caller."""

    def __init__(self, batch: Batch, positions: Positions):
        """positions: token positions that the rows of the activations hold."""
        self._batch = batch
        self._every_position = positions is None
        self._counts = [len(own) for own in batch.positions(positions)]
        self._ends = np.cumsum(self._counts)

    def is_view(self, name: str) -> bool:
        """Whether shaped() returns a view of the engine's memory."""
        if self._is_last_state(name):
            return True
        if len(set(self._counts)) > 1:
            return False
        return not (is_square(name) and self._batch.ragged and self._batch.padding_side == "left")

    def shaped(self, name: str, array: Any) -> Any:
        """Returns [batch, pos, ...], or [batch, head, query, key]; without the batch axis for one sequence."""
        if not self._batch.batched:
            return array
        if not self.is_view(name):
            return self._padded(name, array.numpy() if isinstance(array, DeviceArray) else array)
        sequences, count = len(self._counts), 1 if self._is_last_state(name) else self._counts[0]
        if is_square(name):
            heads, _, keys = array.shape
            return array.reshape(heads, sequences, count, keys).transpose(1, 0, 2, 3)
        return array.reshape(sequences, count, *array.shape[1:])

    def _is_last_state(self, name: str) -> bool:
        """Whether this is a recurrent state with one row per sequence, for the last position (no positions chosen)."""
        return self._every_position and name.endswith(STATE)

    def put_back(self, name: str, array: Any, padded: Any) -> None:
        """Writes an edited, padded copy back into the engine's array."""
        for i, (rows, place) in enumerate(self._places()):
            if is_square(name):
                n = self._batch.lengths[i]
                array[:, rows, :n] = padded[i][:, place, self._keys(i)]
            else:
                array[rows] = padded[i, place]

    def _places(self) -> list[tuple[slice, slice]]:
        """Returns, for each sequence, its rows in the engine's array and its slice of the padded row."""
        longest = max(self._counts)
        return [
            (slice(int(end) - count, int(end)), span(count, longest, self._batch.padding_side))
            for end, count in zip(self._ends, self._counts)
        ]

    def _keys(self, sequence: int) -> slice:
        lengths = self._batch.lengths
        return span(lengths[sequence], max(lengths), self._batch.padding_side)

    def _padded(self, name: str, array: Any) -> Any:
        sequences, longest = len(self._counts), max(self._counts)
        if not is_square(name):
            padded = filled(array, (sequences, longest, *array.shape[1:]), np.nan)
            for i, (rows, place) in enumerate(self._places()):
                padded[i, place] = array[rows]
            return padded
        heads, _, keys = array.shape
        padded = filled(array, (sequences, heads, longest, keys), np.nan)
        hidden = -np.inf if name.endswith(SCORES) else 0.0
        for i, (rows, place) in enumerate(self._places()):
            padded[i][:, place] = hidden
            padded[i][:, place, self._keys(i)] = array[:, rows, : self._batch.lengths[i]]
        return padded
