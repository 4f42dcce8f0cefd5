"""Models on an NVIDIA GPU. Runs with pytest and by itself: python3 tests/python/test_cuda.py

Tests are skipped, with the reason, without a GPU; tests that need torch also without torch. DEVICE selects the GPU.
"""

# These tests use the private engine of Model.
# pyright: reportPrivateUsage=false
import importlib
import os
import subprocess
import sys
import threading
import traceback
import unittest
from functools import partial
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import qkscope
from qkscope import Array, HookPoint, Model

ROOT = Path(__file__).resolve().parent.parent.parent
DEMO = ROOT / "share/demo/checkpoints/S3-4720"
FAMILIES = ("llama_gqa", "llama_bias", "mistral_window", "ministral3", "qwen2", "qwen3", "smollm3_list", "mllama_text",
            "gemma3_text", "glm4", "mistral3_fp8")
DEVICE = os.environ.get("DEVICE", "cuda")
FwdHook = tuple[str, Callable[[Any], Any] | Callable[[Any, HookPoint], Any]]
TYPES = ("float32", "bfloat16", "float16")

# Float32 sums in a different order; bound of the project for GPU results.
TOLERANCE = 1e-3


def import_or_none(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


torch, cupy = import_or_none("torch"), import_or_none("cupy")


def everything(name: str) -> bool:
    return True


def needs_torch(test: Any) -> Any:
    return unittest.skipIf(torch is None, "torch is not installed")(test)


def on_gpu(folder: Path = DEMO, **options: Any) -> Model:
    return qkscope.load(folder, device=DEVICE, **options)


def some_ids(model: Model, length: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, model.cfg.d_vocab, length)


def host(array: Any) -> np.ndarray:
    """Copies an array from the GPU to NumPy."""
    if hasattr(array, "cpu"):
        array = array.cpu()
    return np.asarray(array.numpy() if hasattr(array, "numpy") else array)


class CardTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        try:
            qkscope._engine.choose_device(DEVICE)
        except qkscope.Error as error:
            raise unittest.SkipTest(str(error)) from None

    def assert_close(self, ours: Any, theirs: Any, name: str = "", tolerance: float = TOLERANCE) -> None:
        """Compares arrays; masked scores must be -inf in both."""
        found, expected = host(ours), host(theirs)
        self.assertEqual(found.shape, expected.shape, name)
        hidden = np.equal(expected, -np.inf)
        np.testing.assert_array_equal(np.equal(found, -np.inf), hidden, err_msg=name)
        np.testing.assert_allclose(found[~hidden], expected[~hidden], atol=tolerance, rtol=tolerance, err_msg=name)

    def assert_same_bits(self, ours: Any, theirs: Any, name: str = "") -> None:
        self.assertEqual(host(ours).tobytes(), host(theirs).tobytes(), name)


class Load(CardTest):
    def test_default_dtype_is_a_16_bit_type_of_the_checkpoint(self) -> None:
        golden = ROOT / "tests/golden"
        stored = {"llama_gqa": "bfloat16", "qwen2": "float16", "llama_mha": "float32", "mistral3_fp8": "bfloat16"}
        for name, dtype in stored.items():
            self.assertEqual(on_gpu(golden / name).dtype, dtype, name)
        self.assertEqual(on_gpu(dtype="float16").dtype, "float16")
        self.assertTrue(on_gpu().device.startswith("cuda:"))
        self.assertEqual(qkscope.load(DEMO).device, "cuda:0")

    def test_missing_gpus_are_refused(self) -> None:
        with self.assertRaisesRegex(qkscope.Error, "no such GPU"):
            qkscope.load(DEMO, device="cuda:99")

    @needs_torch
    def test_torch_may_be_imported_before_or_after(self) -> None:
        """Both load CUDA libraries; the first import decides which are used."""
        ours = f"import qkscope; m = qkscope.load({str(DEMO)!r}, device={DEVICE!r}); m._engine.keeps_on_device = False; m([1, 2])"
        theirs = f"import torch; a = torch.ones(64, 64, device={DEVICE!r}); assert float((a @ a)[0, 0]) == 64"
        for script in (f"{ours}\n{theirs}\n{ours}", f"{theirs}\n{ours}"):
            done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)

    @needs_torch
    def test_torch_dtypes_and_devices_are_accepted(self) -> None:
        self.assertEqual(qkscope.load(DEMO, device=torch.device(DEVICE), dtype=torch.bfloat16).dtype, "bfloat16")


