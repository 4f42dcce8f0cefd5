"""Logit lens and direct logit attribution, compared with the logits of the model."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import GOLDEN, some_ids, typed_calls, untyped

import qkscope
from qkscope import Model

# Families with RMSNorm, LayerNorm, biases, post-norms, scaled residuals and logits, soft caps, parallel blocks.
FAMILIES = ("llama_gqa", "llama_bias", "qwen3", "smollm3_list", "gemma2", "gemma3_text", "glm4", "gpt2", "gpt_neox",
            "granite", "olmo", "olmo2", "starcoder2", "mllama_text")


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest) -> Model:
    return qkscope.load(GOLDEN / request.param, device="cpu")


def uncapped(model: Model, logits: np.ndarray) -> np.ndarray:
    cap = model.cfg.output_logits_soft_cap
    return cap * np.arctanh(logits / cap) if cap else logits


def test_last_layer_of_the_logit_lens_equals_the_model(family: Model) -> None:
    ids = some_ids(family, 9)
    lens = qkscope.logit_lens(family, ids).to_pandas()
    assert len(lens) == 9 * lens["layer"].nunique() and lens["layer"].max() == family.cfg.n_layers
    last = lens[lens["layer"] == family.cfg.n_layers]
    logits = np.asarray(family(ids), np.float64)
    probabilities = np.exp(logits - logits.max(-1, keepdims=True))
    probabilities /= probabilities.sum(-1, keepdims=True)
    np.testing.assert_array_equal(last["token"], logits.argmax(-1))
    np.testing.assert_allclose(last["probability"], probabilities.max(-1), atol=1e-5)
    np.testing.assert_allclose(last["entropy"], -(probabilities * np.log(probabilities)).sum(-1), atol=1e-4)
    np.testing.assert_array_equal(last["target"][:-1], ids[1:])
    np.testing.assert_allclose(last["target_logit"][:-1], logits[np.arange(8), ids[1:]], atol=1e-4)
    assert last["target"].isna().iloc[-1]


def test_logit_lens_of_chosen_layers_and_positions(demo: Model) -> None:
    ids = some_ids(demo, 9)
    whole = qkscope.logit_lens(demo, ids).to_pandas()
    part = qkscope.logit_lens(demo, ids, positions=[2, -1], layers=[0, 8], targets=5).to_pandas()
    assert part["layer"].tolist() == [0, 0, 8, 8] and part["position"].tolist() == [2, 8, 2, 8]
    assert part["target"].tolist() == [5] * 4 and (part["target_rank"] >= 0).all()
    same = whole[whole["layer"].isin([0, 8]) & whole["position"].isin([2, 8])]
    np.testing.assert_allclose(part["probability"], same["probability"], atol=1e-6)
    assert part["text"].tolist() == [demo.to_string(token) for token in part["token"]]


def test_targets_are_ids_or_texts(demo: Model) -> None:
    text, road, river = "Entry 1: the", demo.to_single_token(" road"), demo.to_single_token(" river")
    one = qkscope.logit_lens(demo, text, positions=-1, targets=" road")
    assert one.equals(qkscope.logit_lens(demo, text, positions=-1, targets=road))
    assert set(one["target_text"].to_pylist()) == {" road"}
    several = qkscope.logit_lens(demo, text, positions=[0, -1], layers=[8], targets=[" road", " river"])
    assert several["target"].to_pylist() == [road, river]
    with pytest.raises(qkscope.InputError, match="expected one"):
        qkscope.logit_lens(demo, text, targets=" road river")


@pytest.mark.parametrize("by", ["head", "component"])
def test_attributions_sum_to_the_logit(family: Model, by: str) -> None:
    ids = some_ids(family, 9)
    for position in (-1, 3):
        logits = uncapped(family, np.asarray(family(ids), np.float64)[position])
        one = qkscope.direct_logit_attribution(family, ids, 5, position=position, by=by)
        assert sum(one["value"].to_pylist()) == pytest.approx(logits[5], abs=2e-4)
        two = qkscope.direct_logit_attribution(family, ids, 5, 11, position=position, by=by).to_pandas()
        assert two["value"].sum() == pytest.approx(logits[5] - logits[11], abs=2e-4)
    heads = two["head"].notna().sum()
    layers = two.dropna(subset=["layer"])["layer"].nunique()
    assert heads == (layers * family.cfg.n_heads if by == "head" else 0)


def test_answers_may_be_texts(demo: Model) -> None:
    table = qkscope.direct_logit_attribution(demo, "Entry 1, day", demo.to_string(300), 301)
    again = qkscope.direct_logit_attribution(demo, "Entry 1, day", 300, 301)
    assert table.equals(again)


@pytest.mark.parametrize(
    ("call", "message"),
    typed_calls([
        (lambda m: untyped.direct_logit_attribution(m, [1, 2], "Entry 1, day 5"), "7 tokens .*, expected one"),
        (lambda m: untyped.direct_logit_attribution(m, [1, 2], 10**6), "answer=1000000"),
        (lambda m: untyped.direct_logit_attribution(m, [1, 2], None), "answer=None"),
        (lambda m: untyped.direct_logit_attribution(m, [1, 2], 3, by="neuron"), "expected 'head' or 'component'"),
        (lambda m: untyped.logit_lens(m, [[1, 2], [3, 4]]), "found 2 sequences, expected one"),
        (lambda m: untyped.logit_lens(m, [1, 2], layers=[9]), "layers: found 9, expected 0 to 8"),
        (lambda m: untyped.logit_lens(m, [1, 2, 3], targets=[1, 2]), "targets: found 2, expected one, or 3"),
    ]),
)
def test_wrong_arguments_raise_input_errors(demo: Model, call: Callable[[Any], object], message: str) -> None:
    with pytest.raises(qkscope.Error, match=message):
        call(demo)
