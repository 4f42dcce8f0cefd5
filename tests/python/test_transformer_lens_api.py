"""Functions shared with TransformerLens, compared with values of tools/make_transformer_lens_api_golden.py."""

import json
from typing import Any

import numpy as np
import pytest
from conftest import DEMO, GOLDEN, ROOT
from safetensors import safe_open
from safetensors.numpy import load_file

import qkscope
from qkscope import ActivationCache, Array, HookPoint, Model

FOLDER = ROOT / "tests/python/transformer_lens_api"
CASES = sorted(path.stem for path in FOLDER.glob("*.safetensors") if path.stem != "demo")
# Float32 sums in a different order; logits of these checkpoints are about 10.
TOLERANCE = 1e-4


def metadata(case: str) -> dict[str, Any]:
    with safe_open(FOLDER / f"{case}.safetensors", "np") as file:
        texts: dict[str, str] = file.metadata()
    return {key: json.loads(text) for key, text in texts.items()}


def split_labels(found: Any) -> tuple[np.ndarray, Any]:
    """Splits (array, labels); labels are None for an array alone."""
    return (np.asarray(found), None) if hasattr(found, "shape") else (np.asarray(found[0]), found[1])


class Golden:
    """Values of TransformerLens for one rewriting of the weights."""

    def __init__(self, case: str, kind: str) -> None:
        self.values = load_file(FOLDER / f"{case}.safetensors")
        self.labels = metadata(case)["labels"]
        self.kind = kind
        self.ids = self.values["token_ids"]
        self.compared = 0

    def check(self, name: str, ours: Any, tolerance: float = TOLERANCE) -> None:
        key = f"{self.kind}.{name}"
        array, labels = split_labels(ours)
        theirs = self.values[key]
        assert array.shape == theirs.shape, name
        np.testing.assert_allclose(array, theirs, atol=tolerance, rtol=tolerance, err_msg=name)
        assert labels == self.labels.get(key), name
        self.compared += 1


def check_calls(golden: Any, model: Model) -> None:
    ids = golden.ids
    logits, loss = model(ids, return_type="both")
    middle = model(ids, stop_at_layer=1)
    golden.check("logits", logits)
    golden.check("loss", loss)
    golden.check("loss_per_token", model(ids, return_type="loss", loss_per_token=True))
    golden.check("stop_at_layer", middle)
    golden.check("start_at_layer", model(middle, start_at_layer=1))


@pytest.mark.parametrize("case", CASES)
def test_calls_match_transformer_lens(case: str) -> None:
    golden = Golden(case, "plain")
    check_calls(golden, qkscope.load(GOLDEN / case, device="cpu"))
    assert golden.compared == 5


def check_weights(golden: Any, model: Model) -> None:
    golden.check("W_E", model.W_E)
    golden.check("W_U", model.W_U)
    if model.W_pos is not None:
        golden.check("W_pos", model.W_pos)
    if "processed.b_U" in golden.values and golden.kind == "processed":
        golden.check("b_U", np.zeros(model.cfg.d_vocab, np.float32) if model.b_U is None else model.b_U)
    golden.check("W_O", model.W_O[1])
    golden.check("W_out", model.W_out[1])
    golden.check("accumulated_bias", model.accumulated_bias(model.cfg.n_layers))


@pytest.mark.parametrize("case", CASES)
def test_weights_match_transformer_lens(case: str) -> None:
    check_weights(Golden(case, "plain"), qkscope.load(GOLDEN / case, device="cpu"))


@pytest.mark.parametrize("case", CASES)
def test_rewritten_weights_match_transformer_lens(case: str) -> None:
    """Rewriting of enable_compatibility_mode; writing weights are centred only with LayerNorm."""
    golden = Golden(case, "processed")
    layer_norm = qkscope.load(GOLDEN / case, device="cpu").cfg.normalization_type == "LN"
    model = qkscope.load(
        GOLDEN / case, device="cpu", fold_ln=True, center_writing_weights=layer_norm, center_unembed=True,
        fold_value_biases=True)
    check_calls(golden, model)
    check_weights(golden, model)