class Values(CardTest):
    def test_every_hook_point_of_every_family_matches_the_cpu(self) -> None:
        for family in FAMILIES:
            with self.subTest(family):
                folder = ROOT / "tests/golden" / family
                cpu, gpu = qkscope.load(folder, device="cpu"), on_gpu(folder, dtype="float32")
                for ids in (some_ids(cpu, 33), np.stack([some_ids(cpu, 20), some_ids(cpu, 20, 1)])):
                    expected = cpu.cache(ids)
                    cache = gpu.cache(ids)
                    self.assertEqual(list(cache), list(expected))
                    for name, array in expected.items():
                        self.assert_close(cache[name], array, f"{family} {name}")

    def test_rewritten_weights_match_the_cpu(self) -> None:
        """Includes families in which folding adds a bias to matrices."""
        for family, layer_norm in (("gpt2", True), ("gpt_neox", True), ("starcoder2_no_bias", True), ("qwen2", False)):
            with self.subTest(family):
                options: dict[str, Any] = {"fold_ln": True, "center_unembed": True, "fold_value_biases": True,
                           "center_writing_weights": layer_norm}
                folder = ROOT / "tests/golden" / family
                cpu, gpu = qkscope.load(folder, device="cpu", **options), on_gpu(folder, dtype="float32", **options)
                ids = some_ids(cpu, 20)
                self.assert_close(gpu(ids), cpu(ids))

    def test_losses_match_the_cpu(self) -> None:
        cpu, gpu = qkscope.load(DEMO, device="cpu"), on_gpu(dtype="float32")
        texts = ["The sea was calm.", "Entry 1, day 5: the old man sat by the fire."]
        self.assertLess(abs(float(gpu(texts, "loss")) - float(cpu(texts, "loss"))), TOLERANCE)
        each, expected = gpu(texts[0], "loss", loss_per_token=True), cpu(texts[0], "loss", loss_per_token=True)
        self.assert_close(each, expected)

    @needs_torch
    def test_texts_of_different_lengths_match_the_cpu(self) -> None:
        cpu, gpu = qkscope.load(DEMO, device="cpu"), on_gpu(dtype="float32")
        sequences = [some_ids(cpu, length, length) for length in (5, 12, 1)]
        half = np.float32(0.5)
        hooks: list[FwdHook] = [("blocks.1.attn.hook_z", lambda z: z * 0.5), ("blocks.2.attn.hook_pattern", lambda p: p * half)]
        for side in ("right", "left"):
            with self.subTest(side):
                cache, expected = (model.cache(sequences, padding_side=side) for model in (gpu, cpu))
                for name, array in expected.items():
                    np.testing.assert_array_equal(np.isnan(host(cache[name])), np.isnan(array), err_msg=name)
                    self.assert_close(np.nan_to_num(host(cache[name])), np.nan_to_num(array), name)
                ours, theirs = (model.run_with_hooks(sequences, hooks, padding_side=side) for model in (gpu, cpu))
                self.assert_close(np.nan_to_num(host(ours)), np.nan_to_num(host(theirs)))

    @needs_torch
    def test_a_pass_in_two_parts_matches_one_pass(self) -> None:
        gpu = on_gpu(dtype="float32")
        ids = np.stack([some_ids(gpu, 9), some_ids(gpu, 9, 1)])
        middle: Any = gpu(ids, stop_at_layer=3)
        self.assert_close(gpu(middle, start_at_layer=3), host(gpu(ids)))
        self.assert_close(gpu(middle.cpu(), start_at_layer=3), host(gpu(ids)))

    @needs_torch
    def test_cache_methods_match_the_cpu(self) -> None:
        cpu, gpu = qkscope.load(DEMO, device="cpu"), on_gpu(dtype="float32")
        ids = np.stack([some_ids(cpu, 9), some_ids(cpu, 9, 1)])
        ours, theirs = gpu.cache(ids), cpu.cache(ids)
        calls: tuple[Callable[[Any], Any], ...] = (
            lambda c: c.decompose_resid(apply_ln=True),
            lambda c: c.accumulated_resid(apply_ln=True),
            lambda c: c.stack_head_results(pos_slice=-1),
            lambda c: c.get_full_resid_decomposition(pos_slice=[0, -1], apply_ln=True),
            lambda c: c.logit_attrs(c.decompose_resid(), [3, 4]),
        )
        for call in calls:
            found = call(ours)
            self.assertEqual(found.device, torch.device(gpu.device))
            self.assert_close(found, call(theirs))
        self.assert_close(ours.numpy()["q", 3], theirs["q", 3])
        self.assertIsInstance(qkscope.load(DEMO, device=DEVICE, arrays="numpy")(ids), np.ndarray)

    def test_folded_norms_match_the_cpu(self) -> None:
        cpu, gpu = qkscope.load(DEMO, device="cpu", fold_ln=True), on_gpu(dtype="float32", fold_ln=True)
        name, ids = "blocks.2.ln1.hook_normalized", some_ids(cpu, 40)
        self.assert_close(gpu.cache(ids, name)[name], cpu.cache(ids, name)[name])
        self.assert_close(gpu(ids), cpu(ids))

    def test_chosen_positions_match_all_positions(self) -> None:
        for dtype in TYPES:
            with self.subTest(dtype):
                gpu = on_gpu(dtype=dtype)
                ids = np.stack([some_ids(gpu, 30), some_ids(gpu, 30, 1)])
                names = ["blocks.0.*", "blocks.3.attn.hook_pattern", "hook_embed"]
                whole = gpu.cache(ids, names)
                for name, array in gpu.cache(ids, names, positions=[4, -1, 2]).items():
                    axis = 2 if name.endswith(("pattern", "scores")) else 1
                    expected = np.take(host(whole[name]), [4, 29, 2], axis)
                    # Fewer rows may select other kernels: results are equal up to rounding of the dtype.
                    self.assert_close(array, expected, name, 1e-3 if dtype == "float32" else 0.1)

    def test_logits_of_chosen_positions_match_all_logits(self) -> None:
        gpu = on_gpu(dtype="float32")
        ids = some_ids(gpu, 30)
        self.assert_close(gpu(ids, positions=[2, -1]), host(gpu(ids))[[2, 29]])

    @needs_torch
    def test_tokens_may_be_on_any_device(self) -> None:
        gpu = on_gpu()
        ids = some_ids(gpu, 12)
        expected = gpu(ids)
        self.assert_same_bits(gpu(torch.tensor(ids)), expected)
        self.assert_same_bits(gpu(torch.tensor(ids, device=DEVICE)), expected)
        self.assertEqual(gpu.to_string(torch.tensor(ids, device=DEVICE)), gpu.to_string(ids))


