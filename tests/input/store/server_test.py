"""End-to-end captures, statistics, results and sweeps on a real S3 server.

`./run.sh test-store` runs this: server_test.py BIN_FOLDER
"""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import pyarrow.parquet

from s3_server import SECRET, Proxy, S3Server

ROOT = pathlib.Path(__file__).resolve().parents[3]
BIN = pathlib.Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT / "build" / "bin"
MODEL = ROOT / "share" / "demo" / "checkpoints" / "S1-40"
TEXTS = ROOT / "share" / "demo" / "corpus.jsonl"

CONFIG = """
dataset: {{path: {texts}, id_column: id, max_samples: {samples}}}
model: {{name: {model}, dtype: float32, device_map: cpu}}
tokenizer: {{max_length: {length}}}
capture:
  head_sampling: {{count: 3, seed: 0}}
  sampler: {{type: uniform, base_rate: 4.0}}
  min_bucket_size: 16
stats: {{groups: [A], kinds: [q, k], stages: [post]}}
output: {{data_root: {root}}}
"""


class StoreTestCase(unittest.TestCase):
    AUTHENTICATED = False

    @classmethod
    def setUpClass(cls):
        cls.server = S3Server(cls.AUTHENTICATED)
        cls.s3 = cls.server.client()
        cls.shared = pathlib.Path(tempfile.mkdtemp(prefix="qkscope-store-"))

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()
        shutil.rmtree(cls.shared)

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="qkscope-store-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.name = self.id().rsplit(".", 1)[1]
        self.address = f"s3://bucket/{self.name}"

    def environment(self, machine="one", endpoint=None, **more):
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "XDG_", "QKSCOPE_"))}
        clean.update(HOME=str(self.folder), QKSCOPE_SCRATCH=str(self.folder / "scratch" / machine),
                     AWS_ENDPOINT_URL=endpoint or self.server.endpoint, AWS_ACCESS_KEY_ID=self.server.key,
                     AWS_SECRET_ACCESS_KEY=self.server.secret, AWS_EC2_METADATA_DISABLED="true",
                     NO_PROXY="127.0.0.1")
        clean.update(more)
        return {name: value for name, value in clean.items() if value is not None}

    def start(self, *arguments, **options):
        return subprocess.Popen([BIN / "qkscope", *map(str, arguments)], text=True, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=self.folder,
                                env=self.environment(**options))

    def finish(self, process, status=0):
        out, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, status, f"{process.args}\n{out}\n{err}")
        for secret in (SECRET, self.server.secret):
            self.assertNotIn(secret, out + err, "a secret was printed")
        if status == 2:
            errors = [line for line in err.splitlines() if "error" in line]
            self.assertEqual(len(errors), 1, err)
        return out + err

    def run_program(self, *arguments, status=0, **options):
        return self.finish(self.start(*arguments, **options), status)

    def config(self, root, samples=200, model=MODEL, texts=TEXTS, length=64):
        file = self.folder / "run.yaml"
        file.write_text(CONFIG.format(root=root, samples=samples, model=model, texts=texts, length=length))
        return file

    def local(self, command="capture"):
        """Reference run on the local disk, shared by all tests."""
        folder = type(self).shared / command
        if not folder.exists():
            self.run_program(command, "--config", self.config(folder), "--quiet")
        return folder

    def keys(self, below=""):
        prefix = f"{self.name}/{below}"
        pages = self.s3.get_paginator("list_objects_v2").paginate(Bucket="bucket", Prefix=prefix)
        return [entry["Key"] for page in pages for entry in page.get("Contents", [])]

    def content(self, key):
        return self.s3.get_object(Bucket="bucket", Key=key)["Body"].read()

    def manifest(self):
        newest = max(self.keys("manifest/"))
        return json.loads(self.content(newest))

    def assert_same_bytes(self, local):
        files = {entry["name"]: entry["object"] for entry in self.manifest()["files"]}
        there = {str(path.relative_to(local)) for path in local.rglob("*") if path.is_file()}
        self.assertEqual(set(files), there)
        for name, key in files.items():
            self.assertEqual(self.content(f"{self.name}/{key}"), (local / name).read_bytes(), name)

    def wait_for(self, what, process, seconds=60):
        end = time.monotonic() + seconds
        while not what():
            self.assertIsNone(process.poll(), "it ended before it could be killed")
            self.assertLess(time.monotonic(), end)
            time.sleep(0.02)

    def journal_objects(self):
        return [key for key in self.keys("parts/") if key.endswith(".json") and "/run/" not in key]

    def kill_in_the_middle(self, command, config):
        process = self.start(command, "--config", config, "--quiet")
        self.wait_for(lambda: len(self.journal_objects()) >= 2, process)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        self.assertEqual(self.keys("manifest/"), [])


