"""Base class of the Hub tests: starts a fake Hub, creates a folder and runs the program.

Each test file is a program: FILE BIN_FOLDER [WORD ...]
"""

import concurrent.futures
import functools
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

from stand_in_hub import TOKEN, StandInHub

ROOT = pathlib.Path(__file__).resolve().parents[3]
BIN = pathlib.Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT / "build" / "bin"


@functools.cache
def tiny_checkpoint():
    """Returns the files of the project's tiny checkpoint as name → bytes."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "tiny"
        subprocess.run([sys.executable, ROOT / "tools" / "make_tiny_checkpoint.py", "--out", out],
                       check=True, capture_output=True)
        return {path.name: path.read_bytes() for path in out.iterdir()}


CONFIG = """
dataset: {{path: {folder}/texts.jsonl}}
model: {{name: {model}, dtype: float32}}
tokenizer: {{max_length: 64}}
capture:
  head_sampling: {{count: {heads}, seed: 0}}
  sampler: {{type: uniform, base_rate: 4.0}}
  min_bucket_size: 16
output: {{data_root: {folder}/{root}{publish}}}
"""


class HubTestCase(unittest.TestCase):
    HUB = {}  # options of the stand-in

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="qkscope-hub-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.hub = StandInHub(**self.HUB)
        self.addCleanup(self.hub.__exit__)
        self.cache = self.folder / "home" / "hub"

    def environment(self, token=TOKEN, **more):
        clean = {name: value for name, value in os.environ.items()
                 if not name.startswith(("HF_", "HUGGING", "TRANSFORMERS_", "XDG_"))}
        clean.update(HOME=str(self.folder), HF_HOME=str(self.folder / "home"), HF_ENDPOINT=self.hub.endpoint,
                     NO_PROXY="127.0.0.1,localhost")
        clean.update(more)
        if token:
            clean["HF_TOKEN"] = token
        return clean

    def start(self, *arguments, program="qkscope", **environment):
        return subprocess.Popen([BIN / program, *map(str, arguments)], text=True, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=self.folder,
                                env=self.environment(**environment))

    def run_program(self, *arguments, status=0, **options):
        """Runs the program, checks its exit status and returns its output."""
        process = self.start(*arguments, **options)
        out, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, status, f"{arguments}\n{out}\n{err}")
        self.assertNotIn(TOKEN, out + err, "the token was printed")
        return out + err

    def download(self, *arguments, **options):
        return self.run_program("download", *arguments, **options)

    def capture(self, root="capture", heads=3, publish="", model=None, status=0, options=(), **environment):
        """Runs a capture with the tiny checkpoint; `publish` is appended to the output section."""
        if model is None:
            model = self.folder / "tiny"
            model.mkdir(exist_ok=True)
            for name, content in tiny_checkpoint().items():
                (model / name).write_bytes(content)
        texts = "".join(json.dumps({"text": f"stone and river {i} " * 5}) + "\n" for i in range(6))
        (self.folder / "texts.jsonl").write_text(texts)
        (self.folder / f"{root}.yaml").write_text(
            CONFIG.format(folder=self.folder, model=model, heads=heads, root=root, publish=publish))
        return self.run_program("--config", self.folder / f"{root}.yaml", *options, program="sniff-qk", status=status,
                                **environment)

    def snapshot(self, repo_id="org/tiny", kind="models", revision="main"):
        repository = self.hub.repositories[(kind, repo_id)]
        folder = self.cache / f"{kind}--{repo_id.replace('/', '--')}"
        return folder / "snapshots" / repository.resolve(revision)

    def assert_snapshot(self, names, repo_id="org/tiny", kind="models", revision="main"):
        """Checks that the snapshot has exactly these files, as links to blobs with the Hub's content and hash."""
        folder = self.snapshot(repo_id, kind, revision)
        files = self.hub.repositories[(kind, repo_id)].commits[folder.name]
        there = {str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir()}
        self.assertEqual(there, set(names))
        for name in names:
            self.assertEqual((folder / name).read_bytes(), files[name].content, name)
            self.assertEqual((folder / name).resolve().name, files[name].etag)
            self.assertFalse(os.path.isabs(os.readlink(folder / name)))

    def assert_nothing_half_done(self):
        left = [path for path in self.cache.rglob("*") if path.name.endswith((".incomplete", ".tmp"))]
        self.assertEqual(left, [])


class ClientTestCase(HubTestCase):
    def python(self, script, *arguments, **environment):
        """Runs a script in a separate process, because the clients read environment variables on import."""
        environment = {"HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1", **environment}
        done = subprocess.run([sys.executable, "-c", script, *map(str, arguments)], text=True, capture_output=True,
                              env=self.environment(**environment), timeout=120)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout.strip()


def all_tests(suite):
    for item in suite:
        yield from all_tests(item) if isinstance(item, unittest.TestSuite) else [item]


def run_one(test):
    result = unittest.TestResult()
    begin = time.monotonic()
    test.run(result)
    trouble = [text for _, text in result.failures + result.errors]
    line = f"{'FAIL' if trouble else 'ok  '} {time.monotonic() - begin:6.1f} s  {test.id()}\n"
    sys.stdout.write(line + "".join(trouble))
    sys.stdout.flush()
    return not trouble


def main():
    """Runs the tests of the calling file, or those whose names hold a word given as an option. They wait for
    servers and pauses most of the time, so several run at once."""
    words = sys.argv[2:]
    tests = [test for test in all_tests(unittest.defaultTestLoader.loadTestsFromModule(sys.modules["__main__"]))
             if not words or any(word in test.id() for word in words)]
    tiny_checkpoint()
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        passed = list(pool.map(run_one, tests))
    print(f"{sum(passed)} of {len(tests)} passed")
    sys.exit(0 if tests and all(passed) else 1)
