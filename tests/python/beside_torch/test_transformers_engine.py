"""Captures, statistics and audits through transformers, with tiny random models."""

import copy
import importlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import qkscope
import torch
import transformers
from conftest import DEMO, GOLDEN, ROOT
from documentation import python_blocks, run_block
from qkscope import InputError

sys.path.append(str(ROOT / "tools"))
families: Any = importlib.import_module("transformers_families")
engine_module: Any = importlib.import_module("qkscope._transformers")
hf: Any = transformers  # its types are incomplete

INTERFACE_FAMILIES = (  # families of the interface of transformers; the native engine knows some of them too
    "afmoe", "arcee", "bitnet", "cohere", "cohere2", "deepseek_v3", "ernie4_5", "exaone4", "falcon", "falcon_h1", "gemma3n_text",
    "glm4_moe", "gptj", "jamba", "helium", "kimi_linear", "lfm2", "llama4_text", "minimax", "nemotron", "nemotron_h", "olmoe", "opt", "phi",
    "phimoe", "qwen3_5_text", "qwen3_next", "seed_oss", "stablelm",
)
# One golden checkpoint of every native family.
NATIVE = ("apertus", "gemma2", "gemma3_text", "gemma4_equal_heads", "glm", "glm4", "gpt2", "gpt_neox", "gpt_oss", "granite", "llama_gqa", "ministral3",
          "ministral_layers", "mistral_window", "mixtral", "mllama_text", "olmo", "olmo2", "olmo3", "phi3", "qwen2", "qwen3", "qwen3_moe",
          "smollm3_list", "starcoder2", "cohere2", "exaone4", "olmoe", "afmoe", "ernie4_5", "ernie4_5_moe", "glm4_moe", "hunyuan_v1_dense",
          "minimax_m2", "nanochat", "seed_oss", "deepseek_v2", "deepseek_v3", "llama4_text", "qwen3_next", "qwen3_5_text", "olmo_hybrid",
          "lfm2", "falcon_h1", "granitemoehybrid", "nemotron_h", "kimi_linear")


def settings(folder: Path, **capture: Any) -> dict[str, Any]:
    return {"capture": {"sampler": {"type": "all"}, **capture}, "output": {"data_root": folder}}


def rows_of(folder: Path) -> dict[str, dict[str, Any]]:
    return {path.name: pq.read_table(path / "data.parquet").to_pydict() for path in sorted(folder.glob("l*"))}


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("family", INTERFACE_FAMILIES)
def test_rows_of_other_families_are_those_of_a_plain_patch(family: str, tmp_path: Path) -> None:
    outcome, what = families.check_family(family, tmp_path)
    assert outcome == "captured", what


@pytest.mark.parametrize("name", NATIVE)
def test_both_engines_capture_the_same_rows(name: str, tmp_path: Path) -> None:
    native = qkscope.load(GOLDEN / name, device="cpu")
    engine: Any = qkscope.TransformersEngine(hf_model(name))
    ids = [int(i) for i in np.random.default_rng(0).integers(3, native.cfg.d_vocab, 40)]
    cache = native.cache(np.array(ids), ["*rot_q", "*rot_k"], remove_batch_dim=True)
    stored = {kind: {i: cache[f"rot_{kind}", i] for i in range(native.cfg.n_layers) if f"blocks.{i}.attn.hook_rot_{kind}" in cache}
              for kind in "qk"}
    sampler = {"sampler": {"type": "uniform", "base_rate": 4.0}, "min_bucket_size": 8}
    with qkscope.CaptureWriter(settings(tmp_path / "native", **sampler), model=engine) as writer:
        writer.add(ids, stored["q"], stored["k"])
    with qkscope.CaptureWriter(settings(tmp_path / "transformers", **sampler), model=engine) as writer:
        writer.add(ids, run=engine.run)
    ours, theirs = rows_of(tmp_path / "native"), rows_of(tmp_path / "transformers")
    assert list(ours) == list(theirs) and ours
    for head, rows in ours.items():
        assert rows["position"] == theirs[head]["position"] and rows["example_id"] == theirs[head]["example_id"]
        a, b = np.array(rows["vector"]), np.array(theirs[head]["vector"])
        # float32: a few dozen layers' worth of rounding, relative to the size of the vectors
        np.testing.assert_allclose(a, b, atol=2e-5 * np.abs(b).max(), rtol=0)
    for layer, (mine, window) in enumerate(zip(engine._layers, native.cfg.window)):
        if mine.call is not None:
            rope = native.cfg.rope[layer]
            assert (mine.rope == "none") == (rope is None), f"layer {layer}"
            assert mine.call.window == window, f"layer {layer}"
            if rope is not None:
                np.testing.assert_allclose(mine.inv_freq, rope.inv_freq(40), rtol=1e-6)