class Captures(StoreTestCase):
    def test_one_run(self):
        self.run_program("capture", "--config", self.config(self.address))
        self.assert_same_bytes(self.local())
        self.assertEqual(self.keys("parts/"), [])
        self.assertEqual(list((self.folder / "scratch" / "one" / "runs").iterdir()), [])
        self.assertIn("finished", self.run_program("capture", "--config", self.config(self.address)))

    def test_a_killed_run_resumes_on_another_machine(self):
        local = self.local()
        config = self.config(self.address)
        self.kill_in_the_middle("capture", config)
        self.assertIn("is not finished", self.run_program("analyze", self.address, "--out", "out", status=2))
        self.assertIn("continuing after", self.run_program("capture", "--config", config, machine="two"))
        self.assert_same_bytes(local)
        # Only the upload of the killed process is garbage.
        self.run_program("gc", self.address, "--older-than", "0s", "--remove")
        self.assertEqual(json.loads(self.run_program("gc", self.address, "--older-than", "0s", "--json"))["objects"], [])
        self.assert_same_bytes(local)

    def test_a_killed_run_resumes_on_the_same_machine(self):
        local = self.local()
        config = self.config(self.address)
        self.kill_in_the_middle("capture", config)
        self.run_program("capture", "--config", config)
        self.assert_same_bytes(local)

    def test_shards_on_several_machines(self):
        config = self.config(self.address)
        first = self.start("capture", "--config", config, "--shard", "0/3", machine="m0")
        self.wait_for(lambda: self.keys("parts/run/"), first)  # moto's conditions are not atomic
        second = self.start("capture", "--config", config, "--shard", "1/3", machine="m1")
        self.finish(first)
        self.finish(second)
        missing = self.run_program("merge", self.address, status=2)
        self.assertIn("shards are missing: 2/3 (not started)", missing)
        changed = self.run_program("capture", "--config", config, "--shard", "2/4", status=2)
        self.assertIn("holds a run in 3 shards, not in 4", changed)
        self.run_program("capture", "--config", config, "--shard", "2/3", machine="m2")
        self.run_program("merge", self.address, machine="m3")
        self.assert_same_bytes(self.local())
        self.assertEqual(self.keys("parts/"), [])
        self.assertIn("already merged", self.run_program("merge", self.address, machine="m4"))

    def test_two_writers_of_one_run(self):
        local = self.local()
        config = self.config(self.address)
        writers = [self.start("capture", "--config", config, "--quiet", machine=f"m{i}") for i in range(2)]
        ends = [writer.communicate(timeout=60) + (writer.returncode,) for writer in writers]
        self.assertEqual(sorted(end[2] for end in ends), [0, 2], ends)
        lost = next(end for end in ends if end[2] == 2)
        self.assertIn("another process writes shard 0/1 of this run", lost[1])
        self.assert_same_bytes(local)
        self.run_program("gc", self.address, "--older-than", "0s", "--remove")
        self.assert_same_bytes(local)

    def test_another_run_is_not_touched(self):
        self.run_program("capture", "--config", self.config(self.address, samples=10))
        before = self.manifest()
        refused = self.run_program("capture", "--config", self.config(self.address, samples=11), status=2)
        self.assertIn("holds the capture of another run", refused)
        self.assertEqual(self.manifest(), before)
        self.run_program("capture", "--config", self.config(self.address), "--overwrite")
        self.assert_same_bytes(self.local())
        # The replaced folder is garbage.
        old = sum(entry["bytes"] for entry in before["files"])
        garbage = json.loads(self.run_program("gc", self.address, "--older-than", "0s", "--json"))
        self.assertGreaterEqual(garbage["bytes"], old)
        self.assertIn("no garbage", self.run_program("gc", self.address))  # it is not a day old
        self.run_program("gc", self.address, "--older-than", "0s", "--remove")
        self.assertEqual(len(self.keys("files/")), len(self.manifest()["files"]))
        self.assert_same_bytes(self.local())

    def test_throttling_and_aborted_uploads_are_retried(self):
        local = self.local()
        proxy = Proxy(self.server, busy=0.3, cut=0.3)
        self.addCleanup(proxy.stop)
        self.run_program("capture", "--config", self.config(self.address), endpoint=proxy.endpoint,
                         AWS_MAX_ATTEMPTS="20")
        self.assertGreater(proxy.refused, 5)
        self.assertGreater(proxy.cuts, 0)
        self.assert_same_bytes(local)

    def test_a_persistently_throttled_store_is_reported(self):
        proxy = Proxy(self.server, busy=1.0)
        self.addCleanup(proxy.stop)
        said = self.run_program("capture", "--config", self.config(self.address), endpoint=proxy.endpoint,
                                AWS_MAX_ATTEMPTS="3", status=1)
        self.assertIn("503 (SlowDown), after 3 attempts", said)
        self.assertEqual(self.keys(), [])

    def test_inputs_at_addresses(self):
        for path in MODEL.iterdir():
            self.s3.upload_file(str(path), "bucket", f"{self.name}/model/{path.name}")
        self.s3.upload_file(str(TEXTS), "bucket", f"{self.name}/texts.jsonl")
        local = self.local()
        self.run_program("capture", "--config", self.config(self.folder / "out", model=f"{self.address}/model",
                                                            texts=f"{self.address}/texts.jsonl"))
        files = sorted(path.relative_to(local) for path in local.rglob("data.parquet"))
        self.assertGreater(len(files), 0)
        for file in files:
            ours, theirs = (pyarrow.parquet.read_table(folder / file) for folder in (self.folder / "out", local))
            self.assertTrue(ours.equals(theirs), file)
        missing = self.run_program("capture", "--config", self.config("x", model=f"{self.address}/none"), status=2)
        self.assertIn(f"{self.address}/none: nothing is there", missing)


