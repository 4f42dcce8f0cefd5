"""Path patching between heads (Wang et al., arXiv 2211.00593): the direct effect of one head on another.

The output of a sender is taken from the source run while all other heads are frozen; the resulting change of the
receivers is then patched into the base run.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _options
from ._arrays import concatenate, on_host
from ._batch import Positions
from ._engine import InputError
from ._progress import Bar
from ._reruns import BaseRun, Copies, clean_activations, hooks_by_layer
from .patching import Metric, copies, measured

if TYPE_CHECKING:
    from .model import Model, Tokens

Head = tuple[int, int]

_COMPONENTS = ("q", "k", "v")


@dataclass
class _Rows:
    """Rows of the residual stream before a layer that senders change."""

    copies: np.ndarray  # [row] number of the sender
    places: tuple[np.ndarray, np.ndarray]  # [row] sequence and position
    residual: Any  # [row, d_model]

    def __add__(self, other: _Rows) -> _Rows:
        sequence, position = (np.concatenate(both) for both in zip(self.places, other.places))
        residual = concatenate([self.residual, other.residual])
        return _Rows(np.concatenate([self.copies, other.copies]), (sequence, position), residual)


class _Paths(BaseRun):
    """The base run, whose heads are frozen, and the source run of the senders."""

    def __init__(self, model: Model, tokens: Any, source: Any, freeze_mlps: bool, positions: Positions):
        super().__init__(model, tokens, positions)
        self.z = hooks_by_layer(model, "z")
        if self.z.keys() != set(self.layers) or any(name.endswith("mixer.hook_out") for name in model.hook_names()):
            raise InputError(
                f"path patching: {model.cfg.family} has layers without attention, or with another mixer beside it, which "
                "connects positions and is not frozen; the functions of qkscope.patching support this model")
        # With frozen MLPs, later layers need not run: a changed row adds their attention and MLP outputs of the base run.
        self.adds_updates = freeze_mlps and self.starts_anywhere
        updates = ("attn_out", "mlp_out") if freeze_mlps else ()
        self.updates = [hooks_by_layer(model, update) for update in updates]
        names = [name for by_layer in (self.z, *self.updates) for name in by_layer.values()]
        self.frozen = self._of_base(names)
        self.source = clean_activations(model, source, self.z.values(), self.ids.shape)

    def _of_base(self, names: Sequence[str]) -> dict[str, Any]:
        return clean_activations(self.model, self.ids, names, self.ids.shape)

    def spread(self, senders: list[Head], last: int, positions: Sequence[int]) -> Iterator[tuple[int, _Rows]]:
        """Yields (layer, rows) from the first sender to layer `last`: what the senders change with frozen heads.

        No row reads another one while all heads are frozen, so that only rows with a changed sender are computed.
        """
        rows = None
        for layer in [*self.layers, self.model.cfg.n_layers]:
            if rows is not None:
                yield layer, rows
            if layer == last:
                return
            running = self._of_senders(senders, layer, positions)
            if rows is not None and self.adds_updates:
                for by_layer in self.updates:
                    rows.residual = rows.residual + self.frozen[by_layer[layer]][rows.places]
            elif rows is not None:
                running, rows = rows if running is None else rows + running, None
            if running is not None:
                running.residual = self._run_frozen(running, senders, layer)
                rows = running if rows is None else rows + running

    def _of_senders(self, senders: list[Head], layer: int, positions: Sequence[int]) -> _Rows | None:
        """Returns the rows, of these positions, in which the senders of a layer differ between the two runs."""
        name, found = self.z[layer], []
        for copy, (own, head) in enumerate(senders):
            if own == layer:
                differs = on_host((self.frozen[name][:, :, head] != self.source[name][:, :, head]).any(-1))
                wanted = differs & np.isin(np.arange(differs.shape[1]), positions)
                sequence, position = np.nonzero(wanted if self.starts_anywhere else np.ones_like(wanted))
                found.append((np.full(len(sequence), copy), sequence, position))
        if not sum(len(copy) for copy, _, _ in found):
            return None
        numbers, sequence, position = (np.concatenate(part) for part in zip(*found))
        return _Rows(numbers, (sequence, position), self.residuals[layer][sequence, position])

    def _run_frozen(self, rows: _Rows, senders: list[Head], layer: int) -> Any:
        """Runs a layer with frozen heads, except the senders of this layer."""
        z = self.frozen[self.z[layer]][rows.places]  # [row, head, d_head], a copy
        own = np.flatnonzero(np.array([of == layer for of, _ in senders])[rows.copies])
        heads = np.array([head for _, head in senders])[rows.copies[own]]
        sequence, position = (part[own] for part in rows.places)
        z[own, heads] = self.source[self.z[layer]][sequence, position, heads]
        values = {self.z[layer]: z}
        values.update({of[layer]: self.frozen[of[layer]][rows.places] for of in self.updates[1:]})

        def freeze(activation: Any, hook: Any) -> None:
            activation[...] = values[hook.name].reshape(activation.shape)

        after = self.model.run_with_hooks(
            self.sequences_of(rows), [(name, freeze) for name in values], start_at_layer=layer, stop_at_layer=layer + 1)
        return after.reshape(-1, after.shape[-1])

    def sequences_of(self, rows: _Rows) -> Any:
        """Returns the residual stream as sequences [sequence, pos, d_model]: of one row each, if that is allowed."""
        length = 1 if self.starts_anywhere else self.ids.shape[1]
        return rows.residual.reshape(-1, length, rows.residual.shape[-1])

    def reach(self, senders: list[Head], names: dict[int, str]) -> dict[str, Any]:
        """Returns the patched activations of these names, [copy * batch, pos, head, d_head]."""
        batch = self.ids.shape[0]
        base = self._of_base(list(names.values()))
        reached = {name: concatenate([base[name]] * len(senders)) for name in names.values()}
        for layer, rows in self.spread(senders, max(names), range(self.ids.shape[1])):
            if layer in names:
                sequence, position = rows.places
                found = self.record(names[layer], self.sequences_of(rows), layer, range(len(sequence)))
                reached[names[layer]][rows.copies * batch + sequence, position] = found
        return reached


class _DirectLogits(Copies):
    """Logits after the changes of senders have spread to the end of the network."""

    def __init__(self, paths: _Paths, senders: list[Head]):
        super().__init__(paths, len(senders))
        self._paths = paths
        self._senders = senders

    def compute(self, positions: list[int]) -> dict[tuple[int, int, int], Any]:
        end = self._paths.model.cfg.n_layers
        found = {}
        for layer, rows in self._paths.spread(self._senders, end, positions):
            if layer == end:
                logits = self._paths.record("logits", self._paths.sequences_of(rows), end, range(len(rows.copies)))
                keys = zip(rows.copies.tolist(), *(part.tolist() for part in rows.places))
                found = dict(zip(keys, logits))
        return found


@_options.checked
def path_patch(
    model: Model,
    tokens: Tokens,
    source: Any,
    metric: Metric,
    receivers: _options.Heads,
    component: str = "q",
    *,
    senders: _options.Heads | None = None,
    freeze_mlps: bool = False,
    positions: Positions = None,
    batch_size: int | None = None,
    progress: bool | None = None,
) -> np.ndarray:
    """Returns the metric after patching the paths from each sender to the receivers, float64 [layer, head] of senders.

    tokens: the base run. source: run of the senders, as tokens of the same shape or a cache with "*hook_z".
    metric(logits) returns a number. receivers: pairs (layer, head), patched together, or "logits". component: "q", "k"
    or "v" of the receivers; for k and v, heads are key heads. senders: pairs (layer, head); None: all below the last
    receiver. Senders without a path to a receiver are NaN. Paths lead through MLPs, as in the paper, unless
    freeze_mlps. positions: compute only these logits.
    """
    paths = _Paths(model, tokens, source, _options.flag("freeze_mlps", freeze_mlps), positions)
    to_logits = isinstance(receivers, str) and receivers == "logits"
    targets = [] if to_logits else _receivers(model, receivers, component)
    last = model.cfg.n_layers if to_logits else max(layer for layer, _ in targets)
    chosen = _senders(model, paths, senders, last)
    values = np.full((model.cfg.n_layers, model.cfg.n_heads), np.nan)
    size = paths.together(batch_size)
    with Bar(len(chosen), "path patching", progress) as bar:
        for begin in range(0, len(chosen), size):
            some = chosen[begin : begin + size]
            logits = _DirectLogits(paths, some).logits() if to_logits else _into(paths, some, targets, component)
            for (layer, head), found in zip(some, logits):
                values[layer, head] = measured(metric, found)
            bar.to(begin + len(some))
    return values


@_options.checked
def get_act_patch_direct_path(
    model: Model,
    corrupted_tokens: Tokens,
    clean_cache: Any,
    corrupted_cache: Any,
    patching_metric: Metric,
    src_layer: int,
    src_head: int,
    component: str = "q",
    *,
    positions: Positions = None,
    batch_size: int | None = None,
    progress: bool | None = None,
) -> np.ndarray:
    """Returns the metric after patching the direct path from one head to each later head, [layer, head] of receivers.

    MLPs are frozen too. Equal to the function of this name in TransformerLens, with NaN if there is no path. For k and
    v, heads are key heads. clean_cache: a cache with "*hook_z", or the clean tokens. corrupted_cache is not used.
    """
    paths = _Paths(model, corrupted_tokens, clean_cache, True, positions)
    _options.choice("component", component, _COMPONENTS)
    sender = _senders(model, paths, [(src_layer, src_head)], model.cfg.n_layers)
    names = {layer: name for layer, name in hooks_by_layer(model, component).items() if layer > src_layer}
    heads = model.cfg.n_heads if component == "q" else model.cfg.n_key_value_heads
    values = np.full((model.cfg.n_layers, heads), np.nan)
    if not names:
        return values
    reached = paths.reach(sender, names)
    targets = [(layer, head) for layer in names for head in range(heads)]
    size = paths.together(batch_size)
    with Bar(len(targets), f"paths into {component}", progress) as bar:
        for begin in range(0, len(targets), size):
            some = targets[begin : begin + size]
            changes: list[tuple[int, Any]] = []
            for layer, own in itertools.groupby(some, lambda target: target[0]):
                changes += _with_receivers(paths, [([target], 0) for target in own], {layer: names[layer]}, reached)
            for (layer, head), logits in zip(some, paths.continued(changes)):
                values[layer, head] = measured(patching_metric, logits)
            bar.to(begin + len(some))
    return values


def _into(paths: _Paths, senders: list[Head], receivers: list[Head], component: str) -> list[Any]:
    """Returns logits of copies, each with the receivers changed by its sender."""
    names = {layer: f"blocks.{layer}.attn.hook_{component}" for layer in sorted({layer for layer, _ in receivers})}
    reached = paths.reach(senders, names)
    each = [(receivers, sender) for sender in range(len(senders))]
    return paths.continued(_with_receivers(paths, each, names, reached))


def _with_receivers(
    paths: _Paths, each: list[tuple[list[Head], int]], names: dict[int, str], reached: dict[str, Any]
) -> list[tuple[int, Any]]:
    """Returns the changes of the base run if receivers are changed: one for each (receivers, number of the sender)."""
    batch = paths.ids.shape[0]

    def put(activation: Any, hook: Any) -> None:
        for copy, (receivers, sender) in zip(copies(activation, len(each)), each):
            for layer, head in receivers:
                if hook.layer() == layer:
                    copy[:, :, head] = reached[hook.name][sender * batch : (sender + 1) * batch, :, head]

    first, last = min(names), max(names)
    residual = paths.model.run_with_hooks(
        paths.copies_of(first, len(each)), [(name, put) for name in names.values()], start_at_layer=first,
        stop_at_layer=last + 1)
    return [(paths.layer_after(last), copy) for copy in copies(residual, len(each))]


def _receivers(model: Model, receivers: Any, component: str) -> list[Head]:
    _options.choice("component", component, _COMPONENTS)
    heads = model.cfg.n_heads if component == "q" else model.cfg.n_key_value_heads
    pairs = _options.heads("receivers", receivers)
    known = hooks_by_layer(model, component)
    for layer, head in pairs:
        if layer not in known or head >= heads:
            raise InputError(f"receivers: there is no {component} of layer {layer}, head {head}")
    if not pairs:
        raise InputError("receivers: found none; expected pairs (layer, head) or 'logits'")
    return pairs


def _senders(model: Model, paths: _Paths, senders: Any, last: int) -> list[Head]:
    if senders is None:
        return [(layer, head) for layer in paths.z if layer < last for head in range(model.cfg.n_heads)]
    pairs = _options.heads("senders", senders)
    for layer, head in pairs:
        if layer not in paths.z or head >= model.cfg.n_heads:
            raise InputError(f"senders: there is no head {head} of layer {layer}")
    return [pair for pair in pairs if pair[0] < last]
