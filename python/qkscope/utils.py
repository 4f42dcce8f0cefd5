"""Functions of transformer_lens.utils, for code that was written for TransformerLens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from . import _engine, _options
from ._arrays import Array, ArrayInput, on_host
from ._batch import Batch
from ._cache import get_act_name as get_act_name
from ._calls import cross_entropy
from ._engine import InputError

if TYPE_CHECKING:
    from .model import Model


def to_numpy(array: Any) -> np.ndarray[Any, np.dtype[Any]]:
    """Converts an array, a list or a number to a NumPy array on the host."""
    return on_host(array)


def get_device() -> str:
    """Returns the device that load() chooses by default: "cpu" or "cuda:0"."""
    return _engine.choose_device("auto")


def lm_cross_entropy_loss(logits: ArrayInput, tokens: ArrayInput, per_token: bool = False) -> Array:
    """Returns the mean of -log p of the next token, or with per_token each, [batch, pos - 1].

    logits: [batch, pos, d_vocab] or [pos, d_vocab]. tokens: [batch, pos] or [pos], without padding.
    """
    ids = on_host(tokens)
    if tuple(logits.shape[:-1]) != ids.shape:
        raise InputError(f"logits: found shape {list(logits.shape)}, expected {[*ids.shape, 'd_vocab']}")
    return cross_entropy(logits, Batch(list(np.atleast_2d(ids)), ids.ndim == 2), _options.flag("per_token", per_token))


@overload
def lm_accuracy(logits: ArrayInput, tokens: ArrayInput, per_token: Literal[False] = ...) -> float: ...
@overload
def lm_accuracy(logits: ArrayInput, tokens: ArrayInput, per_token: Literal[True]) -> np.ndarray: ...
def lm_accuracy(logits: ArrayInput, tokens: ArrayInput, per_token: bool = False) -> float | np.ndarray:
    """Returns the fraction of next tokens that are the most likely one, or with per_token flags [batch, pos - 1]."""
    right = on_host(logits)[..., :-1, :].argmax(-1) == on_host(tokens)[..., 1:]
    return right if _options.flag("per_token", per_token) else float(right.mean())


@_options.checked
def test_prompt(
    prompt: str,
    answer: str,
    model: Model,
    prepend_space_to_answer: bool = True,
    print_details: bool = True,
    prepend_bos: bool | None = None,
    top_k: int = 10,
) -> list[tuple[str, int]]:
    """Prints rank, logit and probability of each token of an answer, and the most likely tokens in its place.

    Returns pairs (token, rank); rank 0 is the most likely token.
    """
    _options.check_model(model)
    space = " " if prepend_space_to_answer and not answer.startswith(" ") else ""
    first, rest = model._encode(prompt, prepend_bos), model._encode(space + answer, False)
    ids = np.concatenate([first, rest])
    logits = on_host(model(ids))[..., -len(rest) - 1 : -1, :].reshape(len(rest), -1).astype(np.float64)
    probabilities = np.exp(logits - logits.max(-1, keepdims=True))
    probabilities /= probabilities.sum(-1, keepdims=True)
    names = [model.to_single_str_token(int(token)) for token in rest]
    ranks = [int((row > row[token]).sum()) for row, token in zip(logits, rest)]
    print("Tokenized prompt:", [model.to_single_str_token(int(token)) for token in first])
    print("Tokenized answer:", names)
    for row, likely, token, name, rank in zip(logits, probabilities, rest, names, ranks):
        print(f"Rank {rank}, logit {row[token]:.2f}, probability {likely[token]:.2%}, token |{name}|")
        for place, top in enumerate(np.argsort(-row)[: top_k if print_details else 0]):
            text = model.to_single_str_token(int(top))
            print(f"  top {place}: logit {row[top]:.2f}, probability {likely[top]:.2%}, token |{text}|")
    return list(zip(names, ranks))


test_prompt.__test__ = False  # type: ignore[attr-defined]  # pytest would collect it
