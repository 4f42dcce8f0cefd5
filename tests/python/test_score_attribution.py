"""Score attribution, compared with a float64 forward pass in NumPy."""

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import GOLDEN, some_ids, typed_calls, untyped

import qkscope
from qkscope import Model


def read_weights(path: Path) -> dict[str, np.ndarray]:
    """bfloat16 tensors of a safetensors file as float64."""
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    weights: dict[str, np.ndarray] = {}
    for name, entry in json.loads(data[8:8 + size]).items():
        if name == "__metadata__":
            continue
        begin, end = (8 + size + offset for offset in entry["data_offsets"])
        bits = np.frombuffer(data[begin:end], "<u2").astype(np.uint32) << 16
        weights[name.removeprefix("model.")] = bits.view(np.float32).astype(np.float64).reshape(entry["shape"])
    return weights


class Forward:
    """Forward pass of SmolLM3 and Qwen3 that keeps every component of the residual stream."""

    def __init__(self, folder: Path, ids: np.ndarray):
        config = json.loads((folder / "config.json").read_text())
        self.weights = read_weights(folder / "model.safetensors")
        self.heads, self.kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
        self.d = config.get("head_dim") or config["hidden_size"] // self.heads
        self.eps = config["rms_norm_eps"]
        theta = config.get("rope_theta") or config["rope_parameters"]["rope_theta"]
        # transformers and qkscope compute RoPE frequencies and angles in float32.
        self.inverse = 1 / np.float32(theta) ** (np.arange(0, self.d, 2, dtype=np.float32) / np.float32(self.d))
        self.angles = (np.arange(len(ids), dtype=np.float32)[:, None] * self.inverse).astype(np.float64)
        self.rope = config.get("no_rope_layers") or [1] * config["num_hidden_layers"]
        self.components = {"embed": self.weights["embed_tokens.weight"][ids]}
        for layer in range(config["num_hidden_layers"] - 1):
            self.add_layer(layer)

    def of(self, layer: int, name: str) -> np.ndarray:
        return self.weights[f"layers.{layer}.{name}.weight"]

    def stream(self) -> np.ndarray:
        return sum(self.components.values(), np.zeros_like(self.components["embed"]))

    def scale(self, x: np.ndarray) -> np.ndarray:
        return np.sqrt((x**2).mean(-1, keepdims=True) + self.eps)

    def rotated(self, x: np.ndarray, layer: int) -> np.ndarray:
        if not self.rope[layer]:
            return x
        a, b = x[..., :self.d // 2], x[..., self.d // 2:]
        cos, sin = np.cos(self.angles), np.sin(self.angles)
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)

    def vectors(self, layer: int, side: str, head: int) -> tuple[np.ndarray, list[str]]:
        """Rotated queries or keys of a head by component, [component, pos, d_head], and the labels."""
        x = self.stream()
        weight = self.of(layer, f"self_attn.{side}_proj")[head * self.d:(head + 1) * self.d]
        read = self.of(layer, "input_layernorm") * weight
        parts = np.stack([u / self.scale(x) @ read.T for u in self.components.values()])
        norm = self.weights.get(f"layers.{layer}.self_attn.{side}_norm.weight")
        if norm is not None:
            parts = parts / self.scale(parts.sum(0)) * norm
        return self.rotated(parts, layer), list(self.components)

    def add_layer(self, layer: int) -> None:
        x = self.stream()
        normed = x / self.scale(x) * self.of(layer, "input_layernorm")
        new = {}
        for head in range(self.heads):
            own = head * self.kv_heads // self.heads
            q, k = self.vectors(layer, "q", head)[0].sum(0), self.vectors(layer, "k", own)[0].sum(0)
            v = normed @ self.of(layer, "self_attn.v_proj")[own * self.d:(own + 1) * self.d].T
            scores = np.where(np.tri(len(x), dtype=bool), q @ k.T / np.sqrt(self.d), -np.inf)
            pattern = np.exp(scores - scores.max(-1, keepdims=True))
            pattern /= pattern.sum(-1, keepdims=True)
            output = self.of(layer, "self_attn.o_proj")[:, head * self.d:(head + 1) * self.d]
            new[f"L{layer}H{head}"] = pattern @ v @ output.T
        self.components |= new
        x = self.stream()
        normed = x / self.scale(x) * self.of(layer, "post_attention_layernorm")
        gate = normed @ self.of(layer, "mlp.gate_proj").T
        inner = gate / (1 + np.exp(-gate)) * (normed @ self.of(layer, "mlp.up_proj").T)
        self.components[f"{layer}_mlp_out"] = inner @ self.of(layer, "mlp.down_proj").T