def hf_model(name: str) -> Any:
    with warnings_off():
        loader = hf.MllamaForCausalLM if name == "mllama_text" else hf.AutoModelForCausalLM
        return loader.from_pretrained(GOLDEN / name, dtype=torch.float32).eval()


def warnings_off() -> Any:
    import warnings

    caught = warnings.catch_warnings()
    warnings.simplefilter("ignore")
    return caught


# ---- A whole run: texts, YAML, resume, shards, statistics ----


def texts(folder: Path, count: int = 6) -> Path:
    path = folder / "texts.jsonl"
    lines = (ROOT / "share/demo/corpus.jsonl").read_text().splitlines()
    chosen = [json.dumps({"id": f"t{i}", "text": json.loads(lines[i % len(lines)])["text"][i : i + 400]}) for i in range(count)]
    path.write_text("\n".join(chosen) + "\n")
    return path


def demo_config(folder: Path, root: str, count: int = 6, **more: Any) -> dict[str, Any]:
    return {"dataset": {"path": texts(folder, count), "id_column": "id"}, "model": {"name": DEMO, "dtype": "float32", "device_map": "cpu"},
            "tokenizer": {"max_length": 128}, "output": {"data_root": folder / root},
            "capture": {"sampler": {"type": "uniform", "base_rate": 8.0}, "min_bucket_size": 16, "head_sampling": {"count": 6}}, **more}


def test_the_demo_model_gives_the_rows_of_the_native_engine(tmp_path: Path) -> None:
    qkscope.capture(demo_config(tmp_path, "native"))
    result = qkscope.capture(demo_config(tmp_path, "transformers", engine="transformers"))
    assert result.outcome == "finished" and result.examples == 6
    ours, theirs = rows_of(tmp_path / "native"), rows_of(tmp_path / "transformers")
    assert list(ours) == list(theirs)
    for head, rows in ours.items():
        for column in ("bucket", "example_id", "position", "sliding_window"):
            assert rows[column] == theirs[head][column]
        a, b = np.array(rows["vector"]), np.array(theirs[head]["vector"])
        np.testing.assert_allclose(a, b, atol=2e-5 * np.abs(b).max(), rtol=0)
    native, other = (pq.read_schema(tmp_path / name / next(iter(ours)) / "data.parquet").metadata for name in ("native", "transformers"))
    assert json.loads(native[b"rope"]) == json.loads(other[b"rope"])
    np.testing.assert_allclose(json.loads(native[b"rope_inv_freq"]), json.loads(other[b"rope_inv_freq"]), rtol=1e-6)
    assert other[b"engine"] == f"transformers {transformers.__version__}".encode() and other[b"tokenizer"] == b"qkscope"
    plan = qkscope.capture(demo_config(tmp_path, "planned", engine="transformers"), dry_run=True)
    assert plan["rows"] == result.rows and not (tmp_path / "planned").exists()


def test_batches_and_shards_give_the_same_rows(tmp_path: Path) -> None:
    model = demo_model()
    qkscope.capture(demo_config(tmp_path, "alone"), model=model)
    qkscope.capture(demo_config(tmp_path, "batched", inference={"batch_size": 3}), model=model)
    qkscope.capture(demo_config(tmp_path, "shards"), model=model, shards=2)
    alone = rows_of(tmp_path / "alone")
    assert alone == rows_of(tmp_path / "shards")
    for head, rows in rows_of(tmp_path / "batched").items():
        assert rows["position"] == alone[head]["position"]
        np.testing.assert_allclose(rows["vector"], alone[head]["vector"], atol=2e-5 * np.abs(rows["vector"]).max(), rtol=0)


def demo_model() -> Any:
    return hf.AutoModelForCausalLM.from_pretrained(DEMO, dtype=torch.float32).eval()


