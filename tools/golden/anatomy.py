"""Locates the parts of a transformers model, which each family names differently."""

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Layer:
    module: Any
    index: int
    attention: Any  # None in a layer without attention
    mlp: Any  # None in a layer without an MLP
    mixer: Any = None  # of a layer without attention, or beside attention
    down: Any = None
    norm_before_attention: Any = None
    norm_before_mlp: Any = None
    norm_after_attention: Any = None
    norm_after_mlp: Any = None
    projections: dict = field(default_factory=dict)  # q, k, v -> (module, output [pos, out] -> [pos, head, d])
    head_norms: dict = field(default_factory=dict)  # q, k -> norm
    mlp_inputs: dict = field(default_factory=dict)  # pre, pre_linear -> (module, part of its output)
    router: Any = None  # of a mixture of experts, instead of down and mlp_inputs
    experts: Any = None
    shared: Any = None  # the shared expert
    mixture: Any = None  # a mixture of experts whose output is added to that of `mlp`, the shared expert
    scales: dict = field(default_factory=dict)  # hook name -> factor outside the module
    norm_after_per_layer: Any = None  # Gemma 4: of the per-layer input


@dataclass
class Anatomy:
    text: Any
    embedding: Any
    layers: list  # None for a layer that does not run on text
    final_norm: Any
    positions: Any = None
    parallel: bool = False
    sums_from_residual: bool = False  # parallel: residual + attention + MLP, in this order
    after_embedding: Any = None  # function of the embedded tokens
    embedding_scale: float = 1.0  # applied outside the embedding module
    residual_scale: float = 1.0
    clip: float | None = None


def whole(x):
    return x


def heads(d_head, part=whole):
    return lambda x: part(x).unflatten(-1, (-1, d_head))


def third(number):
    return lambda x: x.chunk(3, dim=-1)[number]


def anatomy_of(model):
    config = model.config.get_text_config()
    if config.model_type == "gpt2":
        return gpt2(model.transformer)
    if config.model_type == "gpt_neox":
        return gpt_neox(model.gpt_neox, config)
    if config.model_type == "nemotron_h":
        return nemotron_h(model.model, config)
    text = next(m for m in model.modules() if hasattr(m, "embed_tokens") and hasattr(m, "layers"))
    cohere = config.model_type == "cohere2"
    return Anatomy(
        text=text, embedding=text.embed_tokens, final_norm=first(text, "norm", "embedding_norm", "final_layernorm"),
        parallel=cohere, sums_from_residual=cohere,
        after_embedding=getattr(text.norm, "_norm", None) if config.model_type == "nanochat" else None,
        layers=[None if hasattr(layer, "cross_attn") else llama_layer(layer, index, config)
                for index, layer in enumerate(text.layers)],
        embedding_scale=config.hidden_size**0.5 if getattr(config, "mup_enabled", False)
        else getattr(config, "embedding_multiplier", 1.0),
        residual_scale=getattr(config, "residual_multiplier", 1.0),
        clip=getattr(config, "clip_qkv", None))


# ---- layers with self_attn and mlp


def llama_layer(module, index, config):
    attention, mlp = getattr(module, "self_attn", None), first(module, "mlp", "feed_forward", "shared_mlp")
    mixer = first(module, "linear_attn", "mamba", "conv", default=None)
    if hasattr(attention, "forget_gate"):  # Kimi Linear
        attention, mixer = None, attention
    layer = Layer(module=module, index=index, attention=attention, mlp=mlp, mixer=mixer)
    place_norms(layer, module)
    layer.norm_after_per_layer = getattr(module, "post_per_layer_input_norm", None)
    if attention is not None:
        layer.projections = projections(attention, config)
        if hasattr(attention, "q_norm") and config.model_type != "nanochat":  # nanochat has its norms after RoPE
            layer.head_norms = {name: getattr(attention, f"{name}_norm") for name in layer.projections if name != "v"}
        if hasattr(attention, "q_layernorm"):  # LFM2
            layer.head_norms = {"q": attention.q_layernorm, "k": attention.k_layernorm}
    if getattr(module, "block_sparse_moe", None) is not None:  # Granite 4
        layer.mixture, layer.shared = module.block_sparse_moe, mlp
        layer.router, layer.experts = layer.mixture.router, layer.mixture.experts
    elif hasattr(mlp, "experts"):
        layer.router, layer.experts = first(mlp, "gate", "router"), mlp.experts
        layer.shared = gated_shared_expert(mlp) if hasattr(mlp, "shared_expert_gate") \
            else getattr(mlp, "shared_experts", getattr(mlp, "shared_expert", None))
    else:
        place_mlp(layer, mlp)
    if config.model_type == "falcon_h1":
        layer.scales = {"hook_k": config.key_multiplier, "hook_attn_out": config.attention_out_multiplier,
                        "hook_pre": config.mlp_multipliers[0], "mixer.hook_out": config.ssm_out_multiplier}
    return layer


