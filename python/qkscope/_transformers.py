"""Runs decoders of Hugging Face transformers for captures and statistics; docs/how-to/transformers-engine.md.

During a pass a door (_attention_calls.py) shows every attention call, with q and k exactly as they enter the dot product; the
wanted rows of the wanted heads are gathered on the device of the model and handed to the library.
"""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _engine
from ._attention_calls import check_call, import_torch, layer_of, run_decoder
from ._engine import InputError
from ._model_layers import describe_layers, find_door, text_config, whole

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_CHUNK_BYTES = 256 << 20  # gathered rows that stay on a GPU until they are copied together


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
        self._door = find_door(model)
        self._layers = describe_layers(model, self._door)
        self._launching = threading.Lock()  # only one pass at a time can intercept attention calls
        self._described = self._description()

    @property
    def handle(self) -> _engine.ExternalEngine:
        """Creates the library's engine. It refers to this object, so storing it here would leak a reference cycle."""
        _check_model(self.model)
        return _engine.ExternalEngine(self, self._described)

    @property
    def vocabulary(self) -> int:
        """Number of token ids."""
        return int(self.model.get_input_embeddings().weight.shape[0])

    def run(self, request: _engine.PassRequest) -> None:
        """Runs the sequences of a request and hands over the wanted vectors.

        May be called on several threads. On a GPU the pass of one thread is launched while another one waits for its rows.
        """
        _check_model(self.model)
        with self._launching:
            sequences = request.sequences
            ids, mask = self._padded(sequences)
            rows = _Rows(request, [len(one) for one in sequences], self.model.device)
            run_decoder(self.model, self._door, ids, rows.see, **({} if mask is None else {"attention_mask": mask}))
            rows.start_copy()
        rows.hand_over()

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
        lengths = np.array([len(one) for one in sequences])
        ids = np.zeros((len(sequences), lengths.max()), np.int64)
        for row, one in enumerate(sequences):
            ids[row, : len(one)] = one
        device = self.model.device
        if (lengths == lengths.max()).all():
            return _upload(ids, device), None
        mask = np.arange(lengths.max())[None, :] < lengths[:, None]
        return _upload(ids, device), _upload(mask.astype(np.int64), device)

    def _description(self) -> dict[str, Any]:
        calls = [layer.call for layer in self._layers if layer.call is not None]
        config = text_config(self.model)
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
            "d_mlp": whole(getattr(config, "intermediate_size", None), 1),
            "d_vocab": self.vocabulary,
            "n_ctx": whole(getattr(config, "max_position_embeddings", None), 1 << 40),
            "softcap": calls[0].softcap,
            "sinks": any(call.sinks for call in calls),
            "device": str(self.model.device),
            "dtype": dtype,
            "concurrent_runs": self.model.device.type == "cuda",
            "layers": [layer.settings() for layer in self._layers],
        }