def test_a_killed_run_resumes_to_the_same_bytes(tmp_path: Path) -> None:
    count = 150  # three segments of up to 64 examples
    config = demo_config(tmp_path, "killed", count, tokenizer={"max_length": 16}, engine="transformers")
    (tmp_path / "config.json").write_text(json.dumps(config, default=str))
    script = (
        "import os, json, qkscope\n"
        f"config = json.load(open({str(tmp_path / 'config.json')!r}))\n"
        "qkscope.capture(config, progress=lambda done: os.kill(os.getpid(), 9) if done.examples >= 100 else None)\n"
    )
    killed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert (tmp_path / "killed/.parts").exists()
    seen: list[int] = []
    qkscope.capture(config, progress=lambda done: seen.append(done.examples))
    assert 1 < seen[0] <= 101, "the run resumed after the stored segments"
    whole = demo_config(tmp_path, "whole", count, tokenizer={"max_length": 16}, engine="transformers")
    qkscope.capture(whole)
    assert content(tmp_path / "whole") == content(tmp_path / "killed")


def test_two_passes_at_a_time_give_the_same_bytes(tmp_path: Path) -> None:
    """On a GPU two threads of the library call the engine; the CPU can do the same."""
    qkscope.capture(demo_config(tmp_path, "one", 12), model=demo_model())
    engine: Any = qkscope.TransformersEngine(demo_model())
    engine._described["concurrent_runs"] = True
    qkscope.capture(demo_config(tmp_path, "two", 12), model=engine)
    assert content(tmp_path / "one") == content(tmp_path / "two")
    with torch.no_grad():
        engine.model.model.layers[0].self_attn.k_proj.weight[0, 0] = torch.nan
    with pytest.raises(InputError, match='text "t0".*the vector holds nan'):
        qkscope.capture(demo_config(tmp_path, "nan", 12), model=engine)


class GpuOnPaper:
    """torch of a machine with a GPU, as far as rows that wait there need it."""

    cat = staticmethod(torch.cat)
    cuda: Any

    def __init__(self) -> None:
        self.cuda = self
        self.waits: list[int] = []
        self.copies = 0

    def empty_like(self, values: torch.Tensor, device: str, pin_memory: bool) -> torch.Tensor:
        assert pin_memory and device == "cpu"
        self.copies += 1
        return torch.empty_like(values)

    def current_stream(self, device: Any) -> None: ...

    def Event(self, blocking: bool) -> Any:
        copy = self.copies
        return SimpleNamespace(record=self.current_stream, synchronize=lambda: self.waits.append(copy))


