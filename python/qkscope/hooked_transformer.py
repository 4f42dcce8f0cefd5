"""HookedTransformer: a Model with the conventions of TransformerLens, for code that was written for it."""

from __future__ import annotations

import dataclasses
import itertools
import warnings
from collections.abc import Iterator
from os import PathLike
from types import SimpleNamespace
from typing import Any, overload

from . import _options, utils
from ._arrays import Array, ArrayInput, as_kind, torch_or_none
from ._batch import Batch
from ._calls import Call, Start
from ._engine import Config
from ._hooks import HookPoint
from ._tokens import Text
from .model import Model, Tokens, load

_HUB_NAMES = {"gpt2-small": "gpt2"}  # TransformerLens names that are not model ids
# Families for which TransformerLens 4.3 sets default_prepend_bos to False.
_WITHOUT_BOS = ("glm", "gpt_neox", "granite", "qwen2", "qwen3", "qwen3_moe", "smollm3", "starcoder2")
_PARTS = {
    "attn": ("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V", "b_O"),
    "mlp": ("W_gate", "W_in", "W_out", "b_gate", "b_in", "b_out"),
    "ln1": ("w", "b"),
    "ln2": ("w", "b"),
}


class HookedConfig:
    """The attributes of Config, and device, dtype, model_name and default_prepend_bos of TransformerLens."""

    def __init__(self, config: Config, **more: Any):
        self._config = config
        self.__dict__.update(more)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__.get("_config"), name)  # None while copy.copy() builds the object

    def __repr__(self) -> str:
        return repr(self._config)


