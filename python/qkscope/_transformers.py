"""Runs decoders of Hugging Face transformers for captures and statistics; docs/how-to/transformers-engine.md.

Every attention call of a model passes through AttentionInterface.get_interface() of transformers, with q and k exactly
as they enter the dot product. During a pass this module wraps the function that get_interface() returns, keeps q and k
of the wanted heads and rows, and returns what the function returns.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import json
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _engine
from ._engine import InputError

if TYPE_CHECKING:
    import torch
    from transformers import PretrainedConfig, PreTrainedModel
    from transformers.utils import ModelOutput

_PROBE = 16  # tokens of the passes that find out what a model is
_SHIFT = 3  # positions between the two probes
_KEPT_BYTES = 256 << 20  # gathered rows that stay on a GPU until they are copied together

Seen = Callable[[Any, Any, Any, Any, Mapping[str, Any]], None]


def import_torch() -> tuple[Any, Any]:
    """Returns the modules torch and transformers."""
    try:
        import torch
        import transformers
    except ImportError as missing:
        raise InputError(f"engine: transformers needs torch and transformers ({missing}); pip install torch transformers")
    return torch, transformers


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


class TransformersEngine:
    """A transformers model as an engine of captures and statistics.

    model: a decoder of transformers, in evaluation mode. tokenizer: tokenizes texts if the tokenizer of the
    configuration is none that qkscope reads; by default that of the model's name.
    """

    def __init__(self, model: Any, tokenizer: Any = None):
        self._torch, transformers = import_torch()
        _check_model(model)
        self.model = model
        self._tokenizer = tokenizer
        self._version = transformers.__version__
        self._door = _find_door(self)
        self._layers = _describe_layers(self)
        self._heads: dict[tuple[Any, ...], Any] = {}  # head indices on the devices
        self._described = self._description()

    @property
    def handle(self) -> _engine.ExternalEngine:
        """The engine of the library, which refers to this object; not kept, because a cycle of both would never be freed."""
        return _engine.ExternalEngine(self, self._described)

    @property
    def config(self) -> PretrainedConfig:
        return text_config(self.model)

    @property
    def vocabulary(self) -> int:
        """Number of token ids."""
        return int(self.model.get_input_embeddings().weight.shape[0])

    def forward(self, ids: Any, see: Seen, **more: Any) -> ModelOutput:
        """Runs the decoder without its output layer; calls see() before every attention call."""
        body = _body(self.model)
        accepted = inspect.signature(body.forward).parameters
        open_ended = any(p.kind is p.VAR_KEYWORD for p in accepted.values())
        options = {"use_cache": False, **more}
        chosen = {name: value for name, value in options.items() if name in accepted or open_ended}
        with self._torch.no_grad(), self._door(self.model, see):
            return body(input_ids=ids, **chosen)

    def run(self, request: _engine.PassRequest) -> None:
        """Runs the sequences of a request and hands over the wanted vectors."""
        _check_model(self.model)
        ids, mask = self._padded(request.sequences)
        sink = _Rows(self, request, ids.shape)
        self.forward(ids, sink.see, **({} if mask is None else {"attention_mask": mask}))
        sink.finish()

    def encode(self, text: str, max_length: int) -> tuple[list[int], bool]:
        """Returns the token ids of a text and whether they were truncated."""
        if self._tokenizer is None:
            from transformers import AutoTokenizer

            try:
                self._tokenizer = AutoTokenizer.from_pretrained(self.model.name_or_path)
            except (OSError, ValueError, ImportError) as error:
                raise InputError(f"transformers has no tokenizer for {self.model.name_or_path!r} ({error}); give one: "
                                 "TransformersEngine(model, tokenizer)")
        ids = self._tokenizer(text)["input_ids"]
        return ids[:max_length], len(ids) > max_length

    def _padded(self, sequences: list[np.ndarray]) -> tuple[Any, Any]:
        """Token ids (sequences, longest), padded on the right, and their mask; None if nothing is padded."""
        torch = self._torch
        length = max(len(one) for one in sequences)
        ids = torch.zeros((len(sequences), length), dtype=torch.long)
        for row, one in enumerate(sequences):
            ids[row, : len(one)] = torch.from_numpy(np.array(one, dtype=np.int64))
        device = self.model.device
        if all(len(one) == length for one in sequences):
            return ids.to(device), None
        mask = torch.arange(length)[None, :] < torch.tensor([len(one) for one in sequences])[:, None]
        return ids.to(device), mask.long().to(device)

    def indices(self, name: tuple[Any, ...], values: np.ndarray | None, count: int, device: Any) -> torch.Tensor:
        """Returns indices on a device; those of heads are the same in every pass and are kept."""
        key = (*name, device)
        if key not in self._heads:
            chosen = np.arange(count) if values is None else values
            self._heads[key] = self._torch.from_numpy(np.array(chosen, dtype=np.int64)).to(device)
        return self._heads[key]

    def _description(self) -> dict[str, Any]:
        calls = [layer.call for layer in self._layers if layer.call is not None]
        config = self.config
        query_heads, key_heads, width = calls[0].heads
        if query_heads % key_heads:
            raise InputError(f"{self.model.config.model_type}: {query_heads} query heads and {key_heads} key heads; expected "
                             "query heads that share key heads equally")
        dtype = str(self.model.dtype).removeprefix("torch.")
        identity = {
            "attention": self.model.config._attn_implementation,
            "dtype": dtype,
            "layers": [layer.kind for layer in self._layers],
            "weights": weights_fingerprint(self.model),
        }
        return {
            "engine": f"transformers {self._version}",
            "identity": json.dumps(identity),
            "family": str(self.model.config.model_type),
            "n_layers": len(self._layers),
            "n_heads": query_heads,
            "n_key_heads": key_heads,
            "d_head": width,
            "d_value": calls[0].d_value,
            "d_model": int(getattr(config, "hidden_size", None) or 1),
            "d_mlp": _whole(getattr(config, "intermediate_size", None), 1),
            "d_vocab": self.vocabulary,
            "n_ctx": _whole(getattr(config, "max_position_embeddings", None), 1 << 40),
            "softcap": calls[0].softcap,
            "sinks": any(call.sinks for call in calls),
            "device": str(self.model.device),
            "dtype": dtype,
            "layers": [_layer_dict(layer) for layer in self._layers],
        }


class _Rows:
    """Gathers the wanted rows and heads of one pass on the device of the model."""

    def __init__(self, engine: TransformersEngine, request: _engine.PassRequest, shape: tuple[int, int]):
        self._engine = engine
        self._request = request
        self._shape = shape
        self._begins = np.cumsum([0, *(len(one) for one in request.sequences)])
        self._wanted: dict[int, list[tuple[str, Any, Any]]] = {}
        wanted = request.wanted
        for (layer, kind, _, heads), places in zip(wanted, self._places([rows for _, _, rows, _ in wanted])):
            self._wanted.setdefault(layer, []).append((kind, places, heads))
        self._waiting: list[tuple[int, str, Any]] = []
        self._bytes = 0

    def see(self, module: Any, query: Any, key: Any, value: Any, options: Mapping[str, Any]) -> None:
        layer = layer_of(module)
        _check_call(layer, self._shape, query, key, options)
        for kind, places, heads in self._wanted.get(layer, ()):
            self._put(layer, kind, self._gather(layer, kind, {"q": query, "k": key, "v": value}[kind], places, heads))

    def finish(self) -> None:
        """Copies the rows that wait on a GPU, in one transfer."""
        if not self._waiting:
            return
        torch = self._engine._torch
        gathered = torch.cat([rows.reshape(-1) for _, _, rows in self._waiting])
        together = torch.empty(gathered.shape, pin_memory=True)
        together.copy_(gathered)
        begin = 0
        for layer, kind, rows in self._waiting:
            self._request.put(layer, kind, together[begin : begin + rows.numel()].reshape(rows.shape).numpy())
            begin += rows.numel()
        self._waiting = []
        self._bytes = 0

    def _places(self, rows: list[np.ndarray | None]) -> list[tuple[Any, Any]]:
        """Sequences and positions of the rows of each tensor, copied to the device of the model before the pass at once: a copy in a
        layer would keep the CPU from launching kernels ahead."""
        torch = self._engine._torch
        flat = np.concatenate([np.arange(self._begins[-1]) if one is None else one for one in rows] or [np.zeros(0, np.int64)])
        sequence = np.searchsorted(self._begins, flat, side="right") - 1
        both = torch.from_numpy(np.stack([sequence, flat - self._begins[sequence]]))
        device = self._engine.model.device
        if device.type == "cuda":
            both = both.pin_memory().to(device, non_blocking=True)
        sizes = [int(self._begins[-1]) if one is None else len(one) for one in rows]
        return list(zip(both[0].split(sizes), both[1].split(sizes)))

    def _gather(self, layer: int, kind: str, vectors: Any, places: tuple[Any, Any], heads: Any) -> Any:
        """vectors: (sequences, heads, positions, width). Returns (rows, heads, width) in float32."""
        device = vectors.device
        chosen = self._engine.indices((layer, kind), heads, vectors.shape[1], device)
        sequence, position = (index.to(device) for index in places)
        if len(self._begins) == 2:  # one sequence
            return vectors[0][chosen[None, :], position[:, None]].float()
        return vectors[sequence[:, None], chosen[None, :], position[:, None]].float()

    def _put(self, layer: int, kind: str, rows: Any) -> None:
        if rows.device.type == "cpu":
            self._request.put(layer, kind, rows.contiguous().numpy())
            return
        self._waiting.append((layer, kind, rows))
        self._bytes += rows.numel() * 4
        if self._bytes >= _KEPT_BYTES or rows.device != self._waiting[0][2].device:
            self.finish()


def engine_of(model: Any) -> TransformersEngine:
    """Returns a model as an engine; accepts an engine."""
    return model if isinstance(model, TransformersEngine) else TransformersEngine(model)


def load_engine(
    name: str, revision: str | None, dtype: str, device: str, overrides: str, tokenizer: str
) -> _engine.ExternalEngine:
    """Loads the model of a configuration with `engine: transformers`."""
    return TransformersEngine(load_model(name, revision, dtype, device, overrides), _tokenizer(tokenizer)).handle


def load_model(name: str, revision: str | None = None, dtype: str = "float32", device: str = "auto", overrides: str = "") -> PreTrainedModel:
    """Loads a causal model of transformers in evaluation mode. No code of a checkpoint is ever run."""
    torch, transformers = import_torch()
    on_gpu = device != "cpu" and torch.cuda.is_available()
    if not on_gpu and device.startswith("cuda"):
        raise InputError(f"device {device}: torch finds no GPU")
    if not on_gpu and dtype != "float32":
        logging.getLogger("qkscope").info("model.dtype %s: on the CPU transformers computes in float32", dtype)
        dtype = "float32"
    source: dict[str, Any] = {"revision": revision or "main", "trust_remote_code": False}
    if name.endswith(".gguf"):
        source["gguf_file"] = Path(name).name
        name = str(Path(name).parent)
    try:
        config = transformers.AutoConfig.from_pretrained(name, **source)
        _merge(config, json.loads(overrides) if overrides else {})
        causal = type(config) in transformers.AutoModelForCausalLM._model_mapping
        loader = transformers.AutoModelForCausalLM if causal else transformers.AutoModel
        model = loader.from_pretrained(
            name, config=config, dtype=getattr(torch, dtype), device_map="auto" if on_gpu and device == "auto" else None, **source)
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise InputError(f"transformers cannot load {name!r}: {error}")
    if on_gpu and device != "auto":
        model.to(device)
    return model.eval()


def text_config(model: Any) -> PretrainedConfig:
    """Returns the configuration of the language model."""
    return model.config.get_text_config(decoder=True)


def layer_of(module: Any) -> int:
    """Returns the number of the layer that an attention module belongs to."""
    layer = getattr(module, "layer_idx", None)
    if layer is None:
        raise InputError(f"{type(module).__name__}: the attention module has no layer_idx, so its rows cannot be assigned to a "
                         "layer; set module.layer_idx")
    return int(layer)


def weights_fingerprint(model: Any) -> str:
    """Returns a hash over names, shapes and up to 256 values of every parameter."""
    total = hashlib.blake2b(digest_size=8)
    for name, parameter in model.named_parameters():
        values = parameter.detach().reshape(-1)
        step = max(1, values.numel() // 256)
        total.update(f"{name}{list(parameter.shape)}".encode())
        total.update(values[::step][:256].float().cpu().numpy().tobytes())
    return total.hexdigest()


# ---- How attention calls are seen ----


@contextlib.contextmanager
def interface_door(model: Any, see: Seen) -> Iterator[None]:
    """Calls see() before every attention call of the model through the attention interface of transformers."""
    from transformers.modeling_utils import AttentionInterface

    own = {id(module) for module in model.modules()}
    original = AttentionInterface.get_interface

    def get_interface(self: Any, name: str, default: Any) -> Any:
        function = original(self, name, default)

        def observed(module: Any, query: Any, key: Any, value: Any, *args: Any, **options: Any) -> Any:
            if id(module) in own:
                see(module, query, key, value, options)
            return function(module, query, key, value, *args, **options)

        return observed

    AttentionInterface.get_interface = get_interface
    try:
        yield
    finally:
        AttentionInterface.get_interface = original


@contextlib.contextmanager
def sdpa_door(model: Any, see: Seen) -> Iterator[None]:
    """The same for families that call torch's scaled_dot_product_attention themselves (falcon)."""
    from torch.nn import functional

    active: list[Any] = []
    modules = [module for module in model.modules() if getattr(module, "layer_idx", None) is not None]
    hooks = [module.register_forward_pre_hook(lambda module, _: active.append(module)) for module in modules]
    hooks += [module.register_forward_hook(lambda module, inputs, output: (active.pop(), None)[1]) for module in modules]
    original = functional.scaled_dot_product_attention

    def observed(query: Any, key: Any, value: Any, *args: Any, **options: Any) -> Any:
        if active:
            see(active[-1], query, key, value, {"scaling": options.get("scale"), "dropout": options.get("dropout_p", 0.0)})
        return original(query, key, value, *args, **options)

    functional.scaled_dot_product_attention = observed
    try:
        yield
    finally:
        functional.scaled_dot_product_attention = original
        for hook in hooks:
            hook.remove()


