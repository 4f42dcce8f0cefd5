"""Scores of attention heads: known patterns, your own patterns, entropy, sinks, distances."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Union

import numpy as np
import pyarrow as pa

from . import _engine, _options
from ._arrays import on_host
from ._batch import batch_of_ids
from ._engine import InputError
from ._progress import Bar
from ._tables import to_arrow
from ._tokens import is_texts
from ._transformers import TransformersEngine, engine_of

if TYPE_CHECKING:
    from .model import Model

HEAD_NAMES = ("previous_token_head", "duplicate_token_head", "induction_head")

# Attention pattern to detect: a matrix [token, token], or a function that returns the matrix for token ids [pos].
Pattern = Union[np.ndarray, Callable[[np.ndarray], Any]]


@_options.checked
def heads(
    model: Model | Any,
    tokens: Any = None,
    *,
    pattern: Pattern | Mapping[str, Pattern] | None = None,
    error_measure: str = "mul",
    exclude_bos: bool = False,
    exclude_current_token: bool = False,
    all_keys: bool = True,
    seed: int = 0,
    prepend_bos: bool | None = None,
    progress: bool | None = None,
) -> pa.Table:
    """Returns a table with one row per head: scores of known patterns and attention statistics (docs/how-to/heads.md).

    tokens: a text, token ids [pos] or [batch, pos], or a list of texts or of sequences of ids of any lengths. None:
    eight texts of 64 random tokens written twice, drawn by seed, after the BOS token where the model's tokenizer adds
    one (prepend_bos=False: without). `qkscope heads` draws the same texts for the same seed.

    Columns: model, layer, head, k_head, rope, attention, texts, tokens; the scores of TransformerLens' head detector
    previous_token_head, duplicate_token_head and induction_head; a column for each of your own patterns; then means
    over every token: sink_0 and sink_4 (attention to the first token, and to the first four), self, prev, dup, ind,
    top1, and with all_keys entropy (nats), entropy_relative, perplexity and distance_mean.

    pattern: a matrix [query, key] of one text with numbers from 0 to 1 and zeros above the diagonal; or a function
    f(ids [pos]) that returns one; or a mapping from column names to several (default name: "pattern").
    error_measure: "mul", the fraction of attention on the pattern, or "abs", 1 - the mean absolute difference.
    exclude_bos and exclude_current_token ignore attention to the first token and of a token to itself. all_keys=False
    is faster.

    Attention matrices are never held as a whole: at most a block of rows of one layer is in memory.

    model may also be a decoder of transformers or a TransformersEngine; tokens are then token ids, or None for random
    tokens written twice, and pattern is not supported.
    """
    _options.choice("error_measure", error_measure, ("mul", "abs"))
    first = _options.flag("exclude_bos", exclude_bos)
    own = _options.flag("exclude_current_token", exclude_current_token)
    every = _options.flag("all_keys", all_keys)
    _options.flag_or_none("prepend_bos", prepend_bos)
    native = isinstance(model, _options.ModelType)
    if not native:
        if not isinstance(model, TransformersEngine) and not hasattr(model, "config"):
            _options.check_model(model)
        if pattern is not None:
            raise InputError("pattern: your own patterns need a model of qkscope.load()")
        other = engine_of(model)
        return to_arrow(_engine.score_engine_heads(
            other.handle, _engine_texts(other, tokens, seed), first, own, error_measure, every, None).columns)
    texts = _repeated(model, seed, prepend_bos) if tokens is None else text_ids(model, tokens, prepend_bos)
    patterns = _patterns(pattern)
    for name in patterns:
        _options.text("name of a pattern", name)
    with Bar(len(texts) * (1 + len(patterns)), "heads", progress) as bar:
        engine = model._engine
        table = to_arrow(_engine.score_heads(engine, texts, first, own, error_measure, every, bar.to).columns)
        for number, (name, one) in enumerate(patterns.items()):
            if name in table.column_names:
                raise InputError(f"pattern {name!r}: the table has a column of that name, expected another")
            scores = np.zeros(model.cfg.n_layers * model.cfg.n_heads)
            for i, ids in enumerate(texts):
                matrix = _matrix(name, one, ids)
                scores += _engine.score_pattern(engine, ids, matrix, first, own, error_measure)
                bar.to(len(texts) * (1 + number) + i + 1)
            place = np.asarray(table["layer"]) * model.cfg.n_heads + np.asarray(table["head"])
            at = table.column_names.index(HEAD_NAMES[-1]) + 1 + number
            table = table.add_column(at, name, pa.array(scores[place] / len(texts)))
    return table


@_options.checked
def detect_head(
    model: Model,
    seq: Any,
    detection_pattern: str | Pattern,
    heads: Sequence[tuple[int, int]] | Mapping[int, Sequence[int]] | None = None,
    *,
    exclude_bos: bool = False,
    exclude_current_token: bool = False,
    error_measure: str = "mul",
) -> np.ndarray:
    """Returns scores [layer, head] of one pattern, as detect_head of TransformerLens.

    seq: as tokens of heads(). detection_pattern: "previous_token_head", "duplicate_token_head", "induction_head", a
    matrix or a function. heads: pairs (layer, head), or heads by layer; all others get -1.
    """
    own = None if isinstance(detection_pattern, str) else detection_pattern
    if own is None:
        _options.choice("detection_pattern", detection_pattern, HEAD_NAMES)
    table = _all_heads(
        model, seq, pattern=None if own is None else {"pattern": own}, all_keys=False, progress=False,
        exclude_bos=exclude_bos, exclude_current_token=exclude_current_token, error_measure=error_measure,
    )
    scores = np.full((model.cfg.n_layers, model.cfg.n_heads), -1.0)
    column = table[detection_pattern if isinstance(detection_pattern, str) else "pattern"]
    scores[np.asarray(table["layer"]), np.asarray(table["head"])] = np.asarray(column)
    if heads is None:
        return scores
    pairs = [(layer, head) for layer, some in heads.items() for head in some] if isinstance(heads, Mapping) else heads
    chosen = np.full_like(scores, -1.0)
    for layer, head in _options.heads("heads", pairs):
        if layer >= scores.shape[0] or head >= scores.shape[1]:
            raise InputError(f"heads: there is no head {head} of layer {layer}; the model has {scores.shape[0]} layers of "
                             f"{scores.shape[1]} heads")
        chosen[layer, head] = scores[layer, head]
    return chosen


_all_heads = heads  # detect_head() has an argument named heads


def _repeated(model: Model, seed: int, prepend_bos: bool | None) -> list[np.ndarray]:
    """Token ids of random texts that are written twice, as `qkscope heads` draws them."""
    _options.whole("seed", seed, 0, 2**64 - 1)
    texts = _engine.repeated_texts(model._engine, seed, prepend_bos is not False)
    return [np.array(ids, dtype=np.int32) for ids in texts]


def _engine_texts(engine: TransformersEngine, tokens: Any, seed: int) -> list[np.ndarray]:
    """Token ids of each text, int32; by default eight texts of 64 random tokens, written twice."""
    vocabulary = engine.vocabulary
    if tokens is None:
        random = np.random.default_rng(_options.whole("seed", seed, 0, 2**64 - 1))
        return [np.tile(random.integers(0, vocabulary, 64), 2).astype(np.int32) for _ in range(8)]
    return batch_of_ids(tokens, vocabulary, "right").sequences


def text_ids(model: Model, tokens: Any, prepend_bos: bool | None = None) -> list[np.ndarray]:
    """Token ids of each text, int32"""
    if isinstance(tokens, str) or is_texts(tokens):
        tokens = [model._encode(text, prepend_bos) for text in ([tokens] if isinstance(tokens, str) else tokens)]
    return batch_of_ids(tokens, model.cfg.d_vocab, "right").sequences


def _patterns(pattern: Any) -> dict[str, Pattern]:
    if pattern is None:
        return {}
    return dict(pattern) if isinstance(pattern, Mapping) else {"pattern": pattern}


def _matrix(name: str, pattern: Pattern, ids: np.ndarray) -> np.ndarray:
    values = on_host(pattern(ids) if callable(pattern) else pattern)
    expected = (len(ids), len(ids))
    if values.shape != expected or values.dtype.kind not in "biuf":
        found = f"shape {list(values.shape)}" if values.ndim else repr(values.item())
        raise InputError(f"pattern {name!r}: found {found}, expected numbers {list(expected)}, or a function for them")
    return np.ascontiguousarray(values, dtype=np.float32)
