"""Text generation, token by token."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Union, overload

import numpy as np

from . import _engine, _hooks
from ._arrays import Array, as_kind, is_torch, torch_or_none
from ._batch import batch_of_ids
from ._engine import InputError
from ._hooks import Added, FwdHook, HookPoint
from ._options import checked, flag, wholes
from ._tokens import TextMethods, is_texts
from ._weights import WeightMethods

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._batch import Tokens

# Argument `stream` of generate(): True prints the text as it is generated; a function receives each new piece of text,
# as f(text) with one prompt or as f(text, prompt_index) with several.
Stream = Union[bool, Callable[..., Any], None]


class GenerateOptions(TypedDict, total=False):
    """Keyword arguments of generate(), for type checkers."""

    temperature: float
    top_k: int | None
    top_p: float | None
    seed: int
    stop: str | Sequence[str]
    stop_tokens: Sequence[int]
    stop_at_eos: bool
    prepend_bos: bool | None
    fwd_hooks: Iterable[FwdHook]
    stream: Stream


class GenerateMethods(TextMethods, WeightMethods):
    """The method generate() of Model."""

    _added: list[Added]

    @overload
    def generate(
        self, prompt: str, max_new_tokens: int = ..., *, return_type: Literal["input", "text", "new_text"] = ...,
        **options: Unpack[GenerateOptions]
    ) -> str: ...
    @overload
    def generate(
        self, prompt: Tokens, max_new_tokens: int = ..., *, return_type: str = ..., **options: Unpack[GenerateOptions]
    ) -> str | Array | list[str] | list[Array]: ...
    @checked
    def generate(
        self,
        prompt: Tokens,
        max_new_tokens: int = 128,
        *,
        temperature: float = 0.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int = 0,
        stop: str | Sequence[str] = (),
        stop_tokens: Sequence[int] = (),
        stop_at_eos: bool = True,
        prepend_bos: bool | None = None,
        fwd_hooks: Iterable[FwdHook] = (),
        stream: Stream = None,
        return_type: str = "input",
    ) -> Any:
        """Continues a prompt; returns text for a text, ids [pos] for ids, and a list for several prompts.

        The prompt runs in one pass, then one row per token with a KV cache, on the device of the model. On the CPU the
        logits of every token are bit-identical to a pass over the whole text.

        temperature: divisor of the logits before sampling; 0 takes the most likely token. top_k: sample from the k most
        likely tokens. top_p: of those, from the fewest whose probabilities sum to this. seed: equal seeds give equal
        text. stop: one or several texts before which to end. stop_tokens: ids after which to end, in addition to
        eos_token_id of the checkpoint (stop_at_eos).

        fwd_hooks: functions that read and edit activations as in run_with_hooks; they see the prompt first and then
        each new position. Rows of several prompts are concatenated. "logits" are those of the last position,
        [texts, d_vocab]; tokens are sampled from the edited logits. stream: True prints the text as it is generated; a
        function gets pieces of text and may return False to end.

        return_type: "input" is as above; "text" or "tokens" selects the type, "new_text" or "new_tokens" leaves out the
        prompt.
        """
        texts = [prompt] if isinstance(prompt, str) else list(prompt) if is_texts(prompt) else None
        given = prompt if texts is None else [self._encode(text, prepend_bos) for text in texts]
        batch = batch_of_ids(given, self.cfg.d_vocab, "right")
        several = batch.batched and not isinstance(prompt, str)
        kind = _kind(return_type, texts is not None)
        needs_text = kind.endswith("text") or stop or stream
        options = _options(max_new_tokens, temperature, top_k, top_p, seed)
        options.stop_texts = _stop_texts(stop)
        options.stop_tokens = wholes("stop_tokens", stop_tokens, 0, self.cfg.d_vocab - 1)
        options.stops_at_end = flag("stop_at_eos", stop_at_eos)
        names, call = self._generating_hooks(fwd_hooks)
        prompts = [[int(token) for token in ids] for ids in batch.sequences]
        found = _engine.generate(
            self._engine, prompts, options, self.tokenizer if needs_text else None, _on_token(stream, several), names,
            call)
        if stream is True:
            print(flush=True)
        results = [
            self._result(kind, ids, texts[i] if texts else None, new, text)
            for i, (ids, (new, text, _)) in enumerate(zip(prompts, found))
        ]
        if is_torch(prompt) and not kind.endswith("text"):
            results = [torch_or_none().from_numpy(ids) for ids in results]
        return results if several else results[0]

    def _result(self, kind: str, ids: list[int], prompt: str | None, new: list[int], text: str) -> Any:
        if kind == "new_text":
            return text
        if kind == "text":
            return (self._decode(np.array(ids)) if prompt is None else prompt) + text
        return np.array(new if kind == "new_tokens" else ids + new, dtype=np.int32)

    def _generating_hooks(self, fwd_hooks: Iterable[FwdHook]) -> tuple[list[str], Callable[[int, Any], None]]:
        added = [(one.names, one.function) for one in self._added]
        functions = _hooks.collect(self._engine, [*added, *_hooks.pairs(fwd_hooks)])
        names = self._engine.match_hooks(list(functions)) if functions else []

        def call(number: int, array: Any) -> None:
            activation = as_kind(array, self.arrays)
            for function in functions[names[number]]:
                _hooks.apply(function, activation, array, HookPoint(names[number]))

        return names, call


def _options(max_new_tokens: int, temperature: float, top_k: int | None, top_p: float | None, seed: int) -> Any:
    options = _engine.GenerateOptions()
    wanted = {
        "max_new_tokens": (max_new_tokens, int, "a number of tokens"),
        "temperature": (temperature, float, "0 or more"),
        "top_k": (0 if top_k is None else top_k, int, "a number of tokens, or None"),
        "top_p": (1.0 if top_p is None else top_p, float, "a probability, or None"),
        "seed": (seed, int, "an integer from 0 on"),
    }
    for name, (value, kind, expected) in wanted.items():
        allowed = (int, np.integer) if kind is int else (int, float, np.integer, np.floating)
        if isinstance(value, bool) or not isinstance(value, allowed) or (name == "seed" and not 0 <= value < 2**64):
            raise InputError(f"{name}: found {value!r}, expected {expected}")
        setattr(options, name, kind(value))
    if top_k == 0:
        raise InputError("top_k: found 0, expected 1 or more, or None for all tokens")
    return options


def _stop_texts(stop: Any) -> list[str]:
    texts = [stop] if isinstance(stop, str) else list(stop) if isinstance(stop, Iterable) else [stop]
    if not all(isinstance(text, str) for text in texts):
        raise InputError(f"stop: found {stop!r}, expected a text or a list of texts")
    return texts


def _kind(return_type: str, is_text: bool) -> str:
    kinds = ("input", "text", "tokens", "new_text", "new_tokens")
    if return_type not in kinds:
        raise InputError(f"return_type: found {return_type!r}, expected one of {', '.join(kinds)}")
    return ("text" if is_text else "tokens") if return_type == "input" else return_type


def _on_token(stream: Stream, several: bool) -> Callable[[int, int, str], Any] | None:
    if stream is None or stream is False:
        return None
    if stream is not True and not callable(stream):
        raise InputError(f"stream: found {stream!r}, expected True or a function of the text")
    if stream is True and several:
        raise InputError("stream=True prints one text, found several; give a function of text and number of the prompt")

    def on_token(prompt: int, token: int, text: str) -> Any:
        if not text:
            return None
        if stream is True:
            sys.stdout.write(text)
            sys.stdout.flush()
            return None
        return stream(text, prompt) if several else stream(text)

    return on_token
