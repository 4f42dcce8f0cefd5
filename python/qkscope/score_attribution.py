"""Where attention scores come from: exact contributions of earlier heads, MLPs and embeddings."""

from __future__ import annotations

from collections.abc import Iterable
from os import PathLike
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from . import _engine, _options
from ._engine import InputError, ScorePair
from ._progress import Bar
from ._svg import Picture
from ._tables import to_arrow
from .heads import text_ids
from .plot import head_map

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped, unused-ignore]

    from .model import Model


class ScoreAttribution:
    """Attributed scores of one text. pairs: the scores, with layer, head, query, key, score, attention, residual."""

    def __init__(self, found: _engine.ScoreAttribution):
        self._found = found
        self.pairs: list[ScorePair] = found.pairs

    def __repr__(self) -> str:
        return f"<ScoreAttribution of {len(self.pairs)} scores; to_pandas(), matrix(pair)>"

    @_options.checked
    def to_arrow(self, top: int | None = 20) -> pa.Table:
        """One row per pair of components: model, text, layer, head, query, key, query_token, key_token, score,
        attention, q_component, k_component, value, residual.

        top: number of component pairs with the largest magnitude to keep per score; a row "others" completes the sum.
        None keeps all.
        """
        return to_arrow(self._found.table(_top(top)).columns)

    @_options.checked
    def to_pandas(self, top: int | None = 20) -> pandas.DataFrame:
        """to_arrow() as a pandas.DataFrame."""
        return self.to_arrow(top).to_pandas()

    @_options.checked
    def matrix(self, pair: int = 0) -> tuple[np.ndarray, list[str], list[str]]:
        """All contributions to a score, [q component, k component], and the labels of both axes."""
        _options.whole("pair", pair, 0, len(self.pairs) - 1)
        rows, columns = self._found.q_components(pair), self._found.k_components(pair)
        return np.array(self._found.matrix(pair)).reshape(len(rows), len(columns)), rows, columns

    @_options.checked
    def components(self) -> pa.Table:
        """One row per component of the query (side "q") and the key ("k"), summed over the other side."""
        return to_arrow(self._found.component_table().columns)

    @_options.checked
    def rotary_pairs(self, components: bool = False, top: int | None = 20) -> pa.Table:
        """The score by rotary pair: pair, frequency, wavelength, value; of the top component pairs with components."""
        return to_arrow(self._found.rotary_table(_options.flag("components", components), _top(top)).columns)

    @_options.checked
    def distances(self, components: bool = False, top: int | None = 20) -> pa.Table:
        """The score that the same content would have at other distances: distance, value."""
        return to_arrow(self._found.distance_table(_options.flag("components", components), _top(top)).columns)

    @_options.checked
    def effects(self) -> pa.Table:
        """Attention and output of the head without each component; not additive. Needs effect=True."""
        return to_arrow(self._found.effect_table().columns)

    @_options.checked
    def show(self, pair: int = 0, most: int = 16) -> Picture:
        """Draws the contributions to a score: the components with the largest sums of each side."""
        values, rows, columns = self.matrix(pair)
        of_q = np.argsort(-np.abs(values.sum(1)), kind="stable")[:most]
        of_k = np.argsort(-np.abs(values.sum(0)), kind="stable")[:most]
        score = self.pairs[pair]
        return head_map(
            values[np.ix_(of_q, of_k)], rows=[rows[i] for i in of_q], columns=[columns[i] for i in of_k],
            row="query", column="key",
            title=f"{score.layer}.{score.head}: query {score.query}, key {score.key}, score {score.score:.3f}")


class Composition(NamedTuple):
    """Means of contributions over sampled pairs of query and key, as Arrow tables."""

    pairs: pa.Table  # layer, head, q_component, k_component, mean, stderr, explained, texts, samples
    components: pa.Table  # layer, head, side, component, mean, stderr, explained, texts, samples


@_options.checked
def attribute_scores(
    model: Model,
    tokens: Any,
    *,
    heads: _options.Heads,
    queries: Iterable[int] = (-1,),
    keys: str | Iterable[int] = "top:8",
    experts: bool = False,
    biases: bool = False,
    effect: bool = False,
    features: str | PathLike[str] | None = None,
    prepend_bos: bool | None = None,
) -> ScoreAttribution:
    """Writes attention scores as exact sums over pairs of components (docs/how-to/attribution.md).

    tokens: a text or token ids [pos]. heads: pairs (layer, head), or "18.6,19.0". queries: positions; negative
    positions count from the end. keys: "top:N" by attention, "all", or positions. experts: splits mixtures of experts
    into L{layer}E{expert}. biases: counts output biases of MLPs as the component "bias". effect: also computes
    effects(). features: a safetensors file with COMPONENT.decoder [feature, d_model] and COMPONENT.activations [pos,
    feature].
    """
    texts = text_ids(model, tokens, _options.flag_or_none("prepend_bos", prepend_bos))
    if len(texts) != 1:
        raise InputError(f"tokens: found {len(texts)} texts, expected one; composition() takes several")
    chosen = keys if isinstance(keys, str) else ",".join(str(key) for key in _positions("keys", keys))
    return ScoreAttribution(_engine.attribute_scores(
        model._engine, texts[0], _options.heads("heads", heads), _positions("queries", queries), chosen,
        _options.flag("experts", experts), _options.flag("biases", biases), _options.flag("effect", effect),
        "" if features is None else _options.path("features", features)))


@_options.checked
def composition(
    model: Model,
    dataset: Any,
    *,
    heads: _options.Heads,
    samples: int = 1000,
    uniform: bool = False,
    seed: int = 0,
    biases: bool = False,
    top: int | None = 100,
    prepend_bos: bool | None = None,
    progress: bool | None = None,
) -> Composition:
    """Measures which components feed the queries and keys of heads, over texts.

    dataset: a list of texts or of sequences of token ids. samples: pairs of query and key per head over all texts;
    queries are drawn uniformly, keys by the attention of the head, or uniformly. explained: covariance of a
    contribution with the score over the variance of the score; sums to 1. stderr: standard error over texts. top:
    component pairs to keep per head, None for all; a row "others" completes the sums.
    """
    texts = text_ids(model, dataset, _options.flag_or_none("prepend_bos", prepend_bos))
    with Bar(len(texts), "composition", progress) as bar:
        pairs, components = _engine.composition(
            model._engine, texts, _options.heads("heads", heads), _options.whole("samples", samples, 1, 2**40),
            _options.flag("uniform", uniform), _options.whole("seed", seed, 0, 2**64 - 1),
            _options.flag("biases", biases), _top(top), bar.to)
    return Composition(to_arrow(pairs.columns), to_arrow(components.columns))


def _top(top: int | None) -> int:
    return 0 if top is None else _options.whole("top", top, 1, 2**40)


def _positions(name: str, value: Any) -> list[int]:
    return _options.wholes(name, [value] if isinstance(value, (int, np.integer)) else value, -2**40, 2**40)