@pytest.mark.parametrize("case", CASES)
def test_residual_stacks_match_transformer_lens(case: str) -> None:
    golden = Golden(case, "folded")
    model = qkscope.load(GOLDEN / case, device="cpu", fold_ln=True)
    check_calls(golden, model)
    cache = model.cache(golden.ids)
    check_stacks(golden, model, cache)
    assert golden.compared == 5 + 21


def check_stacks(golden: Any, model: Model, cache: ActivationCache) -> None:
    last: dict[str, Any] = {"pos_slice": -1, "return_labels": True}
    direction = model.W_U[:, 5] - model.W_U[:, 7]
    has_mid = "blocks.0.hook_resid_mid" in cache
    check = golden.check
    check("accumulated_resid", cache.accumulated_resid(incl_mid=has_mid, return_labels=True))
    check("accumulated_resid_ln", cache.accumulated_resid(apply_ln=True, return_labels=True))
    check("accumulated_resid_1", cache.accumulated_resid(layer=1, apply_ln=True, return_labels=True))
    decomposed, labels = cache.decompose_resid(return_labels=True)
    check("decompose_resid", (decomposed, labels))
    check("decompose_resid_ln", cache.decompose_resid(apply_ln=True, return_labels=True))
    check("decompose_resid_attn", cache.decompose_resid(layer=1, mode="attn", return_labels=True))
    check("decompose_resid_mlp",
          cache.decompose_resid(mode="mlp", incl_embeds=False, pos_slice=(2, 5), return_labels=True))
    check("stack_head_results", cache.stack_head_results(return_labels=True))
    check("stack_head_results_rest",
          cache.stack_head_results(1, incl_remainder=True, apply_ln=True, return_labels=True))
    check("stack_neuron_results", cache.stack_neuron_results(-1, **last))
    check("stack_neuron_results_ln",
          cache.stack_neuron_results(1, neuron_slice=(3, 9), apply_ln=True, incl_remainder=True, **last))
    check("stack_neuron_results_onto", cache.stack_neuron_results(-1, project_output_onto=direction, **last))
    check("get_neuron_results", cache.get_neuron_results(1, neuron_slice=[1, 4], pos_slice=2))
    check("get_full_resid_decomposition", cache.get_full_resid_decomposition(**last))
    check("get_full_resid_decomposition_ln",
          cache.get_full_resid_decomposition(apply_ln=True, expand_neurons=False, **last))
    check("get_full_resid_decomposition_onto",
          cache.get_full_resid_decomposition(apply_ln=True, project_output_onto=direction, **last))
    check("apply_ln_to_stack", cache.apply_ln_to_stack(decomposed, layer=1))
    # TransformerLens ignores the logit factor of Granite.
    scale = model.cfg.logit_scale
    check("logit_attrs", cache.logit_attrs(decomposed, 5) / scale)
    check("logit_attrs_difference", cache.logit_attrs(decomposed, 5, incorrect_tokens=7) / scale)
    check("stack_activation", cache.stack_activation("z"))
    check("directions", model.tokens_to_residual_directions([3, 5]))


@pytest.mark.parametrize("case", CASES)
def test_optional_hook_points_match_transformer_lens(case: str) -> None:
    golden = Golden(case, "asked")
    model = qkscope.load(GOLDEN / case, device="cpu")
    names = [key.removeprefix("asked.") for key in golden.values if key.startswith("asked.") and "hook_" in key]
    if model.cfg.parallel_attn_mlp:  # parallel block: the MLP reads resid_pre
        names = [name for name in names if not name.endswith(("ln2.hook_scale", "hook_mlp_in"))]
    # TransformerLens includes the residual factor of Granite in W_O.
    factor = json.loads((GOLDEN / case / "config.json").read_text()).get("residual_multiplier", 1.0)
    for name, array in model.cache(golden.ids, names).items():
        golden.check(name, array * factor if name.endswith("hook_result") else array)
    assert golden.compared == (7 if model.cfg.parallel_attn_mlp else 9)
    assert set(names) <= set(model.hook_names(on_request=True))
    results = model.cache(golden.ids, lambda name: name.endswith("hook_result"), positions=-1)
    golden_result = golden.values["asked.blocks.1.attn.hook_result"][-1:]
    np.testing.assert_allclose(results["result", 1] * factor, golden_result, atol=TOLERANCE)