@needs_torch
class Tensors(CardTest):
    def test_activations_are_float32_tensors_on_the_gpu(self) -> None:
        gpu = on_gpu(dtype="bfloat16")
        cache: Any = gpu.cache(some_ids(gpu, 9))
        for name, array in cache.items():
            if name.endswith(("pattern", "scores")):
                self.assertIsInstance(array, np.ndarray)
            else:
                self.assertEqual((array.dtype, array.device), (torch.float32, torch.device(gpu.device)), name)
                self.assertTrue(array.is_contiguous())

    def test_dlpack_shares_the_memory(self) -> None:
        gpu = on_gpu()
        ids = np.array([some_ids(gpu, 9)], np.int32)
        array = gpu._engine.record(list(ids), ["hook_embed"], [])["hook_embed"]
        self.assertEqual(array.__dlpack_device__()[0], 2)
        shown, again = torch.from_dlpack(array), torch.from_dlpack(array.reshape(1, 9, gpu.cfg.d_model))
        self.assertEqual(shown.data_ptr(), again.data_ptr())
        shown.fill_(7)
        self.assertTrue((array.numpy() == 7).all())
        array.assign(np.full(array.shape, 5, np.float32))  # tokens on the host
        self.assertTrue(bool((again == 5).all()))
        array.assign(torch.full(array.shape, 3.0, device=DEVICE))  # tokens on the GPU
        del array
        self.assertTrue(bool((again == 3).all()))

    def test_a_hook_edits_the_memory_it_was_given(self) -> None:
        gpu = on_gpu(dtype="float32")
        places: list[int] = []

        def look(residual: Any) -> None:
            places.append(residual.data_ptr())
            residual += 1

        gpu.run_with_hooks([1, 2, 3], [("blocks.0.hook_resid_pre", look), ("blocks.0.hook_resid_pre", look)])
        self.assertEqual(len(set(places)), 1)

    def test_cupy_imports_device_arrays(self) -> None:
        if cupy is None:
            self.skipTest("cupy is not installed")
        gpu = on_gpu(dtype="float32")
        ids = np.array([some_ids(gpu, 9)], np.int32)
        array = gpu._engine.record(list(ids), ["hook_embed"], [])["hook_embed"]
        shown = cupy.from_dlpack(array)
        self.assertEqual(shown.data.ptr, torch.from_dlpack(array).data_ptr())
        edited = gpu.run_with_hooks(ids[0], [("hook_embed", lambda a: cupy.from_dlpack(a) * 0)])
        self.assert_same_bits(edited, gpu.run_with_hooks(ids[0], [("hook_embed", lambda a: a * 0)]))


