"""Records one forward pass of a transformers model under qkscope's hook names."""

import sys

import torch

ATTENTION_FUNCTION = "eager_attention_forward"


class Recorder:
    """Attaches to a causal language model; `tensors` maps hook names to float32 tensors without the batch axis."""

    def __init__(self, model):
        self.model = model
        self.text = next(m for m in model.modules() if hasattr(m, "embed_tokens") and hasattr(m, "layers"))
        self.config = model.config.get_text_config()
        self.tensors = {}
        self.scaling = {}  # layer -> factor on the dot product
        self.handles = []

    def run(self, token_ids):
        """Runs the model on token_ids [pos] and returns the recorded tensors by hook name."""
        self._attach()
        module = sys.modules[type(self.text).__module__]
        original = getattr(module, ATTENTION_FUNCTION)
        setattr(module, ATTENTION_FUNCTION, self._attention(original))
        try:
            with torch.no_grad():
                output = self.model(input_ids=token_ids[None], use_cache=False)
        finally:
            setattr(module, ATTENTION_FUNCTION, original)
            for handle in self.handles:
                handle.remove()
        self.tensors["logits"] = output.logits[0].float()
        return self.tensors

    # ---- the attention function: what enters the dot product, and what comes out of the softmax

    def _attention(self, original):
        def recorded(module, query, key, value, attention_mask, *args, **kwargs):
            output, weights = original(module, query, key, value, attention_mask, *args, **kwargs)
            prefix = f"blocks.{module.layer_idx}.attn."
            self.tensors[prefix + "hook_rot_q"] = query[0].transpose(0, 1).clone()
            self.tensors[prefix + "hook_rot_k"] = key[0].transpose(0, 1).clone()
            self.tensors[prefix + "hook_pattern"] = weights[0].clone()
            self.tensors[prefix + "hook_z"] = output[0].clone()
            self.scaling[module.layer_idx] = kwargs["scaling"]
            return output, weights

        return recorded

    # ---- hooks on modules

    def _attach(self):
        self._keep(self.text.embed_tokens, "hook_embed")
        self._keep(self.text.norm, "ln_final.hook_normalized")
        for index, layer in enumerate(self.text.layers):
            if hasattr(layer, "self_attn"):  # a cross-attention layer without an image does not run
                self._attach_layer(f"blocks.{index}.", layer)

    def _attach_layer(self, prefix, layer):
        self._keep_input(layer, prefix + "hook_resid_pre")
        self._keep(layer, prefix + "hook_resid_post")
        self._keep(layer.input_layernorm, prefix + "ln1.hook_normalized")

        before_mlp = getattr(layer, "pre_feedforward_layernorm", layer.post_attention_layernorm)
        self._keep_input(before_mlp, prefix + "hook_resid_mid")
        self._keep(before_mlp, prefix + "ln2.hook_normalized")

        attention_norm, mlp_norm = norms_after(layer)
        self._keep(attention_norm or layer.self_attn, prefix + "hook_attn_out")
        self._keep(mlp_norm or layer.mlp, prefix + "hook_mlp_out")
        self._attach_projections(prefix + "attn.", layer.self_attn)
        self._attach_mlp(prefix + "mlp.", layer.mlp)

    def _attach_projections(self, prefix, attention):
        def split_heads(x):
            return x.unflatten(-1, (-1, attention.head_dim))

        for name in "qkv":
            self._keep(getattr(attention, f"{name}_proj"), f"{prefix}hook_{name}", split_heads)
        for name in "qk":
            norm = getattr(attention, f"{name}_norm", None)
            if norm is not None:
                self._keep(norm, f"{prefix}hook_{name}_normed", self._position_first(f"{prefix}hook_{name}"))

    def _position_first(self, projection):
        """Norms run on [pos, head, d] or [head, pos, d]: the shape of the projection decides."""

        def reorder(x):
            expected = self.tensors[projection].shape
            return x if x.shape == expected else x.transpose(0, 1)

        return reorder

    def _attach_mlp(self, prefix, mlp):
        if hasattr(mlp, "gate_up_proj"):
            self._keep(mlp.gate_up_proj, prefix + "hook_pre", lambda x: x.chunk(2, dim=-1)[0])
            self._keep(mlp.gate_up_proj, prefix + "hook_pre_linear", lambda x: x.chunk(2, dim=-1)[1])
        else:
            self._keep(mlp.gate_proj, prefix + "hook_pre")
            self._keep(mlp.up_proj, prefix + "hook_pre_linear")
        self._keep_input(mlp.down_proj, prefix + "hook_post")

    def _keep(self, module, name, shape=lambda x: x):
        def hook(_module, _args, _kwargs, output):
            output = output[0] if isinstance(output, tuple) else output
            self.tensors[name] = shape(output[0]).clone()

        self.handles.append(module.register_forward_hook(hook, with_kwargs=True))

    def _keep_input(self, module, name):
        def hook(_module, args, kwargs):
            value = args[0] if args else kwargs["hidden_states"]
            self.tensors[name] = value[0].clone()

        self.handles.append(module.register_forward_pre_hook(hook, with_kwargs=True))


def norms_after(layer):
    """The norms between attention or MLP and the residual stream, or None where the family has none."""
    if hasattr(layer, "pre_feedforward_layernorm"):
        return layer.post_attention_layernorm, layer.post_feedforward_layernorm
    return getattr(layer, "post_self_attn_layernorm", None), getattr(layer, "post_mlp_layernorm", None)
