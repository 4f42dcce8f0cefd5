"""Attention on an NVIDIA GPU for all head sizes and score variants of the kernels, compared with float32 on the CPU.

Runs with pytest and by itself: python3 tests/python/test_cuda_heads.py

Tests are skipped, with the reason, without a GPU or transformers. DEVICE selects the GPU.
"""

# These tests use the private engine of Model.
# pyright: reportPrivateUsage=false
import importlib
import os
import tempfile
import unittest
from pathlib import Path
from typing import Any

import numpy as np

import qkscope

try:
    torch: Any = importlib.import_module("torch")
    transformers: Any = importlib.import_module("transformers")
except ImportError:
    torch = transformers = None

DEVICE = os.environ.get("DEVICE", "cuda")
COMMON = {"vocab_size": 300, "hidden_size": 384, "intermediate_size": 256, "num_hidden_layers": 2,
          "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 1024,
          "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}

# Family, head size, and special score options. The factors of q and k give scores a standard deviation of about 2.
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama 64": ("Llama", {"head_dim": 64}),
    "llama 96": ("Llama", {"head_dim": 96}),
    "llama 128": ("Llama", {"head_dim": 128}),
    "llama 256": ("Llama", {"head_dim": 256}),
    "mistral 64, window": ("Mistral", {"head_dim": 64, "sliding_window": 50}),
    "mistral 96, window": ("Mistral", {"head_dim": 96, "sliding_window": 50}),
    "gemma2 128, cap": ("Gemma2", {"head_dim": 128, "attn_logit_softcapping": 2.0, "sliding_window": 50}),
    "gemma2 256, cap": ("Gemma2", {"head_dim": 256, "attn_logit_softcapping": 2.0, "sliding_window": 50}),
    "gpt-oss 64, sinks": ("GptOss", {"head_dim": 64, "sliding_window": 50, "num_local_experts": 4,
                                     "num_experts_per_tok": 2}),
}

# Bounds of the largest difference of half a million elements, relative to the largest element. z, residual, q, k, v and
# weights are rounded to 8 bits (float16: 11). An H200 gave 3.0e-2 for bfloat16 and 3.0e-3 for float16; the bounds are
# somewhat larger. Without the soft cap of gemma2 the difference would be 0.75.
TOLERANCE = {"bfloat16": 5e-2, "float16": 6e-3}


def save_model(family: str, options: dict[str, Any], folder: str) -> None:
    torch.manual_seed(0)
    config = getattr(transformers, family + "Config")(**COMMON, **options)
    model = getattr(transformers, family + "ForCausalLM")(config)
    with torch.no_grad():
        for name, values in model.named_parameters():
            if name.endswith(("q_proj.weight", "k_proj.weight")):
                values.mul_(2.7 if family == "GptOss" else 3.6)  # YaRN scales the scores of gpt-oss up
            if name.endswith("sinks"):
                values.normal_(std=2.0)
            if ".experts.down_proj" in name:
                values.zero_()  # rounding may change the chosen experts, so that their output is set to zero
    model.save_pretrained(folder)


def values_of_heads(folder: str, ids: np.ndarray, **options: Any) -> np.ndarray:
    """Returns z of both layers: one may have a sliding window."""
    cache = qkscope.load(folder, arrays="numpy", **options).cache(ids, "blocks.*.attn.hook_z")
    return np.stack([np.asarray(cache["z", layer], np.float32) for layer in range(2)])


class Heads(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        if transformers is None:
            raise unittest.SkipTest("transformers is not installed")
        try:
            qkscope._engine.choose_device(DEVICE)
        except qkscope.Error as error:
            raise unittest.SkipTest(str(error)) from None

    def test_attention_values_match_the_cpu(self) -> None:
        for case, (family, options) in CASES.items():
            with self.subTest(case), tempfile.TemporaryDirectory() as folder:
                save_model(family, options, folder)
                ids = np.random.default_rng(0).integers(3, COMMON["vocab_size"], (3, 333))
                expected = values_of_heads(folder, ids, device="cpu")
                size = np.abs(expected).max()
                for dtype, tolerance in TOLERANCE.items():
                    found = values_of_heads(folder, ids, device=DEVICE, dtype=dtype)
                    error = np.abs(found - expected).max() / size
                    print(f"{case}, {dtype}: {error:.1e} of the largest value")
                    self.assertLess(error, tolerance, f"{case}, {dtype}")

    def test_a_missing_soft_cap_would_fail_the_bound(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            family, options = CASES["gemma2 256, cap"]
            save_model(family, options, folder)
            ids = np.random.default_rng(0).integers(3, COMMON["vocab_size"], 333)
            expected = values_of_heads(folder, ids, device="cpu")
            config = Path(folder) / "config.json"
            config.write_text(config.read_text().replace('"attn_logit_softcapping": 2.0', '"attn_logit_softcapping": null'))
            found = values_of_heads(folder, ids, device=DEVICE, dtype="bfloat16")
            self.assertGreater(np.abs(found - expected).max() / np.abs(expected).max(), 5 * TOLERANCE["bfloat16"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
