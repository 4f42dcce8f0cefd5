"""CaptureWriter and StatsWriter, fed with q and k of the native model: the rows of capture() and stats()."""

import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import qkscope
from conftest import DEMO, untyped
from qkscope import InputError, Model

TEXTS = ["The sea was calm and the day was long.", "Entry 1, day 4. We saw the land at last.", "A third text, shorter."]
SETTINGS = {"sampler": {"type": "uniform", "base_rate": 4.0}, "min_bucket_size": 8, "head_sampling": {"count": 5}}


def description(model: Model) -> dict[str, Any]:
    cfg = model.cfg
    layers = [{"rope": None if rope is None else {"type": rope.type, "theta": rope.theta, "dim": rope.dim}, "window": cfg.window[i],
               "scale": cfg.attn_scales[i]} for i, rope in enumerate(cfg.rope)]
    return {"n_layers": cfg.n_layers, "n_heads": cfg.n_heads, "n_key_heads": cfg.n_key_value_heads, "d_head": cfg.d_head,
            "d_vocab": cfg.d_vocab, "layers": layers, "engine": "test"}


def vectors(model: Model, ids: Any) -> dict[str, list[np.ndarray]]:
    cache = model.cache(np.array(ids), remove_batch_dim=True)
    names = {"q": "rot_q", "k": "rot_k", "v": "v"}
    return {kind: [np.asarray(cache[name, i]) for i in range(model.cfg.n_layers)] for kind, name in names.items()}


def documents(model: Model) -> Iterator[tuple[int, list[int]]]:
    for number, text in enumerate(TEXTS):
        yield number, [int(i) for i in np.ravel(model.to_tokens(text))]


def table(folder: Path, name: str) -> dict[str, list[Any]]:
    columns = ["bucket", "example_id", "position", "vector"]
    rows: dict[str, list[Any]] = pq.read_table(folder / name / "data.parquet", columns=columns).to_pydict()
    return rows


def write(model: Model, folder: Path, count: int = 3) -> None:
    with qkscope.CaptureWriter({"capture": SETTINGS, "output": {"data_root": folder}}, model=description(model)) as writer:
        for number, ids in list(documents(model))[:count]:
            own = vectors(model, ids)
            writer.add(ids, own["q"], own["k"], id=number)


def test_the_rows_are_those_of_a_native_capture(demo: Model, tmp_path: Path) -> None:
    (tmp_path / "texts.jsonl").write_text("".join(f'{{"text": "{text}"}}\n' for text in TEXTS))
    native = {"dataset": {"path": tmp_path / "texts.jsonl"}, "model": {"name": DEMO, "device_map": "cpu"}, "capture": SETTINGS,
              "output": {"data_root": tmp_path / "native"}}
    qkscope.capture(native)
    write(demo, tmp_path / "written")
    heads = sorted(path.name for path in (tmp_path / "native").glob("l*"))
    assert heads == sorted(path.name for path in (tmp_path / "written").glob("l*")) and len(heads) > 5
    for head in heads:
        assert table(tmp_path / "native", head) == table(tmp_path / "written", head)
    metadata = pq.read_schema(tmp_path / "written" / heads[0] / "data.parquet").metadata
    assert metadata[b"engine"] == b"test"


def test_selected_rows_may_come_from_a_function(demo: Model, tmp_path: Path) -> None:
    write(demo, tmp_path / "arrays")
    with qkscope.CaptureWriter({"capture": SETTINGS, "output": {"data_root": tmp_path / "rows"}}, model=description(demo)) as writer:
        for number, ids in documents(demo):
            own = vectors(demo, ids)

            def run(request: Any, own: Any = own) -> None:
                for layer, kind, rows, heads in request.wanted:
                    request.put(layer, kind, np.ascontiguousarray(own[kind][layer][rows][:, heads]))

            writer.add(ids, run=run, id=number)
    for head in sorted(path.name for path in (tmp_path / "arrays").glob("l*")):
        assert table(tmp_path / "arrays", head) == table(tmp_path / "rows", head)


def test_statistics_are_those_of_a_native_run(demo: Model, tmp_path: Path) -> None:
    (tmp_path / "texts.jsonl").write_text("".join(f'{{"text": "{text}"}}\n' for text in TEXTS))
    settings = {"groups": ["A", "C"], "stages": ["post"], "kinds": ["q", "k"]}
    qkscope.stats({"dataset": {"path": tmp_path / "texts.jsonl"}, "model": {"name": DEMO, "device_map": "cpu"}, "stats": settings,
                   "output": {"data_root": tmp_path / "native"}})
    with qkscope.StatsWriter({"stats": settings, "output": {"data_root": tmp_path / "written"}}, model=description(demo)) as writer:
        for number, ids in documents(demo):
            own = vectors(demo, ids)
            writer.add(ids, own["q"], own["k"], own["v"], id=number)
    native, written = (pq.read_table(tmp_path / name / "attention.parquet") for name in ("native", "written"))
    assert native.equals(written) and native.num_rows > 0