@needs_torch
class Hooks(CardTest):
    def test_reading_and_writing_back_change_no_bit(self) -> None:
        def rewrite(activation: Any) -> None:
            kept = copied(activation)
            activation[...] = 0
            activation[...] = kept

        def copied(activation: Any) -> Any:
            return activation.clone() if hasattr(activation, "clone") else np.array(activation)

        def from_host(activation: Array) -> Any:
            return host(activation).copy()

        for family in ("llama_gqa", "gemma3_text", "qwen3", "smollm3_list"):
            for dtype in TYPES:
                gpu = on_gpu(ROOT / "tests/golden" / family, dtype=dtype)
                for ids in (some_ids(gpu, 33), np.stack([some_ids(gpu, 33), some_ids(gpu, 33, 1)])):
                    plain = gpu(ids)
                    functions: list[Callable[[Any], object]] = [lambda a: None, lambda a: a, rewrite, copied, from_host]
                    for function in functions:
                        with self.subTest(f"{family} {dtype} {function.__name__}"):
                            self.assert_same_bits(gpu.run_with_hooks(ids, [(everything, function)]), plain)

    def test_edits_match_the_cpu(self) -> None:
        cpu, gpu = qkscope.load(DEMO, device="cpu"), on_gpu(dtype="float32")
        ids, other = some_ids(cpu, 40), some_ids(cpu, 40, 1)
        names = ["blocks.4.hook_resid_pre", "blocks.*.attn.hook_pattern"]
        plain = host(gpu(ids))

        def edits(model: Model) -> dict[str, list[tuple[str, Callable[..., object]]]]:
            cache = model.cache(other, names)

            def ablate(z: Array, hook: HookPoint) -> None:
                z[:, 3] = 0

            def patch(residual: Array, hook: HookPoint) -> None:
                residual[7] = cache[hook.name][7]

            def double(update: Array, hook: HookPoint) -> Array:
                return update * 2

            def freeze(pattern: Array, hook: HookPoint) -> Array:
                return cache[hook.name]

            def hide(scores: Array, hook: HookPoint) -> None:
                scores[:, :, 5] = -np.inf

            return {
                "ablated": [("blocks.2.attn.hook_z", ablate)],
                "patched": [("blocks.4.hook_resid_pre", patch)],
                "frozen": [("blocks.*.attn.hook_pattern", freeze)],
                "doubled": [("blocks.1.hook_attn_out", double), ("blocks.2.hook_mlp_out", double)],
                "gated": [("blocks.1.mlp.hook_pre", double), ("blocks.3.mlp.hook_post", double)],
                "turned": [("blocks.1.attn.hook_rot_q", double), ("blocks.2.attn.hook_k", double)],
                "hidden": [("blocks.0.attn.hook_attn_scores", hide)],
            }

        for (kind, ours), theirs in zip(edits(gpu).items(), edits(cpu).values()):
            with self.subTest(kind):
                where = [20] if kind == "hidden" else None
                logits = gpu.run_with_hooks(ids, ours, queries=where)
                self.assert_close(logits, cpu.run_with_hooks(ids, theirs, queries=where), kind)
                self.assertGreater(np.abs(host(logits) - plain).max(), 1e-2, kind)

    def test_hooks_may_return_arrays_on_any_device(self) -> None:
        gpu = on_gpu(dtype="float32")
        ids = some_ids(gpu, 20)
        zero = torch.zeros(20, gpu.cfg.d_model)
        expected = gpu.run_with_hooks(ids, [("blocks.1.hook_mlp_out", lambda a: a * 0)])
        strided = torch.zeros(gpu.cfg.d_model, 20, device=DEVICE).T

        def give(answer: object, activation: object) -> object:
            return answer

        for answer in (zero, zero.to(DEVICE), zero.numpy(), strided, zero.clone().requires_grad_()):
            edited = gpu.run_with_hooks(ids, [("blocks.1.hook_mlp_out", partial(give, answer))])
            self.assert_same_bits(edited, expected)

    def test_wrong_results_of_hooks_name_the_hook_point(self) -> None:
        gpu = on_gpu()
        cases: list[tuple[Callable[[Any], object], str]] = [
            (lambda z: z[:2], r"blocks.2.attn.hook_z.*shape \[2, 8, 16\], expected \[5, 8, 16\]"),
            (lambda z: z.double(), "blocks.2.attn.hook_z.*float64, expected float32"),
            (lambda z: z.bfloat16(), "bfloat16, expected float32"),
            (lambda z: "z", "expected float32"),
        ]
        for function, message in cases:
            with self.assertRaisesRegex(qkscope.Error, message):
                gpu.run_with_hooks([1, 2, 3, 4, 5], [("blocks.2.attn.hook_z", function)])

    def test_an_exception_leaves_the_model_usable(self) -> None:
        def broken_hook(activation: Array, hook: HookPoint) -> None:
            raise KeyError("mine")

        gpu = on_gpu()
        before = gpu([1, 2, 3])
        for name in ("hook_embed", "blocks.4.hook_attn_out", "blocks.4.mlp.hook_post", "blocks.0.attn.hook_pattern"):
            try:
                gpu.run_with_hooks([1, 2, 3], [(name, broken_hook)])
                self.fail("the exception did not arrive")
            except KeyError as error:
                self.assertIn("broken_hook", "".join(traceback.format_tb(error.__traceback__)))
            self.assert_same_bits(gpu([1, 2, 3]), before)

    def test_a_hook_that_runs_its_model_is_refused(self) -> None:
        gpu = on_gpu()
        before = gpu([1, 2])
        with self.assertRaisesRegex(qkscope.Error, "one pass at a time"):
            gpu.run_with_hooks([1, 2], [("hook_embed", lambda a: gpu([1, 2]))])
        self.assert_same_bits(gpu([1, 2]), before)

    def test_concurrent_threads_get_correct_results(self) -> None:
        gpu = on_gpu()
        ids = [some_ids(gpu, 200, seed) for seed in range(4)]
        alone = [gpu(sequence) for sequence in ids]
        together: list[Array | None] = [None] * 4

        def work(i: int) -> None:
            together[i] = gpu.run_with_hooks(ids[i], [("blocks.*.hook_resid_pre", lambda a: None)])

        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for a, b in zip(alone, together):
            self.assert_same_bits(a, b)


