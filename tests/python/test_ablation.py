"""Ablation losses, compared with hand-written hooks."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import some_ids

import qkscope
from qkscope import Array, HookPoint, Model
from qkscope.ablation import classes_of

GROUPS = {"first": [(0, 0), (0, 3), (2, 1)], "second": [(5, 7)]}


@pytest.fixture(scope="module")
def texts(demo: Model) -> list[np.ndarray]:
    return [some_ids(demo, length, length) for length in (12, 20, 9)]


def loss(logits: Any, ids: np.ndarray) -> float:
    logits = np.asarray(logits)
    shifted = logits[:-1].astype(np.float64) - logits[:-1].max(-1, keepdims=True)
    return (np.log(np.exp(shifted).sum(-1)) - shifted[np.arange(len(ids) - 1), ids[1:]]).sum()


def by_hand(
    model: Model, texts: list[np.ndarray], heads: Sequence[tuple[int, int]], stand_in: Callable[[int, int], np.ndarray]
) -> float:
    """Loss with z replaced by stand_in(text, layer), [pos, head, d_head]."""
    total = 0.0
    for number, ids in enumerate(texts):
        def ablate(z: Array, hook: HookPoint) -> None:
            for layer, head in heads:
                if layer == hook.layer():
                    z[:, head] = stand_in(number, layer)[..., head, :]
        total += loss(model.run_with_hooks(ids, [("*hook_z", ablate)]), ids)
    return total / sum(len(ids) - 1 for ids in texts)


def test_zero_and_mean_ablation_match_hooks(demo: Model, texts: list[np.ndarray]) -> None:
    caches = [demo.cache(ids, "*hook_z") for ids in texts]
    whole = {layer: np.concatenate([cache["z", layer] for cache in caches]).mean(0) for layer in range(8)}
    ways: dict[str, Callable[[int, int], np.ndarray]] = {
        "zero": lambda text, layer: np.zeros((8, 16)), "mean": lambda text, layer: whole[layer],
    }
    for mode, stand_in in ways.items():
        table = qkscope.ablate(demo, texts, GROUPS, mode=mode).to_pandas().set_index("group")
        plain = sum(loss(demo(ids), ids) for ids in texts) / 38
        assert set(table["tokens"]) == {38}
        assert table["loss"].iloc[0] == pytest.approx(plain, rel=1e-6)  # losses per token are float32
        for name, heads in GROUPS.items():
            assert table.loc[name, "loss_without"] == pytest.approx(by_hand(demo, texts, heads, stand_in), rel=1e-6)
            increase = table.loc[name, "loss_without"] - plain
            assert table.loc[name, "increase"] == pytest.approx(increase, abs=1e-5)
            assert table.loc[name, "increase_se"] > 0 and table.loc[name, "heads"] == len(heads)


def test_resampling_uses_another_text(demo: Model, texts: list[np.ndarray]) -> None:
    pair = texts[:2]
    caches = [demo.cache(ids, "*hook_z") for ids in pair]

    def stand_in(text: int, layer: int) -> np.ndarray:
        other = np.asarray(caches[1 - text][f"blocks.{layer}.attn.hook_z"])
        return other[np.arange(len(pair[text])) % len(other)]

    table = qkscope.ablate(demo, pair, GROUPS, mode="resample").to_pandas().set_index("group")
    for name, heads in GROUPS.items():
        assert table.loc[name, "loss_without"] == pytest.approx(by_hand(demo, pair, heads, stand_in), rel=1e-6)


def test_control_groups_have_the_same_size_and_depend_on_the_seed(demo: Model, texts: list[np.ndarray]) -> None:
    one, two, other = (qkscope.ablate(demo, texts, GROUPS, controls=3, seed=seed).to_pandas() for seed in (1, 1, 2))
    assert one.equals(two) and not one.equals(other)
    assert (one["control_sd"] > 0).all()


def test_taxonomy_may_be_a_table_a_data_frame_or_a_folder(demo: Model, texts: list[np.ndarray], tmp_path: Path) -> None:
    classes = ["content_focused", "mixed", "content_focused"]
    table = pa.table({"layer": [0, 0, 1], "q_head": [0, 1, 2], "class": classes})
    pq.write_table(table, tmp_path / "taxonomy.parquet")
    expected = {"content_focused": [(0, 0), (1, 2)], "mixed": [(0, 1)]}
    for form in (table, {"taxonomy": table}, table.to_pandas(), tmp_path, str(tmp_path)):
        assert classes_of(form) == expected
    found = qkscope.ablate(demo, texts, {"taxonomy": table, "qk": None})
    assert found["group"].to_pylist() == ["content_focused", "mixed"]
    assert found.equals(qkscope.ablate(demo, texts, expected))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"groups": {}}, "groups: found none"),
        ({"groups": 5}, "groups: found none"),
        ({"groups": {"a": [(0, 9)]}}, "no head 9 of layer 0: is it of another model"),
        ({"groups": {"a": [3]}}, r"expected pairs \(layer, head\)"),
        ({"groups": "no/such/folder"}, "no/such/folder/taxonomy.parquet: there is no such file"),
        ({"groups": pa.table({"layer": [1]})}, "no column 'head'"),
        ({"groups": GROUPS, "mode": "median"}, "mode='median'"),
        ({"groups": GROUPS, "tokens": [[1]]}, "no text of at least two tokens"),
        ({"groups": GROUPS, "tokens": [1, 2, 3], "mode": "resample"}, "expected at least two"),
    ],
)
def test_wrong_arguments_raise_input_errors(demo: Model, options: Any, message: str) -> None:
    with pytest.raises(qkscope.Error, match=message):
        qkscope.ablate(demo, options.pop("tokens", [[1, 2, 3], [4, 5]]), **options)
