"""Records one forward pass of a transformers model under qkscope's hook names."""

import sys

import torch

from .anatomy import anatomy_of

ATTENTION_FUNCTION = "eager_attention_forward"
DELTA_FUNCTION = "torch_chunk_gated_delta_rule"
KIMI_FUNCTION = "chunk_kimi_delta_attention"
MAMBA2_FUNCTION = "mamba2_chunk_scan"
CONVOLUTION_FUNCTION = "causal_conv1d_fn"


def scales_inputs(experts):
    """Whether router weights multiply the inputs of experts: Llama 4, whose matrices are (experts, in, out)."""
    return type(experts).__name__ == "Llama4TextExperts"


def chosen_experts(experts, x, indices, weights):
    """Recomputes gate, up and their product of the chosen experts of each row, which transformers does not expose."""
    if hasattr(experts, "gate_up_proj_bias"):  # gpt-oss: (experts, in, out), gate and up interleaved
        both = torch.einsum("ri,rkio->rko", x, experts.gate_up_proj[indices]) + experts.gate_up_proj_bias[indices]
        return {"pre": both[..., ::2], "pre_linear": both[..., 1::2], "post": experts._apply_gate(both)}
    if not hasattr(experts, "gate_up_proj"):  # Nemotron-H: experts without a gate
        up = torch.einsum("ri,rkoi->rko", x, experts.up_proj[indices])
        return {"pre": up, "post": experts.act_fn(up)}
    if scales_inputs(experts):
        scaled = (x[:, None] * weights[..., None]).to(x.dtype)
        gate, up = torch.einsum("rki,rkio->rko", scaled, experts.gate_up_proj[indices]).chunk(2, dim=-1)
        return {"pre": gate, "pre_linear": up, "post": experts.act_fn(gate) * up}
    gate, up = torch.einsum("ri,rkoi->rko", x, experts.gate_up_proj[indices]).chunk(2, dim=-1)
    return {"pre": gate, "pre_linear": up, "post": experts.act_fn(gate) * up}


def experts_output(experts, post, indices, weights):
    """Returns the weighted sum of the outputs of the chosen experts."""
    down = experts.down_proj[indices]
    if scales_inputs(experts):
        return torch.einsum("rkm,rkmd->rd", post, down)
    if not hasattr(experts, "down_proj_bias"):
        return torch.einsum("rkm,rkdm,rk->rd", post, down, weights)
    made = torch.einsum("rkm,rkmd->rkd", post, down) + experts.down_proj_bias[indices]
    return torch.einsum("rkd,rk->rd", made, weights)


def routing(router, output):
    """Returns logits [pos, expert], weights and indices [pos, chosen] of a router."""
    if type(router).__name__ != "Llama4Router":
        return output[:3]
    scores, logits = output
    indices = logits.topk(router.top_k, dim=-1).indices
    return logits, scores.gather(1, indices), indices


def selection_scores(router, args, logits):
    """Returns the scores by which a router chooses: its logits, or scores plus the selection bias."""
    if hasattr(router, "moe_statics"):  # ERNIE 4.5
        return router.moe_statics(logits.float().softmax(-1))
    bias = args[1] if len(args) > 1 else getattr(router, "e_score_correction_bias", None)
    if bias is None:
        return logits
    return logits.float().sigmoid() + bias


def has_groups(router):
    return (getattr(router, "num_group", None) or 1) > 1 and getattr(router, "topk_method", None) != "greedy"


def group_sums(router, scores):
    """Returns the sum of the two highest scores of every group of experts; the highest score for DeepSeek-V2."""
    best = 1 if hasattr(router, "topk_method") else 2
    return scores.unflatten(-1, (router.num_group, -1)).topk(best, dim=-1).values.sum(-1)