class Statistics(StoreTestCase):
    def test_a_killed_run_resumes_on_another_machine(self):
        local = self.local("stats")
        config = self.config(self.address)
        self.kill_in_the_middle("stats", config)
        self.assertIn("continuing after", self.run_program("stats", "--config", config, machine="two"))
        self.assert_same_bytes(local)

    def test_shards(self):
        config = self.config(self.address)
        for shard in ("0/2", "1/2"):
            self.run_program("stats", "--config", config, "--shard", shard, machine="m" + shard[0])
        self.run_program("merge", self.address, machine="m3")
        self.assertEqual(self.manifest()["kind"], "statistics")
        self.run_program("analyze", self.address, "--out", self.address + "-results")


class Sweeps(StoreTestCase):
    def sweep(self, out, **options):
        base = self.config("unused").read_text()
        file = self.folder / "sweep.yaml"
        base = "".join("  " + line + "\n" for line in base.splitlines() if line and not line.startswith("output"))
        file.write_text(f"name: two\nbase:\n{base}runs:\n"
                        "  - {label: first}\n  - {label: second, overrides: {dataset.max_samples: 190}}\n")
        return self.start("sweep", file, "--out", out, "--no-figures", **options)

    def test_a_killed_run_resumes_on_another_machine(self):
        local = self.folder / "local"
        self.finish(self.sweep(local))
        for journal in ("first", "second"):  # killed in the capture of each
            process = self.sweep(self.address, machine=f"until-{journal}")
            parts = f"two/captures/{journal}/parts/"
            self.wait_for(lambda: len([key for key in self.keys(parts) if "/run/" not in key]) >= 2, process)
            process.send_signal(signal.SIGKILL)
            process.communicate()
        self.assertIn("2 runs in", self.finish(self.sweep(self.address, machine="last")))
        newest = max(self.keys("two/manifest/"))
        files = {entry["name"]: entry["object"] for entry in json.loads(self.content(newest))["files"]}
        expected = {str(path.relative_to(local / "two")) for path in (local / "two").rglob("*")
                    if path.is_file() and path.relative_to(local / "two").parts[0] not in (".locks", "captures")}
        self.assertEqual(set(files), expected)
        for name, key in files.items():
            if not name.endswith(("summary.json", "timings.json")):
                self.assertEqual(self.content(f"{self.name}/two/{key}"), (local / "two" / name).read_bytes(), name)
        self.assertIn("0 done, 2 were done before", self.finish(self.sweep(self.address, machine="another")))


