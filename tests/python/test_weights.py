"""Weights in the shapes of TransformerLens reproduce the activations of the hook points."""

# These tests use the private engine of Model.
# pyright: reportPrivateUsage=false
from typing import Any

import numpy as np
import pytest
from conftest import DEMO, GOLDEN, some_ids, untyped

import qkscope
from qkscope import Model

# Float32 sums in a different order.
TOLERANCE = 2e-4


def plus(product: Any, bias: Any) -> Any:
    return product if bias is None else product + bias


def runs_on_text(model: Model) -> list[int]:
    return [i for i in range(model.cfg.n_layers) if f"blocks.{i}.attn.hook_q" in model.hook_names()]


def test_projections_follow_from_the_weights(tiny: Model) -> None:
    cache = tiny.cache(some_ids(tiny, 7))
    for i in runs_on_text(tiny):
        attn = tiny.blocks[i].attn
        x = cache[f"blocks.{i}.ln1.hook_normalized"]
        for letter in "qkv":
            weight, bias = getattr(attn, f"W_{letter.upper()}"), getattr(attn, f"b_{letter.upper()}")
            expected = plus(np.einsum("pm,hmd->phd", x, weight), bias)
            np.testing.assert_allclose(cache[f"blocks.{i}.attn.hook_{letter}"], expected, atol=TOLERANCE)


def test_the_mlp_follows_from_the_weights(tiny: Model) -> None:
    cache = tiny.cache(some_ids(tiny, 7))
    for i in runs_on_text(tiny):
        mlp, at = tiny.blocks[i].mlp, f"blocks.{i}."
        x = cache[at + "ln2.hook_normalized"]
        np.testing.assert_allclose(cache[at + "mlp.hook_pre"], plus(x @ mlp.W_gate, mlp.b_gate), atol=TOLERANCE)
        np.testing.assert_allclose(cache[at + "mlp.hook_pre_linear"], plus(x @ mlp.W_in, mlp.b_in), atol=TOLERANCE)


def test_output_projection_and_unembedding_follow_from_the_weights() -> None:
    model = qkscope.load(GOLDEN / "llama_bias", device="cpu")  # no norm after the output projection
    ids = some_ids(model, 7)
    cache = model.cache(ids)
    attn, mlp = model.blocks[1].attn, model.blocks[1].mlp
    out = plus(np.einsum("phd,hdm->pm", cache["blocks.1.attn.hook_z"], attn.W_O), attn.b_O)
    np.testing.assert_allclose(cache["blocks.1.hook_attn_out"], out, atol=TOLERANCE)
    out = plus(cache["blocks.1.mlp.hook_post"] @ mlp.W_out, mlp.b_out)
    np.testing.assert_allclose(cache["blocks.1.hook_mlp_out"], out, atol=TOLERANCE)
    np.testing.assert_array_equal(cache["hook_embed"], model.W_E[ids])
    np.testing.assert_allclose(cache["logits"], cache["ln_final.hook_normalized"] @ model.W_U, atol=TOLERANCE)


def test_stored_matrices_are_views_of_the_file() -> None:
    """Stored matrices for torch: (type, array); 16-bit floats appear as integers, other layouts as None."""
    for name, kind, number in (("qwen3_yarn", "float32", np.float32), ("llama_gqa", "bfloat16", np.uint16)):
        weights = qkscope.load(GOLDEN / name, device="cpu")._engine.weights
        linear = weights.layer(0).q
        found, stored = linear.stored
        assert (found, stored.dtype, stored.shape) == (kind, number, linear.weight.shape)
        widened = stored if number == np.float32 else (stored.astype(np.uint32) << 16).view(np.float32)
        np.testing.assert_array_equal(widened, linear.weight)
        assert weights.stored_embedding[0] == kind and weights.stored_positions is None
    assert qkscope.load(GOLDEN / "mistral3_fp8", device="cpu")._engine.weights.layer(0).q.stored is None


