"""Checks that recorded tensors are consistent; an inconsistent golden file is never written."""

import torch

from .recorder import experts_output, group_sums, has_groups


def window_of(config, layer):
    """Returns the number of keys that a query of this layer attends to, or None without a window."""
    layer_types = getattr(config, "layer_types", None)
    if layer_types is not None:
        return config.sliding_window if layer_types[layer] == "sliding_attention" else None
    return getattr(config, "sliding_window", None)


def chunk_of(config, layer):
    """Returns the size of the chunks within which a layer attends, or None."""
    layer_types = getattr(config, "layer_types", None) or []
    return config.attention_chunk_size if "chunked_attention" in layer_types[layer : layer + 1] else None


def visible_keys(length, window, chunk):
    """Returns [query, key], true for unmasked keys."""
    query, key = torch.arange(length)[:, None], torch.arange(length)[None, :]
    visible = query >= key
    if chunk is not None:
        visible = visible & (query // chunk == key // chunk)
    return visible if window is None else visible & (query - key < window)


def attention_scores(recorder, layer):
    """Recomputes scaled and masked scores [head, query, key] from the rotated vectors."""
    prefix = f"blocks.{layer}.attn."
    query = recorder.tensors[prefix + "hook_rot_q"]
    key = recorder.tensors[prefix + "hook_rot_k"]
    key = key.repeat_interleave(query.shape[1] // key.shape[1], dim=1)
    scores = torch.einsum("qhd,khd->hqk", query, key) * recorder.scaling[layer]
    if cap := recorder.softcap[layer]:
        scores = cap * torch.tanh(scores / cap)
    visible = visible_keys(scores.shape[-1], window_of(recorder.config, layer), chunk_of(recorder.config, layer))
    return scores.masked_fill(~visible, float("-inf"))


def pattern_of(scores, sinks):
    """Softmax of the scores; a sink enters the denominator but has no column."""
    if sinks is None:
        return scores.softmax(-1)
    joined = torch.cat([scores, sinks[:, None, None].expand(-1, scores.shape[1], 1)], dim=-1)
    return joined.softmax(-1)[..., :-1]


def same(what, found, expected, tolerance=2e-5):
    difference = (found - expected).abs().max().item()
    if not difference <= tolerance:
        raise AssertionError(f"{what}: recorded and recomputed values differ by {difference}")


def check(recorder, layers, rows):
    """Recomputes residuals, patterns, weighted values and MLP outputs of the layers from the recorded parts. `rows` are
    the stored rows."""
    t = recorder.tensors
    previous = t["hook_embed"] + t.get("hook_pos_embed", 0)
    for layer in layers:
        p = f"blocks.{layer}."
        same(p + "hook_resid_pre", t[p + "hook_resid_pre"], previous, 0)
        if recorder.anatomy.parallel:
            parts = [t[p + "hook_mlp_out"], t[p + "hook_attn_out"], t[p + "hook_resid_pre"]]
            a, b, c = reversed(parts) if recorder.anatomy.sums_from_residual else parts
            same(p + "hook_resid_post", a + b + c, t[p + "hook_resid_post"], 0)
        else:
            updates = [t[p + name] for name in ("mixer.hook_out", "hook_attn_out") if p + name in t]
            middle = t[p + "hook_resid_pre"] + sum(updates) if updates else t[p + "hook_resid_pre"]
            same(p + "hook_resid_mid", middle, t.get(p + "hook_resid_mid", middle), 0)
            after = middle + t[p + "hook_mlp_out"] if p + "hook_mlp_out" in t else middle
            if p + "hook_per_layer_out" in t:
                after = after + t[p + "hook_per_layer_out"]
            after = after * getattr(recorder.anatomy.layers[layer].module, "layer_scalar", 1.0)
            same(p + "hook_resid_post", after, t[p + "hook_resid_post"], 0)
        if recorder.anatomy.layers[layer].attention is not None:
            check_attention(recorder, layer)
        if recorder.anatomy.layers[layer].experts is not None:
            check_experts(recorder, layer, rows)
        previous = t[p + "hook_resid_post"]
    spread(t, sorted(recorder.scaling))


def check_attention(recorder, layer):
    t, p = recorder.tensors, f"blocks.{layer}.attn."
    scores = attention_scores(recorder, layer)
    t[p + "hook_attn_scores"] = scores
    same(p + "hook_pattern", pattern_of(scores, recorder.sinks[layer]), t[p + "hook_pattern"])
    value = t.get(p + "hook_v", recorder.values[layer])  # Gemma 4: a layer with shared keys has no values of its own
    value = value.repeat_interleave(scores.shape[0] // value.shape[1], dim=1)
    same(p + "hook_z", torch.einsum("hqk,khd->qhd", t[p + "hook_pattern"], value), t[p + "hook_z"])


# Least distance of router logits. They have a standard deviation of about 2; bfloat16 changes the difference of two by
# 0.02 to 0.04 (standard deviation).
MARGIN = 0.1


def check_experts(recorder, layer, rows):
    """Checks that the output follows from the recorded parts, and that rounding changes neither the chosen experts nor,
    in the stored rows, their order."""
    t, p = recorder.tensors, f"blocks.{layer}."
    indices, weights = t[p + "mlp.hook_expert_indices"].long(), t[p + "mlp.hook_expert_weights"]
    found = experts_output(recorder.anatomy.layers[layer].experts, t[p + "mlp.hook_post"], indices, weights)
    found = found + recorder.shared.get(layer, 0)
    after = recorder.anatomy.layers[layer].norm_after_mlp
    found = (after(found) if after else found) * recorder.anatomy.residual_scale
    same(p + "hook_mlp_out", found, t[p + "hook_mlp_out"])
    router = recorder.anatomy.layers[layer].router
    if has_groups(router):
        sums = group_sums(router, recorder.ungrouped[layer]).sort(-1, descending=True).values
        if (sums[:, router.topk_group - 1] - sums[:, router.topk_group]).min() < MARGIN / 4:
            raise AssertionError(f"layer {layer}: two groups of experts are close; try another draw of the case")
    ranked = recorder.selection[layer].sort(-1, descending=True).values
    chosen = indices.shape[-1]
    gaps = ranked[:, : chosen] - ranked[:, 1 : chosen + 1]
    closest = min(gaps[:, -1].min(), gaps[rows].min())
    kept = recorder.selection[layer].isfinite()  # experts of the chosen groups
    # The slope of a sigmoid or softmax is at most 1/4.
    if closest < (MARGIN if torch.equal(recorder.selection[layer][kept], t[p + "mlp.hook_router_logits"][kept]) else MARGIN / 4):
        raise AssertionError(f"layer {layer}: two experts are {closest:.3f} apart; try another draw of the case")


def spread(t, layers):
    """Rejects weights so small that a part has no effect, or so large that the softmax is one-hot."""
    logits = t["logits"].std().item()
    if not 0.5 < logits < 20:
        raise AssertionError(f"logits have a standard deviation of {logits}")
    length = t["logits"].shape[0]
    for layer in layers:
        pattern = t[f"blocks.{layer}.attn.hook_pattern"]
        if length >= 16 and not 0.05 < pattern[:, length // 2 :].amax(-1).mean().item() < 0.97:
            raise AssertionError(f"attention of layer {layer} is uniform or one-hot")
