"""Measures the sustained rates of a GPU for a model's products and attention, and the time of a pass at these rates.

Every product runs through torch.mm, and attention through cuDNN and, if supported, our kernel, for a second or more, until
the GPU reaches its power limit; the rate of the last half counts, of the faster kernel. The work is pruned as in a
capture: the last layer computes q and k at its sampled rows only, and the layer before computes k and v everywhere but
all else only for those rows.
"""

import time
from contextlib import nullcontext

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

import own_attention
from transformers_peer import sampled_rows, synchronize


class Shape:
    """Sizes of a model that determine its FLOP. A multiplication and an addition count as two."""

    def __init__(self, config):
        self.layers = config["num_hidden_layers"]
        self.hidden = config["hidden_size"]
        self.mlp = config["intermediate_size"]
        if "moe_intermediate_size" in config:  # a dense MLP with the FLOP of the experts of a token
            self.mlp = config["moe_intermediate_size"] * config["num_experts_per_tok"]
        self.heads = config["num_attention_heads"]
        self.key_heads = config["num_key_value_heads"]
        self.head_dim = config.get("head_dim") or self.hidden // self.heads
        self.queries = self.heads * self.head_dim  # columns
        self.keys = self.key_heads * self.head_dim
        types = config.get("layer_types") or ["full_attention"]  # of layers without attention only the MLP is exact
        self.attention_share = 1 - types.count("linear_attention") / len(types)

    def products(self):
        """Returns name → (inputs, outputs) of the fused products of one layer."""
        return {"qkv": (self.hidden, self.queries + 2 * self.keys), "o": (self.queries, self.hidden),
                "gate_up": (self.hidden, 2 * self.mlp), "down": (self.mlp, self.hidden)}

    def layer_flop(self, documents, length):
        """Returns name → FLOP of one unpruned layer."""
        rows = documents * length
        flop = {name: 2 * rows * inputs * outputs for name, (inputs, outputs) in self.products().items()}
        return flop | {"attention": 2 * self.attention_share * self.queries * documents * length ** 2}

    def flop(self, documents, length):
        return self.layers * sum(self.layer_flop(documents, length).values())


def pruned_flop(shape, documents, length):
    """Returns name → FLOP of the network pruned as in a capture: all layers but the last two are whole."""
    last = shape.layers - 1
    flop = {name: (last - 1) * whole for name, whole in shape.layer_flop(documents, length).items()}
    flop["qkv"] += 2 * documents * length * shape.hidden * 2 * shape.keys  # k and v of the layer before
    for document in range(documents):
        queries, keys = (set(sampled_rows(document, last, kind, length)) for kind in "qk")
        flop["qkv"] += 2 * shape.hidden * (len(queries) * shape.queries + len(keys) * shape.keys)
        needed = queries | keys
        own = needed | set(sampled_rows(document, last - 1, "q", length))
        flop["qkv"] += 2 * shape.hidden * len(own) * shape.queries
        flop["attention"] += 4 * shape.queries * sum(row + 1 for row in needed)
        for name in ("o", "gate_up", "down"):
            inputs, outputs = shape.products()[name]
            flop[name] += 2 * len(needed) * inputs * outputs
    return flop


def sustained_rate(operation, flop, seconds, device):
    """Returns FLOP/s over the last half of a run of about `seconds`."""
    operation()
    synchronize(device)
    start = time.perf_counter()
    operation()
    synchronize(device)
    group = max(1, int(seconds / 20 / (time.perf_counter() - start)))  # synchronises with the device after each group
    start = half = time.perf_counter()
    done = 0
    while (now := time.perf_counter()) < start + seconds or done == 0:
        if now < start + seconds / 2:
            half, done = now, 0
        for _ in range(group):
            operation()
        synchronize(device)
        done += group
    return done * flop / (time.perf_counter() - half)


class Ceiling:
    def __init__(self, device, seconds, mlp_chunk):
        self.device, self.seconds, self.mlp_chunk = device, seconds, mlp_chunk
        self.own = own_attention.load() if device == "cuda" else None
        self.rates = {}  # (operation, sizes) → FLOP/s; batches share most of them

    def _random(self, *shape):
        return torch.randn(shape, dtype=torch.bfloat16, device=self.device)

    def _product(self, rows, inputs, outputs):
        x, weight = self._random(rows, inputs), self._random(outputs, inputs)
        out = self._random(rows, outputs)
        return sustained_rate(lambda: torch.mm(x, weight.T, out=out), 2 * rows * inputs * outputs, self.seconds,
                              self.device)

    def _attention(self, shape, documents, length):
        def states(heads):  # layout of a projection: (documents, length, heads, head_dim)
            return self._random(documents, length, heads, shape.head_dim).transpose(1, 2)

        q, k, v = states(shape.heads), states(shape.key_heads), states(shape.key_heads)
        on_gpu = sdpa_kernel([SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION], set_priority=True)
        flop = shape.layer_flop(documents, length)["attention"]
        with on_gpu if self.device == "cuda" else nullcontext():
            library = sustained_rate(
                lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True),
                flop, self.seconds, self.device)
        if self.own is None or shape.head_dim != own_attention.HEAD_DIM:
            return library
        own = sustained_rate(lambda: self.own(q, k, v, shape.head_dim ** -0.5), flop, self.seconds, self.device)
        return max(library, own)

    def _rate(self, key, measure):
        if key not in self.rates:
            self.rates[key] = measure()
        return self.rates[key]

    @torch.inference_mode()
    def composite(self, shape, documents, length):
        """Returns seconds of a pruned pass, its FLOP, and name → FLOP/s."""
        rates = {}
        for name, sizes in shape.products().items():
            rows = documents * length
            if name in ("gate_up", "down"):
                rows = min(rows, self.mlp_chunk)
            rates[name] = self._rate((rows, *sizes), lambda: self._product(rows, *sizes))
        attention = (documents, length, shape.heads, shape.key_heads, shape.head_dim)
        rates["attention"] = self._rate(attention, lambda: self._attention(shape, documents, length))
        if self.device == "cuda":
            torch.cuda.empty_cache()
        flop = pruned_flop(shape, documents, length)
        return sum(flop[name] / rate for name, rate in rates.items()), sum(flop.values()), rates
