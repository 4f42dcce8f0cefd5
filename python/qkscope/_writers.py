"""Writers for rows of any engine: the files of a native capture or of statistics, document by document."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Generic, TypeVar, Union

import numpy as np

from . import _engine, _options
from ._engine import CaptureResult, InputError, StatsResult
from ._runs import Config, read_capture_config, read_stats_config, shard_pair
from ._transformers import TransformersEngine

ByLayer = Union[Mapping[int, Any], Sequence[Any]]  # arrays (positions, heads, width): NumPy, torch, or any with DLPack

_WIDTHS = ("n_layers", "n_heads", "n_key_heads", "d_head")
_REST: dict[str, Any] = {
    "engine": "caller", "identity": "{}", "family": "unknown", "d_model": 1, "d_mlp": 1, "d_vocab": 2**31 - 1, "n_ctx": 1 << 40,
    "softcap": 0.0, "sinks": False, "device": "cpu", "dtype": "float32",
}
_LAYER: dict[str, Any] = {"attention": True, "window": 0, "rope": "none", "rope_dim": 0, "inv_freq": []}

Result = TypeVar("Result", CaptureResult, StatsResult)


class _Writer(Generic[Result]):
    """Base class of CaptureWriter and StatsWriter."""

    _kinds: str  # of tensors
    _read: Callable[..., Any]  # reads the configuration
    _open: Callable[..., Any]

    def __init__(
        self,
        config: Config,
        overrides: Mapping[str, Any] | None = None,
        *,
        model: Any,
        shard: tuple[int, int] = (0, 1),
        overwrite: bool = False,
    ):
        read = self._read(_with_defaults(config), overrides)
        self._handle: Any = self._open(read, described(model), shard_pair(shard), _options.flag("overwrite", overwrite))

    @property
    def is_open(self) -> bool:
        """False if the run was finished before; add() then does nothing."""
        return bool(self._handle.is_open)

    @property
    def stored(self) -> int:
        """Documents that earlier writers stored."""
        return int(self._handle.stored)

    @property
    def documents(self) -> int:
        """Documents passed so far."""
        return int(self._handle.documents)

    def wants(self, ids: Any, *, id: str | int | None = None, token_strings: Iterable[str] = ()) -> bool:
        """Whether a document still has to run; False counts it as passed.

        A writer that resumes gets the same documents in the same order; those that are stored need no forward pass.
        """
        return bool(self._handle.wants(_ids(ids), id, list(token_strings)))

    def flush(self) -> None:
        """Stores all documents so far on disk."""
        self._handle.flush()

    def finish(self) -> Result:
        """Writes the final files."""
        result: Result = self._handle.finish()
        return result

    def __enter__(self) -> Any:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Finishes, or after an exception stores what was added and frees the folder, so that the next writer resumes."""
        if kind is None:
            self.finish()
        else:
            self.flush()
            self._handle = None

    def _add(self, ids: Any, by_kind: Mapping[str, ByLayer | None], id: str | int | None, token_strings: Iterable[str],
             run: Callable[[_engine.PassRequest], None] | None) -> None:
        if run is None:
            missing = [kind for kind, layers in by_kind.items() if layers is None]
            if missing and self._kinds != "qk":
                raise InputError(f"add: {', '.join(missing)} is missing; expected q, k and v, or run")

            def run(request: _engine.PassRequest) -> None:
                for layer, kind, rows, heads in request.wanted:
                    request.put(layer, kind, _select(by_kind[kind], layer, kind, rows, heads))

        self._handle.add(_ids(ids), id, list(token_strings), run)


class CaptureWriter(_Writer[CaptureResult]):
    """Writes a capture from q and k of any engine: the files, sampling and resuming of capture().

        with qkscope.CaptureWriter({"output": {"data_root": "data"}}, model=description) as writer:
            for ids in documents:
                q, k = run_my_model(ids)      # by layer: (positions, heads, width), as they enter the dot product
                writer.add(ids, q, k)

    config: as of capture(); sections model and dataset may be left out of a mapping. model: a model of transformers, or
    a dict with n_layers, n_heads, n_key_heads and d_head; further keys are engine (name of the engine), identity
    (anything that distinguishes runs, e.g. the training step), family, d_vocab, n_ctx, dtype, and layers, a list of
    dicts with attention (False: the layer has none), window, rope (a dict with type, theta and dim; None: NoPE),
    inv_freq and scale. shard and overwrite: as of capture().
    """

    _kinds = "qk"
    _read = staticmethod(read_capture_config)
    _open = staticmethod(_engine.open_capture_writer)

    def add(
        self,
        ids: Any,
        q: ByLayer | None = None,
        k: ByLayer | None = None,
        *,
        id: str | int | None = None,
        token_strings: Iterable[str] = (),
        run: Callable[[_engine.PassRequest], None] | None = None,
    ) -> None:
        """Stores the sampled rows of one document, unless an earlier writer stored it.

        q and k: arrays (positions, heads, width) by layer; only sampled rows of captured heads leave their device.
        id: identifies the document and seeds the sampling; by default its number. run: instead of q and k, a function
        that gets a request with `wanted`, a list of (layer, "q" or "k", rows, heads), and passes each to
        request.put(layer, kind, vectors), float32 of shape (rows, heads, width).
        """
        self._add(ids, {"q": q, "k": k}, id, token_strings, run)