def test_weights_of_families_with_other_layouts() -> None:
    """Fused qkv matrices, transposed matrices, LayerNorm with bias, learned positions, no gate."""
    for name in ("gpt2", "gpt_neox", "phi3"):
        model = qkscope.load(GOLDEN / name, device="cpu")
        ids = some_ids(model, 7)
        cache = model.cache(ids)
        attn, mlp = model.blocks[1].attn, model.blocks[1].mlp
        x = cache["blocks.1.ln1.hook_normalized"]
        q = plus(np.einsum("pm,hmd->phd", x, attn.W_Q), attn.b_Q)
        np.testing.assert_allclose(cache["blocks.1.attn.hook_q"], q, atol=TOLERANCE)
        v = plus(np.einsum("pm,hmd->phd", x, attn.W_V), attn.b_V)
        np.testing.assert_allclose(cache["blocks.1.attn.hook_v"], v, atol=TOLERANCE)
        out = plus(cache["blocks.1.mlp.hook_post"] @ mlp.W_out, mlp.b_out)
        np.testing.assert_allclose(cache["blocks.1.hook_mlp_out"], out, atol=TOLERANCE)
        assert (mlp.W_gate is None) == (name != "phi3") == (not model.cfg.gated_mlp)
        assert (model.blocks[1].ln1.b is None) == (name == "phi3")
        if name == "gpt2":
            assert model.W_pos is not None
            np.testing.assert_array_equal(cache["hook_pos_embed"], model.W_pos[: len(ids)])
            total = cache["hook_embed"] + cache["hook_pos_embed"]
            np.testing.assert_array_equal(cache["blocks.0.hook_resid_pre"], total)
        else:
            assert model.W_pos is None


def test_weights_of_latent_attention() -> None:
    model = qkscope.load(GOLDEN / "deepseek_v3", device="cpu")
    assert model.cfg.latent_ranks == (12, 20) and model.cfg.d_value == 8 and model.cfg.d_head == 16
    cache = model.cache(some_ids(model, 7))
    attn = model.blocks[1].attn
    assert cache["blocks.1.attn.hook_kv_latent"].shape == (7, 12)
    out = plus(np.einsum("phd,hdm->pm", cache["blocks.1.attn.hook_z"], attn.W_O), attn.b_O)
    np.testing.assert_allclose(cache["blocks.1.hook_attn_out"], out, atol=TOLERANCE)
    assert repr(attn) == "Attention(latents [12, 20], W_O [4, 8, 32])"
    for name in ("W_Q", "W_K", "W_V", "QK", "OV"):
        with pytest.raises(qkscope.InputError, match="deepseek_v3 projects q, k and v from normalised latents"):
            getattr(attn, name)


def test_weights_of_a_mixture_of_experts() -> None:
    for name in ("qwen3_moe", "mixtral", "mixtral_one_tensor", "gpt_oss", "gpt_oss_mxfp4"):
        model = qkscope.load(GOLDEN / name, device="cpu")
        cfg, layer = model.cfg, 0
        cache = model.cache(some_ids(model, 7))
        mlp: Any = model.blocks[layer].mlp  # Experts
        hook = f"blocks.{layer}.mlp.hook_"
        x = cache[f"blocks.{layer}.ln2.hook_normalized"]
        assert len(mlp.experts) == cfg.num_experts and mlp.experts[1].W_out.shape == (cfg.d_expert, cfg.d_model)
        np.testing.assert_allclose(cache[hook + "router_logits"], plus(x @ mlp.W_gate, mlp.b_gate), atol=TOLERANCE)
        chosen = np.asarray(cache[hook + "expert_indices"]).astype(int)
        assert chosen.shape == (7, cfg.experts_per_token)
        out = np.zeros(x.shape, np.float32)
        for row, experts in enumerate(chosen):
            for place, number in enumerate(experts):
                expert = mlp.experts[number]
                up = plus(x[row] @ expert.W_in, expert.b_in)
                np.testing.assert_allclose(cache[hook + "pre_linear"][row, place], up, atol=TOLERANCE)
                made = plus(cache[hook + "post"][row, place] @ expert.W_out, expert.b_out)
                out[row] += cache[hook + "expert_weights"][row, place] * made
        np.testing.assert_allclose(cache[f"blocks.{layer}.hook_mlp_out"], out, atol=TOLERANCE)
        with pytest.raises(AttributeError, match=r"ask experts\[i\].W_in"):
            _ = mlp.W_in


def test_norms_follow_from_the_weights(tiny: Model) -> None:
    cfg, block = tiny.cfg, tiny.blocks[runs_on_text(tiny)[0]]
    assert block.ln1.w is not None and block.ln2.w is not None and tiny.ln_final.w is not None
    assert block.ln1.w.shape == block.ln2.w.shape == tiny.ln_final.w.shape == (cfg.d_model,)
    assert (block.attn.q_norm.w is not None) == (block.attn.k_norm.w is not None) == cfg.qk_norm


