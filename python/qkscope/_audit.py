"""Compares two engines stage by stage: qkscope with transformers, or either with stages saved to a file."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Union

import numpy as np

from . import _options
from ._attention_calls import import_torch, interface_door, layer_of
from ._engine import InputError
from ._transformers import load_model
from .model import Model, load

# Stages of a layer in order of computation. The first one that differs beyond rounding is reported.
STAGES = ("norm", "q", "k", "rotated q", "rotated k", "scores", "z", "attention output", "MLP output", "residual")
_HOOKS = {
    "norm": "ln1.hook_normalized", "q": "attn.hook_q", "k": "attn.hook_k", "rotated q": "attn.hook_rot_q",
    "rotated k": "attn.hook_rot_k", "scores": "attn.hook_attn_scores", "z": "attn.hook_z", "attention output": "hook_attn_out",
    "MLP output": "hook_mlp_out", "residual": "hook_resid_post",
}
# Families that normalise or scale attention and MLP outputs before adding them to the residual stream. qkscope records
# both outputs after this step, hooks on transformers modules before it, so audits against transformers skip both.
_POST_NORMS = ("afmoe", "exaone4", "falcon_h1", "gemma2", "gemma3_text", "gemma4_text", "glm4", "granite", "granitemoehybrid",
               "olmo2", "olmo3", "olmo_hybrid")
# Model families whose q and k are not compared: in transformers, nanochat applies q_norm and k_norm
# after RoPE; in qkscope, k of Falcon-H1 includes the key multiplier.
_OTHER_QK = ("falcon_h1", "nanochat")
_MIXERS = ("attn", "attention", "conv", "mamba", "mixer")  # ends of the names of modules that mix tokens
_ALLOWED = 16  # differences up to this many times the rounding of the type are expected
_FLOOR = 4  # so are differences up to this many units in the last place of the largest value
_LARGE = 2 * 10**9  # models with more parameters get no second pass that measures the rounding

Key = tuple[str, int]  # stage and layer; -1: outside the layers
Stages = dict[Key, np.ndarray]
Against = Union[str, "PathLike[str]", Any]


@dataclass
class Row:
    """Difference between the two engines at one stage of one layer."""

    stage: str
    layer: int
    absolute: float  # largest difference
    relative: float  # largest difference over the root mean square of the stage
    expected: float  # largest relative difference that rounding explains
    note: str = ""

    @property
    def agrees(self) -> bool:
        return self.relative <= self.expected


@dataclass
class Audit:
    """The result of audit(). str(result) is a table; agrees is True if no stage differs by more than rounding."""

    engines: tuple[str, str]
    rows: list[Row] = field(default_factory=list)
    logits: dict[str, float] = field(default_factory=dict)  # difference, kl, equal_tokens

    @property
    def first(self) -> Row | None:
        """The first stage whose difference is larger than rounding explains."""
        return next((row for row in self.rows if not row.agrees), None)

    @property
    def agrees(self) -> bool:
        return self.first is None

    def __str__(self) -> str:
        lines = [f"{self.engines[0]} against {self.engines[1]}", f"{'stage':18}{'layer':>6}{'difference':>12}{'relative':>11}{'expected':>11}"]
        shown = {id(row) for stage in dict.fromkeys(row.stage for row in self.rows) for row in (self._worst(stage),)}
        for row in self.rows:
            if id(row) in shown or row is self.first:
                layer = "" if row.layer < 0 else str(row.layer)
                lines.append(f"{row.stage:18}{layer:>6}{row.absolute:12.2e}{row.relative:11.1e}{row.expected:11.1e}"
                             f"{'' if row.agrees else '  beyond rounding'}")
        if self.logits:
            lines.append(f"logits: largest difference {self.logits['difference']:.2e}, KL {self.logits['kl']:.1e}, "
                         f"equal next tokens {100 * self.logits['equal_tokens']:.1f} %")
        lines.append(self.verdict())
        return "\n".join(lines)

    def verdict(self) -> str:
        """One line: that all stages agree, or the first one that does not and its likely cause."""
        first = self.first
        if first is None:
            return "all stages agree within rounding"
        where = first.stage if first.layer < 0 else f"{first.stage} of layer {first.layer}"
        return f"first difference: {where}" + (f": {first.note}" if first.note else "")

    def _worst(self, stage: str) -> Row:
        return max((row for row in self.rows if row.stage == stage), key=lambda row: row.relative / row.expected)

    def figure(self) -> str:
        """SVG: relative difference over layers, a line per stage."""
        return _figure(self)


@_options.checked
def audit(
    checkpoint: str | PathLike[str],
    texts: str | Sequence[Any] | None = None,
    against: Against = "transformers",
    *,
    dtype: str = "float32",
    device: str = "cpu",
    length: int = 256,
    rows: int = 32,
    save: str | PathLike[str] | None = None,
) -> Audit:
    """Runs the same token ids through two engines and compares every stage; docs/how-to/transformers-engine.md.

    checkpoint: a folder or model id. texts: a text or token ids; None: `length` fixed ids. against:
    "transformers", a model of transformers, or a file that save= wrote. rows: positions that are compared, the last
    one included. save: also writes the stages of the first engine to a file, which another machine, version or type can be
    compared with.
    """
    native = load(checkpoint, device=device, dtype=dtype if device != "cpu" else None, arrays="numpy")
    ids = _token_ids(native, texts, _options.whole("length", length, 2, 1 << 20))
    chosen = sorted(set(np.linspace(0, len(ids) - 1, min(_options.whole("rows", rows, 1, 1 << 20), len(ids))).astype(int).tolist()))
    ours = _native_stages(native, ids, chosen)
    settings = {"engine": "qkscope", "dtype": dtype, "device": device, "ids": ids, "rows": chosen}
    if save is not None:
        save_stages(save, ours, settings)
    if isinstance(against, (str, PathLike)) and fspath(against) != "transformers":
        theirs, other = load_stages(against)
        if other["ids"] != ids or other["rows"] != chosen:
            raise InputError(f"{fspath(against)}: holds stages of other tokens or rows; expected those of this audit")
        return _compare(ours, theirs, _by_formula(ours, dtype), ("qkscope", f"{other['engine']} in {fspath(against)}"), native)
    hf = load_model(fspath(checkpoint), None, dtype, device) if isinstance(against, (str, PathLike)) else against
    theirs = transformers_stages(hf, ids, chosen)
    if native.cfg.family == "falcon_h1":  # qkscope folds the factor of attention's input into the weights
        theirs = {key: value for key, value in theirs.items() if key[0] != "norm"}
    if native.cfg.family in _POST_NORMS:
        theirs = {key: value for key, value in theirs.items() if key[0] not in ("attention output", "MLP output")}
    if native.cfg.qkv_clip or native.cfg.family in _OTHER_QK:  # qkscope's q and k are clipped
        theirs = {key: value for key, value in theirs.items() if key[0] not in ("q", "k")}
    expected = _measured(hf, theirs, ids, chosen, dtype)
    _, transformers = import_torch()
    return _compare(ours, theirs, expected, ("qkscope", f"transformers {transformers.__version__}"), native)


def _token_ids(model: Model, texts: Any, length: int) -> list[int]:
    if texts is None:
        return [int(i) for i in (np.arange(length) * 7919 + 13) % min(model.cfg.d_vocab, 30000)]
    if isinstance(texts, str):
        return [int(i) for i in model._encode(texts, None)]
    ids = [int(i) for i in texts]
    if len(ids) < 2:
        raise InputError(f"texts: found {len(ids)} token ids, expected a text or at least 2 ids")
    return ids


# ---- Activations of qkscope and transformers at the compared positions, as float32 arrays ----


def _native_stages(model: Model, ids: list[int], rows: list[int]) -> Stages:
    """Returns activations of qkscope, (rows, ...), by stage and layer; scores are (rows, heads, keys)."""
    qk_norm = bool(model.cfg.qk_norm)
    cache = model.cache(np.array(ids), positions=rows, remove_batch_dim=True)
    stages: Stages = {("embedding", -1): np.asarray(cache["blocks.0.hook_resid_pre"])}
    for layer in range(model.cfg.n_layers):
        for stage in STAGES:
            hook = _HOOKS[stage] + ("_normed" if qk_norm and stage in ("q", "k") else "")
            name = f"blocks.{layer}.{hook}"
            if name not in cache:
                continue
            values = np.asarray(cache[name])
            stages[stage, layer] = values.transpose(1, 0, 2) if stage == "scores" else values
    stages["logits", -1] = np.asarray(cache["logits"])
    return stages


def transformers_stages(model: Any, ids: list[int], rows: list[int]) -> Stages:
    """Returns activations of a transformers model by stage and layer, from forward hooks and attention calls."""
    torch, _ = import_torch()
    stages: Stages = {}
    at = torch.tensor(rows, device=model.device)

    def keep(stage: str, layer: int, values: Any) -> None:
        values = values[0] if isinstance(values, tuple) else values
        values = values[None] if values.ndim == 2 else values  # experts of Llama 4: (positions, width)
        if values.ndim == 4 and values.shape[1] != len(ids):  # some families normalise (texts, heads, positions, width)
            values = values.transpose(1, 2)
        stages[stage, layer] = values[0].index_select(0, at).float().cpu().numpy()

    def see(module: Any, query: Any, key: Any, value: Any, options: Mapping[str, Any]) -> None:
        layer = layer_of(module)
        keep("rotated q", layer, query.transpose(1, 2))
        keep("rotated k", layer, key.transpose(1, 2))
        stages["scores", layer] = _scores(torch, query[0], key[0], at, options)

    hooks = _stage_hooks(model, keep)
    try:
        with torch.no_grad(), interface_door(model, see, lambda module, output: keep("z", layer_of(module), output)):
            logits = model(input_ids=torch.tensor([ids], device=model.device), use_cache=False).logits
    finally:
        for hook in hooks:
            hook.remove()
    keep("logits", -1, logits)
    return stages


def _stage_hooks(model: Any, keep: Any) -> list[Any]:
    """Registers hooks on the modules of every layer."""
    hooks = []
    named = dict(model.named_modules())
    for name, attention in named.items():
        layer = getattr(attention, "layer_idx", None)
        if layer is None or not hasattr(attention, "forward") or not name.endswith(_MIXERS):
            continue
        block = named[name.rsplit(".", 1)[0]]

        def into(stage: str, number: int = layer) -> Any:
            return lambda module, inputs, output: keep(stage, number, output)

        def before(module: Any, inputs: Any, named_inputs: Any, number: int = layer) -> None:
            keep("norm", number, named_inputs.get("hidden_states", inputs[0] if inputs else None))

        hooks.append(attention.register_forward_pre_hook(before, with_kwargs=True))
        hooks.append(attention.register_forward_hook(into("attention output")))
        hooks.append(block.register_forward_hook(into("residual")))
        if layer == 0:
            hooks.append(block.register_forward_pre_hook(
                lambda module, inputs, named_inputs: keep("embedding", -1, named_inputs.get("hidden_states", inputs[0] if inputs else None)),
                with_kwargs=True))
        for mlp in ("mlp", "block_sparse_moe", "feed_forward"):
            if hasattr(block, mlp):
                hooks.append(getattr(block, mlp).register_forward_hook(into("MLP output")))
        for kind in "qk":
            names = (f"{kind}_norm", f"{kind}_layernorm", f"{kind}_proj")
            source = next((getattr(attention, end) for end in names if getattr(attention, end, None) is not None), None)
            if source is not None:
                hooks.append(source.register_forward_hook(into(kind)))
    return hooks


def _scores(torch: Any, query: Any, key: Any, rows: Any, options: Mapping[str, Any]) -> np.ndarray:
    """Returns scaled, soft-capped, masked attention scores of some queries: (rows, heads, keys)."""
    query = query.index_select(1, rows).float()
    key = key.float().repeat_interleave(query.shape[0] // key.shape[0], dim=0)
    scores = query @ key.transpose(1, 2) * float(options.get("scaling") or query.shape[2] ** -0.5)
    if options.get("softcap"):
        scores = torch.tanh(scores / options["softcap"]) * options["softcap"]
    mask = options.get("attention_mask")
    positions = torch.arange(key.shape[1], device=key.device)
    visible = positions[None, :] <= rows[:, None]
    window = options.get("sliding_window")
    if mask is None and window:
        visible = visible & (positions[None, :] > rows[:, None] - window)
    if mask is not None and mask.ndim == 4:
        seen = mask[0, 0].index_select(0, rows)[:, : key.shape[1]]
        visible = seen if seen.dtype is torch.bool else seen > torch.finfo(seen.dtype).min / 2
    return scores.masked_fill(~visible[None], -torch.inf).transpose(0, 1).cpu().numpy()


# ---- Differences between the two engines, compared with the rounding errors of the data type ----


def _difference(a: np.ndarray, b: np.ndarray) -> tuple[float, float]:
    """Returns the largest absolute difference, and that over the root mean square of b. Infinite if masks differ."""
    a, b = a.reshape(a.shape[0], -1).astype(np.float64), b.reshape(b.shape[0], -1).astype(np.float64)
    if a.shape != b.shape or not np.array_equal(np.isfinite(a), np.isfinite(b)):
        return float("inf"), float("inf")
    finite = np.isfinite(b)
    if not finite.any():
        return 0.0, 0.0
    absolute = float(np.abs(a[finite] - b[finite]).max())
    return absolute, absolute / float(np.sqrt(np.mean(b[finite] ** 2)) + 1e-30)


def _unit(dtype: str) -> float:
    return {"float32": 2.0**-23, "bfloat16": 2.0**-7, "float16": 2.0**-10}.get(dtype, 2.0**-23)


def _by_formula(stages: Stages, dtype: str) -> dict[Key, float]:
    """Estimates the relative error: it grows with the square root of the number of roundings, a dozen per layer."""
    layers = 1 + max(layer for _, layer in stages)
    return {(stage, layer): _unit(dtype) * 32 * (12 * (layers if stage == "logits" else max(layer, 0) + 1)) ** 0.5
            for stage, layer in stages}


def _measured(model: Any, stages: Stages, ids: list[int], rows: list[int], dtype: str) -> dict[Key, float]:
    """Measures the rounding of a type: the stages against the same pass in the next wider type."""
    torch, _ = import_torch()
    if sum(p.numel() for p in model.parameters()) > _LARGE:
        return _by_formula(stages, dtype)
    wider = torch.float64 if dtype == "float32" else torch.float32
    try:
        finer = transformers_stages(copy.deepcopy(model).to(wider), ids, rows)
    except (RuntimeError, NotImplementedError):  # some kernels, such as those of experts, do not support the wider type
        return _by_formula(stages, dtype)
    expected = {}
    largest = 0.0  # running maximum: rounding errors grow through the layers, but their measurement fluctuates
    for key in sorted(stages, key=_order):
        relative = _difference(stages[key], finer[key])[1] if key in finer else 0.0
        largest = max(largest, relative if np.isfinite(relative) else 0.0)
        expected[key] = max(_last_place(stages[key], dtype), _ALLOWED * (relative if key[0] in ("norm", "embedding") else largest))
    return expected


def _last_place(values: np.ndarray, dtype: str) -> float:
    """Smallest relative difference to report: a few ulp of the largest value, over the root mean square."""
    finite = values[np.isfinite(values)].astype(np.float64)
    if not finite.size:
        return 0.0
    return _FLOOR * _unit(dtype) * float(np.abs(finite).max() / (np.sqrt(np.mean(finite**2)) + 1e-30))


def _order(key: Key) -> tuple[int, int]:
    stage, layer = key
    return (-1, 0) if stage == "embedding" else (1 << 30, 0) if stage == "logits" else (layer, STAGES.index(stage))


def _compare(ours: Stages, theirs: Stages, expected: Mapping[Key, float], engines: tuple[str, str], model: Model) -> Audit:
    result = Audit(engines)
    for key in sorted(set(ours) & set(theirs), key=_order):
        absolute, relative = _difference(ours[key], theirs[key])
        result.rows.append(Row(key[0], key[1], absolute, relative, expected[key]))
    if ("logits", -1) in theirs:
        a, b = (values["logits", -1].astype(np.float64) for values in (ours, theirs))
        log_a, log_b = a - _log_sum(a), b - _log_sum(b)
        result.logits = {
            "difference": float(np.abs(a - b).max()),
            "kl": float(np.mean(np.sum(np.exp(log_b) * (log_b - log_a), axis=-1))),
            "equal_tokens": float(np.mean(a.argmax(-1) == b.argmax(-1))),
        }
    first = result.first
    if first is not None:
        first.note = _likely_cause(first, ours, theirs, model)
    return result


def _log_sum(values: np.ndarray) -> np.ndarray:
    top = values.max(-1, keepdims=True)
    total: np.ndarray = top + np.log(np.exp(values - top).sum(-1, keepdims=True))
    return total


def _likely_cause(first: Row, ours: Stages, theirs: Stages, model: Model) -> str:
    """Returns the likely cause if this stage is the first that differs."""
    key = first.stage, first.layer
    a, b = (values[key].reshape(values[key].shape[0], -1).astype(np.float64) for values in (ours, theirs))
    layer = "a sliding layer" if first.layer >= 0 and model.cfg.window[first.layer] else "a layer of full attention"
    if first.stage == "embedding":
        return "embedding, its scale or its positions"
    if first.stage == "norm":
        return "norm epsilon" if _same_direction(a, b) else "weights of the norm"
    if first.stage in ("q", "k"):
        return "q/k norm" if model.cfg.qk_norm else f"projection of {first.stage}"
    if first.stage.startswith("rotated"):
        kind = first.stage[-1]
        plain = ours.get((kind, first.layer))
        turned = [not np.allclose(x, plain.reshape(x.shape), atol=1e-3 * np.abs(x).max()) for x in (a, b)] if plain is not None else [True, True]
        if turned[0] != turned[1]:
            return f"NoPE layer: only {'qkscope' if turned[0] else 'the other engine'} rotates {layer}"
        lengths = np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
        if np.abs(lengths - 1).max() > 1e-3:
            return f"attention factor of RoPE (YaRN), {lengths.mean():.4g} times, in {layer}"
        return f"frequencies of RoPE (theta or scaling) in {layer}"
    if first.stage == "scores":
        seen = [int(np.isfinite(x[-1]).sum()) // ours["rotated q", first.layer].shape[1] for x in (a, b)]
        if not np.array_equal(np.isfinite(a), np.isfinite(b)):
            return f"window: the last query sees {seen[0]} keys in qkscope and {seen[1]} in the other engine"
        finite = np.isfinite(a) & (np.abs(b) > 1e-3 * np.abs(b[np.isfinite(b)]).max())
        ratio = a[finite] / b[finite]
        if ratio.size and ratio.std() < 1e-3 * abs(ratio.mean()):
            return f"attention scale, {ratio.mean():.6g} times"
        return "soft cap or bias of the scores"
    causes = {"z": "softmax or values", "attention output": "output projection", "MLP output": "MLP", "residual": "residual addition",
              "logits": "output embedding (tied or not), final norm or soft cap"}
    return causes[first.stage]


def _same_direction(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether the rows of two arrays differ only by one factor per row."""
    cosine = (a * b).sum(1) / (np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1) + 1e-30)
    return bool(np.all(cosine > 1 - 1e-9))


