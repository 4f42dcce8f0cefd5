"""Converts a model, or one block, to a torch.nn.Module with gradients.

qkscope computes no gradients. The module reproduces the activations of the model at submodules named like the hook
points: `module.get_submodule("blocks.3.attn.hook_z").register_forward_hook(f)` sees and edits them. Weights are views
of the mapped file if it stores float32, bfloat16 or float16.

This module imports torch.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from ._arrays import on_host
from ._engine import InputError
from ._hooks import select

if TYPE_CHECKING:
    from .model import Model

_CHECK_TOKENS = 8
_CHECK_TOLERANCE = 1e-3  # relative to the largest value; rounding stays far below
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def to_torch_module(model: Model, layer: int | None = None, check: bool = True) -> nn.Module:
    """The whole model, f(tokens [pos] or [batch, pos]) -> logits, or block `layer`, f(residual [pos, d_model] or
    [batch, pos, d_model]) -> residual; float32, on the CPU.

    Weights are buffers without gradients in the read-only mapped file. `.to("cuda")` and `.double()` make copies.
    check: compares model and module on a few tokens; raises an Error that names the first difference.
    """
    layers = range(model.cfg.n_layers)
    if layer is not None and layer not in layers:
        raise InputError(f"layer={layer!r}: expected a layer from 0 to {len(layers) - 1}")
    if model.cfg.num_experts > 0:
        raise InputError(f"to_torch_module: {model.cfg.family} has a mixture of experts, which the module does not know")
    if any(name.endswith("mixer.hook_out") for name in model.hook_names()):
        raise InputError(f"to_torch_module: {model.cfg.family} has a mixer that the module does not know")
    if model.cfg.family in ("gemma4_text", "hunyuan_v1_dense", "nanochat"):
        raise InputError(f"to_torch_module: {model.cfg.family} has norms and a rotation that the module does not know")
    module = TorchModel(model) if layer is None else Block(model, layer)
    module.eval()
    if check:
        _check(model, module, layer)
    return module


def weight_tensor(linear: Any) -> Tensor | None:
    """Returns a matrix [out, in] in its stored type, as a view of the mapped file if possible."""
    stored = linear.stored
    if stored is not None:
        return _view(*stored)
    return None if linear.weight is None else _from_numpy(linear.weight)


class Module(nn.Module):
    """Base class of modules; hook points are identity submodules."""

    if TYPE_CHECKING:
        __call__: Callable[..., Tensor]

        def __getattr__(self, name: str) -> Module: ...


class TorchModel(Module):
    """Computes logits from tokens. Submodules: hook_embed, hook_pos_embed, blocks.N, ln_final, unembed."""

    W_E: Tensor  # [d_vocab, d_model]
    W_pos: Tensor | None  # [n_ctx, d_model]

    def __init__(self, model: Model):
        super().__init__()
        weights = model._engine.weights
        self.cfg = model.cfg
        self.register_buffer("W_E", _stored(weights.stored_embedding, weights.embedding))
        self.register_buffer("W_pos", _stored(weights.stored_positions, weights.positions))
        self.hook_embed = nn.Identity()
        self.hook_pos_embed = nn.Identity()
        present = sorted({int(name.split(".")[1]) for name in model.hook_names() if name.startswith("blocks.")})
        self.blocks = nn.ModuleDict({str(layer): Block(model, layer) for layer in present})
        self.ln_final = Norm(weights.final_norm, model.cfg)
        self.unembed = Linear(weights.head)

    def forward(self, tokens: Any) -> Tensor:
        ids = torch.as_tensor(np.asarray(tokens) if not isinstance(tokens, Tensor) else tokens, dtype=torch.long)
        residual = self.hook_embed(_compute(functional.embedding(ids, self.W_E)) * self.cfg.embedding_scale)
        if self.W_pos is not None:
            residual = residual + self.hook_pos_embed(_compute(self.W_pos[: ids.shape[-1]]).expand_as(residual))
        for block in self.blocks.values():
            residual = block(residual)
        logits = self.unembed(self.ln_final(residual)) * self.cfg.logit_scale
        return _capped(logits, self.cfg.output_logits_soft_cap)


class Block(Module):
    """One block, [batch, pos, d_model] to [batch, pos, d_model]; submodules are named like its hook points."""

    def __init__(self, model: Model, layer: int):
        super().__init__()
        weights = model._engine.weights.layer(layer)
        self.cfg = model.cfg
        self.ln1 = Norm(weights.input_norm, model.cfg)
        self.attn = Attention(model, layer)
        self.ln1_post = Norm(weights.post_attention_norm, model.cfg)
        self.ln2 = Norm(weights.mlp_norm, model.cfg)
        self.mlp = Mlp(model, layer)
        self.ln2_post = Norm(weights.post_mlp_norm, model.cfg)
        for name in ("resid_pre", "attn_out", "resid_mid", "mlp_out", "resid_post"):
            self.add_module(f"hook_{name}", nn.Identity())

    def forward(self, residual: Tensor) -> Tensor:
        entered = self.hook_resid_pre(residual)
        scale = self.cfg.residual_scale
        attention = self.hook_attn_out(self.ln1_post.plain(self.attn(self.ln1(entered))) * scale)
        if self.cfg.parallel_attn_mlp:
            mlp = self.hook_mlp_out(self.ln2_post.plain(self.mlp(self.ln2(entered))) * scale)
            return self.hook_resid_post(entered + attention + mlp)
        middle = self.hook_resid_mid(entered + attention)
        mlp = self.hook_mlp_out(self.ln2_post.plain(self.mlp(self.ln2(middle))) * scale)
        return self.hook_resid_post(middle + mlp)


class Attention(Module):
    """Attention of one layer, with all scores [query, key] in memory."""

    def __init__(self, model: Model, layer: int):
        super().__init__()
        weights = model._engine.weights.layer(layer)
        self.cfg = model.cfg
        self.rope = model.cfg.rope[layer]
        self.window = model.cfg.window[layer]
        self.scale = model.cfg.attn_scales[layer]
        self.q, self.k, self.v, self.o = (Linear(part) for part in (weights.q, weights.k, weights.v, weights.o))
        self.q_norm, self.k_norm = HeadNorm(weights.q_norm, model.cfg), HeadNorm(weights.k_norm, model.cfg)
        for name in ("q", "k", "v", "q_normed", "k_normed", "rot_q", "rot_k", "attn_scores", "pattern", "z"):
            self.add_module(f"hook_{name}", nn.Identity())

    def forward(self, x: Tensor) -> Tensor:
        q = self.hook_q(self._heads(self.q(x)))
        k = self.hook_k(self._heads(self.k(x)))
        v = self.hook_v(self._heads(self.v(x)))
        if self.cfg.qk_norm:
            q, k = self.hook_q_normed(self.q_norm(q)), self.hook_k_normed(self.k_norm(k))
        q, k = self._rotate(q), self._rotate(k)
        q, k = self.hook_rot_q(self._scaled(q)), self.hook_rot_k(k)
        shared = self.cfg.n_heads // self.cfg.n_key_value_heads
        k, v = (t.repeat_interleave(shared, dim=-2) for t in (k, v))
        scores = torch.einsum("...qhd,...khd->...hqk", q, k) * self.scale
        scores = _capped(scores, self.cfg.attn_scores_soft_cap)
        scores = self.hook_attn_scores(scores.masked_fill(~self._seen(x.shape[-2], x.device), -torch.inf))
        pattern = self.hook_pattern(scores.softmax(-1))
        z = self.hook_z(torch.einsum("...hqk,...khd->...qhd", pattern, v))
        return self.o(z.flatten(-2))

    def _heads(self, x: Tensor) -> Tensor:
        clip = self.cfg.qkv_clip
        return (x.clamp(-clip, clip) if clip else x).reshape(*x.shape[:-1], -1, self.cfg.d_head)

    def _rotate(self, x: Tensor) -> Tensor:
        """Applies RoPE to x, [..., pos, head, d_head]."""
        if self.rope is None:
            return x
        length = x.shape[-3]
        frequencies = torch.from_numpy(self.rope.inv_freq(length)).to(x.device)
        angles = torch.arange(length, device=x.device, dtype=torch.float32)[:, None] * frequencies
        factor = self.rope.attention_factor(length)
        cos, sin = (f(angles).to(x.dtype)[:, None, :] * factor for f in (torch.cos, torch.sin))
        turned, rest = x[..., : self.rope.dim], x[..., self.rope.dim :]
        if self.cfg.rope_interleaved:
            a, b = turned[..., 0::2], turned[..., 1::2]
            turned = torch.stack([a * cos - b * sin, b * cos + a * sin], dim=-1).flatten(-2)
        else:
            a, b = turned.chunk(2, dim=-1)
            turned = torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)
        return torch.cat([turned, rest], dim=-1)

    def _scaled(self, q: Tensor) -> Tensor:
        if self.cfg.query_scaling is None:
            return q
        beta, original = self.cfg.query_scaling
        position = torch.arange(q.shape[-3], device=q.device)
        return q * (1 + beta * torch.log(1 + torch.floor(position / original))).to(q.dtype)[:, None, None]

    def _seen(self, length: int, device: Any) -> Tensor:
        distance = torch.arange(length, device=device)[:, None] - torch.arange(length, device=device)
        return (distance >= 0) & (distance < self.window) if self.window else distance >= 0


class Mlp(Module):
    """MLP of one layer, with or without a gate."""

    def __init__(self, model: Model, layer: int):
        super().__init__()
        weights = model._engine.weights.layer(layer)
        if weights.up.weight is None:
            raise InputError(f"to_torch_module: layer {layer} has no MLP that it knows; a mixture of experts, say")
        self.activation = _activation(model.cfg.act_fn, weights)
        self.gate = Linear(weights.gate) if weights.gate.weight is not None else None
        self.up, self.down = Linear(weights.up), Linear(weights.down)
        for name in ("pre", "pre_linear", "post"):
            self.add_module(f"hook_{name}", nn.Identity())

    def forward(self, x: Tensor) -> Tensor:
        if self.gate is None:
            return self.down(self.hook_post(self.activation(self.hook_pre(self.up(x)))))
        gate, up = self.hook_pre(self.gate(x)), self.hook_pre_linear(self.up(x))
        return self.down(self.hook_post(self.activation(gate) * up))


class Linear(Module):
    """A linear layer whose weights are converted to float32 on use."""

    weight: Tensor  # [out, in]
    bias: Tensor | None  # [out]

    def __init__(self, linear: Any):
        super().__init__()
        self.register_buffer("weight", weight_tensor(linear))
        self.register_buffer("bias", None if linear.bias is None else _from_numpy(linear.bias))

    def forward(self, x: Tensor) -> Tensor:
        bias = None if self.bias is None else self.bias.to(x.dtype)
        return functional.linear(x, self.weight.to(x.dtype), bias)


class Norm(Module):
    """RMSNorm or LayerNorm over the last dimension, or the identity."""

    w: Tensor | None  # [d_model]
    b: Tensor | None  # [d_model]

    def __init__(self, norm: Any, cfg: Any):
        super().__init__()
        self.eps = cfg.eps
        self.centred = cfg.normalization_type == "LN"
        self.register_buffer("w", None if norm.weight is None else _from_numpy(norm.weight))
        self.register_buffer("b", None if norm.bias is None else _from_numpy(norm.bias))
        self.hook_normalized = nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return x if self.w is None else self.hook_normalized(self.plain(x))

    def plain(self, x: Tensor) -> Tensor:
        if self.w is None:
            return x
        if self.centred:
            x = x - x.mean(-1, keepdim=True)
        normalized = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * self.w.to(x.dtype)
        return normalized if self.b is None else normalized + self.b.to(x.dtype)


class HeadNorm(Module):
    """RMSNorm of queries or keys, per head or over all heads together."""

    w: Tensor  # [d_head], or of all heads together

    def __init__(self, norm: Any, cfg: Any):
        super().__init__()
        self.eps, self.whole = cfg.eps, cfg.qk_norm_whole
        self.register_buffer("w", None if norm.weight is None else _from_numpy(norm.weight))

    def forward(self, x: Tensor) -> Tensor:
        shape = x.shape
        x = x.flatten(-2) if self.whole else x
        normalized = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps)
        return (normalized * self.w.to(x.dtype)).reshape(shape)


def _activation(name: str, weights: Any) -> Any:
    if name == "xielu":
        alpha_p, alpha_n, beta, eps = weights.xielu

        def xielu(x: Tensor) -> Tensor:
            below = alpha_n * (torch.expm1(x.clamp(max=eps)) - x)
            return torch.where(x > 0, alpha_p * x * x, below) + beta * x

        return xielu
    known = {
        "silu": functional.silu, "gelu": functional.gelu,
        "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    }
    if name not in known:
        raise InputError(f"to_torch_module: the activation {name!r} is not known to it")
    return known[name]


def _capped(x: Tensor, cap: float) -> Tensor:
    return cap * torch.tanh(x / cap) if cap else x


def _compute(x: Tensor) -> Tensor:
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x


def _stored(stored: Any, widened: np.ndarray | None) -> Tensor | None:
    if widened is None:
        return None
    return _from_numpy(widened) if stored is None else _view(*stored)


def _view(dtype: str, array: np.ndarray) -> Tensor:
    tensor = _from_numpy(array)
    return tensor if dtype == "float32" else tensor.view(_DTYPES[dtype])


def _from_numpy(array: np.ndarray) -> Tensor:
    with warnings.catch_warnings():  # torch warns about read-only memory
        warnings.simplefilter("ignore", UserWarning)
        return torch.from_numpy(array)


def _check(model: Model, module: nn.Module, layer: int | None) -> None:
    ids = np.arange(_CHECK_TOKENS) % model.cfg.d_vocab
    names = ["logits"] if layer is None else select(model._engine, [f"blocks.{layer}.hook_resid_*"])
    recorded = model.cache(ids, names, remove_batch_dim=True)
    cache = {name: torch.as_tensor(on_host(value)) for name, value in recorded.items()}
    with torch.no_grad():
        found = module(ids if layer is None else cache[f"blocks.{layer}.hook_resid_pre"])
    expected = cache["logits" if layer is None else f"blocks.{layer}.hook_resid_post"]
    difference = float((found - expected).abs().max())
    if not difference <= _CHECK_TOLERANCE * max(1.0, float(expected.abs().max())):
        raise InputError(
            f"to_torch_module: the module is {difference:g} away from the engine: {model.cfg.family} computes "
            "something that it does not know; a model on the GPU with 16 bits rounds more (check=False)"
        )

