"""Checks that what was recorded hangs together; a golden file that does not is never written."""

import torch


def window_of(config, layer):
    """The number of keys a query of this layer sees, or None when it sees all before it."""
    layer_types = getattr(config, "layer_types", None)
    if layer_types is not None:
        return config.sliding_window if layer_types[layer] == "sliding_attention" else None
    return getattr(config, "sliding_window", None)


def visible_keys(length, window):
    """[query, key], true where the query may look."""
    distance = torch.arange(length)[:, None] - torch.arange(length)[None, :]
    visible = distance >= 0
    return visible if window is None else visible & (distance < window)


def attention_scores(recorder, layer):
    """[head, query, key]: scaled and masked scores computed again from the rotated vectors."""
    prefix = f"blocks.{layer}.attn."
    query = recorder.tensors[prefix + "hook_rot_q"]
    key = recorder.tensors[prefix + "hook_rot_k"]
    key = key.repeat_interleave(query.shape[1] // key.shape[1], dim=1)
    scores = torch.einsum("qhd,khd->hqk", query, key) * recorder.scaling[layer]
    if cap := recorder.softcap[layer]:
        scores = cap * torch.tanh(scores / cap)
    visible = visible_keys(scores.shape[-1], window_of(recorder.config, layer))
    return scores.masked_fill(~visible, float("-inf"))


def same(what, found, expected, tolerance=2e-5):
    difference = (found - expected).abs().max().item()
    if not difference <= tolerance:
        raise AssertionError(f"{what}: recorded and recomputed values differ by {difference}")


def check(recorder, layers):
    """Recomputes residuals, patterns, weighted values and MLP outputs of the layers from the recorded parts."""
    t = recorder.tensors
    previous = t["hook_embed"] + t.get("hook_pos_embed", 0)
    for layer in layers:
        p = f"blocks.{layer}."
        same(p + "hook_resid_pre", t[p + "hook_resid_pre"], previous, 0)
        if recorder.anatomy.parallel:
            added = t[p + "hook_mlp_out"] + t[p + "hook_attn_out"]
            same(p + "hook_resid_post", added + t[p + "hook_resid_pre"], t[p + "hook_resid_post"], 0)
        else:
            middle = t[p + "hook_resid_mid"]
            same(p + "hook_resid_mid", t[p + "hook_resid_pre"] + t[p + "hook_attn_out"], middle, 0)
            same(p + "hook_resid_post", middle + t[p + "hook_mlp_out"], t[p + "hook_resid_post"], 0)
        scores = attention_scores(recorder, layer)
        t[p + "attn.hook_attn_scores"] = scores
        same(p + "attn.hook_pattern", scores.softmax(-1), t[p + "attn.hook_pattern"])
        value = t[p + "attn.hook_v"]
        value = value.repeat_interleave(scores.shape[0] // value.shape[1], dim=1)
        same(p + "attn.hook_z", torch.einsum("hqk,khd->qhd", t[p + "attn.hook_pattern"], value), t[p + "attn.hook_z"])
        previous = t[p + "hook_resid_post"]
    spread(t, layers)


def spread(t, layers):
    """Weights so small that a part would not matter, or so large that the softmax is one-hot, prove little."""
    logits = t["logits"].std().item()
    if not 0.5 < logits < 20:
        raise AssertionError(f"logits have a standard deviation of {logits}")
    length = t["logits"].shape[0]
    for layer in layers:
        pattern = t[f"blocks.{layer}.attn.hook_pattern"]
        if length >= 16 and not 0.05 < pattern[:, length // 2 :].amax(-1).mean().item() < 0.97:
            raise AssertionError(f"attention of layer {layer} is uniform or one-hot")