def gated_shared_expert(mlp):
    """Qwen: the output of the shared expert is multiplied by a gate."""
    return lambda x: mlp.shared_expert_gate(x).sigmoid() * mlp.shared_expert(x)


def place_mlp(layer, mlp):
    layer.down = first(mlp, "down_proj", "c_proj", "fc2", "w2", "output_linear")
    if both := first(mlp, "gate_up_proj", "input_linear", default=None):
        layer.mlp_inputs = {"pre": (both, lambda x: x.chunk(2, dim=-1)[0]),
                            "pre_linear": (both, lambda x: x.chunk(2, dim=-1)[1])}
    elif hasattr(mlp, "w1"):
        layer.mlp_inputs = {"pre": (mlp.w1, whole), "pre_linear": (mlp.w3, whole)}
    elif hasattr(mlp, "gate_proj"):
        layer.mlp_inputs = {"pre": (mlp.gate_proj, whole), "pre_linear": (mlp.up_proj, whole)}
    else:
        layer.mlp_inputs = {"pre": (first(mlp, "up_proj", "c_fc", "fc1"), whole)}


def first(module, *names, **default):
    """Returns the first attribute of `names` that exists and is not None, or `default` if one is given."""
    return next((part for name in names if (part := getattr(module, name, None)) is not None), *default.values())


def place_norms(layer, module):
    def norm(name):
        return getattr(module, name, None)

    if norm("attention_layernorm") is not None:  # Apertus
        layer.norm_before_attention, layer.norm_before_mlp = module.attention_layernorm, module.feedforward_layernorm
        return
    if norm("operator_norm") is not None:  # LFM2
        layer.norm_before_attention, layer.norm_before_mlp = module.operator_norm, module.ffn_norm
        return
    layer.norm_before_attention = norm("input_layernorm")
    if norm("pre_ff_layernorm") is not None:  # Falcon-H1
        layer.norm_before_mlp = module.pre_ff_layernorm
        return
    if norm("post_attention_layernorm") is None:  # Cohere 2
        layer.norm_before_mlp = module.input_layernorm
        return
    if norm("pre_mlp_layernorm") is not None:  # AFMoE
        layer.norm_before_mlp, layer.norm_after_mlp = module.pre_mlp_layernorm, module.post_mlp_layernorm
        layer.norm_after_attention = module.post_attention_layernorm
        return
    if norm("post_feedforward_layernorm") is not None:  # Gemma, OLMo 2
        layer.norm_before_mlp = norm("pre_feedforward_layernorm")
        layer.norm_after_attention = module.post_attention_layernorm
        layer.norm_after_mlp = module.post_feedforward_layernorm
        return
    layer.norm_before_mlp = module.post_attention_layernorm
    layer.norm_after_attention = norm("post_self_attn_layernorm")  # GLM-4-0414
    layer.norm_after_mlp = norm("post_mlp_layernorm")


def latent_projections(attention):
    """q, k and v of latent attention: k and v of a head come from the latent, then all heads share the rotated key."""
    own, shared = attention.qk_nope_head_dim, attention.qk_rope_head_dim
    parts = {"q": (attention.q_proj or attention.q_b_proj, heads(own + shared)),
             "shared": (attention.kv_a_proj_with_mqa, lambda x: x[..., None, -shared:]),
             "k": (attention.kv_b_proj, lambda x: heads(own + attention.v_head_dim)(x.flatten(0, -2))[..., :own]),
             "v": (attention.kv_b_proj, lambda x: heads(own + attention.v_head_dim)(x.flatten(0, -2))[..., own:])}
    return parts | {"kv_latent": (attention.kv_a_layernorm, whole)}


