"""Pictures and representations for notebooks."""

# Notebooks call the private methods tested here.
# pyright: reportPrivateUsage=false
import base64
import re
import struct
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from conftest import DEMO, GOLDEN, ROOT, some_ids

import qkscope
from qkscope import Model
from qkscope import _looks, plot

NASTY = ['<script>alert("x")</script>', "&amp;", " 'quoted'", "a\nb"]


def parsed(html: str) -> Any:
    """Parses HTML of this package, which is well-formed XML."""
    return ElementTree.fromstring(html.replace("&nbsp;", " "))


def hover_texts(html: str) -> Any:
    return [node.text for node in parsed(html).iter() if node.tag.endswith("title")]


def png_chunks(data: bytes) -> dict[bytes, bytes]:
    """Returns the content of each chunk of a PNG file, whose checksums must be right."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    chunks: dict[bytes, bytes] = {}
    at = 8
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at : at + 8])
        content = data[at + 8 : at + 8 + length]
        assert data[at + 8 + length : at + 12 + length] == struct.pack(">I", zlib.crc32(kind + content))
        chunks[kind] = content
        at += 12 + length
    return chunks


def self_contained(html: str) -> Any:
    return not re.search(r"<script|https?://(?!www\.w3\.org/2000/svg)|\bon[a-z]+=", html)


def test_attention_has_tokens_as_hover_text() -> None:
    pattern = np.tril(np.arange(32.0).reshape(2, 4, 4))
    picture = plot.attention(pattern, NASTY, labels=["L0H3", "L0H5"])
    texts = hover_texts(str(picture))
    assert f"{NASTY[3]!r} (3) → {NASTY[0]!r} (0): 28" in texts
    assert len(texts) == np.count_nonzero(pattern) and str(picture).count("<svg") == 2
    assert self_contained(str(picture)) and "<script" not in str(picture)
    assert picture._repr_html_() == str(picture) and "bytes" in repr(picture)


def test_hidden_scores_and_missing_values_are_grey() -> None:
    scores = np.where(np.tri(3, dtype=bool), np.array([[1.0, 0, 0], [2, -1, 0], [3, 4, 5]]), -np.inf)
    html = str(plot.attention(scores))
    assert html.count("#ebebeb") == 3 and len(hover_texts(html)) == 6


def test_queries_are_named_by_their_positions() -> None:
    html = str(plot.attention(np.ones((1, 2, 5)), list("abcde"), queries=[1, 4]))
    assert "'b' (1) → 'a' (0): 1" in hover_texts(html) and "'e' (4) → 'a' (0): 1" in hover_texts(html)


def test_large_maps_are_images_with_hover_text_on_the_strongest_cells() -> None:
    values = np.random.default_rng(0).random((60, 70))
    html = str(plot.head_map(values, limits=(0, 1)))
    assert len(hover_texts(html)) == 2000 and self_contained(html)
    (encoded,) = re.findall(r"base64,([^\"]+)", html)
    data = base64.b64decode(encoded)
    chunks = png_chunks(data)
    assert list(chunks) == [b"IHDR", b"IDAT", b"IEND"]
    assert chunks[b"IHDR"] == struct.pack(">IIBBBBB", 70, 60, 8, 2, 0, 0, 0)
    rows = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(60, 211)
    light = rows[:, 1:].reshape(60, 70, 3).astype(int).sum(-1)
    assert np.corrcoef(light.ravel(), values.ravel())[0, 1] < -0.95 and not rows[:, 0].any()


def test_head_map_colours_signs() -> None:
    html = str(plot.head_map([[-1.0, 0.0], [1.0, np.nan]], title="effect"))
    cells = [node for node in parsed(html).iter() if node.find("./{*}title") is not None]
    fills = {node.find("./{*}title").text: node.get("fill") for node in cells}
    assert fills["layer 0, head 0: -1"] == "#b2182b" and fills["layer 1, head 0: 1"] == "#2166ac"
    assert fills["layer 0, head 1: 0"] == "#ffffff" and "#ebebeb" in html
    named = str(plot.head_map([[1.0, 2.0]], row="mode", column="class", rows=["zero"], columns=["<a>", "b"]))
    assert hover_texts(named) == ["mode zero, class <a>: 1", "mode zero, class b: 2"]


def test_colours_start_at_zero_unless_all_values_are_large() -> None:
    def light(values: Any) -> Any:
        html = str(plot.head_map([values]))
        return {text: fill for text, fill in re.findall(r'fill="(#\w+)"><title>[^<]*: (\d+)', html)}

    assert light([1.0, 9.0]).keys() != {"#ffffff"} and "#ffffff" not in light([1.0, 9.0])
    assert light([8.0, 9.0])["#ffffff"] == "8"


def test_profile_draws_lines_with_gaps() -> None:
    html = str(plot.profile({"q": [1, np.nan, 3], "<k>": [2, 2, 2]}, ["S1", "S2", "S3"], x_label="step", y_label="r"))
    of_k = ["<k>, step S1: 2", "<k>, step S2: 2", "<k>, step S3: 2"]
    assert hover_texts(html) == ["q, step S1: 1", "q, step S3: 3", *of_k]
    paths = [node.get("d") for node in parsed(html).iter() if node.get("stroke-width")]
    assert [path.count("M") for path in paths] == [2, 1] and self_contained(html)
    assert len(hover_texts(str(plot.profile(np.zeros(5))))) == 5  # a constant line has a range too


def test_score_rows_escape_tokens() -> None:
    html = str(plot.score_rows([[0, 1, 2, 3], [3, 2, 1, 0]], NASTY, labels=["up", "down"]))
    spans = [node for node in parsed(html).iter("span") if node.get("title")]
    assert len(spans) == 8 and spans[0].text == NASTY[0] and spans[3].text == "a↵b"
    assert spans[3].get("title") == f"{NASTY[3]!r} (3): 3" and "<script" not in html
    own = str(plot.score_rows([[1, 2], [3, 4]], [["a", "b"], ["c", "d"]]))
    assert "'c' (0): 3" in [node.get("title") for node in parsed(own).iter("span")]
    assert "color:#fff" in spans[3].get("style") and "color:#222" in spans[0].get("style")


@pytest.mark.parametrize(("call", "message"), [
    (lambda: plot.attention(np.ones(3)), "expected \\[head, query, key\\]"),
    (lambda: plot.attention(np.ones((1, 1, 2000))), "at most 1024 tokens"),
    (lambda: plot.attention(np.ones((2, 2)), ["a"]), "tokens: found 1, expected 2"),
    (lambda: plot.head_map(np.ones(3)), "expected \\[layer, head\\]"),
    (lambda: plot.profile({"a": [1, 2], "b": [1]}), "lines of one length"),
    (lambda: plot.head_map(np.ones((2, 2)), rows=["a"]), "rows: found 1, expected 2"),
    (lambda: plot.score_rows(np.ones((2, 2)), [["a", "b"]]), "tokens: found 1 lists, expected 2"),
    (lambda: plot.score_rows(np.ones((1, 1, 2)), ["a", "b"]), "scores: found shape"),
])
def test_wrong_arguments_raise_input_errors(call: Callable[[], object], message: str) -> None:
    with pytest.raises(qkscope.InputError, match=message):
        call()


def test_pictures_are_saved_as_pages(tmp_path: Path) -> None:
    plot.head_map(np.eye(2), title="a & b").save(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert page.startswith("<!DOCTYPE html>") and "<title>a &amp; b</title>" in page and "<svg" in page


# Caches and models


def test_a_cache_shows_attention(demo: Model) -> None:
    text = "Entry 1, day 5."
    cache = demo.cache(text, ["*pattern", "*attn_scores"])
    words, pattern = demo.to_str_tokens(text), cache["pattern", 3]
    texts = hover_texts(str(cache.show_attention(3, [1])))
    assert f"{words[4]!r} (4) → {words[2]!r} (2): {pattern[1, 4, 2]:.3g}" in texts
    assert str(cache.show_attention(-5)).count("<svg") == 8 and "L3H7" in str(cache.show_attention(-5))
    assert len(hover_texts(str(cache.show_attention(3, 0, scores=True)))) == len(words) * (len(words) + 1) // 2
    with pytest.raises(qkscope.InputError, match="expected 0 to 7"):
        cache.show_attention(3, [8])
    with pytest.raises(qkscope.InputError, match="is not in this cache"):
        demo.cache(text, "*hook_z").show_attention(3)


@pytest.mark.parametrize("side", ["right", "left"])
def test_attention_of_a_batch_has_no_padding(demo: Model, side: str) -> None:
    texts = ["Entry 1, day 5.", "Entry 1"]
    cache = demo.cache(texts, "*pattern", padding_side=side)
    alone = demo.cache(texts[1], "*pattern")
    expected = str(alone.show_attention(2, [0]))
    assert str(cache.show_attention(2, [0], sequence=1)) == expected
    assert str(cache.apply_slice_to_batch_dim(1).numpy().show_attention(2, [0])) == expected
    last = demo.cache(texts, "*pattern", positions=[-1], padding_side=side).show_attention(2, [0], sequence=1)
    assert {text.split(" →")[0] for text in hover_texts(str(last))} == {"'1' (2)"}


def test_attention_without_a_tokenizer_names_ids() -> None:
    model = qkscope.load(GOLDEN / "llama_gqa", device="cpu")
    ids = some_ids(model, 4)
    assert f"'{ids[2]}' (2) →" in "".join(hover_texts(str(model.cache(ids, "*pattern").show_attention(0))))


def test_caches_complete_keys_and_have_short_reprs(demo: Model) -> None:
    cache = demo.cache([1, 2, 3], "blocks.*.attn.hook_q")
    assert cache._ipython_key_completions_() == list(cache)
    assert repr(cache) == "ActivationCache(8 activations [pos, ...] of 8 layers, [3, 8, 16], 12.3 KB)"
    whole = demo.cache([[1, 2]])
    assert repr(whole).endswith(f"6 shapes, {sum(array.nbytes for array in whole.values()) / 1000:.3g} KB)")
    html = cache._repr_html_()
    assert "<td>blocks.*.attn.hook_q</td><td>0-7</td><td>[3, 8, 16]</td><td>12.3 KB</td>" in html
    parsed(html)


@pytest.mark.parametrize(("family", "words"), [
    ("smollm3_list", "NoPE"), ("gemma3_text", "window"), ("gpt2", "no RoPE"), ("llama_gqa", "2 RoPE"),
])
def test_models_show_their_layers(family: str, words: str) -> None:
    model = qkscope.load(GOLDEN / family, device="cpu")
    html = model._repr_html_()
    assert words in html and html.count("<title>layer ") == model.cfg.n_layers and self_contained(html)
    parsed(html)


def test_weights_have_reprs_and_shapes(demo: Model) -> None:
    assert repr(demo.blocks[0].ln1) == "Norm(w [128])" and repr(demo.blocks) == "<8 blocks>"
    assert "attn=Attention(W_Q [8, 128, 16], W_K [2, 128, 16]" in repr(demo.blocks[0])
    assert "mlp=Mlp(W_gate [128, 224], W_in [128, 224], W_out [224, 128])" in repr(demo.blocks[0])
    assert demo.W_Q.shape == np.stack(demo.W_Q).shape and "layers of attn.W_Q" in repr(demo.W_Q)
    gpt2 = qkscope.load(GOLDEN / "gpt2", device="cpu")
    attn = gpt2.blocks[0].attn
    for name in ("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_O"):
        assert f"{name} {list(getattr(attn, name).shape)}" in repr(attn)
    assert repr(demo.tokenizer) == "Tokenizer(vocab_size=1024, bos_id=None, eos_id=0)"


def test_arrow_tables_are_shown_as_html() -> None:
    rows = pa.table({"layer": range(30), "<name>": ["a<b"] * 30, "value": [1 / 3] * 29 + [None]})
    html = _looks.arrow_html(rows)
    assert "30 rows × 3 columns, the first 20" in html and html.count("<tr>") == 21
    assert "&lt;name&gt;" in html and "a&lt;b" in html and "0.3333" in html
    parsed(html)


def test_demo_data_is_found_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("QKSCOPE_DATA", raising=False)
    assert qkscope.demo_folder() == DEMO.parents[1]
    monkeypatch.setenv("QKSCOPE_DATA", str(ROOT / "share"))
    assert qkscope.demo_folder() == DEMO.parents[1]
    monkeypatch.setenv("QKSCOPE_DATA", str(tmp_path))
    with pytest.raises(qkscope.InputError, match="set QKSCOPE_DATA"):
        qkscope.demo_folder()


def test_a_program_ends_without_messages_of_the_bindings() -> None:
    """Python functions on classes of the engine must not keep its objects alive."""
    code = f"model = qkscope.load({str(DEMO)!r}); print(repr(model.tokenizer), model.cache('a', 'logits'))"
    done = subprocess.run([sys.executable, "-c", f"import qkscope; {code}"], capture_output=True, text=True, check=True)
    assert done.stderr == "" and "Tokenizer(" in done.stdout


def test_ipython_shows_tables_and_completes_keys() -> None:
    code = f"""
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
import pyarrow, qkscope
shown, _ = shell.display_formatter.format(pyarrow.table({{"layer": [1, 2]}}))
assert "<th>layer</th>" in shown["text/html"], shown
model = qkscope.load({str(DEMO)!r})
shell.user_ns["cache"] = model.cache("a", "blocks.0.attn.*")
assert "blocks.0.attn.hook_rot_q" in " ".join(shell.complete('cache["blocks.0.attn.hook_ro')[1])
assert "<svg" in shell.display_formatter.format(model)[0]["text/html"]
"""
    subprocess.run([sys.executable, "-c", code], check=True)