class StatsWriter(_Writer[StatsResult]):
    """Writes statistics from q, k and v of any engine: the files of stats(), for moments after RoPE and attention.

    Arguments are those of CaptureWriter. The attention sums are computed on the CPU; they need the scale and the window
    of every layer.
    """

    _kinds = "qkv"
    _read = staticmethod(read_stats_config)
    _open = staticmethod(_engine.open_stats_writer)

    def add(
        self,
        ids: Any,
        q: ByLayer | None = None,
        k: ByLayer | None = None,
        v: ByLayer | None = None,
        *,
        id: str | int | None = None,
        run: Callable[[_engine.PassRequest], None] | None = None,
    ) -> None:
        """Adds one document: arrays (positions, heads, width) by layer, or run as of CaptureWriter.add()."""
        self._add(ids, {"q": q, "k": k, "v": v}, id, (), run)


def described(model: Any) -> _engine.ExternalEngine:
    """Returns the description of a model: of transformers, or a dict."""
    if isinstance(model, TransformersEngine):
        return model.handle
    if not isinstance(model, Mapping):
        return TransformersEngine(model).handle
    for name in _WIDTHS:
        _options.whole(f"model: {name}", model.get(name), 1, 1 << 31)
    unknown = set(model) - set(_WIDTHS) - set(_REST) - {"layers", "d_value"}
    if unknown:
        raise InputError(f"model: {sorted(unknown)[0]!r} is unknown; expected some of {', '.join([*_WIDTHS, *_REST, 'd_value', 'layers'])}")
    values = {**_REST, "d_value": model["d_head"], "concurrent_runs": False, **model}
    if not isinstance(values["identity"], str):
        values["identity"] = json.dumps(values["identity"])
    given = list(model.get("layers") or [{}] * model["n_layers"])
    values["layers"] = [_layer(layer, model["d_head"]) for layer in given]
    return _engine.ExternalEngine((), values)  # the caller runs the model


def _layer(given: Mapping[str, Any], width: int) -> dict[str, Any]:
    layer = {**_LAYER, "scale": width**-0.5, **given}
    rope = layer["rope"]
    if rope is None:
        layer["rope"] = "none"
    elif isinstance(rope, Mapping):
        layer["rope"] = json.dumps(rope)
        layer["rope_dim"] = int(rope.get("dim", width))
    unknown = set(layer) - set(_LAYER) - {"scale"}
    if unknown:
        raise InputError(f"model: layers: {sorted(unknown)[0]!r} is unknown; expected some of {', '.join([*_LAYER, 'scale'])}")
    return layer


def _with_defaults(config: Config) -> Config:
    """Fills in configuration sections that a writer does not need and a mapping may omit."""
    if not isinstance(config, Mapping):
        return config
    filled = {"model": {}, "dataset": {}, **config}
    filled["model"] = {"name": "model of the caller", **filled["model"]}
    filled["dataset"] = {"path": "-", **filled["dataset"]}
    return filled


def _ids(ids: Any) -> list[int]:
    values = ids.tolist() if hasattr(ids, "tolist") else list(ids)
    if values and isinstance(values[0], (list, tuple)):
        raise InputError(f"ids: found {len(values)} lists, expected the token ids of one document")
    return values


def _select(layers: Any, layer: int, kind: str, rows: Any, heads: Any) -> np.ndarray:
    """Returns float32 (rows, heads, width) on the host; the selection runs where the array is."""
    try:
        vectors = None if layers is None else layers[layer]
    except (KeyError, IndexError):
        vectors = None
    if vectors is None:
        raise InputError(f"add: {kind} of layer {layer} is missing; expected an array (positions, heads, width)")
    if not isinstance(vectors, np.ndarray) and not hasattr(vectors, "detach"):
        vectors = _from_dlpack(vectors)
    if vectors.ndim != 3:
        raise InputError(f"add: {kind} of layer {layer} has shape {list(vectors.shape)}; expected (positions, heads, width)")
    if rows is not None and (rows.max() >= vectors.shape[0] or heads.max() >= vectors.shape[1]):
        raise InputError(f"add: {kind} of layer {layer} has shape {list(vectors.shape)}; expected at least {rows.max() + 1} positions "
                         f"and {heads.max() + 1} heads")
    if isinstance(vectors, np.ndarray):
        chosen = vectors if rows is None else vectors[rows][:, heads]
        return np.ascontiguousarray(chosen, dtype=np.float32)
    import torch

    vectors = vectors.detach()
    if rows is not None:
        at = torch.from_numpy(rows).to(vectors.device)
        vectors = vectors[at[:, None], torch.from_numpy(heads).to(vectors.device)[None, :]]
    host: np.ndarray = vectors.float().cpu().contiguous().numpy()
    return host


def _from_dlpack(array: Any) -> Any:
    try:
        return np.from_dlpack(array)
    except (BufferError, RuntimeError, AttributeError, TypeError):
        pass
    try:
        from torch.utils.dlpack import from_dlpack

        return from_dlpack(array)
    except (ImportError, AttributeError, TypeError):
        raise InputError(f"add: found {type(array).__name__}, expected NumPy, torch or an array with __dlpack__")