def test_a_killed_writer_resumes_to_the_same_bytes(demo: Model, tmp_path: Path) -> None:
    write(demo, tmp_path / "whole")
    script = (
        f"import sys; sys.path[:0] = {[str(Path(__file__).parent)]!r}\n"
        "import os, qkscope, test_writers as t\n"
        "from pathlib import Path\n"
        "model = qkscope.load(t.DEMO, device='cpu')\n"
        f"writer = qkscope.CaptureWriter({{'capture': t.SETTINGS, 'output': {{'data_root': {str(tmp_path / 'killed')!r}}}}}, "
        "model=t.description(model))\n"
        "number, ids = next(t.documents(model))\n"
        "own = t.vectors(model, ids)\n"
        "writer.add(ids, own['q'], own['k'], id=number)\n"
        "writer.flush()\n"
        "os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    with qkscope.CaptureWriter({"capture": SETTINGS, "output": {"data_root": tmp_path / "killed"}}, model=description(demo)) as writer:
        assert writer.stored == 1
        for number, ids in documents(demo):
            if not writer.wants(ids, id=number):
                continue
            own = vectors(demo, ids)
            writer.add(ids, own["q"], own["k"], id=number)
    assert content(tmp_path / "whole") == content(tmp_path / "killed")


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def fail(request: Any) -> None:
    raise ZeroDivisionError


def test_an_exception_keeps_the_documents_before_it(demo: Model, tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        with qkscope.CaptureWriter({"capture": SETTINGS, "output": {"data_root": tmp_path}}, model=description(demo)) as writer:
            number, ids = next(documents(demo))
            own = vectors(demo, ids)
            writer.add(ids, own["q"], own["k"], id=number)
            writer.add(ids, run=fail, id="second")
    again = qkscope.CaptureWriter({"capture": SETTINGS, "output": {"data_root": tmp_path}}, model=description(demo))
    assert again.stored == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"d_head": 0}, "model: d_head=0: expected"),
        ({"n_key_heads": 3}, "query heads that share key heads equally"),
        ({"rotary": 4}, "model: 'rotary' is unknown; expected some of"),
        ({"layers": [dict[str, Any]()]}, "1 described"),
        ({"layers": [{"nope": True}] * 4}, "model: layers: 'nope' is unknown"),
    ],
)
def test_wrong_descriptions_name_the_field(demo: Model, tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        qkscope.CaptureWriter({"output": {"data_root": tmp_path}}, model={**description(demo), **change})
    assert not list(tmp_path.iterdir())


def test_wrong_arrays_name_layer_and_shape(demo: Model, tmp_path: Path) -> None:
    settings = {"sampler": {"type": "all"}}
    writer = qkscope.CaptureWriter({"capture": settings, "output": {"data_root": tmp_path}}, model=description(demo))
    _, ids = next(documents(demo))
    own = vectors(demo, ids)
    for q, k, message in (
        (own["q"], None, "k of layer 0 is missing"),
        (own["q"][:1], own["k"], "q of layer 1 is missing"),
        ([x[:3] for x in own["q"]], own["k"], "expected at least .* positions"),
        ([x[:, :, :5] for x in own["q"]], own["k"], "expected float32 of shape"),
        ([x[0] for x in own["q"]], own["k"], r"expected \(positions, heads, width\)"),
        ([x * np.nan for x in own["q"]], own["k"], "the vector holds nan"),
    ):
        with pytest.raises(InputError, match=message):
            writer.add(ids, q, k)
    with pytest.raises(InputError, match="one document"):
        writer.add([ids, ids], own["q"], own["k"])
    assert writer.documents == 0


def test_the_transformers_engine_says_what_to_install(tmp_path: Path) -> None:
    script = "import sys; sys.modules['torch'] = None\nfrom qkscope._transformers import import_torch\nimport_torch()"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env={**os.environ})
    assert "pip install torch transformers" in done.stderr.splitlines()[-1]


def test_stats_writer_refuses_unknown_settings(demo: Model, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="stats.stages"):
        qkscope.StatsWriter({"stats": {"stages": ["pre"]}, "output": {"data_root": tmp_path}}, model=description(demo))
    there = importlib.util.find_spec("torch") and importlib.util.find_spec("transformers")
    expected = "expected a model of transformers" if there else "needs torch and transformers"
    with pytest.raises(InputError, match=expected):
        untyped.CaptureWriter({"output": {"data_root": tmp_path}}, model=3)