TEXT = "Entry 1, day 5. A letter came for Orn: the road by the river is closed."


class Generate(CardTest):
    def assert_most_likely(self, cpu: Model, ids: Any, length: int, hooks: Any = ()) -> None:
        """Every new token is the argmax of the CPU, or equal to it within rounding."""
        logits = np.asarray(cpu.run_with_hooks(ids, hooks))[length - 1 : -1]
        chosen = np.take_along_axis(logits, np.asarray(ids)[length:, None], 1)[:, 0]
        self.assertLess((logits.max(-1) - chosen).max(), TOLERANCE)

    def test_greedy_tokens_match_the_cpu(self) -> None:
        cpu, gpu = qkscope.load(DEMO, device="cpu"), on_gpu(dtype="float32")
        prompts = [cpu.to_tokens(TEXT), cpu.to_tokens(TEXT)[:5]]
        for prompt, ids in zip(prompts, gpu.generate(prompts, 24)):
            self.assertGreater(len(ids), len(prompt))
            self.assert_most_likely(cpu, ids, len(prompt))
        pieces: list[str] = []
        text = gpu.generate(TEXT, 24, stream=pieces.append)
        self.assertEqual(TEXT + "".join(pieces), text)

    def test_equal_seeds_give_equal_text(self) -> None:
        for dtype in TYPES:
            with self.subTest(dtype):
                gpu = on_gpu(dtype=dtype)
                first, second = (gpu.generate(TEXT, 16, temperature=0.8, top_k=50, seed=3) for _ in range(2))
                self.assertEqual(first, second)

    @needs_torch
    def test_hooks_edit_during_generation(self) -> None:
        cpu, gpu = qkscope.load(DEMO, device="cpu"), on_gpu(dtype="float32")
        prompt = cpu.to_tokens(TEXT)
        hooks: list[FwdHook] = [("blocks.2.attn.hook_z", lambda z: z * 0)]
        seen: list[tuple[int, str]] = []
        looking: list[FwdHook] = [*hooks, ("blocks.3.attn.hook_z", lambda z: seen.append((z.shape[0], str(z.device))))]
        ids = gpu.generate(prompt, 8, fwd_hooks=looking, stop_at_eos=False)
        self.assert_most_likely(cpu, ids, len(prompt), hooks)
        self.assertEqual([rows for rows, _ in seen], [len(prompt)] + [1] * 7)
        self.assertEqual({place for _, place in seen}, {gpu.device})