def projections(attention, config):
    if hasattr(attention, "kv_b_proj"):
        return latent_projections(attention)
    d = attention.head_dim
    if config.model_type == "gemma4_text":  # v after its norm; a layer with shared keys has neither k nor v
        return {"q": (attention.q_proj, heads(d))} | (
            {"k": (attention.k_proj, heads(d)), "v": (attention.v_norm, whole)} if hasattr(attention, "k_proj") else {})
    if config.model_type in ("qwen3_next", "qwen3_5_text"):  # rows of q and of the output gate alternate by head
        parts = {"q": heads(2 * d), "k": heads(d), "v": heads(d)}
        return {name: (getattr(attention, f"{name}_proj"), lambda x, part=part: part(x)[..., :d])
                for name, part in parts.items()}
    if not hasattr(attention, "qkv_proj"):
        return {name: (getattr(attention, f"{name}_proj"), heads(d)) for name in "qkv"}
    q, kv = config.num_attention_heads * d, config.num_key_value_heads * d
    bounds = {"q": (0, q), "k": (q, q + kv), "v": (q + kv, q + 2 * kv)}
    return {name: (attention.qkv_proj, heads(d, lambda x, b=b, e=e: x[..., b:e])) for name, (b, e) in bounds.items()}


# ---- families with other module names


def gpt_neox(text, config):
    def layer_of(index, module):
        attention, mlp = module.attention, module.mlp
        d = attention.head_size
        # Rows of the fused projection are ordered (head, q or k or v, d).
        parts = {name: (attention.query_key_value, lambda x, i=i: third(i)(x.unflatten(-1, (-1, 3 * d))))
                 for i, name in enumerate("qkv")}
        return Layer(module=module, index=index, attention=attention, mlp=mlp, down=mlp.dense_4h_to_h,
                     norm_before_attention=module.input_layernorm, norm_before_mlp=module.post_attention_layernorm,
                     projections=parts, mlp_inputs={"pre": (mlp.dense_h_to_4h, whole)})

    return Anatomy(text=text, embedding=text.embed_in, final_norm=text.final_layer_norm,
                   layers=[layer_of(*item) for item in enumerate(text.layers)], parallel=config.use_parallel_residual)


def gpt2(text):
    def layer_of(index, module):
        attention, mlp = module.attn, module.mlp
        parts = {name: (attention.c_attn, heads(attention.head_dim, third(i))) for i, name in enumerate("qkv")}
        return Layer(module=module, index=index, attention=attention, mlp=mlp, down=mlp.c_proj,
                     norm_before_attention=module.ln_1, norm_before_mlp=module.ln_2, projections=parts, mlp_inputs={"pre": (mlp.c_fc, whole)})

    return Anatomy(text=text, embedding=text.wte, positions=text.wpe, final_norm=text.ln_f,
                   layers=[layer_of(*item) for item in enumerate(text.h)])


def nemotron_h(text, config):
    def layer_of(index, module):
        part, kind = module.mixer, module.block_type
        layer = Layer(module=module, index=index, attention=part if kind == "full_attention" else None,
                      mixer=part if kind == "linear_attention" else None, mlp=part if kind in ("mlp", "moe") else None)
        if layer.mlp is None:
            layer.norm_before_attention = module.norm
        else:
            layer.norm_before_mlp = module.norm
        if layer.attention is not None:
            layer.projections = projections(part, config)
        if kind == "mlp":
            place_mlp(layer, part)
        if kind == "moe":
            layer.router, layer.experts, layer.shared = part.gate, part.experts, part.shared_experts
        return layer

    return Anatomy(text=text, embedding=text.embeddings, final_norm=text.norm_f,
                   layers=[layer_of(*item) for item in enumerate(text.layers)])
