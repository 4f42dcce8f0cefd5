"""Interoperability with huggingface_hub and datasets: each side reads what the other wrote."""

import json
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from hub_test_case import ClientTestCase, main, tiny_checkpoint  # noqa: E402
from publish_test import REPO, PublishTestCase  # noqa: E402


class Caches(ClientTestCase):
    def setUp(self):
        super().setUp()
        self.hub.model("org/tiny").put({**tiny_checkpoint(), "README.md": b"# Tiny"})

    def test_the_client_opens_our_cache_offline(self):
        self.run_program("hub", "download", "org/tiny")
        folder = self.python("""
import huggingface_hub as hub
path = hub.snapshot_download("org/tiny", allow_patterns=["*.json", "*.safetensors"])
assert hub.hf_hub_download("org/tiny", "model.safetensors").startswith(path)
info = hub.scan_cache_dir()
assert not info.warnings, info.warnings
assert [(repo.repo_id, len(list(repo.revisions)[0].files)) for repo in info.repos] == [("org/tiny", 4)]
print(path)""", HF_HUB_OFFLINE="1")
        self.assertEqual(folder, str(self.snapshot()))

    def test_the_client_adds_to_our_cache(self):
        self.run_program("hub", "download", "org/tiny", "--only", "config")
        self.hub.requests.clear()
        self.python("import huggingface_hub as hub; hub.snapshot_download('org/tiny')")
        self.assertEqual(self.hub.asked("tokenizer.json", "GET"), [], "what was there is not fetched again")
        self.assert_snapshot({*tiny_checkpoint(), "README.md"})

    def test_we_run_from_a_cache_that_the_client_wrote(self):
        self.python("import huggingface_hub as hub; hub.snapshot_download('org/tiny')")
        self.hub.requests.clear()
        out = self.folder / "out.safetensors"
        for environment in ({"HF_HUB_OFFLINE": "1"}, {}):
            self.run_program("trace", "--model", "org/tiny", "--text", "hi", "--hooks", "logits", "--out", out,
                             **environment)
        self.assertEqual(self.hub.requests, [])

    def test_we_resume_downloads_of_the_client(self):
        self.python("import huggingface_hub as hub; hub.hf_hub_download('org/tiny', 'config.json')")
        self.run_program("hub", "download", "org/tiny")
        self.assert_snapshot(set(tiny_checkpoint()))

    def test_both_clients_can_download_concurrently(self):
        script = "import huggingface_hub as hub; hub.snapshot_download('org/tiny')"
        client = subprocess.Popen([sys.executable, "-c", script], env=self.environment(HF_HUB_DISABLE_XET="1"),
                                  stderr=subprocess.DEVNULL)
        self.run_program("hub", "download", "org/tiny")
        self.assertEqual(client.wait(timeout=60), 0)
        self.assert_snapshot({*tiny_checkpoint(), "README.md"})

    def test_a_capture_runs_from_hub_names(self):
        card = b"---\nconfigs:\n- config_name: default\n  data_files:\n  - split: test\n    path: data/*.jsonl\n---\n"
        texts = b"".join(b'{"text": "cold light %d"}\n' % i for i in range(5))
        self.hub.dataset("org/texts").put({"README.md": card, "data/part-0.jsonl": texts})
        options = ("--set", "dataset.path=org/texts", "--set", "dataset.split=test", "--quiet", "--dry-run", "--json")
        plan = self.capture(model="org/tiny", options=options)
        self.assertEqual(json.loads(plan)["examples"], 5)
        self.assertFalse((self.snapshot() / "model.safetensors").exists(), "a dry run needs no weights")
        self.capture(model="org/tiny", options=options[:4])
        state = json.loads((self.folder / "capture" / "_saver_state.json").read_text())
        self.assertEqual(state["configuration"]["commit"], self.snapshot().name)


class Published(PublishTestCase, ClientTestCase):
    def test_the_clients_read_our_published_capture(self):
        self.capture(publish=f", hf_repo_id: {REPO}, hf_branch: tiny-texts")
        name = sorted(path.name for path in (self.folder / "capture").glob("l*q"))[0]
        folder = self.python(f"""
import huggingface_hub as hub
api = hub.HfApi()
assert {{b.name for b in api.list_repo_refs("{REPO}", repo_type="dataset").branches}} == {{"main", "tiny-texts"}}
print(hub.snapshot_download("{REPO}", repo_type="dataset", revision="tiny-texts"))""")
        there = {str(p.relative_to(folder)): p.read_bytes() for p in pathlib.Path(folder).rglob("*") if p.is_file()}
        there.pop(".gitattributes")
        self.assertEqual(there, self.contents())
        rows = self.python(f"""
import sys, datasets, pyarrow.parquet as parquet
head = datasets.load_dataset("{REPO}", "{name}", revision="tiny-texts", split="train")
table = parquet.read_table(sys.argv[1])
assert head["position"][:] == table["position"].to_pylist()
assert head["vector"][:] == table["vector"].to_pylist()
print(len(head))""", self.folder / "capture" / name / "data.parquet")
        self.assertGreater(int(rows), 0)

    def test_client_and_qkscope_can_overwrite_each_other(self):
        self.capture()
        self.publish()
        self.python(f"""
import huggingface_hub as hub
hub.HfApi().upload_file(path_or_fileobj=b"a note", path_in_repo="note.txt", repo_id="{REPO}", repo_type="dataset",
                        revision="tiny-texts")""")
        self.assertIn("note.txt", self.repository.files("tiny-texts"))
        self.assertIn("nothing to do", self.publish())
        self.python(f"""
import huggingface_hub as hub
hub.HfApi().delete_file("_saver_state.json", repo_id="{REPO}", repo_type="dataset", revision="tiny-texts")""")
        self.assertIn("1 files sent", self.publish())
        self.assert_published(others={"note.txt"})


del PublishTestCase, ClientTestCase  # not tests themselves
if __name__ == "__main__":
    main()