@contextlib.contextmanager
def method_door(model: Any, see: Seen) -> Iterator[None]:
    """The same for families whose attention modules have a method _attn(query, key, value, ...) (gptj, codegen)."""
    modules = [module for module in model.modules() if hasattr(module, "_attn") and not hasattr(module, "_attn_implementation")]
    for module in modules:
        def observed(query: Any, key: Any, value: Any, *args: Any, _module: Any = module, _call: Any = module._attn,
                     **options: Any) -> Any:
            see(_module, query, key, value, {})
            return _call(query, key, value, *args, **options)

        module._attn = observed
    try:
        yield
    finally:
        for module in modules:
            del module._attn


# ---- What a model is ----


def _find_door(engine: TransformersEngine) -> Callable[[Any, Seen], contextlib.AbstractContextManager[None]]:
    """Returns the first way by which attention calls of the model can be seen."""
    for door in (interface_door, sdpa_door, method_door):
        engine._door = door
        calls: list[Any] = []
        engine.forward(_probe_ids(engine), lambda *call, into=calls: into.append(call))
        if calls:
            return door
    raise InputError(
        f"{engine.model.config.model_type}: its attention does not pass through the attention interface of transformers, so q "
        "and k cannot be seen; expected modules that call ALL_ATTENTION_FUNCTIONS.get_interface()"
    )