@pytest.mark.parametrize("family", ["smollm3_list", "qwen3"])
def test_contributions_agree_with_float64(family: str) -> None:
    model = qkscope.load(GOLDEN / family, device="cpu")
    ids, layer, query = some_ids(model, 24), model.cfg.n_layers - 1, 20
    forward = Forward(GOLDEN / family, ids)
    for head in range(model.cfg.n_heads):
        found = qkscope.attribute_scores(model, ids, heads=[(layer, head)], queries=[query], keys="all")
        q, labels = forward.vectors(layer, "q", head)
        k, _ = forward.vectors(layer, "k", head * forward.kv_heads // forward.heads)
        for number, pair in enumerate(found.pairs):
            values, rows, columns = found.matrix(number)
            expected = q[:, query] @ k[:, pair.key].T / np.sqrt(forward.d)
            assert sorted(rows) == sorted(columns) == sorted(labels)
            order = [rows.index(label) for label in labels]
            assert np.abs(values[np.ix_(order, order)] - expected).max() < 1e-5 * np.abs(expected).max()
            assert pair.score == pytest.approx(expected.sum(), abs=1e-5)


def test_tables_of_a_score(demo: Model) -> None:
    found = qkscope.attribute_scores(demo, "Entry 1, day 5. A letter came.", heads="3.1", queries=[-1, -2], keys="top:3",
                                     effect=True)
    assert len(found.pairs) == 6
    table: Any = found.to_pandas(top=5)
    assert list(table.groupby(["query", "key"]).size()) == [6] * 6
    for (query, key), rows in table.groupby(["query", "key"]):
        assert rows.value.sum() == pytest.approx(rows.score.iloc[0], abs=1e-9), (query, key)
    assert found.to_arrow(top=None).num_rows == sum(found.matrix(i)[0].size for i in range(6))
    for one in (found.components(), found.rotary_pairs(), found.distances(), found.effects()):
        assert {"layer", "head", "query", "key"} <= set(one.column_names) and one.num_rows > 0
    sums = found.components().to_pandas().groupby(["query", "key", "side"]).value.sum()
    for pair in found.pairs:
        assert sums[pair.query, pair.key, "q"] == pytest.approx(pair.score - pair.residual, abs=1e-9)
        assert abs(pair.residual) < 2e-5 * pair.magnitude
    assert "<svg" in str(found.show(0, most=8)) and "6 scores" in repr(found)


def test_composition_of_a_head(demo: Model) -> None:
    texts = ["Entry 1, day 5. A letter came.", "Entry 2, day 6. A letter came for Orn."]
    found = qkscope.composition(demo, texts, heads=[(3, 1)], samples=20, top=4)
    pairs, components = found.pairs.to_pandas(), found.components.to_pandas()
    assert pairs.explained.sum() == pytest.approx(1) and len(pairs) == 5
    assert components.groupby("side").explained.sum().tolist() == pytest.approx([1, 1])
    assert set(pairs.texts) == {2} and set(pairs.samples) == {20}


@pytest.mark.parametrize("call, message", typed_calls([
    (lambda m: untyped.attribute_scores(m, "a b", heads=[(99, 0)]), "no head 99.0"),
    (lambda m: untyped.attribute_scores(m, "a b", heads="3"), "pairs"),
    (lambda m: untyped.attribute_scores(m, ["a", "b"], heads="3.1"), "expected one"),
    (lambda m: untyped.attribute_scores(m, "a b", heads="3.1", queries=[500]), "outside the text"),
    (lambda m: untyped.attribute_scores(m, "a b c d", heads="3.1", queries=[0], keys=[1]), "comes after query"),
    (lambda m: untyped.attribute_scores(m, "a b", heads="3.1", features="none.safetensors"), "none.safetensors"),
    (lambda m: untyped.attribute_scores(m, "a b", heads="3.1").effects(), "effect"),
    (lambda m: untyped.composition(m, ["a b"], heads="3.1", samples=0), "samples"),
]))
def test_wrong_arguments(demo: Model, call: Any, message: str) -> None:
    with pytest.raises(qkscope.InputError, match=message):
        call(demo)
