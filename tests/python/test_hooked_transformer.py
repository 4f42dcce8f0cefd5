"""HookedTransformer and utils: the defaults of TransformerLens."""

from typing import Any

import numpy as np
import pytest
from conftest import DEMO, GOLDEN, some_ids

import qkscope
from qkscope import Array, HookedTransformer, Model
from qkscope import HookedTransformer, utils

TEXT = "Entry 1, day 5: the road by the river."


@pytest.fixture(scope="module")
def hooked() -> HookedTransformer:
    return HookedTransformer.from_pretrained(DEMO, device="cpu", arrays="numpy")


def log_softmax(logits: Array) -> np.ndarray:
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


@pytest.mark.parametrize("family", ["gpt2", "llama_gqa", "gemma2"])
def test_processed_weights_keep_the_probabilities(family: str) -> None:
    """LayerNorm, RMSNorm, and capped logits, which are not centred."""
    plain = qkscope.load(GOLDEN / family, device="cpu")
    hooked = HookedTransformer.from_pretrained(GOLDEN / family, device="cpu", arrays="numpy")
    ids = some_ids(plain, 7)
    logits = hooked(ids)
    assert logits.shape == (1, 7, plain.cfg.d_vocab)
    np.testing.assert_allclose(log_softmax(logits[0]), log_softmax(plain(ids)), atol=2e-4)
    np.testing.assert_allclose(np.abs(hooked.W_U.mean(1)).max() < 1e-6, not plain.cfg.output_logits_soft_cap)


def test_one_text_has_a_batch_dimension_and_begins_with_bos(hooked: HookedTransformer, demo: Model) -> None:
    plain = demo.to_tokens(TEXT)
    tokens = hooked.to_tokens(TEXT)
    assert tokens.shape == (1, len(plain) + 1) and tokens[0, 0] == hooked.bos_token_id == demo.eos_token_id
    assert hooked.to_tokens([TEXT, TEXT]).shape == (2, len(plain) + 1)
    assert hooked.to_tokens(TEXT, prepend_bos=False).tolist() == [plain.tolist()]
    logits, cache = hooked.run_with_cache(TEXT)
    assert logits.shape[:2] == tokens.shape and cache.has_batch_dim and cache["q", 0].shape[0] == 1
    assert hooked.to_str_tokens(tokens) == hooked.to_str_tokens(TEXT)
    assert hooked.to_single_token(" road") == demo.to_single_token(" road")
    residual = hooked(tokens, stop_at_layer=2)
    np.testing.assert_array_equal(hooked(residual, start_at_layer=2), hooked(tokens))
    without = HookedTransformer.from_pretrained(DEMO, device="cpu", default_prepend_bos=False)
    assert without.to_tokens(TEXT).tolist() == [plain.tolist()]


def test_functions_of_the_package_take_a_hooked_transformer(hooked: HookedTransformer) -> None:
    assert qkscope.logit_lens(hooked, TEXT).num_rows == 9 * hooked.to_tokens(TEXT).shape[1]
    attribution = qkscope.direct_logit_attribution(hooked, TEXT, " road", " river")
    logits = hooked(TEXT)[0, -1]
    difference = logits[hooked.to_single_token(" road")] - logits[hooked.to_single_token(" river")]
    np.testing.assert_allclose(sum(attribution["value"].to_pylist()), difference, atol=1e-3)
    for mode in ("mean", "resample"):
        assert qkscope.ablate(hooked, [TEXT, "Entry 2, day 6."], {"one": [(0, 1)]}, mode=mode).num_rows == 1
    assert qkscope.heads(hooked, [TEXT]).num_rows == 64


def test_modules_and_configuration_have_the_names_of_transformer_lens(hooked: HookedTransformer) -> None:
    cfg: Any = hooked.cfg
    assert cfg.device == "cpu" and cfg.default_prepend_bos and cfg.n_heads == 8
    assert hooked.embed.W_E.shape == (1024, 128) and hooked.unembed.W_U.shape == (128, 1024)
    assert hooked.pos_embed.W_pos is None
    assert list(hooked.hook_dict) == hooked.hook_names() and hooked.hook_dict["blocks.3.hook_mlp_out"].layer() == 3
    names = [name for name, _ in hooked.named_parameters()]
    assert len(names) == len(set(names)) and {"embed.W_E", "blocks.7.mlp.W_out", "ln_final.w"} <= set(names)
    with pytest.warns(UserWarning, match="refactor_factored_attn_matrices"):
        HookedTransformer.from_pretrained(DEMO, refactor_factored_attn_matrices=True)


def test_transformer_bridge_processes_weights_on_request(demo: Model) -> None:
    bridge = qkscope.TransformerBridge.boot_transformers(DEMO, device="cpu", arrays="numpy")
    ids = some_ids(demo, 6)
    np.testing.assert_array_equal(bridge(ids)[0], demo(ids))
    assert bridge.to_tokens(TEXT).tolist() == [demo.to_tokens(TEXT).tolist()]  # SmolLM3 has no BOS
    bridge.enable_compatibility_mode(no_processing=True)
    np.testing.assert_array_equal(bridge.W_U, demo.W_U)
    bridge.enable_compatibility_mode(center_unembed=False)
    assert np.abs(bridge.W_U.mean(1)).max() > 1e-3 and (np.asarray(bridge.ln_final.w) == 1).all()
    bridge.enable_compatibility_mode()
    assert np.abs(bridge.W_U.mean(1)).max() < 1e-5
    np.testing.assert_allclose(log_softmax(bridge(ids)[0]), log_softmax(demo(ids)), atol=2e-4)


def test_losses_and_accuracies_of_logits(hooked: HookedTransformer) -> None:
    tokens = hooked.to_tokens([TEXT, TEXT.replace("5", "7")])
    logits = hooked(tokens)
    each = utils.lm_cross_entropy_loss(logits, tokens, per_token=True)
    np.testing.assert_array_equal(each, hooked(tokens, "loss", loss_per_token=True))
    assert hooked.loss_fn(logits, tokens) == hooked(tokens, "loss")
    right = utils.lm_accuracy(logits, tokens, per_token=True)
    np.testing.assert_array_equal(right, logits[:, :-1].argmax(-1) == tokens[:, 1:])
    assert utils.lm_accuracy(logits, tokens) == right.mean()
    with pytest.raises(qkscope.InputError, match=r"found shape \[2, 3, 1024\]"):
        utils.lm_cross_entropy_loss(logits[:, :3], tokens)


def test_test_prompt_prints_ranks(hooked: HookedTransformer, capsys: pytest.CaptureFixture[str]) -> None:
    ranks = utils.test_prompt("Entry 1, day", "5", hooked, top_k=3)
    assert ranks[0] == (" ", 0) and [name for name, _ in ranks] == [" ", "5"]
    printed = capsys.readouterr().out
    assert "Tokenized answer: [' ', '5']" in printed and printed.count("top 2") == 2
    assert utils.to_numpy([1, 2]).shape == (2,) and utils.get_device() in ("cpu", "cuda", "cuda:0")
