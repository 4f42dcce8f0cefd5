"""Path patching between heads (Wang et al., arXiv 2211.00593): the direct effect of one head on another.

The output of a sender is taken from the source run while all other heads are frozen; the resulting change of the
receivers is then patched into the base run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from . import _options
from ._batch import Positions
from ._engine import InputError
from ._hooks import layer_of
from ._progress import Bar
from .patching import Metric, Run, clean_activations, copies, hooks_by_layer, measured

if TYPE_CHECKING:
    from .model import Model, Tokens

Head = tuple[int, int]

_COMPONENTS = ("q", "k", "v")


class _Paths(Run):
    """The base run, whose heads are frozen, and the source run of the senders."""

    def __init__(self, model: Model, tokens: Any, source: Any, freeze_mlps: bool, positions: Positions):
        super().__init__(model, tokens, positions)
        self.z = hooks_by_layer(model, "z")
        frozen = list(self.z.values())
        if freeze_mlps:
            frozen += hooks_by_layer(model, "mlp_out").values()
        self.frozen = clean_activations(model, self.ids, frozen, self.ids.shape)
        self.source = clean_activations(model, source, self.z.values(), self.ids.shape)

    def freezing(self, senders: list[Head], before: int) -> list[tuple[str, Any]]:
        """Hooks that patch sender i in copy i and freeze all other heads up to a layer."""

        def freeze(activation: Any, hook: Any) -> None:
            for copy, (layer, head) in zip(copies(activation, len(senders)), senders):
                copy[...] = self.frozen[hook.name]
                if hook.name == self.z.get(layer):
                    copy[:, :, head] = self.source[hook.name][:, :, head]

        return [(name, freeze) for name in self.frozen if layer_of(name) < before]

    def to_logits(self, senders: list[Head]) -> list[Any]:
        first = min(layer for layer, _ in senders)
        return self.logits(first, len(senders), self.freezing(senders, self.model.cfg.n_layers))

    def reach(self, senders: list[Head], names: dict[int, str]) -> dict[str, Any]:
        """Returns the patched activations of these names, [copy * batch, pos, head, d_head]."""
        seen: dict[str, Any] = {}

        def keep(activation: Any, hook: Any) -> None:
            seen[hook.name] = activation

        last = max(names)
        hooks = [*self.freezing(senders, last), *((name, keep) for name in names.values())]
        first = min(layer for layer, _ in senders)
        self.copies_from(first, len(senders), hooks, return_type=None, stop_at_layer=last + 1)
        return seen


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
            logits = paths.to_logits(some) if to_logits else _into(paths, some, targets, component)
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

            def put(activation: Any, hook: Any, some: list[Head] = some) -> None:
                for copy, (layer, head) in zip(copies(activation, len(some)), some):
                    if hook.layer() == layer:
                        copy[:, :, head] = reached[hook.name][:, :, head]

            layers = sorted({layer for layer, _ in some})
            hooks = [(names[layer], put) for layer in layers]
            for (layer, head), logits in zip(some, paths.logits(layers[0], len(some), hooks)):
                values[layer, head] = measured(patching_metric, logits)
            bar.to(begin + len(some))
    return values


def _into(paths: _Paths, senders: list[Head], receivers: list[Head], component: str) -> list[Any]:
    """Returns logits of copies, each with the receivers changed by its sender."""
    layers = sorted({layer for layer, _ in receivers})
    names = {layer: f"blocks.{layer}.attn.hook_{component}" for layer in layers}
    reached = paths.reach(senders, names)

    def put(activation: Any, hook: Any) -> None:
        for layer, head in receivers:
            if hook.layer() == layer:
                activation[:, :, head] = reached[hook.name][:, :, head]

    return paths.logits(layers[0], len(senders), [(name, put) for name in names.values()])


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
