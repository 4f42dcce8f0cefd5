"""Runs the calls of TransformerLens' demos that docs/reference/transformerlens-calls.md lists, from top to bottom."""

import warnings
from functools import partial
from typing import Any

import numpy as np
import pytest
from conftest import DEMO
from documentation import DOCS, code_spans, python_blocks, run_block, table_rows

import qkscope
from qkscope import ActivationCache, Array, HookPoint

PAGE = "reference/transformerlens-calls.md"
ROWS = [row for row in table_rows(PAGE, 3) if row[0] in "MEPH"]
CALLS = [code_spans(call)[0] for _, call, _ in ROWS]
UNCHANGED = [call for call, (_, _, verdict) in zip(CALLS, ROWS) if verdict == "unchanged"]
TEXT = "Entry 1, day 5. A letter came for Orn: the road by the river is closed."
PROMPTS = [f"Entry {number}, day 5. A letter came for Orn: the road by the" for number in (1, 2, 3, 4)]


def ids_of(*texts: str) -> np.ndarray:
    """Token ids [batch, pos], each text after the token that HookedTransformer puts before it."""
    model = qkscope.load(DEMO, device="cpu")
    return np.stack([[0, *model.to_tokens(text)] for text in texts])


def variables() -> dict[str, Any]:
    """The texts, arrays and hook functions that the calls name."""
    seen: dict[tuple[str, int], tuple[int, ...]] = {}
    random = np.random.default_rng(0)
    first = random.integers(1, 1024, (2, 20))

    def head_ablation_hook(value: Array, hook: HookPoint) -> Array:  # [batch, pos, head, d_head]
        value[:, :, 1, :] = 0.0
        return value

    def residual_patching_hook(resid_pre: Array, hook: HookPoint, position: int) -> Array:
        resid_pre[:, position, :] = names["clean_cache"][hook.name][:, position, :]
        return resid_pre

    def patch_head_hook(z: Array, hook: HookPoint, head_index: int, clean_cache: ActivationCache) -> Array:
        z[:, :, head_index, :] = clean_cache[hook.name][:, :, head_index, :]
        return z

    def patch_pattern_hook(pattern: Array, hook: HookPoint, head_index: int, clean_cache: ActivationCache) -> Array:
        # pattern: [batch, head, query, key]
        pattern[:, head_index] = clean_cache[hook.name][:, head_index]
        return pattern

    def metric(logits: Array) -> Array:
        return (logits[:, -1, 643] - logits[:, -1, 739]).mean()

    def in_early_block(name: str) -> bool:
        return name.startswith("blocks.0.") or not name.startswith("blocks")

    def keep(activation: Array, hook: HookPoint) -> None:
        seen[hook.name, hook.layer()] = activation.shape

    names: dict[str, Any] = {
        "model_name": str(DEMO), "text": TEXT, "partial": partial, "seen": seen, "prompt": PROMPTS[0],
        "answer": "river", "prompts": PROMPTS, "clean_tokens": ids_of(TEXT), "corrupted_tokens": ids_of(TEXT.replace("5", "7")),
        "corrupted_prompts": ids_of(*[prompt.replace("5", "7") for prompt in PROMPTS]),
        "answer_tokens": np.array([[643, 739]] * 4), "repeated_tokens": np.concatenate([first, first], axis=1),
        "random_sequence": first[:1], "A": random.normal(size=(5, 2)), "B": random.normal(size=(2, 5)),
        "C": random.normal(size=(5, 300)), "metric": metric,
        "not_in_late_block_filter": in_early_block,
        "head_ablation_hook": head_ablation_hook, "residual_patching_hook": residual_patching_hook,
        "patch_head_hook": patch_head_hook, "patch_pattern_hook": patch_pattern_hook, "induction_score_hook": keep,
        "keep_pattern_hook": keep, "keep_shape_hook": keep,
    }
    return names


@pytest.fixture(scope="module")
def session() -> tuple[dict[str, Any], dict[str, Exception]]:
    """Variables after all calls, and the error or warning of each call."""
    names = variables()
    problems: dict[str, Exception] = {}
    run_block(PAGE, python_blocks(PAGE)[0], names)
    for call in CALLS:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                run_block(PAGE, call, names)
            except UserWarning as warning:
                problems[call] = warning
                warnings.simplefilter("ignore")
                run_block(PAGE, call, names)
            except Exception as error:  # noqa: BLE001  reported by the test of this call
                problems[call] = error
    return names, problems


def test_the_page_lists_60_calls_and_counts_them() -> None:
    assert len(ROWS) == 60 and len(set(CALLS)) == 60
    assert len(UNCHANGED) == 55 and "55 of 60 run unchanged" in (DOCS / PAGE).read_text()


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call[:60])
def test_call_works_as_the_page_says(call: Any, session: tuple[dict[str, Any], dict[str, Exception]]) -> None:
    problem = session[1].get(call)
    if call in UNCHANGED:
        assert problem is None
    else:
        assert problem is not None


def test_results_have_the_shapes_of_transformer_lens(session: tuple[dict[str, Any], dict[str, Exception]]) -> None:
    names, _ = session
    n = names["num_tokens"]
    expected = {
        "loss": (), "logits": (1, n, 1024), "pattern": (8, n, n), "clean_logits": (1, n, 1024),
        "patched_logits": (4, 20, 1024), "correct_log_probs": (2, 39), "without_bos": (1, n - 1), "eigenvalues": (2,),
        "ABC_factor": (5, 300), "OV_eigenvalues": (8, 8, 16), "full_OV_circuit": (8, 8, 1024, 1024), "tokens": (4, 20),
        "original_logits": (4, 20, 1024), "directions": (4, 2, 128), "scaled": (4, 128), "accumulated": (17, 4, 128),
        "per_layer": (17, 4, 128), "per_head": (64, 4, 128), "resid_pre": (8, 20), "head_out": (8, 8),
        "every_block": (3, 8, 20), "every_head": (5, 8, 8), "by_pos": (8, 20, 8), "every_by_pos": (5, 8, 20, 8),
        "head_scores": (8, 8),
    }
    assert {name: tuple(names[name].shape) for name in expected} == expected
    assert names["str_tokens"][0] == "<|end_of_text|>" and len(names["str_tokens"]) == n
    assert names["token_labels"] == names["str_tokens"]
    assert names["shapes"]["blocks.3.attn.W_Q"] == (8, 128, 16) and names["generated"].startswith(TEXT)
    assert names["whole_text"] == "<|end_of_text|>" + TEXT
    assert names["seen"]["blocks.5.attn.hook_pattern", 5] == (1, 8, 20, 20)
    assert len(names["labels"]) == 17 and names["head_labels"][:2] == ["L0H0", "L0H1"]
    assert names["ablated_loss"] != names["loss"] and names["attn_cache"]["pattern", 0].shape == (8, n, n)
