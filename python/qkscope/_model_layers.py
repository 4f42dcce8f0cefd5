"""Describes the layers of a transformers model from two passes over a few tokens: heads, windows, scales and RoPE."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ._attention_calls import DOORS, Door, check_call, decoder_of, is_cross_attention, layer_of, run_decoder
from ._engine import InputError

_PROBE = 16  # tokens of a probe
_SHIFT = 3  # positions between the two probes


@dataclass
class Call:
    """One attention call of a probe."""

    key: np.ndarray  # (positions, heads, width)
    heads: tuple[int, int, int]  # query heads, key heads, width of q and k
    d_value: int
    scale: float
    window: int
    softcap: float
    sinks: bool


@dataclass
class Layer:
    """A layer as the metadata of a capture describes it."""

    kind: str = ""  # of the configuration: full_attention, linear_attention, ...
    call: Call | None = None  # None: no self-attention
    rope: str = "none"
    rope_dim: int = 0
    inv_freq: list[float] = field(default_factory=list)

    def settings(self) -> dict[str, Any]:
        """The layer as ExternalEngine expects it."""
        return {
            "attention": self.call is not None,
            "window": self.call.window if self.call else 0,
            "scale": self.call.scale if self.call else 1.0,
            "rope": self.rope,
            "rope_dim": self.rope_dim,
            "inv_freq": self.inv_freq,
        }


def text_config(model: Any) -> Any:
    """Returns the configuration of the language model."""
    return model.config.get_text_config(decoder=True)


def find_door(model: Any) -> Door:
    """Returns the first door of _attention_calls.py that intercepts attention calls of the model."""
    for door in DOORS:
        calls: list[Any] = []
        run_decoder(model, door, _probe_ids(model), lambda *call, into=calls: into.append(call))
        if calls:
            return door
    raise InputError(
        f"{model.config.model_type}: its attention does not pass through the attention interface of transformers, so q "
        "and k cannot be seen; expected modules that call ALL_ATTENTION_FUNCTIONS.get_interface()"
    )


def describe_layers(model: Any, door: Door) -> list[Layer]:
    """Describes all layers. Raises InputError for a model that cannot be captured."""
    config = text_config(model)
    calls = _probe(model, door, 0)
    if not calls:
        raise InputError(f"{model.config.model_type}: no layer has self-attention")
    count = max(whole(getattr(config, "num_hidden_layers", None), 0), max(calls) + 1)
    kinds = list(getattr(config, "layer_types", None) or [])
    layers = [Layer(kinds[i] if i < len(kinds) else "", calls.get(i)) for i in range(count)]
    shifted = _probe(model, door, _SHIFT) if "position_ids" in inspect.signature(decoder_of(model).forward).parameters else {}
    for number, layer in enumerate(layers):
        if layer.call is None:
            layer.kind = layer.kind or "no_attention"
        else:
            layer.kind = layer.kind or "attention"
            _describe_rope(model, layer, shifted.get(number))
    _check_equal_heads(model, layers)
    return layers


def _check_equal_heads(model: Any, layers: list[Layer]) -> None:
    first: tuple[int, tuple[int, int, int, int]] | None = None
    for number, layer in enumerate(layers):
        if layer.call is None:
            continue
        found = (*layer.call.heads, layer.call.d_value)
        if first is None:
            first = number, found
        elif found[:3] != first[1][:3]:
            raise InputError(
                f"{model.config.model_type}: heads differ by layer: layer {first[0]} has {first[1][0]} query heads, "
                f"{first[1][1]} key heads of width {first[1][2]}, layer {number} has {found[0]}, {found[1]} of width {found[2]}; "
                "a capture needs equal layers"
            )


def _probe_ids(model: Any) -> Any:
    """Ids that are no special tokens: a model may expect an image at one of those."""
    import torch

    config, text = model.config, text_config(model)
    special = {value for owner in (config, text) for name, value in vars(owner).items() if name.endswith(("token_id", "token_index"))}
    vocabulary = model.get_input_embeddings().weight.shape[0]
    chosen = [i for i in range(min(vocabulary, 4 * _PROBE + len(special))) if i not in special]
    ids = [chosen[(5 * i + 3) % len(chosen)] for i in range(_PROBE)]
    return torch.tensor([ids], device=model.device)


def _probe(model: Any, door: Door, shift: int) -> dict[int, Call]:
    """Runs a few tokens; returns the attention calls by layer. shift: added to the position of every token."""
    import torch

    calls: dict[int, Call] = {}
    shape = (1, _PROBE)

    def see(module: Any, query: Any, key: Any, value: Any, options: Mapping[str, Any]) -> None:
        if is_cross_attention(module):
            return
        layer = layer_of(module)
        check_call(layer, shape, query, key, options)
        if layer in calls:
            raise InputError(f"layer {layer}: attention is called twice in one pass ({type(module).__name__}); expected once")
        calls[layer] = Call(
            key=key[0].transpose(0, 1).float().cpu().numpy(),
            heads=(query.shape[1], key.shape[1], query.shape[3]),
            d_value=value.shape[3],
            scale=float(options.get("scaling") or query.shape[3] ** -0.5),
            window=_window(text_config(model), module, layer, options),
            softcap=float(options.get("softcap") or 0.0),
            sinks=options.get("s_aux") is not None,
        )

    positions = {} if shift == 0 else {"position_ids": torch.arange(shift, shift + _PROBE, device=model.device)[None]}
    run_decoder(model, door, _probe_ids(model), see, **positions)
    return calls


def _window(config: Any, module: Any, layer: int, options: Mapping[str, Any]) -> int:
    """Visible keys of a query, itself included; 0: all before it."""
    kinds = getattr(config, "layer_types", None)
    if kinds and layer < len(kinds) and kinds[layer] != "sliding_attention":
        return 0
    window = options.get("sliding_window") or getattr(module, "sliding_window", None)
    if window is None and kinds:
        window = getattr(config, "sliding_window", None)
    return whole(window, 0)


def _describe_rope(model: Any, layer: Layer, shifted: Call | None) -> None:
    """Infers the RoPE of a layer: the candidate that best rotates its keys at one position onto those at another.

    No tolerance is used: where queries are scaled by position (Ministral 3), the input of later layers depends on the
    position too.
    """
    assert layer.call is not None
    before = layer.call.key.astype(np.float64)
    moved = before if shifted is None else shifted.key.astype(np.float64)
    best = np.mean((moved - before) ** 2) if shifted is not None else np.inf  # NoPE: keys do not rotate
    width = before.shape[2]
    for inv_freq in _frequencies(model, layer.kind):
        dim = 2 * len(inv_freq)
        for begin in sorted({0, width - dim}) if dim <= width else ():
            for interleaved in (False, True):
                turned = before.copy()
                turned[:, :, begin : begin + dim] = _rotate(before[:, :, begin : begin + dim], _SHIFT * inv_freq, interleaved)
                error = np.mean((turned - moved) ** 2)
                if error >= best:
                    continue
                best = error
                values = {**_rope_settings(model, layer.kind), "dim": dim}
                values.update({"begin": begin} if begin else {})
                values.update({"interleaved": True} if interleaved else {})
                layer.rope = json.dumps(values)
                layer.rope_dim = dim
                layer.inv_freq = [float(x) for x in inv_freq.astype(np.float32)]


def _rotate(vectors: np.ndarray, angles: np.ndarray, interleaved: bool) -> np.ndarray:
    half = len(angles)
    first, second = (vectors[..., ::2], vectors[..., 1::2]) if interleaved else (vectors[..., :half], vectors[..., half:])
    cos, sin = np.cos(angles), np.sin(angles)
    parts = first * cos - second * sin, second * cos + first * sin
    return np.stack(parts, axis=-1).reshape(vectors.shape) if interleaved else np.concatenate(parts, axis=-1)


def _frequencies(model: Any, kind: str) -> list[np.ndarray]:
    """Candidates for the frequencies of a layer, those of its own kind first."""
    found: list[tuple[int, np.ndarray]] = []
    for name, buffer in decoder_of(model).named_buffers():
        last = name.rsplit(".", 1)[-1]
        if last.endswith("inv_freq") and not last.startswith("original") and "_original_" not in last and buffer.ndim == 1:
            found.append((0 if last == f"{kind}_inv_freq" else 1, buffer.double().cpu().numpy()))
    rotary = getattr(text_config(model), "rotary_dim", None)
    if rotary:
        found.append((2, 10000.0 ** (-np.arange(0, rotary, 2) / rotary)))
    return [values for _, values in sorted(found, key=lambda pair: pair[0])]


def _rope_settings(model: Any, kind: str) -> dict[str, Any]:
    """Type, theta and scaling of the configuration, under the names of qkscope's metadata."""
    values = getattr(text_config(model), "rope_parameters", None) or {}
    values = values.get(kind, values) if isinstance(values, Mapping) else {}
    settings = {"type": values.get("rope_type", "default"), "theta": float(values.get("rope_theta") or 10000.0)}
    kept = ("factor", "original_max_position_embeddings", "beta_fast", "beta_slow", "attention_factor", "low_freq_factor",
            "high_freq_factor")
    settings.update({name: values[name] for name in kept if values.get(name) is not None})
    return settings


def whole(value: Any, default: int) -> int:
    if isinstance(value, (list, tuple)):
        value = max(value, default=None)
    return int(value) if isinstance(value, (int, float)) else default