# ---- Saving and loading activations as safetensors files, and drawing the figure ----


def save_stages(path: str | PathLike[str], stages: Stages, settings: Mapping[str, Any]) -> None:
    header: dict[str, Any] = {"__metadata__": {"audit": json.dumps(settings)}}
    offset = 0
    for (stage, layer), values in stages.items():
        header[f"{stage}/{layer}"] = {"dtype": "F32", "shape": list(values.shape), "data_offsets": [offset, offset + 4 * values.size]}
        offset += 4 * values.size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for values in stages.values():
            file.write(np.ascontiguousarray(values, dtype=np.float32).tobytes())


def load_stages(path: str | PathLike[str]) -> tuple[Stages, dict[str, Any]]:
    try:
        content = Path(path).read_bytes()
        size = int.from_bytes(content[:8], "little")
        header = json.loads(content[8 : 8 + size])
        settings = json.loads(header.pop("__metadata__")["audit"])
        stages: Stages = {}
        for name, tensor in header.items():
            begin, end = tensor["data_offsets"]
            stage, layer = name.rsplit("/", 1)
            stages[stage, int(layer)] = np.frombuffer(content[8 + size + begin : 8 + size + end], np.float32).reshape(tensor["shape"])
        return stages, settings
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{fspath(path)}: cannot be read as the stages of an audit ({error}); expected a file of audit(save=...)")