def test_weights_by_layer(demo: Model) -> None:
    assert len(demo.W_Q) == len(demo.blocks) == 8
    for name, part in (("W_Q", "attn"), ("W_K", "attn"), ("W_V", "attn"), ("W_O", "attn"), ("W_gate", "mlp"),
                       ("W_in", "mlp"), ("W_out", "mlp")):
        stacked = np.stack(getattr(demo, name))
        np.testing.assert_array_equal(stacked[-1], getattr(getattr(demo.blocks[7], part), name))
    with pytest.raises(IndexError):
        _ = demo.blocks[8]
    with pytest.raises(qkscope.InputError, match="layer -9: the model has layers 0 to 7"):
        _ = demo.W_Q[-9]


def test_cross_attention_layers_raise_errors() -> None:
    model = qkscope.load(GOLDEN / "mllama_text", device="cpu")
    layer = next(i for i in range(model.cfg.n_layers) if i not in runs_on_text(model))
    with pytest.raises(qkscope.Error, match="cross-attention"):
        _ = model.blocks[layer]


def test_key_heads_are_repeated_for_their_group(demo: Model) -> None:
    attn = demo.blocks[0].attn
    expanded = attn.expanded("W_K")
    assert expanded is not None and attn.W_K.shape == (2, 128, 16) and expanded.shape == (8, 128, 16)
    np.testing.assert_array_equal(expanded[5], attn.W_K[1])
    assert attn.expanded("b_K") is None
    with pytest.raises(qkscope.Error, match="expected W_K"):
        attn.expanded("W_Q")


def test_float32_weights_are_views_that_outlive_the_model() -> None:
    model = qkscope.load(GOLDEN / "llama_gqa", device="cpu")
    weight: Any = model.blocks[0].attn.W_Q  # a NumPy array on the CPU
    assert weight.base is not None and not weight.flags.owndata
    before = weight.copy()
    del model
    np.testing.assert_array_equal(weight, before)


def test_weights_are_read_only(demo: Model) -> None:
    for weight in (demo.W_E, demo.blocks[0].attn.W_Q, demo.blocks[0].ln1.w):
        with pytest.raises(ValueError, match="read-only"):
            weights: Any = weight
            weights[0] = 0


def test_folding_sets_norms_to_one_and_keeps_logits(demo: Model) -> None:
    folded = qkscope.load(DEMO, device="cpu", fold_ln=True)
    ids = some_ids(demo, 40)
    np.testing.assert_allclose(folded(ids), demo(ids), atol=TOLERANCE)
    assert (np.asarray(folded.blocks[3].ln1.w) == 1).all() and (np.asarray(folded.ln_final.w) == 1).all()
    expected = np.asarray(demo.blocks[3].attn.W_Q) * np.asarray(demo.blocks[3].ln1.w)[:, None]
    np.testing.assert_allclose(folded.blocks[3].attn.W_Q, expected, rtol=1e-6)


@pytest.mark.parametrize("family", ["gpt2", "gpt_neox", "starcoder2_no_bias", "qwen2", "llama_bias", "glm4"])
def test_rewritten_weights_give_the_same_probabilities(family: str) -> None:
    plain = qkscope.load(GOLDEN / family, device="cpu")
    layer_norm = plain.cfg.normalization_type == "LN"
    model = qkscope.load(
        GOLDEN / family, device="cpu", fold_ln=True, center_writing_weights=layer_norm, center_unembed=True,
        fold_value_biases=True)
    ids = some_ids(plain, 20)
    before, after = plain(ids), model(ids)
    np.testing.assert_allclose(after, before - before.mean(-1, keepdims=True), atol=TOLERANCE)
    np.testing.assert_allclose(model(ids, "loss"), plain(ids, "loss"), atol=TOLERANCE)
    assert np.abs(model.W_U.mean(-1)).max() < 1e-6
    assert all(b_V is None or (b_V == 0).all() for b_V in model.b_V)
    if layer_norm:
        for written in (model.W_E, model.W_O[1], model.W_out[1], model.b_out[1]):
            assert written is not None and np.abs(np.asarray(written).mean(-1)).max() < 1e-6


@pytest.mark.parametrize(("family", "option"), [
    ("llama_gqa", "center_writing_weights"), ("gemma2", "center_unembed"), ("gpt_oss", "fold_value_biases"),
])
def test_rewritings_that_change_the_model_are_refused(family: str, option: str) -> None:
    with pytest.raises(qkscope.InputError, match=f"{option}: .*leave it out"):
        untyped.load(GOLDEN / family, device="cpu", **{option: True})
