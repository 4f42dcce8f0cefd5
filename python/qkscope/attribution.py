"""What the parts of a model say about its logits: the logit lens, and direct logit attribution."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from . import _options
from ._arrays import on_host
from ._engine import Error
from ._hooks import Positions, layer_of, rows_of

if TYPE_CHECKING:
    from .model import Model, Tokens

_EXACT = 1e-3  # of the largest number: parts that do not add up to the whole were split by a wrong rule


@_options.checked
def logit_lens(
    model: Model, tokens: Tokens, *, positions: Positions = None, targets: Any = None, layers: _options.Layers | None = None
) -> pa.Table:
    """What the model would predict from the residual stream before each layer and after the last, by its final norm.

    tokens: a text or ids [pos]. positions: some of them; None: all. targets: token ids, one for each position, or one for
    all; None: the token that follows, none at the end. layers: some of 0 to n_layers; n_layers is the model's own prediction.

    A row for each layer and position: layer, position, token (the likeliest id), text, probability, entropy (nats), and of
    the target its target, target_text, target_probability, target_rank (0 is the likeliest) and target_logit.
    """
    ids = _one_text(model, tokens)
    rows = rows_of(positions, len(ids), 1) or list(range(len(ids)))
    wanted = _targets(ids, rows, targets)
    chosen = range(model.cfg.n_layers + 1) if layers is None else _options.layers("layers", layers)
    readout = Readout(model)
    columns: dict[str, list[Any]] = {name: [] for name in (
        "layer", "position", "token", "text", "probability", "entropy", "target", "target_text", "target_probability",
        "target_rank", "target_logit",
    )}
    for layer, residual in _residuals(model, ids, rows, chosen):
        logits = readout.logits(residual)
        logs = logits - logits.max(-1, keepdims=True)
        logs -= np.log(np.exp(logs).sum(-1, keepdims=True))
        best = logits.argmax(-1)
        columns["layer"] += [layer] * len(rows)
        columns["position"] += rows
        columns["token"] += best.tolist()
        columns["text"] += [model.to_string(token) for token in best]
        columns["probability"] += np.exp(logs[np.arange(len(rows)), best]).tolist()
        columns["entropy"] += (-(np.exp(logs) * logs).sum(-1)).tolist()
        for row, target in enumerate(wanted):
            known = target is not None
            columns["target"].append(target)
            columns["target_text"].append(model.to_string(target) if known else None)
            columns["target_probability"].append(float(np.exp(logs[row, target])) if known else None)
            columns["target_rank"].append(int((logits[row] > logits[row, target]).sum()) if known else None)
            columns["target_logit"].append(float(logits[row, target]) if known else None)
    return pa.table(columns)


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
    """How much each part of the residual stream adds to the logit of `answer`, less that of `wrong`, at one position.

    answer, wrong: token ids, or texts of a single token. by: "head" (embedding, every head, every MLP) or "component" (every
    attention layer whole). The scale of the final norm is that of the whole stream; values add up to the logit (or
    difference), before a soft cap where the model has one. A row for each part: component, layer, head, value; `bias` is what
    does not depend on the tokens.
    """
    _options.choice("by", by, ("head", "component"))
    ids = _one_text(model, tokens)
    rows = rows_of(position, len(ids), 1)
    readout = Readout(model)
    direction, constant = readout.direction(_token(model, "answer", answer), _token(model, "wrong", wrong))
    names = ["hook_embed", "hook_pos_embed", "*.hook_attn_out", "*.hook_mlp_out", "*.hook_resid_post"]
    if by == "head":
        names.append("*.attn.hook_z")
    known = model.hook_names()
    names = [name for name in names if "*" in name or name in known]
    cache = {name: on_host(array)[0].astype(np.float64) for name, array in
             model.run_with_cache(ids, names, positions=rows[0]).items()}
    last = max((name for name in cache if name.endswith("hook_resid_post")), key=layer_of)
    project = readout.projection(cache[last], direction)
    parts: list[tuple[str, int | None, int | None, float]] = []
    for name, array in cache.items():
        layer = layer_of(name)
        if name in ("hook_embed", "hook_pos_embed"):
            parts.append((name.removeprefix("hook_"), None, None, project(array)))
        elif name.endswith("hook_mlp_out"):
            parts.append((f"mlp {layer}", layer, None, project(array)))
        elif name.endswith("hook_attn_out"):
            if by == "component":
                parts.append((f"attention {layer}", layer, None, project(array)))
            else:
                parts += _of_heads(model, layer, cache[f"blocks.{layer}.attn.hook_z"], array, project)
    parts.append(("bias", None, None, constant))
    component, layers, heads, values = zip(*parts)
    return pa.table({
        "component": list(component), "layer": pa.array(layers, pa.int64()), "head": pa.array(heads, pa.int64()),
        "value": list(values),
    })


class Readout:
    """The end of the network: final norm, unembedding, scale and cap of the logits."""

    def __init__(self, model: Model):
        self.cfg = model.cfg
        self.norm = model.ln_final
        self.W_U = model.W_U
        self.b_U = model.b_U

    def logits(self, residual: np.ndarray) -> np.ndarray:
        """residual: [row, d_model]"""
        x, scale = self._centred(residual)
        x = (x / scale * self.norm.w).astype(np.float32)
        if self.norm.b is not None:
            x = x + self.norm.b
        logits = x @ self.W_U
        if self.b_U is not None:
            logits = logits + self.b_U
        logits = logits * self.cfg.logit_scale
        cap = self.cfg.output_logits_soft_cap
        return cap * np.tanh(logits / cap) if cap else logits

    def direction(self, answer: int | None, wrong: int | None) -> tuple[np.ndarray, float]:
        """What a normalised vector is multiplied with, and what is added whatever it is."""
        assert answer is not None
        u = self.W_U[:, answer].astype(np.float64)
        bias = 0.0 if self.b_U is None else float(self.b_U[answer])
        if wrong is not None:
            u = u - self.W_U[:, wrong]
            bias -= 0.0 if self.b_U is None else float(self.b_U[wrong])
        if self.norm.b is not None:
            bias += float(self.norm.b @ u)
        return u * self.norm.w * self.cfg.logit_scale, bias * self.cfg.logit_scale

    def projection(self, whole: np.ndarray, direction: np.ndarray) -> Any:
        """f(part) -> what it adds, with the scale of the whole stream."""
        _, scale = self._centred(whole)
        return lambda part: float(self._without_mean(part) @ direction / scale.item())

    def _centred(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        x = self._without_mean(np.asarray(x, dtype=np.float64))
        return x, np.sqrt((x * x).mean(-1, keepdims=True) + self.cfg.eps)

    def _without_mean(self, x: np.ndarray) -> np.ndarray:
        return x - x.mean(-1, keepdims=True) if self.cfg.normalization_type == "LN" else x


def _residuals(model: Model, ids: np.ndarray, rows: list[int], layers: Any) -> Any:
    """(layer, [row, d_model]): what enters each layer; n_layers is what leaves the last."""
    names: dict[str, list[int]] = {}
    known = set(model.hook_names())
    last = max(layer_of(name) for name in known)
    for layer in layers:
        if not 0 <= layer <= model.cfg.n_layers:
            raise Error(f"layers: found {layer}, expected 0 to {model.cfg.n_layers}")
        name = f"blocks.{layer}.hook_resid_pre" if layer < model.cfg.n_layers else f"blocks.{last}.hook_resid_post"
        if name in known:
            names[name] = [*names.get(name, []), layer]
    cache = model.run_with_cache(ids, list(names), positions=rows)
    for name, numbers in names.items():
        for layer in numbers:
            yield layer, on_host(cache[name])


def _of_heads(
    model: Model, layer: int, z: np.ndarray, attention: np.ndarray, project: Any
) -> list[tuple[str, int | None, int | None, float]]:
    """z: [head, d_head]; attention: [d_model], what the layer adds."""
    block = model.blocks[layer]
    results = np.einsum("hd,hdm->hm", z, block.attn.W_O.astype(np.float64))
    bias = np.zeros_like(attention) if block.attn.b_O is None else block.attn.b_O.astype(np.float64)
    gain = np.full_like(attention, model.cfg.residual_scale)
    if block.ln1_post.w is not None:
        whole = results.sum(0) + bias
        gain *= block.ln1_post.w / np.sqrt((whole * whole).mean() + model.cfg.eps)
    found = (results.sum(0) + bias) * gain
    if np.abs(found - attention).max() > _EXACT * max(1.0, np.abs(attention).max()):
        raise Error(f"layer {layer}: the heads of this {model.cfg.family} model do not add up; use by='component'")
    parts: list[tuple[str, int | None, int | None, float]] = [
        (f"head {layer}.{head}", layer, head, project(result * gain)) for head, result in enumerate(results)
    ]
    if block.attn.b_O is not None:
        parts.append((f"attention bias {layer}", layer, None, project(bias * gain)))
    return parts


def _one_text(model: Model, tokens: Any) -> np.ndarray:
    ids, sequences = model._ids(tokens)
    if sequences is not None and sequences != 1:
        raise Error(f"tokens: found {sequences} sequences, expected one text or ids [pos]")
    return ids[0]


def _token(model: Model, name: str, token: str | int | None) -> int | None:
    if token is None and name == "wrong":
        return None
    if isinstance(token, str):
        ids = model.to_tokens(token, add_special_tokens=False)
        if len(ids) != 1:
            raise Error(f"{name}={token!r}: it is {len(ids)} tokens, expected one")
        return int(ids[0])
    return _options.whole(name, token, 0, model.cfg.d_vocab - 1)


def _targets(ids: np.ndarray, rows: list[int], targets: Any) -> list[int | None]:
    if targets is None:
        return [int(ids[row + 1]) if row + 1 < len(ids) else None for row in rows]
    found = np.atleast_1d(on_host(targets))
    if found.size == 1:
        return [int(found[0])] * len(rows)
    if found.size != len(rows):
        raise Error(f"targets: found {found.size}, expected one, or {len(rows)}: one for each position")
    return [int(target) for target in found]