def _describe_layers(engine: TransformersEngine) -> list[Layer]:
    config = engine.config
    calls = _probe(engine, 0)
    if not calls:
        raise InputError(f"{engine.model.config.model_type}: no layer has self-attention")
    count = max(_whole(getattr(config, "num_hidden_layers", None), 0), max(calls) + 1)
    kinds = list(getattr(config, "layer_types", None) or [])
    layers = [Layer(kinds[i] if i < len(kinds) else "", calls.get(i)) for i in range(count)]
    shifted = _probe(engine, _SHIFT) if "position_ids" in inspect.signature(_body(engine.model).forward).parameters else {}
    for number, layer in enumerate(layers):
        if layer.call is None:
            layer.kind = layer.kind or "no_attention"
        else:
            layer.kind = layer.kind or "attention"
            _describe_rope(engine, layer, shifted.get(number))
    _check_equal_heads(engine, layers)
    return layers


def _check_equal_heads(engine: TransformersEngine, layers: list[Layer]) -> None:
    first: tuple[int, tuple[int, int, int, int]] | None = None
    for number, layer in enumerate(layers):
        if layer.call is None:
            continue
        found = (*layer.call.heads, layer.call.d_value)
        if first is None:
            first = number, found
        elif found[:3] != first[1][:3]:
            raise InputError(
                f"{engine.model.config.model_type}: heads differ by layer: layer {first[0]} has {first[1][0]} query heads, "
                f"{first[1][1]} key heads of width {first[1][2]}, layer {number} has {found[0]}, {found[1]} of width {found[2]}; "
                "a capture needs equal layers"
            )