class Readers(StoreTestCase):
    def make(self):
        self.run_program("capture", "--config", self.config(self.address))

    def test_analysis_from_store_to_store(self):
        self.make()
        results = self.address + "/results"
        self.run_program("analyze", self.address, "--out", results, machine="two")
        self.run_program("analyze", self.local(), "--out", "local")
        self.name += "/results"
        files = {entry["name"]: entry["object"] for entry in self.manifest()["files"]}
        local = self.folder / "local"
        self.assertEqual(set(files), {path.name for path in local.iterdir()})
        for name, key in files.items():
            if name not in ("timings.json", "summary.json"):
                self.assertEqual(self.content(f"{self.name}/{key}"), (local / name).read_bytes(), name)
        self.assertEqual(json.loads(self.content(f"{self.name}/{files['summary.json']}"))["capture_hash"],
                         json.loads((local / "summary.json").read_text())["capture_hash"])
        # A second analysis replaces the first; two results at different addresses are compared.
        self.run_program("analyze", self.address, "--out", results, "--max-tokens", "50")
        self.run_program("compare", results, "local", machine="three")

    def test_only_analysed_files_are_downloaded(self):
        self.make()
        heads = [entry["name"] for entry in self.manifest()["files"] if entry["name"].startswith("l")]
        query = next(name for name in heads if name.split("/")[0].endswith("q"))
        layer, head = int(query[1:3]), int(query[4:6])
        self.run_program("analyze", self.address, "--out", "out", "--heads", f"{layer}.{head}", machine="fresh")
        fetched = list((self.folder / "scratch" / "fresh").rglob("data.parquet"))
        self.assertEqual(len(fetched), 2)

    def test_a_truncated_object_is_rejected(self):
        self.make()
        entry = next(entry for entry in self.manifest()["files"] if entry["name"].endswith("q/data.parquet"))
        key = f"{self.name}/{entry['object']}"
        self.s3.put_object(Bucket="bucket", Key=key, Body=self.content(key)[:-100])
        said = self.run_program("analyze", self.address, "--out", "out", machine="fresh", status=2)
        self.assertIn("data.parquet: is damaged", said)
        self.assertFalse((self.folder / "out").exists())


class BadInput(StoreTestCase):
    def refuse(self, address=None, **environment):
        said = self.run_program("capture", "--config", self.config(address or self.address), status=2, **environment)
        self.assertEqual(self.keys(), [])
        return said

    def test_no_such_bucket(self):
        self.assertIn("there is no bucket 'other' at", self.refuse("s3://other/x"))

    def test_no_credentials(self):
        self.assertIn("no credentials were found",
                      self.refuse(AWS_ACCESS_KEY_ID=None, AWS_SECRET_ACCESS_KEY=None))

    def test_unknown_scheme(self):
        self.assertIn("unknown scheme 'ftp'", self.refuse("ftp://bucket/x"))

    def test_an_empty_address_is_reported(self):
        self.assertIn("nothing that qkscope wrote is there",
                      self.run_program("analyze", self.address, "--out", "out", status=2))

    def test_a_foreign_manifest_is_rejected(self):
        self.s3.put_object(Bucket="bucket", Key=f"{self.name}/manifest/00000000.json", Body=b'{"not": "ours"}')
        said = self.run_program("analyze", self.address, "--out", "out", status=2)
        self.assertIn("is no manifest that this version of qkscope wrote", said)

    def test_no_server(self):
        said = self.run_program("capture", "--config", self.config(self.address), status=1,
                                endpoint="http://127.0.0.1:9", AWS_MAX_ATTEMPTS="2")
        self.assertIn("the store cannot be reached, after 2 attempts", said)


class Credentials(StoreTestCase):
    """Server that verifies signatures."""
    AUTHENTICATED = True

    def test_valid_credentials_are_accepted(self):
        self.run_program("capture", "--config", self.config(self.address, samples=10))
        self.assertEqual(self.manifest()["kind"], "capture")
        self.run_program("gc", self.address, "--older-than", "0s", "--remove")

    def test_invalid_credentials_are_rejected(self):
        for wrong in ({"AWS_SECRET_ACCESS_KEY": "wrong"}, {"AWS_ACCESS_KEY_ID": "AKIANOBODY"}):
            said = self.run_program("capture", "--config", self.config(self.address), status=2, **wrong)
            self.assertIn("the store refuses the credentials", said)
        self.assertEqual(self.keys(), [])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]] + sys.argv[2:])