@pytest.mark.parametrize("case", CASES)
def test_edited_attention_input_matches_transformer_lens(case: str) -> None:
    golden = Golden(case, "asked")
    model = qkscope.load(GOLDEN / case, device="cpu")

    def move(x: Array, hook: HookPoint) -> None:  # [pos, head, d_model]
        x[5, 0] = x[4, 0]
        x[6, -1] = 0

    golden.check("moved_attn_in", model.run_with_hooks(golden.ids, [("blocks.1.hook_attn_in", move)]))


@pytest.mark.parametrize("case", CASES)
def test_circuits_match_transformer_lens(case: str) -> None:
    golden = Golden(case, "folded")
    model = qkscope.load(GOLDEN / case, device="cpu", fold_ln=True)
    golden.check("QK.norm", model.QK.norm())
    golden.check("OV.norm", model.OV.norm())
    golden.check("QK.S", model.QK.S)
    golden.check("OV.eigenvalues", -np.sort(-np.abs(model.OV.eigenvalues), axis=-1))
    golden.check("OV.corner", model.OV.get_corner(3))
    for mode in "QKV":
        golden.check(f"all_composition_scores.{mode}", model.all_composition_scores(mode))
    interpreter = qkscope.SVDInterpreter(model)
    golden.check("svd.OV", np.abs(interpreter.get_singular_vectors("OV", 1, 3, head_index=1)), 1e-3)
    golden.check("svd.w_in", np.abs(interpreter.get_singular_vectors("w_in", 0, 3)), 1e-3)
    golden.check("svd.w_out", np.abs(interpreter.get_singular_vectors("w_out", 1, 3)), 1e-3)
    assert golden.compared == 11


@pytest.mark.parametrize("case", CASES)
def test_attributions_do_not_depend_on_folding(case: str) -> None:
    """Attributions of an unfolded model equal those of the folded model of TransformerLens."""
    golden = Golden(case, "folded")
    model = qkscope.load(GOLDEN / case, device="cpu")
    cache = model.cache(golden.ids)
    decomposed = cache.decompose_resid()
    golden.check("logit_attrs", cache.logit_attrs(decomposed, 5) / model.cfg.logit_scale)
    golden.check("logit_attrs_difference", cache.logit_attrs(decomposed, 5, 7) / model.cfg.logit_scale)


def test_token_functions_match_transformer_lens() -> None:
    golden = metadata("demo")["text"]
    model = qkscope.load(DEMO, device="cpu")
    texts = golden["texts"]
    assert [model.to_tokens(text).tolist() for text in texts] == golden["to_tokens"]
    for side in ("right", "left"):
        ids = model.to_tokens(texts, padding_side=side, pad=golden["pad"])
        assert ids.tolist() == golden[f"to_tokens_{side}"]
    assert model.to_str_tokens(texts) == golden["to_str_tokens"]
    assert [model.to_string(model.to_tokens(text)) for text in texts] == golden["to_string"]
    word = golden["word"]
    assert model.to_single_token(word) == golden["to_single_token"]
    places = [model.get_token_position(word, texts[0], mode) for mode in ("first", "last")]
    assert places == golden["get_token_position"]
    np.testing.assert_allclose([model(text, "loss") for text in texts[:2]], golden["loss"], rtol=1e-5)