class HookedTransformer(Model):
    """A Model with the defaults of TransformerLens: HookedTransformer.from_pretrained("gpt2").

    Differences from Model: arrays and ids of one text have a batch dimension of 1. Texts begin with the BOS token, or
    EOS where the tokenizer has no BOS. Arrays and ids are torch tensors if torch is installed, else NumPy arrays.
    """

    default_prepend_bos = True

    @classmethod
    @_options.checked
    def from_pretrained(
        cls,
        model_name: str | PathLike[str],
        fold_ln: bool = True,
        center_writing_weights: bool = True,
        center_unembed: bool = True,
        refactor_factored_attn_matrices: bool = False,
        *,
        fold_value_biases: bool = True,
        default_prepend_bos: bool = True,
        device: Any = None,
        dtype: Any = None,
        revision: str | None = None,
        arrays: str | None = None,
    ) -> HookedTransformer:
        """Loads a model as load() does, with the weight processing of TransformerLens.

        Writing weights are centred for LayerNorm only, and the unembedding only without a soft cap, as in
        TransformerLens. arrays: "torch" or "numpy"; None: torch tensors if torch is installed.
        refactor_factored_attn_matrices is ignored with a warning: it changes q, k, v and z, but no output.
        """
        if _options.flag("refactor_factored_attn_matrices", refactor_factored_attn_matrices):
            message = "refactor_factored_attn_matrices=True is ignored: W_Q, W_K, W_V and W_O stay as stored"
            warnings.warn(message, stacklevel=3)  # the caller of from_pretrained()
        name = _HUB_NAMES.get(str(model_name), model_name)
        cfg = load(name, revision, "cpu").cfg
        model = load(
            name, revision, "auto" if device is None else str(device), dtype,
            arrays=arrays or ("torch" if torch_or_none() else "numpy"), fold_ln=fold_ln,
            center_writing_weights=center_writing_weights and cfg.normalization_type == "LN",
            center_unembed=center_unembed and not cfg.output_logits_soft_cap, fold_value_biases=fold_value_biases)
        hooked = cls(model._engine, model.folder, model.arrays)
        hooked.default_prepend_bos = _options.flag("default_prepend_bos", default_prepend_bos)
        return hooked

    @classmethod
    @_options.checked
    def boot_transformers(
        cls,
        model_name: str | PathLike[str],
        *,
        device: Any = None,
        dtype: Any = None,
        revision: str | None = None,
        arrays: str | None = None,
    ) -> HookedTransformer:
        """Loads a model without weight processing, as TransformerBridge of TransformerLens 4.

        Texts of families that were not trained with BOS, such as Qwen and SmolLM3, do not begin with it.
        """
        bridge = cls.from_pretrained(
            model_name, False, False, False, fold_value_biases=False, device=device, dtype=dtype, revision=revision,
            arrays=arrays)
        bridge.default_prepend_bos = bridge.cfg.family not in _WITHOUT_BOS
        return bridge

    @_options.checked
    def enable_compatibility_mode(self, *, no_processing: bool = False, **processing: Any) -> None:
        """Processes the weights as from_pretrained() does; processing: its options. no_processing: keeps them."""
        if not _options.flag("no_processing", no_processing):
            self._engine = self.from_pretrained(
                self.folder, device=self.device, dtype=self.dtype, arrays=self.arrays, **processing)._engine

    @property
    def cfg(self) -> Config:
        """The configuration, with device, dtype, model_name and default_prepend_bos."""
        return HookedConfig(  # type: ignore[return-value]
            self._engine.config, device=self.device, dtype=self.dtype, model_name=self.folder,
            default_prepend_bos=self.default_prepend_bos)

    # Text

    @property
    def bos_token_id(self) -> int | None:
        """Id of the BOS token; EOS where the tokenizer has no BOS."""
        own = super().bos_token_id
        return self.eos_token_id if own is None else own

    def _encode(self, text: str, prepend_bos: bool | None, add_special_tokens: bool = True, max_length: int = 0) -> Any:
        if prepend_bos is None:
            prepend_bos = True if self.default_prepend_bos and self.bos_token_id is not None else None
        return super()._encode(text, prepend_bos, add_special_tokens, max_length)

    def to_tokens(  # type: ignore[override]
        self, text: Text, prepend_bos: bool | None = None, *args: Any, **options: Any
    ) -> Array:
        """Returns token ids [batch, pos], [1, pos] for one text; arguments as Model.to_tokens()."""
        ids = super().to_tokens(text, prepend_bos, *args, **options)
        return as_kind(ids.astype("int64").reshape(-1, ids.shape[-1]), self.arrays)

    @overload
    def to_str_tokens(self, tokens: str, prepend_bos: bool | None = ...) -> list[str]: ...
    @overload
    def to_str_tokens(self, tokens: Any, prepend_bos: bool | None = ...) -> list[str] | list[list[str]]: ...
    def to_str_tokens(self, tokens: Any, prepend_bos: bool | None = None) -> list[str] | list[list[str]]:
        """Returns the text of each token of a text or of ids [pos] or [1, pos]; a list of lists for several texts."""
        found = super().to_str_tokens(tokens, prepend_bos)
        one = hasattr(tokens, "shape") and len(found) == 1 and isinstance(found[0], list)
        return found[0] if one else found

    # Passes

    def _input(self, tokens: Tokens, call: Call) -> tuple[Batch, Start | None]:
        batch, start = super()._input(tokens, call)
        return batch if start else dataclasses.replace(batch, batched=True), start

    def loss_fn(self, logits: ArrayInput, tokens: ArrayInput, per_token: bool = False) -> Array:
        """Returns the mean of -log p of the next token, or with per_token [batch, pos - 1]."""
        return utils.lm_cross_entropy_loss(logits, tokens, per_token)

    # Modules

    @property
    def embed(self) -> SimpleNamespace:
        """W_E"""
        return SimpleNamespace(W_E=self.W_E)

    @property
    def pos_embed(self) -> SimpleNamespace:
        """W_pos"""
        return SimpleNamespace(W_pos=self.W_pos)

    @property
    def unembed(self) -> SimpleNamespace:
        """W_U and b_U"""
        return SimpleNamespace(W_U=self.W_U, b_U=self.b_U)

    @property
    def hook_dict(self) -> dict[str, HookPoint]:
        """Hook points by name, in order of firing."""
        return {name: HookPoint(name) for name in self.hook_names()}

    def named_parameters(self) -> Iterator[tuple[str, Array]]:
        """Returns pairs (name, weight) under the names of TransformerLens: "blocks.0.attn.W_Q"."""
        outside = {"embed.W_E": self.W_E, "pos_embed.W_pos": self.W_pos, "ln_final.w": self.ln_final.w,
                   "ln_final.b": self.ln_final.b, "unembed.W_U": self.W_U, "unembed.b_U": self.b_U}
        inside = (
            (f"blocks.{layer}.{part}.{name}", getattr(getattr(block, part), name, None))
            for layer, block in enumerate(self.blocks) for part, names in _PARTS.items() for name in names)
        return ((name, weight) for name, weight in itertools.chain(outside.items(), inside) if weight is not None)


TransformerBridge = HookedTransformer  # the name in TransformerLens 4