def _probe_ids(engine: TransformersEngine) -> Any:
    """Ids that are no special tokens: a model may expect an image at one of those."""
    config, text = engine.model.config, engine.config
    special = {value for owner in (config, text) for name, value in vars(owner).items() if name.endswith(("token_id", "token_index"))}
    vocabulary = engine.model.get_input_embeddings().weight.shape[0]
    chosen = [i for i in range(min(vocabulary, 4 * _PROBE + len(special))) if i not in special]
    ids = [chosen[(5 * i + 3) % len(chosen)] for i in range(_PROBE)]
    return engine._torch.tensor([ids], device=engine.model.device)


def _probe(engine: TransformersEngine, shift: int) -> dict[int, Call]:
    """Runs a few tokens; returns the attention calls by layer. shift: added to the position of every token."""
    calls: dict[int, Call] = {}
    shape = (1, _PROBE)

    def see(module: Any, query: Any, key: Any, value: Any, options: Mapping[str, Any]) -> None:
        if _is_cross_attention(module):
            return
        layer = layer_of(module)
        _check_call(layer, shape, query, key, options)
        if layer in calls:
            raise InputError(f"layer {layer}: attention is called twice in one pass ({type(module).__name__}); expected once")
        calls[layer] = Call(
            key=key[0].transpose(0, 1).float().cpu().numpy(),
            heads=(query.shape[1], key.shape[1], query.shape[3]),
            d_value=value.shape[3],
            scale=float(options.get("scaling") or query.shape[3] ** -0.5),
            window=_window(engine.config, module, layer, options),
            softcap=float(options.get("softcap") or 0.0),
            sinks=options.get("s_aux") is not None,
        )

    positions = {} if shift == 0 else {"position_ids": engine._torch.arange(shift, shift + _PROBE, device=engine.model.device)[None]}
    engine.forward(_probe_ids(engine), see, **positions)
    return calls


