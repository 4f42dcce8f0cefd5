"""Logit lens and direct logit attribution."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from . import _options
from ._arrays import on_host
from ._batch import Batch, Positions
from ._engine import Error, InputError
from ._hooks import layer_of
from .heads import text_ids

if TYPE_CHECKING:
    from .model import Model, Tokens


@_options.checked
def logit_lens(
    model: Model,
    tokens: Tokens,
    *,
    positions: Positions = None,
    targets: Any = None,
    layers: _options.Layers | None = None,
) -> pa.Table:
    """Applies the final norm and the unembedding to the residual stream before each layer and after the last.

    tokens: a text or ids [pos]. positions: positions to show; None: all. targets: token ids or texts of a single
    token, one per position, or one for all; None: the next token of the text. layers: some of 0 to n_layers; n_layers is
    the prediction of the model.

    One row per layer and position: layer, position, token (the most likely id), text (null without a tokenizer),
    probability, entropy (nats), and target, target_text, target_probability, target_rank (0 is the most likely) and
    target_logit.
    """
    ids = _one_text(model, tokens)
    rows = _rows(positions, len(ids))
    wanted = _targets(model, ids, rows, targets)
    chosen = range(model.cfg.n_layers + 1) if layers is None else _options.layers("layers", layers)
    residuals = _residuals(model, ids, rows, chosen)
    return pa.concat_tables([_lens_at(model, layer, residual, rows, wanted) for layer, residual in residuals])


@_options.checked
def direct_logit_attribution(
    model: Model,
    tokens: Tokens,
    answer: str | int,
    wrong: str | int | None = None,
    *,
    position: int = -1,
    by: str = "head",
) -> pa.Table:
    """Contribution of each component to the logit of `answer`, minus that of `wrong`, at one position.

    answer, wrong: token ids, or texts of a single token. by: "head" (embedding, every head, every MLP) or "component"
    (every attention layer as a whole). The scale of the final norm is that of the whole stream; values sum to the logit
    (or difference) before a soft cap. One row per component: component ("embed", "L3H2", "3_mlp_out", "bias", ...),
    layer, head, value. For several texts or positions, see cache.logit_attrs().
    """
    _options.choice("by", by, ("head", "component"))
    ids = _one_text(model, tokens)
    right, other = _token(model, "answer", answer), None if wrong is None else _token(model, "wrong", wrong)
    parts_of_stream = ("embed", "resid_pre", "resid_post", "attn_out", "mlp_out", "z")
    at = _options.whole("position", position, -len(ids), len(ids) - 1)
    names = [name for name in model.hook_names() if name.endswith(tuple(f"_{part}" for part in parts_of_stream))]
    cache = model.cache(ids, names, positions=at, remove_batch_dim=True).numpy()
    if by == "head":
        parts, labels = cache.get_full_resid_decomposition(expand_neurons=False, return_labels=True)
    else:
        parts, labels = cache.decompose_resid(return_labels=True)
    values = [float(value) for value in cache.logit_attrs(on_host(parts).astype(np.float64), right, other)[:, 0]]
    labels, values = [*labels, "final_norm_bias"], [*values, _added_at_the_end(model, right, other)]
    places = [re.match(r"L?(\d+)(?:H(\d+))?", label) for label in labels]
    return pa.table({
        "component": labels,
        "layer": pa.array([int(place[1]) if place else None for place in places], pa.int64()),
        "head": pa.array([int(place[2]) if place and place[2] else None for place in places], pa.int64()),
        "value": values,
    })


def _lens_at(model: Model, layer: int, residual: Any, rows: list[int], wanted: list[int | None]) -> pa.Table:
    logits = on_host(model(residual, start_at_layer=model.cfg.n_layers))
    logs = logits - logits.max(-1, keepdims=True)
    logs -= np.log(np.exp(logs).sum(-1, keepdims=True))
    probabilities = np.exp(logs)
    best = logits.argmax(-1)

    def of_target(kind: pa.DataType, value: Any) -> pa.Array:
        return pa.array([None if target is None else value(row, target) for row, target in enumerate(wanted)], kind)

    return pa.table({
        "layer": [layer] * len(rows),
        "position": rows,
        "token": best,
        "text": pa.array([_text(model, token) for token in best], pa.string()),
        "probability": probabilities.max(-1).astype(np.float64),
        "entropy": -(probabilities * logs).sum(-1, dtype=np.float64),
        "target": pa.array(wanted, pa.int64()),
        "target_text": of_target(pa.string(), lambda row, target: _text(model, target)),
        "target_probability": of_target(pa.float64(), lambda row, target: float(probabilities[row, target])),
        "target_rank": of_target(pa.int64(), lambda row, target: int((logits[row] > logits[row, target]).sum())),
        "target_logit": of_target(pa.float64(), lambda row, target: float(logits[row, target])),
    })


def _residuals(model: Model, ids: np.ndarray, rows: list[int], layers: Any) -> Iterator[tuple[int, Any]]:
    """Returns pairs (layer, residual stream [row, d_model] before the layer); n_layers: after the last layer."""
    known = set(model.hook_names())
    last = max(layer_of(name) for name in known)
    names = {}
    for layer in layers:
        if not 0 <= layer <= model.cfg.n_layers:
            raise InputError(f"layers: found {layer}, expected 0 to {model.cfg.n_layers}")
        name = f"blocks.{layer}.hook_resid_pre" if layer < model.cfg.n_layers else f"blocks.{last}.hook_resid_post"
        if name in known:
            names[layer] = name
    cache = model.cache(ids, list(names.values()), positions=rows, remove_batch_dim=True)
    for layer, name in names.items():
        yield layer, cache[name]


def _added_at_the_end(model: Model, right: int, wrong: int | None) -> float:
    """Logits from the biases of the final norm and the unembedding alone."""
    chosen = [(right, 1.0)] if wrong is None else [(right, 1.0), (wrong, -1.0)]
    total = 0.0
    for token, sign in chosen:
        if model.ln_final.b is not None:
            total += sign * float(on_host(model.ln_final.b).astype(np.float64) @ on_host(model.W_U)[:, token])
        if model.b_U is not None:
            total += sign * float(model.b_U[token])
    return total * model.cfg.logit_scale


def _one_text(model: Model, tokens: Any) -> np.ndarray:
    texts = text_ids(model, tokens)
    if len(texts) != 1:
        raise InputError(f"tokens: found {len(texts)} sequences, expected one text or ids [pos]")
    return texts[0]


def _text(model: Model, token: int) -> str | None:
    """Returns the text of a token, or None without a tokenizer."""
    try:
        return model.to_single_str_token(token)
    except Error:
        return None


def _rows(positions: Positions, length: int) -> list[int]:
    return Batch([np.zeros(length, np.int32)], False).positions(positions)[0]


def _token(model: Model, name: str, token: Any) -> int:
    if isinstance(token, str):
        return model.to_single_token(token)
    return _options.whole(name, token, 0, model.cfg.d_vocab - 1)


def _targets(model: Model, ids: np.ndarray, rows: list[int], targets: Any) -> list[int | None]:
    if targets is None:
        return [int(ids[row + 1]) if row + 1 < len(ids) else None for row in rows]
    given = [targets] if isinstance(targets, str) else targets
    if isinstance(given, (list, tuple)) and any(isinstance(target, str) for target in given):
        given = [_token(model, "targets", target) for target in given]
    found, d_vocab = on_host(given).reshape(-1), model.cfg.d_vocab
    if not np.issubdtype(found.dtype, np.integer) or found.min() < 0 or found.max() >= d_vocab:
        raise InputError(f"targets: found {targets!r}, expected token ids from 0 to {d_vocab - 1}")
    if found.size not in (1, len(rows)):
        raise InputError(f"targets: found {found.size}, expected one, or {len(rows)}: one for each position")
    return [int(target) for target in np.broadcast_to(found, len(rows))]
