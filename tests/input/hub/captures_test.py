"""Captures on the Hub as input: those of the Python prototype, qk-sniffer, in its exact layout and without metadata,
uploaded by the real client as it does, and our own. By name they give the tables that they give from disk."""

import json
import pathlib
import shutil
import sys
import zlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from hub_test_case import ROOT, ClientTestCase, HubTestCase, main, tiny_checkpoint  # noqa: E402
from publish_test import REPO as PUBLISHED, PublishTestCase  # noqa: E402
from stand_in_server import Body, Status  # noqa: E402

REPO, BRANCH = "org/sniffed-qk", "tiny-texts"
NAME = f"{REPO}@{BRANCH}"
COUNTS = ("--head-counts", "4,2")
CONTEXT, BUCKET, EXAMPLES, WIDTH = 256, 32, 6, 8
QUERIES = ("l00h01q", "l00h03q", "l01h00q")
KEYS = ("l00h00k", "l00h01k", "l01h00k")
UNREAD = "l01h01k"  # a key head that no captured query head reads


def write_head(folder, name, window=None, rng=None):
    """Writes one head file like qk-sniffer: without metadata, and with the type of sliding_window inferred by Arrow."""
    rng = rng or np.random.default_rng(zlib.crc32(name.encode()))
    rows = {"bucket": [], "example_id": [], "position": []}
    vectors = []
    for example in range(EXAMPLES):
        for position in np.flatnonzero(rng.random(CONTEXT) < 1.5 / BUCKET):
            rows["bucket"].append(int(position) // BUCKET)
            rows["example_id"].append(example - 3)  # hashes are negative too
            rows["position"].append(int(position))
            drift = np.arange(WIDTH) * position / CONTEXT
            vectors.append(drift + rng.normal(size=WIDTH) + (1.0 if name.endswith("q") else -1.0))
    flat = pa.array(np.asarray(vectors, dtype=np.float32).reshape(-1), type=pa.float32())
    table = pa.table({
        **{column: pa.array(values, type=pa.int32()) for column, values in rows.items()},
        "vector": pa.FixedSizeListArray.from_arrays(flat, WIDTH),
        "sliding_window": pa.array([window] * len(vectors)),
    })
    path = folder / name / "data.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, compression="zstd")


def write_prototype(folder, window=None):
    for name in (*QUERIES, *KEYS, UNREAD):
        write_head(folder, name, window)
    (folder / "README.md").write_text("# sniffed-qk (model specialization)\n\nThis branch stores one model.\n")


def tables(folder):
    return {path.name: path.read_bytes() for path in pathlib.Path(folder).glob("*.*")
            if path.suffix in (".csv", ".parquet")}


class CaptureTestCase(ClientTestCase):
    def setUp(self):
        super().setUp()
        self.data = self.folder / "data"
        write_prototype(self.data)

    def upload(self, folder, branch=BRANCH, repo=REPO):
        """Uploads like qk-sniffer: creates repository and branch, then the whole folder in one commit."""
        self.python("""
import sys, huggingface_hub as hub
repo, branch, folder = sys.argv[1:]
api = hub.HfApi()
api.create_repo(repo, repo_type="dataset", exist_ok=True)
if branch != "main":
    api.create_branch(repo, repo_type="dataset", branch=branch, exist_ok=True)
api.upload_folder(repo_id=repo, folder_path=folder, repo_type="dataset", revision=branch,
                  delete_patterns=["*", "**/*"])""", repo, branch, folder)

    def put(self, folder=None, branch=BRANCH, repo=REPO):
        folder = folder or self.data
        files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        self.hub.dataset(repo).put(files, branch)

    def analyze(self, source, out, *options, **more):
        return self.run_program("analyze", source, "--out", self.folder / out, *options, **more)

    def cached(self, repo=REPO, branch=BRANCH):
        folder = self.snapshot(repo, "datasets", branch)
        return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


class ByName(CaptureTestCase):
    def test_tables_equal_those_from_disk(self):
        self.upload(self.data)
        self.analyze(self.data, "disk", *COUNTS, "--label", "proto")
        out = self.analyze(NAME, "hub", *COUNTS, "--label", "proto")
        self.assertIn("3 heads", out)
        disk, hub = tables(self.folder / "disk"), tables(self.folder / "hub")
        self.assertIn("qk.csv", disk)
        self.assertIn("head_profile.parquet", disk)
        self.assertEqual(disk, hub)
        for name in ("pca", "rotation", "plasticity"):
            self.analyze(self.data, f"disk-{name}", *COUNTS, "--label", "x", "--only", name)
            self.analyze(NAME, f"hub-{name}", *COUNTS, "--label", "x", "--only", name)
            self.assertEqual(tables(self.folder / f"disk-{name}"), tables(self.folder / f"hub-{name}"))

    def test_the_datasets_client_reads_the_same_rows(self):
        self.upload(self.data)
        count = self.python("""
import sys, datasets, pyarrow.parquet as parquet
name, path = sys.argv[1:]
head = datasets.load_dataset("parquet", data_files=f"hf://datasets/{name}/l00h01q/*.parquet", split="train")
table = parquet.read_table(path)
assert head["position"][:] == table["position"].to_pylist()
assert head["vector"][:] == table["vector"].to_pylist()
print(len(head))""", NAME, self.data / "l00h01q/data.parquet")
        self.assertGreater(int(count), 10)

    def test_only_needed_files_are_downloaded_and_only_once(self):
        self.put()
        self.analyze(NAME, "out", *COUNTS)
        self.assertEqual(self.cached(), {f"{name}/data.parquet" for name in (*QUERIES, *KEYS)})
        self.hub.requests.clear()
        self.analyze(NAME, "again", *COUNTS)
        self.analyze(NAME, "offline", *COUNTS, HF_HUB_OFFLINE="1")
        self.assertEqual(self.hub.requests, [])
        self.assertEqual(tables(self.folder / "out"), tables(self.folder / "offline"))

    def test_the_label_is_the_branch(self):
        self.put()
        self.analyze(NAME, "out", *COUNTS)
        self.assertIn(f"\n{BRANCH},0,1,", (self.folder / "out/qk.csv").read_text())
        summary = json.loads((self.folder / "out/summary.json").read_text())
        self.assertEqual(summary["data_root"], NAME)
        self.assertEqual(summary["capture_hash"], self.snapshot(REPO, "datasets", BRANCH).name)

    def test_download_follows_a_moved_branch(self):
        self.put()
        self.analyze(NAME, "first", *COUNTS, "--label", "x")
        first = self.snapshot(REPO, "datasets", BRANCH).name
        write_head(self.data, "l00h01q", rng=np.random.default_rng(99))
        self.put()
        self.analyze(NAME, "same", *COUNTS, "--label", "x")
        self.assertEqual(tables(self.folder / "first"), tables(self.folder / "same"), "it goes on with what it began")
        self.assertNotEqual(self.snapshot(REPO, "datasets", BRANCH).name, first)
        self.download(REPO, "--dataset", "--revision", BRANCH)
        self.analyze(NAME, "moved", *COUNTS, "--label", "x")
        self.assertNotEqual(tables(self.folder / "first"), tables(self.folder / "moved"))

    def test_an_interrupted_connection_is_resumed(self):
        self.put()
        self.hub.fault("/objects/", Body(cut=700), times=3)
        self.hub.fault("/revision/", Status(503, {"Retry-After": "0"}))
        self.analyze(NAME, "out", *COUNTS)
        self.assert_nothing_half_done()

    def test_a_local_folder_takes_precedence(self):
        self.put()
        shutil.copytree(self.data, self.folder / NAME)
        self.analyze(NAME, "out", *COUNTS)
        self.assertEqual(self.hub.requests, [])

    def test_sliding_windows_are_read(self):
        write_prototype(self.data, window=64)
        self.put()
        self.analyze(NAME, "slides", *COUNTS, "--label", "x", "--only", "plasticity")
        write_prototype(self.data)
        self.analyze(self.data, "full", *COUNTS, "--label", "x", "--only", "plasticity")
        self.assertNotEqual(tables(self.folder / "slides")["head_profile.csv"],
                            tables(self.folder / "full")["head_profile.csv"])

    def test_figures_of_a_capture(self):
        self.put()
        out = self.run_program("figures", NAME, "--out", "figures", "--only", "rq_rk_scatter", "--format", "svg", *COUNTS)
        self.assertIn("1 figures", out)
        self.assertTrue((self.folder / "figures/results/qk.csv").exists())
        self.assertTrue((self.folder / "figures/rq_rk_scatter.svg").exists())


class Models(CaptureTestCase):
    """--model reads only head counts, RoPE and windows, from a config.json."""

    def setUp(self):
        super().setUp()
        config = json.loads(tiny_checkpoint()["config.json"])
        config.update(num_attention_heads=4, num_key_value_heads=2, head_dim=WIDTH, num_hidden_layers=2,
                      no_rope_layers=[1, 0])
        self.config = config
        self.hub.model("org/tiny").put({**tiny_checkpoint(), "config.json": json.dumps(config).encode()})

    def test_only_the_config_is_downloaded(self):
        self.put()
        self.analyze(NAME, "out", "--model", "org/tiny")
        self.assert_snapshot({"config.json"})
        rows = (self.folder / "out/qk.csv").read_text().splitlines()
        self.assertTrue(all(",rope," in row for row in rows[1:] if f"{BRANCH},0," in row))
        self.assertTrue(all(",nope," in row for row in rows[1:] if f"{BRANCH},1," in row))
        complement = (self.folder / "out/complement.csv").read_text().splitlines()
        nearest = complement[0].split(",").index("nearest_inv_freq")
        self.assertTrue(all(row.split(",")[nearest] for row in complement[1:] if ",rope," in row))

    def test_a_model_of_a_branch_and_a_folder(self):
        self.hub.model("org/tiny").put({"config.json": json.dumps(self.config).encode()}, branch="step-1")
        self.analyze(self.data, "branch", "--model", "org/tiny@step-1", "--label", "x")
        (self.folder / "model").mkdir()
        (self.folder / "model/config.json").write_text(json.dumps(self.config))
        self.analyze(self.data, "folder", "--model", "model", "--label", "x")
        self.assertEqual(tables(self.folder / "branch"), tables(self.folder / "folder"))

    def test_windows_missing_in_files_come_from_the_model(self):
        config = {**self.config, "model_type": "mistral", "sliding_window": 64}
        config.pop("no_rope_layers")
        (self.folder / "slides").mkdir()
        (self.folder / "slides/config.json").write_text(json.dumps(config))
        write_prototype(self.data, window=64)
        self.analyze(self.data, "said", "--model", "slides", "--label", "x")
        for path in self.data.glob("l*/data.parquet"):
            pq.write_table(pq.read_table(path).drop_columns(["sliding_window"]), path)
        self.analyze(self.data, "unsaid", "--model", "slides", "--label", "x")
        self.assertEqual(tables(self.folder / "said"), tables(self.folder / "unsaid"))
        self.analyze(self.data, "full", *COUNTS, "--label", "x")
        self.assertNotEqual(tables(self.folder / "full")["head_profile.csv"],
                            tables(self.folder / "unsaid")["head_profile.csv"])

    def test_a_different_model_is_rejected(self):
        for change, part in (({"head_dim": 16}, "vectors have 8 numbers, but heads of --model other have 16"),
                             ({"num_hidden_layers": 1, "no_rope_layers": [1]}, "has 1 layers only")):
            (self.folder / "other").mkdir(exist_ok=True)
            (self.folder / "other/config.json").write_text(json.dumps({**self.config, **change}))
            self.assertIn(part, self.analyze(self.data, "out", "--model", "other", status=2))
        state = {"model_name": "org/tiny", "model_metadata": {"head_sampling_num_query_heads": 8,
                                                              "head_sampling_num_key_heads": 2}}
        (self.data / "_saver_state.json").write_text(json.dumps(state))
        self.assertIn("says 8 and 2", self.analyze(self.data, "out-state", "--model", "org/tiny", status=2))

    def test_a_missing_model_is_reported(self):
        self.assertIn("no such model", self.analyze(self.data, "out", "--model", "org/absent", status=2))
        self.assertIn("config.json", self.analyze(self.data, "out", "--model", str(self.data), status=2))


class Layouts(CaptureTestCase):
    def test_the_state_file_of_the_prototype_is_read(self):
        state = {"model_name": "org/model", "bucket_counts": {"0": 9},
                 "model_metadata": {"head_sampling_num_query_heads": 4, "head_sampling_num_key_heads": 2,
                                    "sampling_strategy": "uniform", "sampling_bucket_size": BUCKET}}
        (self.data / "_saver_state.json").write_text(json.dumps(state))
        self.put()
        self.analyze(NAME, "hub")
        self.analyze(self.data, "disk")
        self.assertEqual(tables(self.folder / "hub"), tables(self.folder / "disk"))
        self.assertIn("\norg/model,0,1,", (self.folder / "hub/qk.csv").read_text())
        self.assertIn("_saver_state.json", self.cached())

    def test_a_folder_per_model(self):
        """Layout of older versions, with all models on one branch."""
        old = self.folder / "old"
        shutil.copytree(self.data, old / "org_model_1")
        (old / "org_model_1/README.md").unlink()
        meta = {"head_sampling_num_query_heads": 4, "head_sampling_num_key_heads": 2}
        state = {"model_metadata": {"org/model-1": {"sanitized_split": "org_model_1", **meta}}}
        (old / "_saver_state.json").write_text(json.dumps(state))
        self.put(old, "main")
        self.analyze(f"{REPO}@main", "hub")
        self.analyze(old, "disk")
        self.assertEqual(tables(self.folder / "hub"), tables(self.folder / "disk"))
        self.assertIn("\norg/model-1,0,1,", (self.folder / "hub/qk.csv").read_text())

        shutil.copytree(old / "org_model_1", old / "org_model_2")
        state["model_metadata"]["org/model-2"] = {"sanitized_split": "org_model_2", **meta}
        (old / "_saver_state.json").write_text(json.dumps(state))
        self.put(old, "both")
        out = self.analyze(f"{REPO}@both", "out", status=2)
        self.assertIn(f"2 models (org_model_1, org_model_2); name one of them: {REPO}@both:org_model_1", out)
        self.analyze(f"{REPO}@both:org_model_2", "second")
        self.assertIn("\norg/model-2,0,1,", (self.folder / "second/qk.csv").read_text())
        self.assertIn("name one of them", self.analyze(old, "out", status=2))


class Refusals(CaptureTestCase):
    def refused(self, source, part, *options, status=2, **more):
        out = self.analyze(source, "out", *options, status=status, **more)
        self.assertIn(part, out)
        self.assertFalse((self.folder / "out").exists())
        return out

    def test_mistyped_paths_are_reported_as_paths(self):
        for source in ("dta", "./data@main", "/no/such@place", "org/name", "a/b/c@main", "@main"):
            self.refused(source, "there is no such folder")
        self.refused("org/name@", "is no branch, tag or commit")
        self.refused("org/name@..", "is no branch, tag or commit")
        self.refused("org/name@main:", "no folder after the ':'")
        self.assertEqual(self.hub.requests, [])

    def test_missing_repositories_and_branches_are_reported(self):
        out = self.refused("org/absent@main", "has no such dataset, or it is private")
        self.assertIn("no folder or file of this name here", out)
        self.put()
        out = self.refused(f"{REPO}@tiny-text", f"did you mean {BRANCH}?")
        self.assertIn(f"its branches: main, {BRANCH}", out)
        self.hub.dataset(REPO).put({"README.md": b"# see the branches"})
        self.refused(f"{REPO}@main", "no capture: expected head files such as l00h00q/data.parquet; it holds README.md")

    def test_tokens(self):
        self.hub.dataset("org/secret", private=True)
        self.put(repo="org/secret")
        self.refused(f"org/secret@{BRANCH}", "set HF_TOKEN", token=None)
        self.analyze(f"org/secret@{BRANCH}", "fine", *COUNTS)

    def test_offline(self):
        self.put()
        offline = {"HF_HUB_OFFLINE": "1"}
        self.refused(NAME, f"'qkscope hub download {REPO} --dataset --revision {BRANCH}'", *COUNTS, **offline)
        self.refused(NAME, "nothing says which key head", "--label", "x")  # fetches the query heads
        out = self.refused(NAME, "the cache lacks l00h00k/data.parquet", *COUNTS, **offline)
        self.assertIn("HF_HUB_OFFLINE forbids", out)

    def test_no_head_counts(self):
        out = self.refused(self.data, "name its model (--model)")
        self.assertEqual(out.count("nothing says which key head"), 1, "said once, not for every head")

    def test_an_unreachable_server_is_reported(self):
        self.refused(NAME, "is the network there?", status=1, HF_ENDPOINT="http://127.0.0.1:9")

    def test_a_damaged_head_is_named(self):
        (self.data / "l00h01q/data.parquet").write_bytes(b"PAR1 not really")
        self.put()
        out = self.analyze(NAME, "out", *COUNTS, status=2)
        self.assertIn("l00h01q/data.parquet", out)
        self.assertIn("1 of 3 heads could not be analysed", out)


class Downloads(CaptureTestCase):
    def test_a_whole_capture(self):
        self.put()
        out = self.download(REPO, "--dataset", "--revision", BRANCH)
        self.assertIn(str(self.snapshot(REPO, "datasets", BRANCH)), out)
        heads = {f"{name}/data.parquet" for name in (*QUERIES, *KEYS, UNREAD)}
        self.assert_snapshot({*heads, "README.md"}, REPO, "datasets", BRANCH)
        self.hub.requests.clear()
        self.analyze(NAME, "out", *COUNTS, HF_HUB_OFFLINE="1")
        self.download(NAME, "--dataset")
        self.assertEqual(self.hub.asked("/resolve/"), [])

    def test_an_interrupted_download_is_resumed(self):
        self.put()
        self.hub.fault("l01h00q/data.parquet", Status(404), times=9)
        self.download(REPO, "--dataset", "--revision", BRANCH, status=2)
        self.hub.faults.clear()
        self.hub.requests.clear()
        self.download(REPO, "--dataset", "--revision", BRANCH)
        self.assertLess(len(self.hub.asked("/resolve/", "GET")), 8)
        self.assert_nothing_half_done()

    def test_a_split_of_a_text_dataset_on_a_branch(self):
        self.hub.dataset("org/texts").put({"train.jsonl": b'{"text": "a"}\n', "test.jsonl": b'{"text": "b"}\n'}, "v2")
        self.download("org/texts", "--dataset", "--revision", "v2")
        self.assert_snapshot({"train.jsonl"}, "org/texts", "datasets", "v2")
        self.download("org/texts", "--dataset", "--revision", "v2", "--split", "test")
        self.assert_snapshot({"train.jsonl", "test.jsonl"}, "org/texts", "datasets", "v2")

    def test_invalid_names_are_rejected(self):
        self.put()
        for options in (("--dataset", "a/b/c"), ("--dataset", REPO, "--revision", ".."),
                        ("--dataset", NAME, "--revision", "main"), ("--dataset", REPO, "--revision", "absent")):
            self.download(*options, status=2)


class Sweeps(CaptureTestCase):
    SWEEP = """
name: published
runs:
  - {{label: hub, data: "{name}", q_heads: 4, k_heads: 2}}
  - {{label: disk, data: data, q_heads: 4, k_heads: 2, nope_layers: [1]}}
"""

    def sweep(self, text, *options, **more):
        (self.folder / "sweep.yaml").write_text(text)
        return self.run_program("sweep", "sweep.yaml", "--no-figures", *options, **more)

    def test_runs_with_data_are_analysed_and_not_captured(self):
        self.put()
        text = self.SWEEP.format(name=NAME)
        self.assertIn("captured, to analyse", self.sweep(text, "--dry-run"))
        self.assertIn("2 done", self.sweep(text))
        results = self.folder / "results/published"
        self.assertFalse(list((results / "captures").iterdir()))
        self.analyze(NAME, "alone", *COUNTS, "--label", "hub")
        self.assertEqual(tables(results / "runs/hub"), tables(self.folder / "alone"))
        self.assertIn(",nope,", (results / "runs/disk/qk.csv").read_text())
        self.assertIn("2 were done before", self.sweep(text))
        runs = json.loads((results / "runs.json").read_text())["runs"]
        self.assertEqual([run["capture"] for run in runs], [NAME, "data"])
        write_head(self.data, "l00h01q", rng=np.random.default_rng(7))
        self.assertIn("1 done, 1 were done before", self.sweep(text), "another capture is analysed again")

    def test_invalid_files_are_rejected(self):
        for line, part in ((", config: x.yaml", "config: "), (", overrides: {}", "overrides"), (", modle: x", "modle"),
                           (", q_heads: 4", "k_heads too"), (", nope_layers: [-1]", "nope_layers")):
            out = self.sweep(f"name: x\nruns:\n  - {{label: a, data: data{line}}}\n", status=2)
            if "overrides" not in part:
                self.assertIn(part, out)
        text = "name: x\nruns:\n  - {label: a, data: nowhere}\n"
        self.assertIn("there is no such folder", self.sweep(text, "--dry-run", status=2))
        self.assertIn("there is no such folder", self.sweep(text, status=2))
        self.assertIn("nothing is captured", self.sweep(text, "--set", "capture.min_bucket_size=2", status=2))


class Own(PublishTestCase):
    def test_a_capture_that_we_published(self):
        self.capture()
        self.publish()
        self.run_program("analyze", "capture", "--out", "disk")
        self.run_program("analyze", f"{PUBLISHED}@tiny-texts", "--out", "hub")
        self.assertEqual(tables(self.folder / "disk"), tables(self.folder / "hub"))
        card = (self.folder / "capture/README.md").read_text()
        self.assertNotIn(str(self.folder), card, "no paths of this machine")
        self.assertNotIn(str(self.folder), (self.folder / "disk/qk.csv").read_text())
        self.assertIn("\ntiny,", (self.folder / "disk/qk.csv").read_text())
        self.assertNotIn(str(self.folder), (self.folder / "disk/summary.json").read_text())


class Sample(HubTestCase):
    def test_the_sample_configuration_runs_unchanged(self):
        """configs/sample.yaml uses the keys of qk-sniffer; its names are mapped to tiny test data."""
        self.hub.model("HuggingFaceTB/SmolLM2-135M").put(tiny_checkpoint())
        texts = b"".join(json.dumps({"id": f"text-{i}", "text": "river and stone " * 40}).encode() + b"\n"
                         for i in range(3))
        self.hub.dataset("viktoroo/longbench-pro-128k-plus").put({"data/test.jsonl": texts})
        out = self.run_program("--config", ROOT / "configs/sample.yaml", program="sniff-qk", token=None)
        self.assertIn("qkscope hub publish", out)
        state = json.loads((self.folder / "data/attention-plasticity/_saver_state.json").read_text())
        details = state["model_metadata"]
        self.assertEqual(details["attention_scope"], "full_only")
        self.assertEqual(details["dataset_repo"], state["publish"]["repo"])
        self.assertEqual(details["dataset_branch"], "smollm2-135m-longbench-pro-128k-plus")
        self.assertEqual((details["sampling_strategy"], details["sampling_bucket_size"]), ("uniform", 32))
        self.assertEqual(details["dataset_name"], "")

    def test_remote_code_is_not_run(self):
        self.hub.model("HuggingFaceTB/SmolLM2-135M").put(tiny_checkpoint())
        self.hub.dataset("viktoroo/longbench-pro-128k-plus").put({"data/test.jsonl": b'{"id": "a", "text": "b"}\n'})
        out = self.run_program("--config", ROOT / "configs/sample.yaml", "--dry-run", "--set",
                               "tokenizer.trust_remote_code=true", program="sniff-qk")
        self.assertIn("tokenizer.trust_remote_code: no code from a checkpoint is ever run", out)


del CaptureTestCase, ClientTestCase, PublishTestCase, HubTestCase  # not tests themselves
if __name__ == "__main__":
    main()