class _Rows:
    """Gathers the wanted rows and heads of one pass on the device of the model and hands them to the request.

    On a GPU nothing waits for a copy before hand_over(), so that kernels are launched ahead of the GPU; only a pass with
    more than two chunks of rows waits for the chunk before last.
    """

    def __init__(self, request: _engine.PassRequest, lengths: list[int], device: Any):
        self._torch, _ = import_torch()
        self._request = request
        self._lengths = lengths  # of the sequences
        self._shape = len(lengths), max(lengths)
        self._wanted: dict[int, list[tuple[str, Any, Any]]] = {}  # by layer: kind, places of the rows, heads
        self._upload_indices(device)
        self._gathered: list[tuple[int, str, Any]] = []  # rows that wait on a GPU
        self._copies: list[tuple[list[tuple[int, str, Any]], Any, Any]] = []  # layer, kind and shape of rows; host memory; event

    def see(self, module: Any, query: Any, key: Any, value: Any, options: Mapping[str, Any]) -> None:
        layer = layer_of(module)
        check_call(layer, self._shape, query, key, options)
        for kind, places, heads in self._wanted.get(layer, ()):
            rows = self._gather({"q": query, "k": key, "v": value}[kind], places, heads)
            if rows.device.type != "cuda":
                self._request.put(layer, kind, rows.float().cpu().contiguous().numpy())
            else:
                self._keep_on_gpu(layer, kind, rows)

    def start_copy(self) -> None:
        """Starts one copy of all rows that wait on a GPU to pinned memory."""
        if not self._gathered:
            return
        torch = self._torch
        together = torch.cat([rows.reshape(-1) for _, _, rows in self._gathered]).float()
        host = torch.empty_like(together, device="cpu", pin_memory=True)
        host.copy_(together, non_blocking=True)
        copied = torch.cuda.Event(blocking=True)  # the thread sleeps while it waits
        copied.record(torch.cuda.current_stream(together.device))
        self._copies.append(([(layer, kind, tuple(rows.shape)) for layer, kind, rows in self._gathered], host, copied))
        self._gathered = []

    def hand_over(self, left: int = 0) -> None:
        """Waits for copies, the oldest first, and passes their rows on, until `left` copies are left."""
        while len(self._copies) > left:
            parts, host, copied = self._copies.pop(0)
            copied.synchronize()
            self._request.put_all(parts, host.numpy())

    def _keep_on_gpu(self, layer: int, kind: str, rows: Any) -> None:
        if self._gathered and rows.device != self._gathered[0][2].device:
            self.start_copy()
        self._gathered.append((layer, kind, rows))
        if sum(4 * kept.numel() for _, _, kept in self._gathered) >= _CHUNK_BYTES:
            self.start_copy()
            self.hand_over(left=1)

    def _upload_indices(self, device: Any) -> None:
        """Copies the places of all rows and the heads to the device at once: a copy in a layer would keep the CPU from launching
        kernels ahead."""
        wanted = self._request.wanted
        begins = np.cumsum([0, *self._lengths])
        arrays: list[np.ndarray] = []
        for _, _, rows, heads in wanted:
            rows = np.zeros(0, np.int64) if rows is None else rows
            sequence = np.searchsorted(begins, rows, side="right") - 1
            arrays += [sequence, rows - begins[sequence], np.zeros(0, np.int64) if heads is None else heads]
        if not arrays:
            return
        uploaded = iter(_upload(np.concatenate(arrays), device).split([len(one) for one in arrays]))
        for layer, kind, rows, heads in wanted:
            sequence, position, head = next(uploaded), next(uploaded), next(uploaded)
            places = None if rows is None else (sequence, position)
            self._wanted.setdefault(layer, []).append((kind, places, None if heads is None else head))

    def _gather(self, vectors: Any, places: tuple[Any, Any] | None, heads: Any) -> Any:
        """vectors: (sequences, heads, positions, width). Returns (rows, heads, width)."""
        device = vectors.device  # layers may be on several GPUs
        if places is None:
            rows = self._torch.cat([one[:, :length] for one, length in zip(vectors, self._lengths)], dim=1).transpose(0, 1)
        else:
            sequence, position = (index.to(device, non_blocking=True) for index in places)
            rows = vectors.transpose(1, 2)[sequence, position]
        return rows if heads is None else rows[:, heads.to(device, non_blocking=True)]


def _upload(values: np.ndarray, device: Any) -> Any:
    """Copies an array to a device; to a GPU without waiting for the work that is queued there."""
    torch, _ = import_torch()
    tensor = torch.from_numpy(values)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


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


def weights_fingerprint(model: Any) -> str:
    """Returns a hash over names, shapes and up to 256 values of every parameter."""
    total = hashlib.blake2b(digest_size=8)
    for name, parameter in model.named_parameters():
        values = parameter.detach().reshape(-1)
        step = max(1, values.numel() // 256)
        total.update(f"{name}{list(parameter.shape)}".encode())
        total.update(values[::step][:256].float().cpu().numpy().tobytes())
    return total.hexdigest()


def _check_model(model: Any) -> None:
    if not hasattr(model, "config") or not hasattr(model, "get_input_embeddings"):
        raise InputError(f"model: found {type(model).__name__}, expected a model of transformers; other engines use CaptureWriter")
    if model.training:
        raise InputError("model: it is in training mode, where dropout changes q and k; call model.eval() first")
    torch, _ = import_torch()
    if torch.is_autocast_enabled(model.device.type):  # the library's threads ignore it, and the metadata would not record it
        raise InputError("model: torch.autocast is on; load the model in the wanted type instead (dtype=torch.bfloat16)")
    if getattr(model.config, "is_encoder_decoder", False):
        raise InputError(f"{model.config.model_type}: an encoder and a decoder; expected a causal decoder")


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