def only_chosen_groups(router, scores):
    sums = group_sums(router, scores)
    kept = sums >= sums.topk(router.topk_group, dim=-1).values[:, -1:]
    return scores.masked_fill(~kept.repeat_interleave(scores.shape[-1] // router.num_group, -1), float("-inf"))


class Recorder:
    """Attaches to a causal language model; `tensors` maps hook names to float32 tensors without the batch axis."""

    def __init__(self, model):
        self.model = model
        self.config = model.config.get_text_config()
        self.anatomy = anatomy_of(model)
        self.tensors = {}
        self.scaling = {}  # layer -> factor on the dot product
        self.softcap = {}  # layer -> cap on scores, or None
        self.sinks = {}  # layer -> one sink logit per head, or None
        self.values = {}  # layer -> values [pos, head, d] of the weighted sum
        self.selection = {}  # layer -> scores [pos, expert] by which experts are chosen
        self.ungrouped = {}  # layer -> the same before groups are excluded
        self.routed = {}  # layer -> input [pos, d_model] of the router
        self.shared = {}  # layer -> output of the shared expert
        self.mixing = None  # layer whose mixer runs
        self.handles = []

    def run(self, token_ids):
        """Runs the model on token_ids [pos] and returns the recorded tensors by hook name."""
        self._attach()
        module = sys.modules[type(self.anatomy.text).__module__]
        recorders = {ATTENTION_FUNCTION: self._attention, DELTA_FUNCTION: self._delta_rule,
                     KIMI_FUNCTION: self._delta_rule, MAMBA2_FUNCTION: self._mamba2}
        if self.config.model_type == "lfm2":
            recorders[CONVOLUTION_FUNCTION] = self._convolution
        originals = {name: getattr(module, name) for name in recorders if hasattr(module, name)}
        for name, original in originals.items():
            setattr(module, name, recorders[name](original))
        try:
            with torch.no_grad():
                output = self.model(input_ids=token_ids[None], use_cache=False)
        finally:
            for name, original in originals.items():
                setattr(module, name, original)
            for handle in self.handles:
                handle.remove()
        self.tensors["logits"] = output.logits[0].float()
        return self.tensors

    # ---- the attention function: vectors of the dot product, and the softmax

    def _attention(self, original):
        def recorded(module, query, key, value, attention_mask, *args, **kwargs):
            output, weights = original(module, query, key, value, attention_mask, *args, **kwargs)
            prefix = f"blocks.{module.layer_idx}.attn."
            self.tensors[prefix + "hook_rot_q"] = query[0].transpose(0, 1).clone()
            self.tensors[prefix + "hook_rot_k"] = key[0].transpose(0, 1).clone()
            if (shared := self.tensors.pop(prefix + "hook_shared", None)) is not None:  # latent attention
                own = self.tensors[prefix + "hook_k"]
                self.tensors[prefix + "hook_k"] = torch.cat([own, shared.expand(-1, own.shape[1], -1)], dim=-1)
            self.tensors[prefix + "hook_pattern"] = weights[0].clone()
            self.tensors[prefix + "hook_z"] = output[0].clone()
            self.values[module.layer_idx] = value[0].transpose(0, 1).clone()
            self.scaling[module.layer_idx] = kwargs["scaling"]
            self.softcap[module.layer_idx] = kwargs.get("softcap")
            self.sinks[module.layer_idx] = getattr(module, "sinks", None)
            return output, weights

        return recorded

    def _convolution(self, original):
        """Records the inputs [1, taps - 1, channel] that the token after the last one would read."""

        def recorded(inputs, weight, *args, **kwargs):
            kept = weight.shape[-1] - 1
            padded = torch.nn.functional.pad(inputs, (kept, 0))
            self.tensors[f"blocks.{self.mixing}.mixer.hook_state"] = padded[..., -kept:].transpose(1, 2).clone()
            return original(inputs, weight, *args, **kwargs)

        return recorded

    def _mamba2(self, original):
        """Records the state after the last token, (1, head, d_state, d_head)."""

        def recorded(*args, **kwargs):
            output, state = original(*args, **(kwargs | {"return_final_states": True}))
            self.tensors[f"blocks.{self.mixing}.mixer.hook_state"] = state.transpose(-1, -2).clone()
            return output

        return recorded

    def _delta_rule(self, original):
        """Records the state after the last token, (1, head, d_key, d_value), of the layer that runs."""

        def recorded(*args, **kwargs):
            output, state = original(*args, **(kwargs | {"output_final_state": True}))
            self.tensors[f"blocks.{self.mixing}.mixer.hook_state"] = state.clone()
            return output, state

        return recorded

    # ---- hooks on modules

    def _attach(self):
        model = self.anatomy
        after = model.after_embedding or (lambda x: x)
        self._keep(model.embedding, "hook_embed", lambda x: after(x * model.embedding_scale))
        if model.positions is not None:
            self._keep(model.positions, "hook_pos_embed")
        self._keep(model.final_norm, "ln_final.hook_normalized")
        for index, layer in enumerate(model.layers):
            if layer is not None:  # a cross-attention layer without an image does not run
                self._attach_layer(f"blocks.{index}.", layer)

    def _attach_layer(self, prefix, layer):
        self._keep_input(layer.module, prefix + "hook_resid_pre")
        self._keep(layer.module, prefix + "hook_resid_post")
        if layer.norm_before_attention is not None:
            self._keep(layer.norm_before_attention, prefix + "ln1.hook_normalized")
        mixes = layer.attention is not None or layer.mixer is not None
        if not self.anatomy.parallel and mixes and layer.mlp is not None:
            self._keep_input(layer.norm_before_mlp or layer.mlp, prefix + "hook_resid_mid")
        if layer.norm_before_mlp is not None:
            self._keep(layer.norm_before_mlp, prefix + "ln2.hook_normalized")

        def added(name):
            return lambda x: x * self.anatomy.residual_scale * layer.scales.get(name, 1.0)

        if layer.mixer is not None:
            def begin(_module, _args, _kwargs):
                self.mixing = layer.index

            self.handles.append(layer.mixer.register_forward_pre_hook(begin, with_kwargs=True))
            self._keep_input(layer.mixer, prefix + "mixer.hook_in")
            self._keep(layer.mixer, prefix + "mixer.hook_out", added("mixer.hook_out"))
        if layer.attention is not None:
            self._keep(layer.norm_after_attention or layer.attention, prefix + "hook_attn_out", added("hook_attn_out"))
        if layer.norm_after_per_layer is not None:
            self._keep(layer.norm_after_per_layer, prefix + "hook_per_layer_out")
        self._attach_projections(prefix + "attn.", layer)
        if layer.mlp is None:
            return
        if layer.mixture is not None:
            self._keep(layer.mixture, "mixture")

            def both(x):
                return added("hook_mlp_out")(self.tensors.pop("mixture", 0) + x)

            self._keep(layer.mlp, prefix + "hook_mlp_out", both)
        else:
            self._keep(layer.norm_after_mlp or layer.mlp, prefix + "hook_mlp_out", added("hook_mlp_out"))
        self._attach_mlp(prefix + "mlp.", layer)

    def _attach_projections(self, prefix, layer):
        clip = self.anatomy.clip
        for name, (module, part) in layer.projections.items():
            def split(x, part=part, name=name):
                heads = part(x) * layer.scales.get(f"hook_{name}", 1.0)
                return heads if clip is None else heads.clamp(-clip, clip)

            self._keep(module, f"{prefix}hook_{name}", split)
        for name, norm in layer.head_norms.items():
            self._keep(norm, f"{prefix}hook_{name}_normed", self._like(f"{prefix}hook_{name}"))

    def _like(self, projection):
        """Norms run on [pos, head, d], [head, pos, d] or [pos, head * d]; reorders to the shape of the projection."""

        def reorder(x):
            expected = self.tensors[projection].shape
            if x.dim() == 2:
                return x.reshape(expected)
            return x if x.shape == expected else x.transpose(0, 1)

        return reorder

    def _attach_mlp(self, prefix, layer):
        if layer.experts is not None:
            self._attach_experts(prefix, layer)
            return
        for name, (module, part) in layer.mlp_inputs.items():
            self._keep(module, f"{prefix}hook_{name}",
                       lambda x, part=part, name=name: part(x) * layer.scales.get(f"hook_{name}", 1.0))
        self._keep_input(layer.down, prefix + "hook_post")

    def _attach_experts(self, prefix, layer):
        """Records the router logits and, for the chosen experts of each row, [pos, chosen, d_mlp]."""

        def routed(module, args, output):
            logits, weights, indices = routing(module, output)
            scores = selection_scores(module, args, logits)
            if has_groups(module):
                self.ungrouped[layer.index] = scores
                scores = only_chosen_groups(module, scores)
            self.selection[layer.index] = scores
            order = scores.gather(1, indices).argsort(-1, descending=True)  # some routers do not sort
            named = {"router_logits": logits, "expert_weights": weights.gather(1, order),
                     "expert_indices": indices.gather(1, order)}
            for name, tensor in named.items():
                self.tensors[f"{prefix}hook_{name}"] = tensor.float().clone()
            self.routed[layer.index] = args[0].flatten(0, -2)

        def entered(module, args):
            indices = self.tensors[f"{prefix}hook_expert_indices"].long()
            x = self.routed[layer.index]
            for name, tensor in chosen_experts(module, x, indices, self.tensors[f"{prefix}hook_expert_weights"]).items():
                self.tensors[f"{prefix}hook_{name}"] = tensor
            if layer.shared is not None:
                self.shared[layer.index] = layer.shared(x)

        self.handles.append(layer.router.register_forward_hook(routed))
        self.handles.append(layer.experts.register_forward_pre_hook(entered))

    def _keep(self, module, name, shape=lambda x: x):
        def hook(_module, _args, _kwargs, output):
            output = output[0] if isinstance(output, tuple) else output
            output = output[0] if output.dim() > 2 else output  # position embeddings have no batch axis
            self.tensors[name] = shape(output).clone()

        self.handles.append(module.register_forward_hook(hook, with_kwargs=True))

    def _keep_input(self, module, name):
        def hook(_module, args, kwargs):
            value = args[0] if args else kwargs["hidden_states"]
            self.tensors[name] = value[0].clone()

        self.handles.append(module.register_forward_pre_hook(hook, with_kwargs=True))
