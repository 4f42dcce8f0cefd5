"""Head scores, compared with scores computed from attention patterns."""

import csv
import json
import subprocess
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import GOLDEN, ROOT, some_ids, typed_calls, untyped

import qkscope
from qkscope import Model


def known_patterns(ids: np.ndarray) -> dict[str, np.ndarray]:
    """The three detection patterns of TransformerLens as matrices."""
    n = len(ids)
    duplicate = np.tril(ids[:, None] == ids, -1).astype(float)
    induction = np.zeros((n, n))
    induction[:, 1:] = duplicate[:, :-1]
    return {
        "previous_token_head": np.eye(n, k=-1), "duplicate_token_head": duplicate, "induction_head": np.tril(induction),
    }


def score(attention: Any, pattern: np.ndarray, measure: str, bos: bool, current: bool) -> float:
    """Score of the head detector of TransformerLens."""
    attention, pattern = np.array(attention, float), pattern.copy()
    for array in (attention, pattern):
        if bos:
            array[:, 0] = 0
        if current:
            np.fill_diagonal(array, 0)
    if measure == "mul":
        return (attention * pattern).sum() / attention.sum()
    return 1 - round(np.abs(attention - pattern).sum() / len(attention), 3)


@pytest.fixture(scope="module")
def twice(demo: Model) -> np.ndarray:
    once = some_ids(demo, 30)
    return np.concatenate([once, once])


@pytest.mark.parametrize("measure", ["mul", "abs"])
@pytest.mark.parametrize(("bos", "current"), [(False, False), (True, False), (True, True)])
def test_scores_match_the_attention_patterns(demo: Model, twice: np.ndarray, measure: str, bos: bool, current: bool) -> None:
    options: dict[str, Any] = {"error_measure": measure, "exclude_bos": bos, "exclude_current_token": current}
    table = qkscope.heads(demo, twice, pattern={"mine": lambda ids: known_patterns(ids)["induction_head"]}, **options)
    cache = demo.cache(twice, "*hook_pattern")
    tolerance = 1e-5 if measure == "mul" else 1.001e-3  # three decimals; rounding may differ
    for name, pattern in [*known_patterns(twice).items(), ("mine", known_patterns(twice)["induction_head"])]:
        for layer, head, found in zip(*(table[c].to_pylist() for c in ("layer", "head", name))):
            attention = cache[f"blocks.{layer}.attn.hook_pattern"][head]
            assert found == pytest.approx(score(attention, pattern, measure, bos, current), abs=tolerance)


@pytest.mark.parametrize("family", ["gemma2", "mistral_window", "gpt2"])
def test_entropy_and_distance_match_the_attention_patterns(family: str) -> None:
    """gemma2 has soft-capped scores and uses a different kernel."""
    model = qkscope.load(GOLDEN / family, device="cpu")
    ids = some_ids(model, 20)
    table = qkscope.heads(model, ids).to_pandas().set_index(["layer", "head"])
    i = np.arange(len(ids))
    for name, patterns in model.cache(ids, "*hook_pattern").items():
        for head, p in enumerate(np.asarray(patterns, float)):
            row = table.loc[(int(name.split(".")[1]), head)]
            logs = np.log(p, where=p > 0, out=np.zeros_like(p))
            assert row["entropy"] == pytest.approx(-(p * logs).sum(1).mean(), abs=3e-5)
            assert row["sink_0"] == pytest.approx(p[:, 0].mean(), abs=1e-5)
            assert row["distance_mean"] == pytest.approx((p * (i[:, None] - i)).sum(1).mean(), rel=1e-4)


def test_several_texts_give_mean_scores(demo: Model) -> None:
    texts = ["Entry 1, day 5.", "Entry 2, day 6: paid 5 crowns."]
    table = qkscope.heads(demo, texts)
    each = [qkscope.heads(demo, text) for text in texts]
    mean = sum(np.asarray(one["previous_token_head"]) for one in each) / 2
    np.testing.assert_allclose(np.asarray(table["previous_token_head"]), mean, atol=1e-12)
    assert set(table["texts"].to_pylist()) == {2}
    batch = np.stack([some_ids(demo, 12, seed) for seed in range(3)])
    assert qkscope.heads(demo, batch)["tokens"][0].as_py() == 36
    assert "entropy" not in qkscope.heads(demo, batch, all_keys=False).column_names


