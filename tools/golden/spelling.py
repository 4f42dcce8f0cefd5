"""Converts configurations and tensor names between their published spellings."""

import copy


def edit_text(edit):
    """Turns an edit of a text configuration into an edit of a whole config.json, with or without a wrapper."""

    def edited(config):
        config = copy.deepcopy(config)
        edit(config.get("text_config", config))
        return config

    return edited


def old_rope(type_key="rope_type"):
    """Writes rope_theta and rope_scaling instead of rope_parameters, torch_dtype instead of dtype."""

    def edit(config):
        rope = config.pop("rope_parameters")
        rope.pop("type", None)
        config["rope_theta"] = rope.pop("rope_theta")
        if "partial_rotary_factor" in rope:
            config["partial_rotary_factor"] = rope.pop("partial_rotary_factor")
        rope_type = rope.pop("rope_type")
        config["rope_scaling"] = None if rope_type == "default" else {type_key: rope_type, **rope}
        if "dtype" in config:
            config["torch_dtype"] = config.pop("dtype")

    return edit_text(edit)


def renamed_rope(name):
    """Writes the RoPE type under an earlier name."""
    return edit_text(lambda config: config["rope_parameters"].update(rope_type=name))


def old_gemma(pattern_key="sliding_window_pattern", pattern=3):
    """Gemma 3 as first published: two thetas, scaling for full layers only, the pattern as one number."""

    def edit(config):
        rope = config.pop("rope_parameters")
        config["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
        full = rope["full_attention"]
        config["rope_theta"] = full.pop("rope_theta")
        config["rope_scaling"] = full if full["rope_type"] != "default" else None
        config.pop("layer_types", None)
        config.pop("_sliding_window_pattern", None)
        config[pattern_key] = pattern

    return edit_text(edit)


def old_neox(config):
    """GPT-NeoX as Pythia is published: rotary_pct and rotary_emb_base."""
    config = copy.deepcopy(config)
    rope = config.pop("rope_parameters")
    config["rotary_pct"] = rope["partial_rotary_factor"]
    config["rotary_emb_base"] = rope["rope_theta"]
    return config


def old_olmo3(config):
    """OLMo 3 as published: one theta, and scaling for full layers only."""
    config = copy.deepcopy(config)
    full = config.pop("rope_parameters")["full_attention"]
    config["rope_theta"] = full.pop("rope_theta")
    config["rope_scaling"] = full
    return config


def sparse_gemma(keys):
    """Gemma 3 with a wrapper of sizes and linear scaling only; class defaults supply the rest."""

    def edit(config):
        rope = config["rope_parameters"]["full_attention"]
        sizes = {key: config[key] for key in keys}
        config.clear()
        config.update(sizes, rope_scaling={"factor": rope["factor"], "rope_type": rope["rope_type"]})

    return edit_text(edit)


def published_gemma4(head_dim, key_heads=None):
    """Gemma 4 as published: the heads of full layers under keys of their own instead of per_layer_config."""

    def edit(config):
        config.pop("per_layer_config", None)
        config.update(global_head_dim=head_dim, num_global_key_value_heads=key_heads)

    return edit_text(edit)


def only(keys):
    """Keeps the given keys; the family's defaults apply for the others."""

    def edit(config):
        kept = {key: config[key] for key in keys}
        config.clear()
        config.update(kept)

    return edit_text(edit)


def without(*keys):
    """Removes keys, so that the family's defaults apply."""

    def edit(config):
        for key in keys:
            config.pop(key, None)

    return edit_text(edit)


def without_top(*keys):
    """Removes keys of the wrapper; the text configuration keeps its own."""
    return lambda config: {key: value for key, value in config.items() if key not in keys}


def renamed_key(old, new):
    return edit_text(lambda config: config.update({new: config.pop(old)}))


def with_values(**values):
    return edit_text(lambda config: config.update(values))


def chain(*edits):
    def edited(config):
        for edit in edits:
            config = edit(config)
        return config

    return edited


def published_name(name):
    """language_model.model.layers… and language_model.lm_head, vision parts without a prefix."""
    name = newer_name(name)
    if name.startswith("model.language_model."):
        return "language_model.model." + name.removeprefix("model.language_model.")
    if name.startswith("lm_head."):
        return "language_model." + name
    return name.removeprefix("model.")


def newer_name(name):
    """model.language_model.layers… and lm_head, vision parts under model."""
    if name.startswith("language_model.lm_head."):
        return name.removeprefix("language_model.")
    if name.startswith("language_model.model."):
        return "model.language_model." + name.removeprefix("language_model.model.")
    if name.startswith(("model.", "lm_head.")):
        return name
    return "model." + name
