"""End-to-end captures, statistics and results at file:// addresses: file_test.py BIN_FOLDER"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
BIN = pathlib.Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT / "build" / "bin"

CONFIG = """
dataset: {{path: {root}/share/demo/corpus.jsonl, id_column: id, max_samples: 20}}
model: {{name: "{model}", dtype: float32, device_map: cpu}}
tokenizer: {{max_length: 64}}
capture: {{head_sampling: {{count: 3, seed: 0}}, sampler: {{type: uniform, base_rate: 4.0}}, min_bucket_size: 16}}
stats: {{groups: [A], kinds: [q, k], stages: [post]}}
output: {{data_root: "{out}"}}
"""


class FileAddresses(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="qkscope-store-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.store = self.folder / "store"
        self.address = f"file://{self.store}"

    def run_program(self, *arguments, status=0, machine="one"):
        environment = dict(os.environ, HOME=str(self.folder), QKSCOPE_SCRATCH=str(self.folder / "scratch" / machine))
        done = subprocess.run([BIN / "qkscope", *map(str, arguments)], text=True, capture_output=True,
                              cwd=self.folder, env=environment, timeout=300)
        self.assertEqual(done.returncode, status, f"{arguments}\n{done.stdout}\n{done.stderr}")
        return done.stdout + done.stderr

    def config(self, out, model=ROOT / "share/demo/checkpoints/S1-40"):
        file = self.folder / "run.yaml"
        file.write_text(CONFIG.format(root=ROOT, out=out, model=model))
        return file

    def assert_same_bytes(self, local):
        newest = max((self.store / "manifest").iterdir())
        files = {entry["name"]: self.store / entry["object"] for entry in json.loads(newest.read_text())["files"]}
        there = {str(path.relative_to(local)) for path in local.rglob("*") if path.is_file()}
        self.assertEqual(set(files), there)
        for name, path in files.items():
            self.assertEqual(path.read_bytes(), (local / name).read_bytes(), name)

    def test_shards_of_a_capture(self):
        local = self.folder / "local"
        self.run_program("capture", "--config", self.config(local))
        config = self.config(self.address)
        self.run_program("capture", "--config", config, "--shard", "0/2", machine="m0")
        self.assertIn("1/2 (not started)", self.run_program("merge", self.address, status=2))
        self.assertIn("is not finished", self.run_program("analyze", self.address, "--out", "x", status=2))
        self.run_program("capture", "--config", config, "--shard", "1/2", machine="m1")
        self.run_program("merge", self.address, machine="m2")
        self.assert_same_bytes(local)
        self.assertFalse((self.store / "parts").exists())
        self.assertIn("nothing to do", self.run_program("capture", "--config", config))
        results = f"file://{self.folder}/results"
        self.run_program("analyze", self.address, "--out", results)
        self.run_program("compare", results, results)
        self.assertIn("what is there is of the kind 'capture', not 'results'",
                      self.run_program("analyze", self.address, "--out", self.address, status=2))
        self.assertIn("no garbage", self.run_program("gc", f"file://{self.folder}", "--older-than", "0s"))

    def test_statistics(self):
        local = self.folder / "local"
        self.run_program("stats", "--config", self.config(local))
        self.run_program("stats", "--config", self.config(self.address))
        self.assert_same_bytes(local)
        self.assertIn("what is there is of the kind 'statistics', not 'capture'",
                      self.run_program("capture", "--config", self.config(self.address), status=2))

    def test_inputs(self):
        model = f"file://{ROOT}/share/demo/checkpoints/S1-40"
        self.run_program("capture", "--config", self.config(self.folder / "out", model))
        self.run_program("inspect", model)

    def test_commands_without_address_support_say_so(self):
        self.assertIn("share a local folder",
                      self.run_program("sweep", ROOT / "configs/demo/sweep.yaml", "--out", self.address, "--part", "tables",
                                       status=2))
        self.assertIn("unknown scheme 'http'",
                      self.run_program("capture", "--config", self.config("http://host/x"), status=2))
        self.assertEqual([path.name for path in self.folder.iterdir()], ["run.yaml"])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]] + sys.argv[2:])