class Desk(CardTest):
    """Heads, patching, attribution and ablation on the GPU match the CPU."""

    @staticmethod
    def metric(logits: Array) -> float:
        return float(logits[-1, 3] - logits[-1, 7])

    def pair(self) -> tuple[Model, Model, np.ndarray, np.ndarray]:
        cpu, gpu = qkscope.load(DEMO, device="cpu"), on_gpu(dtype="float32")
        return cpu, gpu, some_ids(cpu, 20), some_ids(cpu, 20, 1)

    def assert_same_table(self, ours: Any, theirs: Any) -> None:
        self.assertEqual(ours.column_names, theirs.column_names)
        for name in ours.column_names:
            found, expected = ours[name].to_pylist(), theirs[name].to_pylist()
            if any(isinstance(value, float) for value in expected):
                found, expected = (np.array(values, dtype=np.float64) for values in (found, expected))
                np.testing.assert_allclose(found, expected, atol=TOLERANCE, rtol=TOLERANCE, err_msg=name)
            else:
                self.assertEqual(found, expected, name)

    def test_head_scores_match_the_cpu(self) -> None:
        """gemma2 has soft-capped attention scores."""
        for family in ("llama_gqa", "mistral_window", "gemma2"):
            with self.subTest(family):
                folder = ROOT / "tests/golden" / family
                cpu, gpu = qkscope.load(folder, device="cpu"), on_gpu(folder, dtype="float32")
                once = some_ids(cpu, 20)
                texts = [np.concatenate([once, once]), some_ids(cpu, 33, 1)]

                def two_before(ids: np.ndarray) -> np.ndarray:
                    return np.eye(len(ids), k=-2)

                options: dict[str, Any] = {"pattern": two_before}
                self.assert_same_table(qkscope.heads(gpu, texts, **options), qkscope.heads(cpu, texts, **options))

    @needs_torch
    def test_patching_matches_the_cpu(self) -> None:
        from qkscope import patching

        cpu, gpu, clean, corrupted = self.pair()
        for name in ("resid_pre", "attn_head_out_all_pos", "attn_head_k_all_pos", "attn_head_pattern_all_pos"):
            with self.subTest(name):
                sweep = getattr(patching, f"get_act_patch_{name}")
                expected = sweep(cpu, corrupted, clean, self.metric)
                self.assert_close(sweep(gpu, corrupted, clean, self.metric), expected, name)
                self.assertGreater(np.ptp(expected), 1e-2, name)
        chosen: dict[str, Any] = {"receivers": [(6, 5), (7, 1)], "component": "q"}
        ours, theirs = (qkscope.path_patch(model, clean, corrupted, self.metric, **chosen) for model in (gpu, cpu))
        np.testing.assert_allclose(ours, theirs, atol=TOLERANCE, rtol=TOLERANCE)

    @needs_torch
    def test_attribution_and_ablation_match_the_cpu(self) -> None:
        cpu, gpu, tokens, other = self.pair()
        parts = [qkscope.direct_logit_attribution(model, tokens, " road", " river") for model in (gpu, cpu)]
        self.assert_same_table(*parts)
        by_order = ["token", "text", "target_rank"]  # equally likely tokens may be swapped
        lenses = [qkscope.logit_lens(model, tokens, positions=[3, -2]).drop(by_order) for model in (gpu, cpu)]
        self.assert_same_table(*lenses)
        groups = {"first": [(0, 0), (0, 1)], "last": [(7, 1)]}
        for mode in ("zero", "mean", "resample"):
            with self.subTest(mode):
                tables = [qkscope.ablate(model, [tokens, other], groups, mode=mode) for model in (gpu, cpu)]
                self.assert_same_table(*tables)


@needs_torch
class Memory(CardTest):
    def test_a_hundred_calls_leak_no_memory(self) -> None:
        gpu = on_gpu()
        ids = some_ids(gpu, 2000)

        def run() -> int:
            cache = gpu.cache(ids, lambda name: not name.endswith(("pattern", "scores")))
            gpu.run_with_hooks(ids, [("blocks.*.hook_mlp_out", lambda a: a.mul_(1.5)), ("hook_embed", lambda a: a * 2)])
            return sum(array.nbytes for array in cache.values())

        def free() -> int:
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
            return torch.cuda.mem_get_info(gpu.device)[0]

        size = max(run() for _ in range(3))
        before = free()
        for _ in range(100):
            run()
        grown = before - free()
        print(f"100 caches of {size / 2**20:.0f} MiB: {grown / 2**20:+.1f} MiB on the GPU")
        self.assertLess(grown, size)  # a leak would be a hundred times larger

    def test_a_tensor_outlives_its_model(self) -> None:
        gpu = on_gpu(dtype="float32")
        ids = some_ids(gpu, 10)
        logits = gpu(ids)
        expected = host(logits).copy()
        del gpu
        self.assert_same_bits(logits, expected)


if __name__ == "__main__":
    unittest.main(verbosity=2)
