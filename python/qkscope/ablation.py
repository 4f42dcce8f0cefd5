"""Ablation: the increase of the loss without groups of heads, such as the classes of the taxonomy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from . import _options
from ._arrays import on_host
from ._engine import InputError
from ._progress import Bar
from ._reruns import hooks_by_layer
from .heads import text_ids
from .patching import copies

if TYPE_CHECKING:
    from .model import Model

Head = tuple[int, int]
MODES = ("zero", "mean", "resample")
_BATCH_ROWS = 2048  # tokens per batch


@_options.checked
def ablate(
    model: Model,
    tokens: Any,
    groups: Mapping[str, Iterable[Head]] | Any,
    *,
    mode: str = "mean",
    controls: int = 0,
    seed: int = 0,
    progress: bool | None = None,
) -> pa.Table:
    """Measures the loss of texts, and its increase without each group of heads (docs/how-to/patching.md).

    tokens: as in heads(), at least two tokens per text. groups: a mapping from names to pairs (layer, head); or a
    taxonomy, with one group per class: the result of analyze(), its table "taxonomy", a data frame, or a folder of
    results.

    mode: replacement of the output z of a head at every position: "zero"; "mean", the mean over all tokens of these
    texts; or "resample", z of another of these texts at the same position (chosen by seed; a shorter text starts over).
    controls: number of random draws, for each group, of as many heads outside the group.

    One row per group: group, heads, mode, texts, tokens (predicted), loss (mean cross-entropy in nats of the whole
    model), loss_without, increase, increase_se (over texts); with controls also control_increase, their mean, and
    control_sd.
    """
    _options.choice("mode", mode, MODES)
    texts = [ids for ids in text_ids(model, tokens) if len(ids) > 1]
    if not texts:
        raise InputError("tokens: found no text of at least two tokens")
    if mode == "resample" and len(texts) < 2:
        raise InputError("mode='resample': found one text, expected at least two")
    chosen = _groups(model, groups)
    random = np.random.default_rng(_options.whole("seed", seed, 0, 2**64 - 1))
    count = _options.whole("controls", controls, 0)
    draws = {name: _draws(model, heads, count, random) for name, heads in chosen.items()}
    conditions = [*chosen.values(), *(draw for group in draws.values() for draw in group)]
    losses = _Runs(model, texts, mode, random).losses(conditions, progress)
    return _table(chosen, losses, texts, mode, controls)


class _Runs:
    """Runs texts with the whole model and without each group of heads, in one batch."""

    def __init__(self, model: Model, texts: list[np.ndarray], mode: str, random: np.random.Generator):
        self.model = model
        self.texts = texts
        self.mode = mode
        self.names = hooks_by_layer(model, "z")
        shift = int(random.integers(1, len(texts))) if mode == "resample" else 0
        self.other = [(i + shift) % len(texts) for i in range(len(texts))]
        self.means = self._means() if mode == "mean" else {}

    def losses(self, conditions: list[list[Head]], progress: bool | None) -> np.ndarray:
        """Returns losses [text, 1 + condition], summed over predicted tokens; column 0 is the whole model."""
        found = np.zeros((len(self.texts), 1 + len(conditions)))
        every = [[], *conditions]
        with Bar(found.size, "ablation", progress) as bar:
            for i, ids in enumerate(self.texts):
                size = max(1, _BATCH_ROWS // len(ids))
                values = self._values(i)
                for begin in range(0, len(every), size):
                    some = every[begin : begin + size]
                    found[i, begin : begin + len(some)] = self._together(ids, some, values)
                    bar.to(i * len(every) + begin + len(some))
        return found

    def _together(self, ids: np.ndarray, groups: list[list[Head]], values: dict[str, Any]) -> np.ndarray:
        def ablate_heads(z: Any, hook: Any) -> None:
            for copy, group in zip(copies(z, len(groups)), groups):
                heads = [head for layer, head in group if layer == hook.layer()]
                if heads:
                    copy[:, :, heads] = values[hook.name][..., heads, :] if values else 0

        layers = sorted({layer for group in groups for layer, _ in group})
        hooks = [(self.names[layer], ablate_heads) for layer in layers]
        losses = self.model.run_with_hooks(
            np.tile(ids, (len(groups), 1)), hooks, return_type="loss", loss_per_token=True)
        return on_host(losses).sum(1, dtype=np.float64)

    def _values(self, text: int) -> dict[str, Any]:
        """Returns replacements of z by hook name, [head, d_head] or [1, pos, head, d_head]; empty for zeros."""
        if self.mode != "resample":
            return self.means
        other = self.texts[self.other[text]]
        place = np.arange(len(self.texts[text])) % len(other)
        cache = self.model.cache(other, list(self.names.values()), remove_batch_dim=True)
        return {name: array[place.tolist()][None] for name, array in cache.items()}

    def _means(self) -> dict[str, Any]:
        """Returns the mean of z over all tokens of the texts, by hook name."""
        sums: dict[str, Any] = {}
        for ids in self.texts:
            for name, z in self.model.cache(ids, list(self.names.values()), remove_batch_dim=True).items():
                sums[name] = sums.get(name, 0) + z.sum(0)
        return {name: total / sum(map(len, self.texts)) for name, total in sums.items()}


def classes_of(taxonomy: Any) -> dict[str, list[Head]]:
    """Returns the heads of each class from a result of analyze(), a table "taxonomy", a data frame or a folder."""
    if isinstance(taxonomy, (str, PathLike)):
        path = Path(fspath(taxonomy)) / "taxonomy.parquet"
        if not path.is_file():
            raise InputError(f"{path}: there is no such file; expected the folder of analyze(out=...)")
        taxonomy = pq.read_table(path)
    if isinstance(taxonomy, Mapping):
        taxonomy = taxonomy["taxonomy"]
    table = taxonomy if isinstance(taxonomy, pa.Table) else pa.Table.from_pandas(taxonomy)
    heads = "q_head" if "q_head" in table.column_names else "head"
    for name in ("layer", heads, "class"):
        if name not in table.column_names:
            raise InputError(f"taxonomy: there is no column {name!r}; expected the table 'taxonomy' of analyze()")
    classes: dict[str, list[Head]] = {}
    columns = (table[name].to_pylist() for name in ("layer", heads, "class"))
    for layer, head, name in zip(*columns):
        if name:
            classes.setdefault(name, []).append((int(layer), int(head)))
    return classes


def _groups(model: Model, groups: Any) -> dict[str, list[Head]]:
    tables = (pa.Table, str, PathLike)
    is_taxonomy = isinstance(groups, tables) or hasattr(groups, "to_records")
    is_taxonomy = is_taxonomy or (isinstance(groups, Mapping) and "taxonomy" in groups)
    named: Mapping[str, Any] = classes_of(groups) if is_taxonomy else groups
    if not isinstance(named, Mapping) or not named:
        raise InputError("groups: found none; expected {name: [(layer, head), ...]} or the tables of analyze()")
    found = {name: _options.heads(f"groups[{name!r}]", heads) for name, heads in named.items()}
    known = hooks_by_layer(model, "z")
    for name, heads in found.items():
        for layer, head in heads:
            if layer not in known or head >= model.cfg.n_heads:
                raise InputError(f"groups[{name!r}]: there is no head {head} of layer {layer}: is it of another model?")
    return found


def _draws(model: Model, heads: list[Head], count: int, random: np.random.Generator) -> list[list[Head]]:
    """Samples as many heads outside a group as the group has, or all others if there are fewer."""
    inside = set(heads)
    layers = hooks_by_layer(model, "z")
    outside = [(layer, head) for layer in layers for head in range(model.cfg.n_heads) if (layer, head) not in inside]
    size = min(len(heads), len(outside))
    return [[outside[i] for i in random.choice(len(outside), size, replace=False)] for _ in range(count)]


def _table(
    groups: Mapping[str, Sequence[Head]], losses: np.ndarray, texts: list[np.ndarray], mode: str, controls: int
) -> pa.Table:
    predicted = np.array([len(ids) - 1 for ids in texts])
    tokens = int(predicted.sum())
    means = losses.sum(0) / tokens
    rows: list[dict[str, Any]] = []
    for number, (name, heads) in enumerate(groups.items()):
        increase = losses[:, 1 + number] - losses[:, 0]
        mean = increase.sum() / tokens
        # Standard error of the ratio estimator (sum of loss increases over sum of tokens), with texts as samples.
        error = np.sqrt(((increase - mean * predicted) ** 2).sum() * len(texts) / max(1, len(texts) - 1)) / tokens
        row = {
            "group": name, "heads": len(heads), "mode": mode, "texts": len(texts), "tokens": tokens, "loss": means[0],
            "loss_without": means[1 + number], "increase": mean, "increase_se": error if len(texts) > 1 else None,
        }
        if controls:
            first = 1 + len(groups) + number * controls
            drawn = means[first : first + controls] - means[0]
            row["control_increase"] = drawn.mean()
            row["control_sd"] = drawn.std(ddof=1) if controls > 1 else None
        rows.append(row)
    return pa.Table.from_pylist(rows)
