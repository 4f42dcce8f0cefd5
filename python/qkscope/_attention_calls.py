"""Intercepts the attention calls of transformers models to read q, k and v exactly as they enter the attention.

A door is a context manager door(model, see): while it is open, see() is called before every attention call of
the model. Only one door may be open at a time, because doors replace functions of transformers and torch.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ._engine import InputError

# Callback for an attention call, with the arguments (module, query, key, value, options). q, k and v have shape (texts,
# heads, positions, width).
See = Callable[[Any, Any, Any, Any, Mapping[str, Any]], None]
Door = Callable[[Any, See], contextlib.AbstractContextManager[None]]


def import_torch() -> tuple[Any, Any]:
    """Returns the modules torch and transformers."""
    try:
        import torch
        import transformers
    except ImportError as missing:
        raise InputError(f"engine: transformers needs torch and transformers ({missing}); pip install torch transformers")
    return torch, transformers


@contextlib.contextmanager
def interface_door(model: Any, see: See, returned: Callable[[Any, Any], None] | None = None) -> Iterator[None]:
    """Intercepts attention in families that fetch the attention function from AttentionInterface.get_interface().

    options has all keyword arguments of the call and attention_mask. returned(module, output) is called after every call.
    """
    from transformers.modeling_utils import AttentionInterface

    own = {id(module) for module in model.modules()}
    interface: Any = AttentionInterface
    original = interface.get_interface

    def get_interface(*args: Any, **options: Any) -> Any:
        function = original(*args, **options)

        def observed(module: Any, query: Any, key: Any, value: Any, *args: Any, **options: Any) -> Any:
            if id(module) not in own:
                return function(module, query, key, value, *args, **options)
            see(module, query, key, value, {"attention_mask": args[0] if args else None, **options})
            output = function(module, query, key, value, *args, **options)
            if returned is not None:
                returned(module, output)
            return output

        return observed

    interface.get_interface = get_interface
    try:
        yield
    finally:
        interface.get_interface = original


@contextlib.contextmanager
def sdpa_door(model: Any, see: See) -> Iterator[None]:
    """Intercepts attention in families that call torch's scaled_dot_product_attention directly (falcon)."""
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
def method_door(model: Any, see: See) -> Iterator[None]:
    """Intercepts attention in families whose modules have a method _attn(query, key, value, ...) (gptj, codegen)."""
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


DOORS: tuple[Door, ...] = (interface_door, sdpa_door, method_door)


def decoder_of(model: Any) -> Any:
    """Returns the decoder without its output layer."""
    body = getattr(model, "base_model", model)
    return body if "input_ids" in inspect.signature(body.forward).parameters else model


def run_decoder(model: Any, door: Door, ids: Any, see: See, **more: Any) -> None:
    """Runs the decoder without gradients and output layer; drops arguments in `more` that it does not accept."""
    import torch

    decoder = decoder_of(model)
    accepted = inspect.signature(decoder.forward).parameters
    open_ended = any(p.kind is p.VAR_KEYWORD for p in accepted.values())
    options = {"use_cache": False, **more}
    chosen = {name: value for name, value in options.items() if name in accepted or open_ended}
    with torch.no_grad(), door(model, see):
        decoder(input_ids=ids, **chosen)


def layer_of(module: Any) -> int:
    """Returns the number of the layer that an attention module belongs to."""
    layer = getattr(module, "layer_idx", None)
    if layer is None:
        raise InputError(f"{type(module).__name__}: the attention module has no layer_idx, so its rows cannot be assigned to a "
                         "layer; set module.layer_idx")
    return int(layer)


def check_call(layer: int, shape: tuple[int, int], query: Any, key: Any, options: Mapping[str, Any]) -> None:
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


def is_cross_attention(module: Any) -> bool:
    return "Cross" in type(module).__name__ or bool(getattr(module, "is_cross_attention", False))
