"""The examples of docs/how-to/other-engines.md: the commands in them run as their engines would run them, task by task, and give the
bytes of one run. Ray itself takes part where it is installed."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import yaml

SOURCE = Path(__file__).resolve().parents[2]
EXAMPLES = SOURCE / "examples" / "cluster"
PROGRAMS = Path(sys.argv.pop(1)).resolve()
WORDS = "stone river and the cold light".split()
SCHEDULERS = ("SLURM_", "JOB_COMPLETION", "QKSCOPE_SHARD")


def containers(document):
    return document["spec"]["template"]["spec"]["containers"]


def tree(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and ".parts" not in path.parts
    }


class Cluster(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.data = Path(cls.scratch.name)
        checkpoint = cls.data / "tiny"
        subprocess.run(
            [sys.executable, SOURCE / "tools/make_tiny_checkpoint.py", "--out", checkpoint], check=True, capture_output=True
        )
        with open(cls.data / "docs.jsonl", "w") as file:
            for i in range(24):
                text = " ".join(WORDS[(i * j + j) % len(WORDS)] for j in range(5 + i % 7))
                file.write(json.dumps({"id": f"doc-{i}", "text": text}) + "\n")
        config = {
            "dataset": {"path": str(cls.data / "docs.jsonl"), "id_column": "id"},
            "model": {"name": str(checkpoint), "dtype": "float32", "device_map": "cpu"},
            "capture": {"sampler": {"type": "uniform", "base_rate": 4.0}, "min_bucket_size": 16},
            "output": {"data_root": str(cls.data / "capture")},
        }
        (cls.data / "run.yaml").write_text(yaml.safe_dump(config))
        cls.run_command(["qkscope", "capture", "--config", "/data/run.yaml", "--quiet"])
        cls.whole = tree(cls.data / "capture")

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def setUp(self):
        subprocess.run(["rm", "-rf", self.data / "capture"], check=True)

    @classmethod
    def run_command(cls, command, variables=None):
        """As a task would: /data is the shared volume."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith(SCHEDULERS)}
        environment["PATH"] = f"{PROGRAMS}:{environment['PATH']}"
        environment.update(variables or {})
        line = [word.replace("/data/", f"{cls.data}/") for word in command]
        done = subprocess.run(line, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, (line, done.stdout, done.stderr)
        return done

    def expect_whole(self):
        self.assertEqual(tree(self.data / "capture"), self.whole)

    def test_kubernetes(self):
        (capture,) = yaml.safe_load_all((EXAMPLES / "kubernetes-capture.yaml").read_text())
        (merge,) = yaml.safe_load_all((EXAMPLES / "kubernetes-merge.yaml").read_text())
        spec = capture["spec"]
        self.assertEqual((capture["apiVersion"], capture["kind"], spec["completionMode"]), ("batch/v1", "Job", "Indexed"))
        (container,) = containers(capture)
        variables = {item["name"]: item["value"] for item in container["env"]}
        self.assertEqual(variables, {"JOB_COMPLETIONS": str(spec["completions"])})
        codes = spec["podFailurePolicy"]["rules"][0]["onExitCodes"]
        self.assertEqual((codes["containerName"], codes["values"]), (container["name"], [2]))
        volumes = {volume["name"] for volume in spec["template"]["spec"]["volumes"]}
        self.assertEqual({mount["name"] for mount in container["volumeMounts"]}, volumes)
        for index in range(spec["completions"]):
            self.run_command(container["command"], variables | {"JOB_COMPLETION_INDEX": str(index)})
        self.run_command(containers(merge)[0]["command"])
        self.expect_whole()

    def test_skypilot(self):
        header, capture, merge = yaml.safe_load_all((EXAMPLES / "skypilot.yaml").read_text())
        self.assertEqual(list(header), ["name"])
        for rank in range(capture["num_nodes"]):
            variables = {"SKYPILOT_NODE_RANK": str(rank), "SKYPILOT_NUM_NODES": str(capture["num_nodes"])}
            self.run_command(["bash", "-ec", capture["run"]], variables)
        self.run_command(["bash", "-ec", merge["run"]])
        self.expect_whole()

    def test_duckdb(self):
        self.run_command(["qkscope", "capture", "--config", "/data/run.yaml", "--quiet"])
        script = str(EXAMPLES / "duckdb_over_s3.py")
        done = self.run_command([sys.executable, script, f"file://{self.data}/capture"])
        self.assertIn("mean_position", done.stdout)
        self.assertIn("24", done.stdout)  # texts
        # The same behind a manifest, beside an upload that it does not name.
        stored = self.data / "stored"
        for upload in ("old", "new"):
            shutil.copytree(self.data / "capture", stored / "files" / upload)
        names = [name for name in self.whole if name.endswith("/data.parquet")]
        files = [{"name": name, "object": f"files/new/{name}"} for name in names]
        (stored / "manifest").mkdir()
        (stored / "manifest/00000000.json").write_text(json.dumps({"files": files}))
        again = self.run_command([sys.executable, script, f"file://{stored}"])
        self.assertEqual(again.stdout, done.stdout)

    @unittest.skipUnless(importlib.util.find_spec("ray"), "ray is not installed; pip install ray")
    def test_ray(self):
        script = [sys.executable, str(EXAMPLES / "ray_capture.py"), "/data/run.yaml", "/data/capture"]
        self.run_command([*script, "--shards", "3", "--gpus", "0"])
        self.expect_whole()


if __name__ == "__main__":
    unittest.main(verbosity=2)