def _window(config: Any, module: Any, layer: int, options: Mapping[str, Any]) -> int:
    """Visible keys of a query, itself included; 0: all before it."""
    kinds = getattr(config, "layer_types", None)
    if kinds and layer < len(kinds) and kinds[layer] != "sliding_attention":
        return 0
    window = options.get("sliding_window") or getattr(module, "sliding_window", None)
    if window is None and kinds:
        window = getattr(config, "sliding_window", None)
    return _whole(window, 0)


def _describe_rope(engine: TransformersEngine, layer: Layer, shifted: Call | None) -> None:
    """Finds the RoPE of a layer whose keys were seen at two positions: the one that turns the first keys into the second ones best.

    The best of all candidates, and not one within a tolerance: where queries are scaled by position (Ministral 3), the input of later
    layers depends on the position too.
    """
    assert layer.call is not None
    before = layer.call.key.astype(np.float64)
    moved = before if shifted is None else shifted.key.astype(np.float64)
    best = np.mean((moved - before) ** 2) if shifted is not None else np.inf  # keys that do not turn: NoPE
    width = before.shape[2]
    for inv_freq in _frequencies(engine, layer.kind):
        dim = 2 * len(inv_freq)
        for begin in sorted({0, width - dim}) if dim <= width else ():
            for interleaved in (False, True):
                turned = before.copy()
                turned[:, :, begin : begin + dim] = _rotate(before[:, :, begin : begin + dim], _SHIFT * inv_freq, interleaved)
                error = np.mean((turned - moved) ** 2)
                if error >= best:
                    continue
                best = error
                values = {**_rope_settings(engine, layer.kind), "dim": dim}
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


