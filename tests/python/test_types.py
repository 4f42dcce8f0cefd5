"""A typed program that uses the public API, and a check that no public function returns Any.

./run.sh test-torch checks this file, and all other tests of the package, with mypy and pyright in strict mode.
"""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest

import qkscope
from qkscope import ActivationCache, Array, HookPoint, HookedTransformer, Model, patching, utils

DEMO = Path(__file__).resolve().parents[2] / "share/demo/checkpoints/S3-4720"
TEXT = "Entry 1, day 5. A letter came for Orn: the road by the river is closed."


@pytest.fixture(scope="module", name="model")
def load_model() -> Model:
    return qkscope.load(DEMO, device="cpu")


def test_calls_have_types(model: Model) -> None:
    tokens = model.to_tokens(TEXT)
    logits: Array = model(tokens)
    likely: int = int(logits[-1].argmax())
    assert likely < model.cfg.d_vocab
    loss: float = float(model(tokens, return_type="loss"))
    both, same = model(tokens, "both")
    assert both.shape == logits.shape and float(same) == loss
    residual = model(tokens, stop_at_layer=2)
    np.testing.assert_array_equal(np.asarray(model(residual, start_at_layer=2)), np.asarray(logits))


def test_caches_have_types(model: Model) -> None:
    logits, cache = model.run_with_cache(TEXT, names_filter=lambda name: name.endswith("hook_z"))
    assert isinstance(cache, ActivationCache) and logits.ndim == 2
    nothing, cache = model.run_with_cache(TEXT, return_type=None)
    assert nothing is None
    z: Array = cache["z", 3]
    assert (z * 2 - z).shape == z.shape
    stack, labels = cache.decompose_resid(return_labels=True)
    attributions = cache.logit_attrs(stack, " road")
    best: str = labels[int(np.abs(np.asarray(attributions))[:, -1].argmax())]
    assert best in labels and cache.stack_head_results(pos_slice=-1).shape == (64, 128)
    for name, activation in model.cache(TEXT, "blocks.0.*").items():
        assert name.startswith("blocks.0.") and len(activation)


def test_hooks_have_types(model: Model) -> None:
    def ablate(z: Array, hook: HookPoint) -> None:
        assert hook.layer() == 2
        z[:, 3] = 0

    edited = model.run_with_hooks(TEXT, fwd_hooks=[("blocks.2.attn.hook_z", ablate)])
    assert float(abs(np.asarray(edited - model(TEXT))).max()) > 0


def test_weights_have_types(model: Model) -> None:
    block = model.blocks[3]
    W_Q: Array = block.attn.W_Q
    assert W_Q.shape == model.W_Q[3].shape and model.W_Q[3, 5].shape == W_Q[5].shape
    assert block.ln1.w is not None and block.attn.b_Q is None
    assert np.stack(model.W_O).shape == (8, 8, 16, 128)
    norms: Array = model.OV.norm()
    assert float(norms.max()) > 0


def test_functions_have_types(model: Model) -> None:
    def metric(logits: Array) -> float:
        return float(logits[-1, 643])

    clean, corrupted = model.to_tokens(TEXT), model.to_tokens(TEXT.replace("5", "7"))
    effect = patching.get_act_patch_attn_out(model, corrupted, clean, metric, positions=-1)
    assert effect.shape == (8, len(clean))
    text: str = model.generate("Entry 1, day 5.", 3)
    assert text.startswith("Entry")
    scores = qkscope.detect_head(model, TEXT, "induction_head")
    assert scores.shape == (8, 8)
    hooked = HookedTransformer.from_pretrained(DEMO, device="cpu", arrays="numpy")
    logits, _ = hooked.run_with_cache(TEXT)
    assert float(hooked.loss_fn(logits, hooked.to_tokens(TEXT))) > 0
    assert utils.to_numpy(logits).dtype == np.float32


def public_functions(tree: ast.Module) -> list[ast.FunctionDef]:
    """Functions and methods with public names, of public classes."""
    scopes: list[list[ast.stmt]] = [tree.body]
    scopes += [node.body for node in tree.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]
    return [one for body in scopes for one in body if isinstance(one, ast.FunctionDef) and not one.name.startswith("_")]


def is_overload(function: ast.FunctionDef) -> bool:
    return any(isinstance(one, ast.Name) and one.id == "overload" for one in function.decorator_list)


# Helpers of the package, and methods of the array protocol whose result is a number or nested lists.
INTERNAL = {"_arrays.py", "_attention_calls.py", "_batch.py", "_calls.py", "_lazy_logits.py", "_model_layers.py", "_progress.py", "_reruns.py"}


@pytest.mark.parametrize("path", sorted(Path(qkscope.__file__).parent.glob("*.py")), ids=lambda path: path.stem)
def test_no_public_function_returns_any(path: Path) -> None:
    """A function with overloads may have an implementation that returns Any."""
    if path.name in INTERNAL:
        return
    functions = public_functions(ast.parse(path.read_text()))
    overloaded = {one.name for one in functions if is_overload(one)}
    untyped = [
        one.name for one in functions
        if (one.returns is None or ast.unparse(one.returns) == "Any")
        and one.name not in overloaded
    ]
    assert untyped == []