@pytest.mark.parametrize("chunk, copies", [(1 << 20, 1), (1900, 3)])
def test_rows_of_a_gpu_arrive_in_few_copies(chunk: int, copies: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five layers, each with 3 rows of 2 heads of width 40: 960 bytes in float32."""
    monkeypatch.setattr(engine_module, "_CHUNK_BYTES", chunk)
    put: list[tuple[Any, np.ndarray]] = []
    at = np.array([1, 4, 6]), np.array([0, 2])

    def put_all(parts: Any, values: np.ndarray) -> None:
        put.append((parts, values))

    request = SimpleNamespace(wanted=[(layer, "k", *at) for layer in range(5)], put_all=put_all)
    rows = engine_module._Rows(request, [8], torch.device("cpu"))
    gpu = GpuOnPaper()
    rows._torch = gpu
    vectors = torch.randn(5, 1, 3, 8, 40, dtype=torch.bfloat16)
    for layer in range(5):
        (_, places, heads), = rows._wanted[layer]
        rows._keep_on_gpu(layer, "k", rows._gather(vectors[layer], places, heads))
    rows.start_copy()
    rows.hand_over()
    assert gpu.copies == copies and gpu.waits == list(range(1, copies + 1))
    assert [part for parts, _ in put for part in parts] == [(layer, "k", (3, 2, 40)) for layer in range(5)]
    expected = vectors[:, 0][:, at[1]][:, :, at[0]].transpose(1, 2).float().numpy()
    np.testing.assert_array_equal(np.concatenate([values for _, values in put]), expected.reshape(-1))


def test_an_engine_serves_captures_of_other_heads(tmp_path: Path) -> None:
    engine: Any = qkscope.TransformersEngine(demo_model())
    for name, seed in (("first", 0), ("second", 1)):
        config = demo_config(tmp_path, name)
        config["capture"]["head_sampling"]["seed"] = seed
        qkscope.capture(config, model=engine)
        alone = {**config, "output": {"data_root": tmp_path / f"{name}-alone"}}
        qkscope.capture(alone, model=demo_model())
        assert content(tmp_path / name) == content(tmp_path / f"{name}-alone")
    assert set(rows_of(tmp_path / "first")) != set(rows_of(tmp_path / "second"))


def test_another_model_is_not_resumed(tmp_path: Path) -> None:
    model = demo_model()
    qkscope.capture(demo_config(tmp_path, "out"), model=model, shard=(0, 2))
    with torch.no_grad():
        model.model.layers[0].self_attn.q_proj.weight += 1
    with pytest.raises(InputError, match="engine"):
        qkscope.capture(demo_config(tmp_path, "out"), model=model, shard=(1, 2))


def test_statistics_agree_with_the_native_engine(tmp_path: Path) -> None:
    stats = {"groups": ["A", "C"], "stages": ["post"]}
    qkscope.stats(demo_config(tmp_path, "native", stats=stats))
    qkscope.stats(demo_config(tmp_path, "transformers", stats=stats), model=demo_model())
    tables: list[Any] = [pq.read_table(tmp_path / name / "attention.parquet") for name in ("native", "transformers")]
    a, b = tables
    assert a.column_names == b.column_names and a.num_rows == b.num_rows
    for name in a.column_names:
        if a[name].type == "double":
            one, two = np.array(a[name].to_pylist(), dtype=float), np.array(b[name].to_pylist(), dtype=float)
            # standard deviations of sums that are zero up to rounding differ as a whole
            np.testing.assert_allclose(one, two, atol=max(1e-6, 2e-3 * np.nanmax(np.abs(one))), rtol=0, err_msg=name)


def test_scores_of_heads_agree_with_the_native_engine() -> None:
    ids = [np.tile(np.arange(3, 35), 2)]
    ours, theirs = qkscope.heads(qkscope.load(DEMO, device="cpu"), ids), qkscope.heads(demo_model(), ids)
    for name in ("layer", "head", "k_head", "rope", "attention", "tokens"):
        assert ours[name].to_pylist() == theirs[name].to_pylist()
    for name in ("induction_head", "previous_token_head", "entropy", "sink_0", "distance_mean"):
        np.testing.assert_allclose(ours[name].to_numpy(), theirs[name].to_numpy(), rtol=1e-3, atol=1e-4)
    assert qkscope.heads(families.tiny_model("stablelm")).num_rows == 4 * 4


def test_texts_of_unknown_tokenizers_are_tokenized_by_transformers(tmp_path: Path) -> None:
    def tokenizer(text: str) -> dict[str, list[int]]:
        return {"input_ids": [3 + ord(letter) % 90 for letter in text]}

    engine: Any = qkscope.TransformersEngine(families.tiny_model("olmoe"), tokenizer)
    config = demo_config(tmp_path, "out", tokenizer={"name": str(tmp_path / "none"), "max_length": 32})
    result = qkscope.capture(config, model=engine)
    assert result.tokens == 6 * 32
    head = next(path for path in sorted((tmp_path / "out").glob("l*")))
    assert pq.read_schema(head / "data.parquet").metadata[b"tokenizer"] == b"engine"


def test_the_command_line_runs_it(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(json.dumps(demo_config(tmp_path, "out"), default=str))
    command = [sys.executable, "-m", "qkscope", "capture", "--config", str(tmp_path / "run.yaml"), "--set", "engine=transformers",
               "--limit", "2", "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0 and "CaptureResult('finished', examples=2" in done.stdout, done.stderr


def test_sweeps_run_through_transformers(tmp_path: Path) -> None:
    base = demo_config(tmp_path, "unused", 2, engine="transformers")
    del base["output"]
    runs = [{"label": name, "overrides": {"model.name": str(DEMO.parent / name)}} for name in ("S1-40", "S3-4720")]
    (tmp_path / "sweep.yaml").write_text(json.dumps({"name": "sweep", "base": base, "runs": runs}, default=str))
    qkscope.sweep(tmp_path / "sweep.yaml", out=tmp_path / "results", figures=False)
    states = list((tmp_path / "results").rglob("_saver_state.json"))
    assert len(states) == 2 and all("transformers" in path.read_text() for path in states)


# ---- Models that cannot be captured: a clear line before anything is written ----


def refusal(model: Any, folder: Path) -> str:
    with pytest.raises(InputError) as error:
        qkscope.capture(demo_config(folder, "out"), model=model)
    assert not (folder / "out").exists()
    return str(error.value)


def test_models_that_cannot_be_captured_are_refused_by_name(tmp_path: Path) -> None:
    llama = families.tiny_model("llama")
    assert refusal(copy.deepcopy(llama).train(), tmp_path).startswith("model: it is in training mode")
    assert "bloom: its attention does not pass through the attention interface" in refusal(families.tiny_model("bloom"), tmp_path)
    assert "mamba: its attention does not pass" in refusal(families.tiny_model("mamba"), tmp_path)
    assert "attention is called twice" in refusal(families.tiny_model("diffllama"), tmp_path)
    assert "expected a model of transformers" in refusal(torch.nn.Linear(2, 2), tmp_path)
    nameless = copy.deepcopy(llama)
    nameless.model.layers[1].self_attn.layer_idx = None
    assert "has no layer_idx" in refusal(nameless, tmp_path)
    with torch.autocast("cpu", torch.bfloat16):
        assert "torch.autocast is on" in refusal(llama, tmp_path)
    uneven = copy.deepcopy(llama)
    attention = uneven.model.layers[1].self_attn
    attention.k_proj = torch.nn.Linear(32, 32, bias=False)
    attention.v_proj = torch.nn.Linear(32, 32, bias=False)
    attention.num_key_value_groups = 1
    assert "heads differ by layer: layer 0 has 4 query heads, 2 key heads" in refusal(uneven, tmp_path)
    cached = copy.deepcopy(llama)
    forward = cached.model.forward

    def with_cache(input_ids: Any, **options: Any) -> Any:
        return forward(input_ids[:, -1:], past_key_values=forward(input_ids).past_key_values)

    cached.model.forward = with_cache
    assert "expected" in refusal(cached, tmp_path)


def test_dropout_and_nan_are_refused(tmp_path: Path) -> None:
    dropping = demo_model()
    for layer in dropping.model.layers:
        layer.self_attn.training = True
        layer.self_attn.attention_dropout = 0.5
    assert "attention dropout is 0.5" in refusal(dropping, tmp_path)
    broken = demo_model()
    with torch.no_grad():
        broken.model.layers[0].self_attn.k_proj.weight[0, 0] = torch.nan
    with pytest.raises(InputError, match="the vector holds nan"):
        qkscope.capture(demo_config(tmp_path, "nan"), model=broken)


def test_the_function_changes_nothing(tmp_path: Path) -> None:
    model = demo_model()
    ids = torch.arange(3, 43)[None]
    before = model(ids).logits
    qkscope.capture(demo_config(tmp_path, "out"), model=model)
    assert torch.equal(before, model(ids).logits)


# ---- Audit ----


@pytest.mark.parametrize("name", [*NATIVE, "demo"])
def test_engines_agree_on_every_native_family(name: str) -> None:
    if name == "mllama_text":
        pytest.skip("its cross-attention layers need an image in transformers")
    with warnings_off():
        result = qkscope.audit(DEMO if name == "demo" else GOLDEN / name, length=40)
    assert result.agrees, str(result)
    stages = {"embedding", "norm", "rotated q", "rotated k", "scores", "z", "residual", "logits"}
    stages -= {"norm"} if name in ("exaone4", "falcon_h1", "olmo2", "olmo3") else set()  # none before attention, or one with a factor
    assert {row.stage for row in result.rows} >= stages
    assert result.logits["equal_tokens"] == 1.0


def faulty(fault: str) -> tuple[str, Any]:
    """Returns a golden checkpoint and a model of transformers with a planted fault."""
    def changed(name: str, **values: Any) -> tuple[str, Any]:
        config = hf.AutoConfig.from_pretrained(GOLDEN / name)
        for key, value in values.items():
            setattr(config, key, value)
        return name, hf.AutoModelForCausalLM.from_pretrained(GOLDEN / name, config=config, dtype=torch.float32).eval()

    if fault == "theta":
        return changed("llama_gqa", rope_parameters={"rope_type": "default", "rope_theta": 20000.0})
    if fault == "yarn":
        full = hf.AutoConfig.from_pretrained(GOLDEN / "olmo3").rope_parameters["full_attention"]
        return changed("olmo3", rope_parameters={"full_attention": full, "sliding_attention": full})
    if fault == "nope":
        flags = list(hf.AutoConfig.from_pretrained(GOLDEN / "smollm3_list").no_rope_layers)
        place = flags.index(0)
        flags[place] = 1
        return changed("smollm3_list", no_rope_layers=flags)
    if fault == "window":
        return changed("mistral_window", sliding_window=17)
    name = "qwen3" if fault == "qk_norm" else "llama_gqa"
    model = hf_model(name)
    for layer in model.model.layers:
        if fault == "qk_norm":
            layer.self_attn.q_norm, layer.self_attn.k_norm = torch.nn.Identity(), torch.nn.Identity()
        if fault == "scale":
            layer.self_attn.scaling *= 1.05
        if fault == "epsilon":
            layer.input_layernorm.variance_epsilon = layer.post_attention_layernorm.variance_epsilon = 1e-3
    if fault == "untied":
        name = "llama_tied"
        model = hf_model(name)
        model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight * 1.01)
    return name, model


@pytest.mark.parametrize(
    ("fault", "stage", "cause"),
    [
        ("theta", "rotated q", "frequencies of RoPE (theta or scaling) in a layer of full attention"),
        ("yarn", "rotated q", "RoPE (YaRN)"),
        ("qk_norm", "q", "q/k norm"),
        ("nope", "rotated q", "NoPE layer: only the other engine rotates"),
        ("window", "scores", "window: the last query sees 16 keys in qkscope and 17 in the other engine"),
        ("scale", "scores", "attention scale, 0.952381 times"),
        ("untied", "logits", "output embedding"),
        ("epsilon", "norm", "norm epsilon"),
    ],
)
def test_planted_faults_are_named(fault: str, stage: str, cause: str) -> None:
    with warnings_off():
        name, model = faulty(fault)
        result = qkscope.audit(GOLDEN / name, against=model, length=40)
    first = result.first
    assert first is not None and first.stage == stage and cause in first.note, str(result)
    native = qkscope.load(GOLDEN / name, device="cpu")
    faults: dict[str, Callable[[int], bool]] = {
        "yarn": lambda i: native.cfg.window[i] > 0, "window": lambda i: native.cfg.window[i] > 0,
        "nope": lambda i: native.cfg.rope[i] is None, "untied": lambda i: False}
    layers = [i for i in range(native.cfg.n_layers) if fault not in faults or faults[fault](i)]
    assert first.layer == (layers[0] if layers else -1)


def test_saved_stages_are_compared(tmp_path: Path) -> None:
    path = tmp_path / "stages.safetensors"
    assert qkscope.audit(DEMO, save=path, length=32, against=demo_model()).agrees
    again = qkscope.audit(DEMO, against=path, length=32)
    assert again.agrees and all(row.absolute == 0 for row in again.rows)
    with pytest.raises(InputError, match="other tokens or rows"):
        qkscope.audit(DEMO, against=path, length=48)
    (tmp_path / "broken").write_bytes(path.read_bytes()[:100])
    with pytest.raises(InputError, match="cannot be read as the stages of an audit"):
        qkscope.audit(DEMO, against=tmp_path / "broken", length=32)


def test_the_audit_command_exits_with_its_verdict(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "qkscope", "audit", str(DEMO), "--length", "32", "--figure", str(tmp_path / "audit.svg")]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "TRANSFORMERS_VERBOSITY": "error"})
    assert done.returncode == 0 and "all stages agree within rounding" in done.stdout, done.stderr
    assert (tmp_path / "audit.svg").read_text().startswith("<svg")


def test_the_training_loop_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = "how-to/transformers-engine.md"
    block = next(block for block in python_blocks(page) if "optimizer.step()" in block)
    monkeypatch.chdir(tmp_path)
    untyped: Any = torch
    untyped.manual_seed(0)
    names: dict[str, Any] = {}
    for setup in (block for block in python_blocks(page) if "class TinyDecoder" in block):
        run_block(page, setup, names)
    run_block(page, block, names)
    steps = sorted(path.name for path in (tmp_path / "captures").iterdir())
    assert steps == ["step-0", "step-1000", "step-2000"]
    assert list((tmp_path / "captures/step-2000").glob("l*q/data.parquet"))