def _frequencies(engine: TransformersEngine, kind: str) -> list[np.ndarray]:
    """Candidates for the frequencies of a layer, those of its own kind first."""
    found: list[tuple[int, np.ndarray]] = []
    for name, buffer in _body(engine.model).named_buffers():
        last = name.rsplit(".", 1)[-1]
        if last.endswith("inv_freq") and not last.startswith("original") and "_original_" not in last and buffer.ndim == 1:
            found.append((0 if last == f"{kind}_inv_freq" else 1, buffer.double().cpu().numpy()))
    rotary = getattr(engine.config, "rotary_dim", None)
    if rotary:
        found.append((2, 10000.0 ** (-np.arange(0, rotary, 2) / rotary)))
    return [values for _, values in sorted(found, key=lambda pair: pair[0])]


def _rope_settings(engine: TransformersEngine, kind: str) -> dict[str, Any]:
    """Type, theta and scaling of the configuration, under the names of qkscope's metadata."""
    values = getattr(engine.config, "rope_parameters", None) or {}
    values = values.get(kind, values) if isinstance(values, Mapping) else {}
    settings = {"type": values.get("rope_type", "default"), "theta": float(values.get("rope_theta") or 10000.0)}
    kept = ("factor", "original_max_position_embeddings", "beta_fast", "beta_slow", "attention_factor", "low_freq_factor",
            "high_freq_factor")
    settings.update({name: values[name] for name in kept if values.get(name) is not None})
    return settings


# ---- Checks ----


def _check_model(model: Any) -> None:
    if not hasattr(model, "config") or not hasattr(model, "get_input_embeddings"):
        raise InputError(f"model: found {type(model).__name__}, expected a model of transformers; other engines use CaptureWriter")
    if model.training:
        raise InputError("model: it is in training mode, where dropout changes q and k; call model.eval() first")
    if getattr(model.config, "is_encoder_decoder", False):
        raise InputError(f"{model.config.model_type}: an encoder and a decoder; expected a causal decoder")


def _check_call(layer: int, shape: tuple[int, int], query: Any, key: Any, options: Mapping[str, Any]) -> None:
    if query.ndim != 4 or key.ndim != 4 or query.shape[3] != key.shape[3]:
        raise InputError(f"layer {layer}: attention gets q {list(query.shape)} and k {list(key.shape)}; expected q and k apart, each "
                         "(texts, heads, positions, width)")
    if options.get("dropout"):
        raise InputError(f"layer {layer}: attention dropout is {options['dropout']}, which makes rows random; expected 0")
    if query.shape[0] != shape[0] or query.shape[2] != shape[1]:
        raise InputError(f"layer {layer}: attention gets q {list(query.shape)} for {shape[0]} texts of {shape[1]} tokens; expected a "
                         "query of every token")
    if key.shape[2] != shape[1]:
        raise InputError(f"layer {layer}: attention gets {key.shape[2]} keys for {shape[1]} tokens; expected no cache of earlier "
                         "tokens and no cross-attention")


def _is_cross_attention(module: Any) -> bool:
    return "Cross" in type(module).__name__ or bool(getattr(module, "is_cross_attention", False))


# ---- Small helpers ----


def _body(model: Any) -> Any:
    """The decoder without its output layer."""
    body = getattr(model, "base_model", model)
    return body if "input_ids" in inspect.signature(body.forward).parameters else model


def _whole(value: Any, default: int) -> int:
    if isinstance(value, (list, tuple)):
        value = max(value, default=None)
    return int(value) if isinstance(value, (int, float)) else default


def _layer_dict(layer: Layer) -> dict[str, Any]:
    call = layer.call
    return {
        "attention": call is not None,
        "window": call.window if call else 0,
        "scale": call.scale if call else 1.0,
        "rope": layer.rope,
        "rope_dim": layer.rope_dim,
        "inv_freq": layer.inv_freq,
    }


def _merge(config: Any, overrides: Mapping[str, Any]) -> None:
    """Merges config_overrides into a configuration, maps key by key."""
    for name, value in overrides.items():
        old = getattr(config, name, None)
        setattr(config, name, {**old, **value} if isinstance(old, Mapping) and isinstance(value, Mapping) else value)


def _tokenizer(name: str) -> Any:
    """Loads a tokenizer of transformers when its first text is encoded."""
    cache: list[Any] = []

    def encode(text: str) -> Any:
        if not cache:
            from transformers import AutoTokenizer

            try:
                cache.append(AutoTokenizer.from_pretrained(name))
            except (OSError, ValueError, ImportError) as error:
                raise InputError(f"tokenizer: transformers cannot load {name!r}: {error}")
        return cache[0](text)

    return encode