def _figure(result: Audit) -> str:
    width, height, left, top = 640, 360, 60, 20
    layered = [row for row in result.rows if row.layer >= 0]
    if not layered:
        raise InputError("figure: no stage of a layer was compared")
    last = max(1, max(row.layer for row in layered))
    shown = [max(row.relative, 1e-9) if np.isfinite(row.relative) else 10.0 for row in layered]
    low, high = -9.0, max(1.0, float(np.ceil(np.log10(max(shown)))))

    def point(row: Row) -> str:
        value = np.log10(min(max(row.relative, 1e-9), 10.0**high))
        x = left + (width - left - 150) * row.layer / last
        y = top + (height - top - 40) * (high - value) / (high - low)
        return f"{x:.1f},{y:.1f}"

    colors = ("#1b6ca8", "#d1495b", "#66a182", "#edae49", "#6f4e7c", "#00798c", "#9b5de5", "#8d6a4f", "#444444", "#2e4057")
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="11">',
             f'<text x="{left}" y="{height - 8}">layer</text>', f'<text x="4" y="{top}">relative difference</text>']
    for exponent in range(int(low), int(high) + 1, 2):
        y = top + (height - top - 40) * (high - exponent) / (high - low)
        parts.append(f'<line x1="{left}" x2="{width - 150}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/><text x="20" y="{y + 4:.1f}">1e{exponent}</text>')
    for number, stage in enumerate(STAGES):
        own = [row for row in layered if row.stage == stage]
        if own:
            color = colors[number % len(colors)]
            parts.append(f'<polyline fill="none" stroke="{color}" stroke-width="1.5" points="{" ".join(map(point, own))}"/>')
            parts.append(f'<text x="{width - 140}" y="{top + 16 * number + 10}" fill="{color}">{stage}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"
