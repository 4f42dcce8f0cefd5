"""Conversion between text and token ids."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard, Union, overload

import numpy as np

from . import _engine
from ._arrays import is_torch, on_host
from ._batch import PADDING, check_side, padded_ids
from ._engine import InputError
from ._options import checked, flag, flag_or_none, whole

# Argument type: a single text, or a list of texts of any lengths.
Text = Union[str, Sequence[str]]


def is_texts(values: Any) -> TypeGuard[Sequence[str]]:
    """Whether the value is a list of texts."""
    return isinstance(values, (list, tuple)) and len(values) > 0 and all(isinstance(text, str) for text in values)


class TextMethods:
    """Text methods of Model. Token ids are int32; padding is -1."""

    folder: str
    _tokenizer: _engine.Tokenizer | None

    if TYPE_CHECKING:

        @property
        def cfg(self) -> _engine.Config: ...

    @property
    def tokenizer(self) -> _engine.Tokenizer:
        if self._tokenizer is None:
            self._tokenizer = _engine.Tokenizer.load(self.folder)
        return self._tokenizer

    @checked
    def to_tokens(
        self,
        text: Text,
        prepend_bos: bool | None = None,
        padding_side: str = "right",
        *,
        add_special_tokens: bool = True,
        max_length: int = 0,
        pad: int = PADDING,
    ) -> np.ndarray:
        """Returns token ids: [pos] for a text, [batch, pos] for a list of texts.

        prepend_bos: None follows the tokenizer; True adds the BOS token if it is missing, False adds none.
        padding_side: "right" or "left"; shorter texts are filled with pad. The model ignores -1 as padding; any other
        id is a token. max_length: maximum number of ids per text; 0: no limit.
        """
        flag("add_special_tokens", add_special_tokens)
        whole("max_length", max_length, 0, 2**31 - 1)
        whole("pad", pad, PADDING, 2**31 - 1)
        if isinstance(text, str):
            return self._encode(text, prepend_bos, add_special_tokens, max_length)
        if not is_texts(text):
            raise InputError(f"to_tokens: found {_what(text)}, expected a text or a list of texts")
        rows = [self._encode(one, prepend_bos, add_special_tokens, max_length) for one in text]
        for one, ids in zip(text, rows):
            if ids.size == 0:
                raise InputError(f"to_tokens: {one!r} has no tokens, expected at least one in every text of a batch")
        return padded_ids(rows, check_side(padding_side), pad)

    def _encode(
        self, text: str, prepend_bos: bool | None, add_special_tokens: bool = True, max_length: int = 0
    ) -> np.ndarray:
        """Returns the ids [pos] of one text, int32."""
        flag_or_none("prepend_bos", prepend_bos)
        special = add_special_tokens and prepend_bos is not False
        try:
            ids = self.tokenizer.encode(text, special, max_length)
        except TypeError:  # the only error that a str can cause
            raise InputError(f"text: {text!r} has half a surrogate pair, expected what UTF-8 can write") from None
        if prepend_bos:
            bos = self.bos_token_id
            if bos is None:
                raise InputError(f"prepend_bos=True: the tokenizer of {self.folder} has no token that begins texts")
            if ids[:1] != [bos]:
                ids = [bos, *ids][: max_length or None]
        return np.array(ids, dtype=np.int32)

    @overload
    def to_string(self, tokens: int | list[int]) -> str: ...
    @overload
    def to_string(self, tokens: Any) -> str | list[str]: ...
    @checked
    def to_string(self, tokens: Any) -> str | list[str]:
        """Returns the text of token ids, with special tokens and without padding; a list for [batch, pos]."""
        if isinstance(tokens, (list, tuple)) and any(np.ndim(row) for row in tokens):
            return [self._decode(_ids(row, "to_string")) for row in tokens]
        ids = _ids(tokens, "to_string")
        return [self._decode(row) for row in ids] if ids.ndim == 2 else self._decode(ids)

    def _decode(self, ids: np.ndarray) -> str:
        return self.tokenizer.decode([self._known(token) for token in np.atleast_1d(ids) if token != PADDING])

    def _known(self, token: Any) -> int:
        if not 0 <= token < self.cfg.d_vocab:
            raise InputError(f"token ids: found {token}, expected 0 to {self.cfg.d_vocab - 1}")
        return int(token)

    @overload
    def to_str_tokens(self, tokens: str, prepend_bos: bool | None = ...) -> list[str]: ...
    @overload
    def to_str_tokens(self, tokens: Any, prepend_bos: bool | None = ...) -> list[str] | list[list[str]]: ...
    @checked
    def to_str_tokens(self, tokens: Any, prepend_bos: bool | None = None) -> list[str] | list[list[str]]:
        """Returns the text of each token of a text or of ids [pos]; a list of lists, without padding, for several."""
        if isinstance(tokens, (list, tuple)) and any(isinstance(row, str) or np.ndim(row) for row in tokens):
            return [self._str_tokens(row, prepend_bos) for row in tokens]
        if not isinstance(tokens, str) and (ids := _ids(tokens, "to_str_tokens")).ndim == 2:
            return [self._str_tokens(row, prepend_bos) for row in ids]
        return self._str_tokens(tokens, prepend_bos)

    def _str_tokens(self, tokens: Any, prepend_bos: bool | None) -> list[str]:
        """Returns the text of each token of one sequence."""
        ids = self._encode(tokens, prepend_bos) if isinstance(tokens, str) else _ids(tokens, "to_str_tokens")
        return [self._decode(token) for token in np.atleast_1d(ids) if token != PADDING]

    @checked
    def to_single_token(self, text: str) -> int:
        """Returns the id of a text that is one token; " road" and "road" are different tokens."""
        if not isinstance(text, str):
            raise InputError(f"to_single_token: found {_what(text)}, expected a text")
        ids = self._encode(text, False)
        if len(ids) != 1:
            parts = self._str_tokens(ids, None)
            raise InputError(f"to_single_token: {text!r} is {len(ids)} tokens ({parts}), expected one")
        return int(ids[0])

    @checked
    def to_single_str_token(self, token: int) -> str:
        """Returns the text of one token id."""
        if not isinstance(token, (int, np.integer)):
            raise InputError(f"to_single_str_token: found {_what(token)}, expected one token id")
        return self.tokenizer.decode([self._known(token)])

    @checked
    def get_token_position(
        self, single_token: str | int, tokens: Any, mode: str = "first", prepend_bos: bool | None = None
    ) -> int:
        """Returns the first or last position of a token (text or id) in a text or in ids [pos] or [1, pos]."""
        if not isinstance(mode, str) or mode not in ("first", "last"):
            raise InputError(f"get_token_position: found mode {mode!r}, expected 'first' or 'last'")
        if isinstance(tokens, str):
            tokens = self._encode(tokens, prepend_bos)
        ids = _ids(tokens, "get_token_position")
        if ids.ndim == 2 and len(ids) == 1:
            ids = ids[0]
        if ids.ndim != 1:
            raise InputError(f"get_token_position: found ids of shape {list(ids.shape)}, expected one sequence")
        if not isinstance(single_token, (str, int, np.integer)):
            raise InputError(f"get_token_position: found {_what(single_token)}, expected a text or a token id")
        token = self.to_single_token(single_token) if isinstance(single_token, str) else self._known(single_token)
        places = np.flatnonzero(ids == token)
        if places.size == 0:
            text = self.tokenizer.decode([token])
            raise InputError(f"get_token_position: token {token} ({text!r}) is not in the text")
        return int(places[0] if mode == "first" else places[-1])

    @property
    def bos_token_id(self) -> int | None:
        """Id of the BOS token, or None"""
        return self._special("bos")

    @property
    def eos_token_id(self) -> int | None:
        """Id of the EOS token, or None"""
        return self._special("eos")

    def _special(self, name: str) -> int | None:
        """Reads tokenizer_config.json or the metadata of a GGUF file, else the id in config.json."""
        known: int | None = getattr(self.tokenizer, f"{name}_id") if _engine.has_tokenizer(self.folder) else None
        if known is not None:
            return known
        token = _json(Path(self.folder) / "config.json").get(f"{name}_token_id")
        token = token[0] if isinstance(token, list) and token else token
        return token if isinstance(token, int) else None


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return found if isinstance(found, dict) else {}
    except (OSError, ValueError):
        return {}


def _what(value: Any) -> str:
    return repr(value) if isinstance(value, (int, float, bool, str, type(None))) else type(value).__name__


def _ids(tokens: Any, function: str) -> np.ndarray:
    """Returns integers of shape [], [pos] or [batch, pos]."""
    if not (is_torch(tokens) or isinstance(tokens, (np.ndarray, list, tuple, int, np.integer))):
        raise InputError(f"{function}: found {_what(tokens)}, expected token ids")
    ids = on_host(tokens)
    if ids.ndim > 2 or (ids.size and not np.issubdtype(ids.dtype, np.integer)):
        found = f"{ids.dtype} of shape {list(ids.shape)}"
        raise InputError(f"{function}: found {found}, expected ids [pos] or [batch, pos]")
    return ids