def test_induction_heads_of_the_demo_model_are_found(demo: Model) -> None:
    """The demo model copies repeated entries of account books, but not random tokens."""
    with open(ROOT / "share/demo/corpus.jsonl") as file:
        texts = [demo.to_tokens(json.loads(line)["text"], max_length=128) for line, _ in zip(file, range(4))]
    table = qkscope.heads(demo, texts)
    assert max(table["previous_token_head"].to_pylist()) > 0.2 and max(table["induction_head"].to_pylist()) > 0.08
    assert max(qkscope.heads(demo)["induction_head"].to_pylist()) < 0.05


def test_command_line_and_package_score_the_same_random_texts(demo: Model) -> None:
    program = ROOT / "build/bin/qkscope"
    told = subprocess.run([program, "heads", "--model", demo.folder, "--device", "cpu", "--seed", "3", "--csv", "--quiet"],
                          capture_output=True, text=True, check=True).stdout
    rows = list(csv.DictReader(told.splitlines()))
    table = qkscope.heads(demo, seed=3)
    for name in ("induction_head", "sink_0", "entropy"):
        assert [float(row[name]) for row in rows] == pytest.approx(table[name].to_pylist(), rel=1e-12)


def test_a_gguf_file_names_the_tokens_that_begin_and_end_texts() -> None:
    model = qkscope.load(GOLDEN / "gguf_llama/model.gguf", device="cpu")
    assert model.bos_token_id == 0
    ids = model.to_tokens("a", prepend_bos=True)
    assert ids[0] == model.bos_token_id
    assert qkscope.heads(model)["tokens"][0].as_py() == 8 * (1 + 2 * 64)
    assert qkscope.heads(model, prepend_bos=False)["tokens"][0].as_py() == 8 * 2 * 64


def test_detect_head_matches_transformer_lens(demo: Model, twice: np.ndarray) -> None:
    table = qkscope.heads(demo, twice)
    found = qkscope.detect_head(demo, twice, "induction_head", heads=[(2, 3)])
    assert found.shape == (8, 8) and (found == -1).sum() == 63
    assert found[2, 3] == table["induction_head"].to_pylist()[2 * 8 + 3]
    own = qkscope.detect_head(demo, twice, known_patterns(twice)["induction_head"])
    np.testing.assert_allclose(own.ravel(), np.asarray(table["induction_head"]), atol=1e-5)


@pytest.mark.parametrize(
    ("call", "message"),
    typed_calls([
        (lambda m: untyped.heads(m, [1, 2], pattern=np.eye(3)), r"found shape \[3, 3\], expected numbers \[2, 2\]"),
        (lambda m: untyped.heads(m, [1, 2], pattern="previous"), "found 'previous', expected numbers"),
        (lambda m: untyped.heads(m, [1, 2], pattern={"layer": np.eye(2)}), "'layer': the table has a column of that"),
        (lambda m: untyped.heads("demo", [1, 2]), "model: found str, expected what load"),
        (lambda m: untyped.heads(m, [1, 2], pattern=np.ones((2, 2))), "sees no later key"),
        (lambda m: untyped.heads(m, [1, 2], error_measure="div"), "expected 'mul' or 'abs'"),
        (lambda m: untyped.heads(m, [[1.5, 2]]), "expected a text, integers"),
        (lambda m: untyped.heads(m, []), "expected a text, integers"),
        (lambda m: untyped.detect_head(m, [1, 2], "inducton"), "detection_pattern='inducton'"),
        (lambda m: untyped.detect_head(m, [1, 2], "induction_head", heads=[(9, 9)]), "no head 9 of layer 9"),
    ]),
)
def test_wrong_arguments_raise_input_errors(demo: Model, call: Callable[[Any], object], message: str) -> None:
    with pytest.raises(qkscope.Error, match=message):
        call(demo)


def test_exceptions_of_the_progress_function_are_raised(demo: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    class Enough(Exception):
        pass

    def stop(self: object, done: int, total: int = 0) -> None:
        raise Enough

    monkeypatch.setattr("qkscope._progress.Bar.to", stop)
    with pytest.raises(Enough):
        qkscope.heads(demo)
