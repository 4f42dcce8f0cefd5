"""The torch module reproduces the activations of the engine and computes gradients."""

# These tests use the private engine of Model.
# pyright: reportPrivateUsage=false
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
import torch
from conftest import DEMO, GOLDEN, some_ids
from documentation import python_blocks, run_block

import qkscope
from qkscope import Array, HookPoint
from qkscope.torch_module import to_torch_module, weight_tensor

FAMILIES = ("llama_gqa", "llama_bias", "llama_tied", "mistral_window", "ministral3", "qwen2", "qwen3", "qwen3_yarn",
            "smollm3_list", "mllama_text", "gemma2", "gemma3_text", "glm", "glm4", "mistral3_fp8", "gpt2",
            "gpt2_scaled_by_layer", "gpt_neox", "gpt_neox_one_after_another", "granite", "granite_bias", "olmo",
            "olmo2", "olmo3", "phi3", "phi3_longrope_long", "rope_dynamic_long", "rope_llama3", "starcoder2", "apertus")
TOLERANCE = 1e-4  # relative to the largest value; float32 sums in a different order


def close(found: Any, expected: Any) -> None:
    expected = np.asarray(expected)
    finite = np.isfinite(expected)
    found = found.detach().numpy()
    np.testing.assert_array_equal(np.isfinite(found), finite)
    difference = np.abs(found[finite] - expected[finite]).max()
    assert difference <= TOLERANCE * max(1.0, np.abs(expected[finite]).max())


def watch(module: torch.nn.Module, names: Iterable[str]) -> dict[str, torch.Tensor]:
    """Records activations of the module by hook name."""
    seen: dict[str, torch.Tensor] = {}

    def keep(name: str) -> Callable[[torch.nn.Module, object, torch.Tensor], None]:
        def store(module: torch.nn.Module, inputs: object, output: torch.Tensor) -> None:
            seen[name] = output

        return store

    for name in names:
        if name != "logits":
            module.get_submodule(name).register_forward_hook(keep(name))
    return seen


@pytest.mark.parametrize("family", FAMILIES)
def test_every_hook_point_shows_the_same(family: str) -> None:
    model = qkscope.load(GOLDEN / family, device="cpu")
    ids = some_ids(model, 40)
    cache = model.cache(ids)
    module = to_torch_module(model)
    seen = watch(module, cache)
    logits = module(ids)
    close(logits, cache["logits"])
    for name, expected in cache.items():
        if name != "logits":
            close(seen[name], expected)


@pytest.mark.parametrize("family", ["llama_gqa", "gemma2", "gpt_neox"])
def test_one_block(family: str) -> None:
    model = qkscope.load(GOLDEN / family, device="cpu")
    batch = np.stack([some_ids(model, 12, seed) for seed in range(2)])
    cache = model.cache(batch, "blocks.1.*")
    block = to_torch_module(model, layer=1)
    entered = torch.tensor(np.array(cache["blocks.1.hook_resid_pre"])).requires_grad_()
    left = block(entered)
    close(left, cache["blocks.1.hook_resid_post"])
    left.sum().backward()
    assert entered.grad is not None and torch.isfinite(entered.grad).all() and entered.grad.abs().max() > 0


def test_gradients_are_slopes() -> None:
    """Gradients match finite differences computed with hooks of the engine."""
    model = qkscope.load(DEMO, device="cpu")
    ids = some_ids(model, 20)
    module = to_torch_module(model).double()
    kept: dict[str, torch.Tensor] = {}

    def keep(module: torch.nn.Module, inputs: object, output: torch.Tensor) -> torch.Tensor:
        output = output.detach().requires_grad_()
        kept["z"] = output
        return output

    module.get_submodule("blocks.4.attn.hook_z").register_forward_hook(keep)
    logit = module(ids)[-1, 7]
    (gradient,) = torch.autograd.grad(logit, kept["z"])
    direction = np.random.default_rng(0).normal(size=kept["z"].shape).astype(np.float32)
    slope = float((gradient * torch.tensor(direction)).sum())

    def step(size: float) -> float:
        def move(z: Array, hook: HookPoint) -> None:
            z += size * direction

        return float(model.run_with_hooks(ids, [("blocks.4.attn.hook_z", move)])[-1, 7])

    assert (step(1e-2) - step(-1e-2)) / 2e-2 == pytest.approx(slope, rel=2e-2, abs=1e-3)


def test_the_page_hands_over_as_it_says() -> None:
    model = qkscope.load(DEMO, device="cpu")
    ids = some_ids(model, 12)
    clean = torch.tensor(np.array(model.cache(ids[::-1], "blocks.3.attn.hook_z")["z", 3]))
    names: dict[str, Any] = {"model": model, "torch": torch, "tokens": ids, "right": 3, "wrong": 7, "clean_z": clean}
    (code,) = [block for block in python_blocks("how-to/patching.md") if "to_torch_module" in block]
    run_block("patching.md", code, names)
    assert names["attribution"].shape == (12, model.cfg.n_heads) and names["attribution"].abs().max() > 0


def test_weights_are_views_of_the_file() -> None:
    model = qkscope.load(DEMO, device="cpu")
    linear = model._engine.weights.layer(0).q
    kind, stored = linear.stored
    tensor = weight_tensor(linear)
    assert tensor is not None and tensor.data_ptr() == stored.ctypes.data and str(tensor.dtype) == f"torch.{kind}"
    np.testing.assert_array_equal(tensor.float().numpy(), linear.weight)
    module: Any = to_torch_module(model, layer=0)
    assert module.attn.q.weight.data_ptr() == stored.ctypes.data


def test_mistakes_are_named() -> None:
    model = qkscope.load(GOLDEN / "llama_gqa", device="cpu")
    with pytest.raises(qkscope.Error, match="layer=2: expected a layer from 0 to 1"):
        to_torch_module(model, layer=2)
