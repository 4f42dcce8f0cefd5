"""Scenarios of the simulation: commands, and what must hold after each of them."""

import dataclasses
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]

CONFIG = """
dataset: {{path: {inputs}/texts.jsonl, id_column: id}}
model: {{name: {model}, dtype: float32, device_map: cpu}}
tokenizer: {{max_length: 40}}
capture:
  head_sampling: {{count: 3, seed: 0}}
  sampler: {{type: uniform, base_rate: 4.0}}
  min_bucket_size: 16
stats: {{groups: [A], kinds: [q, k], stages: [post]}}
"""

SWEEP = """
name: small
base:
  dataset: {{path: {inputs}/texts.jsonl, id_column: id}}
  model: {{name: {inputs}/tiny, dtype: float32, device_map: cpu}}
  tokenizer: {{max_length: 40}}
  capture:
    sampler: {{type: uniform, base_rate: 4.0}}
    min_bucket_size: 16
runs:
  - {{label: one, overrides: {{dataset.max_samples: 30}}}}
  - {{label: two, overrides: {{dataset.max_samples: 20}}}}
"""

# Commands whose output, without faults, the scenarios expect. {out} is the folder that they write.
CLEAN = {
    "capture": ("capture", "--config", "{inputs}/run.yaml", "--set", "output.data_root={out}"),
    "old": ("capture", "--config", "{inputs}/run.yaml", "--set", "output.data_root={out}", "--set", "capture.min_bucket_size=8",
            "--set", "capture.head_sampling.count=4"),
    "stats": ("stats", "--config", "{inputs}/run.yaml", "--set", "output.data_root={out}"),
    "results": ("analyze", "{inputs}/capture", "--out", "{out}"),
    "sweep": ("sweep", "{inputs}/sweep.yaml", "--out", "{out}", "--no-figures"),
}


class Violation(Exception):
    """An invariant does not hold."""


def tree(folder):
    """Returns path → content of all files below a folder; the content of a link is its target."""
    return {str(path.relative_to(folder)): os.readlink(path).encode() if path.is_symlink() else path.read_bytes()
            for path in pathlib.Path(folder).rglob("*") if path.is_symlink() or path.is_file()}


def make_inputs(build, folder):
    """Writes checkpoint, texts and configurations, and runs every command of CLEAN."""
    inputs = folder / "inputs"
    subprocess.run([sys.executable, ROOT / "tools/make_tiny_checkpoint.py", "--out", inputs / "tiny", "--layers", "2", "--hidden", "32",
                    "--heads", "2", "--key-heads", "1", "--mlp", "32"], check=True, capture_output=True)
    words = random.Random(1)
    with open(inputs / "texts.jsonl", "w") as file:
        for i in range(80):  # two segments of a journal
            text = " ".join(words.choices("stone river and the cold light".split(), k=words.randint(1, 6)))
            file.write(json.dumps({"id": f"doc-{i}", "text": text}) + "\n")
    (inputs / "run.yaml").write_text(CONFIG.format(inputs=inputs, model=inputs / "tiny"))
    (inputs / "hub.yaml").write_text(CONFIG.format(inputs=inputs, model="org/tiny"))
    (inputs / "sweep.yaml").write_text(SWEEP.format(inputs=inputs))
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "QKSCOPE_", "SLURM_"))}
    for name, words in CLEAN.items():
        command = [word.format(inputs=inputs, out=inputs / name) for word in words]
        subprocess.run([build / "bin/qkscope", *command, "--quiet"], check=True, env=dict(environment, HOME=str(folder)))


def load_inputs(base):
    base.clean = {name: tree(base.inputs / name) for name in CLEAN}
    base.model = tree(base.inputs / "tiny")


@dataclasses.dataclass(eq=False)
class Task:
    words: tuple
    environment: dict = dataclasses.field(default_factory=dict)
    refusals: tuple = ("another",)  # messages of a task that gives way to another one
    stands_for: "Task" = None       # the task of the scenario whose work this task does

    def may_be_refused(self, out):
        return any(text in out for text in self.refusals)


class Scenario:
    weight = 10      # how often it is drawn, relative to the others
    together = 0.15  # probability that two tasks run at the same time
    shares = False   # whether a task may succeed and leave work to another one that runs at the same time
    foreign = {"notes.txt": b"mine", "other/data.parquet": b"not a capture", ".hidden": b"mine too"}

    def __init__(self, world):
        self.world, self.random = world, world.random
        self.clean, self.inputs = world.base.clean, world.base.inputs
        self.out = world.disk / "out"

    def prepare(self):
        self.add_foreign(self.out)

    def add_foreign(self, folder):
        """Puts files of somebody else into the folder that the commands write."""
        for name, content in self.foreign.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)

    def expect(self, condition, message):
        if not condition:
            raise Violation(message)

    def expect_foreign(self, folder):
        for name, content in self.foreign.items():
            path = folder / name
            self.expect(path.is_file() and path.read_bytes() == content, f"{path} of somebody else is changed or gone")

    def expect_equal(self, found, expected, where):
        for name in sorted(set(found) | set(expected)):
            self.expect(name in found, f"{where}: {name} is missing")
            self.expect(name in expected, f"{where}: {name} should not be there")
            self.expect(found[name] == expected[name], f"{where}: {name} differs from the run without faults")

    def task(self, *words, **environment):
        return Task((*words, "--quiet", "--threads", self.random.randint(1, 3)), environment)

    def variant(self, task):
        """Returns the task, or another one that does the same work now."""
        return task

    def is_complete(self):
        """Returns whether the output is there and marked as finished."""
        raise NotImplementedError

    def check_end(self):
        """Checks the state at the end, when all tasks have succeeded without faults."""


class Capture(Scenario):
    """One capture into a folder."""
    marker, expected = "_saver_state.json", ("capture",)

    def words(self):
        words = ["capture", "--config", self.inputs / "run.yaml", "--set", f"output.data_root={self.out}"]
        return words + (["--set", "output.assemble_ahead=true"] if self.random.random() < 0.3 else [])

    def stages(self):
        return [[self.task(*self.words())]]

    def own_files(self):
        return {name: content for name, content in tree(self.out).items() if name not in self.foreign}

    def is_complete(self):
        return (self.out / self.marker).exists()

    def check(self):
        self.expect_foreign(self.out)
        if not (self.out / self.marker).exists():
            return
        found = self.own_files()
        whole = [all(found.get(name) == content for name, content in self.clean[kind].items()) for kind in self.expected]
        self.expect(any(whole), f"{self.marker} is there, but files are missing or differ")

    def check_end(self):
        self.expect_equal(self.own_files(), self.clean[self.expected[-1]], "out")


class Overwrite(Capture):
    """A capture that replaces one of other options."""
    weight = 5
    expected = ("old", "capture")

    def prepare(self):
        shutil.copytree(self.inputs / "old", self.out)
        super().prepare()

    def words(self):
        return [*super().words(), "--overwrite"]

    def variant(self, task):
        """Continues without --overwrite what a command with --overwrite began."""
        if (self.out / self.marker).exists() or self.random.random() < 0.5:
            return task
        return dataclasses.replace(task, words=tuple(word for word in task.words if word != "--overwrite"), stands_for=task)


class Statistics(Capture):
    marker, expected = "stats_state.json", ("stats",)

    def words(self):
        return ["stats", "--config", self.inputs / "run.yaml", "--set", f"output.data_root={self.out}"]


class Shards(Capture):
    """Tasks of a cluster capture shards; one merges them."""
    together = 0.5

    def stages(self):
        if not hasattr(self, "made"):
            count = self.random.randint(2, 3)
            self.made = [[self.task(*super(Shards, self).words(), "--shard", f"{i}/{count}") for i in range(count)],
                         [Task(("merge", self.out, "--quiet"))]]
        return self.made


class Results(Capture):
    """An analysis. Its summary has times and paths, which differ."""
    marker, expected = "summary.json", ("results",)
    changing = ("summary.json", "timings.json", ".analyze.lock")

    def words(self):
        return ["analyze", self.inputs / "capture", "--out", self.out]

    def own_files(self):
        return {name: content for name, content in super().own_files().items() if pathlib.Path(name).name not in self.changing}

    def check(self):
        clean = self.clean["results"]
        self.clean = {"results": {name: content for name, content in clean.items() if pathlib.Path(name).name not in self.changing}}
        super().check()


class Sweep(Scenario):
    """A sweep over two runs, in one process or as tasks of a cluster."""
    together = 0.4
    shares = True
    foreign = {"notes.txt": b"mine", "small/notes.txt": b"mine"}
    changing = ("summary.json", "timings.json", ".analyze.lock")

    def stages(self):
        words = ["sweep", self.inputs / "sweep.yaml", "--out", self.out, "--no-figures"]
        if not hasattr(self, "made"):
            tasks = [[self.task(*words, "--jobs", self.random.randint(1, 2))]]
            if self.random.random() < 0.4:
                tasks = [[self.task(*words, "--part", "capture", "--shard", f"{i}/2") for i in range(2)],
                         [self.task(*words, "--part", "merge", "--shards", 2)], [self.task(*words, "--part", "analyse")],
                         [self.task(*words, "--part", "tables")]]
            self.made = tasks
        return self.made

    def is_complete(self):
        return all((self.out / "small" / name).exists() for run in ("one", "two")
                   for name in (f"captures/{run}/_saver_state.json", f"runs/{run}/summary.json", "runs.json"))

    def contents(self, files):
        return {name: content for name, content in files.items()
                if pathlib.Path(name).name not in self.changing and "/.locks/" not in name and name not in self.foreign}

    def check(self):
        self.expect_foreign(self.out)
        found, clean = tree(self.out), self.clean["sweep"]
        for marker, prefix in (("_saver_state.json", "captures"), ("summary.json", "runs")):
            for run in ("one", "two"):
                folder = f"small/{prefix}/{run}/"
                if folder + marker in found:
                    for name, content in self.contents(clean).items():
                        self.expect(not name.startswith(folder) or found.get(name) == content, f"{name} is missing or differs")

    def check_end(self):
        self.expect_equal(self.contents(tree(self.out)), self.contents(self.clean["sweep"]), "out")


class Publish(Scenario):
    """Uploads a capture to a branch of a dataset on the Hub."""
    together = 0.2

    def prepare(self):
        shutil.copytree(self.inputs / "capture", self.out)
        self.whole = tree(self.out)
        repository = self.world.hub.dataset("org/vectors")
        repository.put({"README.md": b"theirs", "l00h00q/data.parquet": b"theirs"}, branch="theirs")
        self.theirs = repository.files("theirs")

    def stages(self):
        return [[Task(("hub", "publish", self.out, "--repo", "org/vectors", "--branch", "texts"),
                      refusals=("another", "commit has happened"))]]

    def published(self):
        repository = self.world.hub.repositories[("datasets", "org/vectors")]
        there = repository.files("texts") if "texts" in repository.branches else {}
        there.pop(".gitattributes", None)
        return there if set(there) != {"README.md"} else {}  # a new branch has the card of main

    def is_complete(self):
        return self.published() == self.whole

    def check(self):
        repository = self.world.hub.repositories[("datasets", "org/vectors")]
        self.expect(repository.files("theirs") == self.theirs, "a branch of somebody else is changed")
        self.expect(self.published() in ({}, self.whole), "the branch holds a part of the capture")

    def check_end(self):
        self.expect_equal(self.published(), self.whole, "the branch")
        commits = [branch for branch, _ in self.world.hub.repositories[("datasets", "org/vectors")].log if branch == "texts"]
        self.expect(len(commits) == 1, f"{len(commits)} commits for one capture")


class Download(Capture):
    """A capture of a model on the Hub, whose cache two processes may share. Links of the cache are not part of the disk model."""
    together = 0.4

    def prepare(self):
        super().prepare()
        self.world.hub.model("org/tiny").put(self.world.base.model)
        self.world.concurrent = True

    def stages(self):
        if not hasattr(self, "made"):
            self.made = [[Task(("hub", "download", "org/tiny"))],
                         [self.task("capture", "--config", self.inputs / "hub.yaml", "--set", f"output.data_root={self.out}")]]
        return self.made

    def check(self):
        self.expect_foreign(self.out)
        for link in (self.world.disk / "hf/hub").glob("models--org--tiny/snapshots/*/*"):
            if link.suffix != ".tmp":
                self.expect(link.exists() and link.read_bytes() == self.world.base.model[link.name], f"{link} is damaged")

    def check_end(self):
        expected, found = self.clean["capture"], self.own_files()
        heads = {name for name in expected if name.endswith("data.parquet")}  # the model's name is in their metadata
        self.expect(set(found) == set(expected) and heads, "files are missing")


class FileStore(Scenario):
    """A capture into a file:// store from machines that share nothing else; a shard or the whole per task."""
    together = 0.3
    foreign = {"notes.txt": b"mine", "files/mine/data.parquet": b"not a capture"}
    refusals = ("another", "at work", "meanwhile", "other writer")

    def __init__(self, world):
        super().__init__(world)
        self.address = f"file://{self.out}"

    def task(self, *words):
        machine = self.random.randint(1, 3)
        return Task((*words, "--quiet"), {"QKSCOPE_SCRATCH": str(self.world.disk / f"scratch-{machine}")}, self.refusals)

    def stages(self):
        if not hasattr(self, "made"):
            words = ["capture", "--config", self.inputs / "run.yaml", "--set", f"output.data_root={self.address}"]
            shards = [self.task(*words, "--shard", f"{i}/2") for i in range(2)]
            self.made = [[self.task(*words)]] if self.random.random() < 0.5 else [shards, [self.task("merge", self.address)]]
        return self.made

    def objects(self):
        return tree(self.out)

    def stored(self):
        """Returns name → content of the files that the newest manifest lists, or None."""
        objects = self.objects()
        manifests = [name for name in objects if name.startswith("manifest/") and name.endswith(".json")]
        if not manifests:
            return None
        entries = json.loads(objects[max(manifests)])["files"]
        return {entry["name"]: objects.get(entry["object"]) for entry in entries}

    def check(self):
        objects = self.objects()
        for name, content in self.foreign.items():
            self.expect(objects.get(name) == content, f"{name} of somebody else is changed or gone")
        stored = self.stored()
        if stored is not None:
            self.expect_equal(stored, self.clean["capture"], "the store")

    def is_complete(self):
        return self.stored() is not None


class S3Store(FileStore):
    """The same with a store behind HTTP. Fewer, because the client of S3 takes long to start."""
    weight = 2

    def __init__(self, world):
        super().__init__(world)
        self.address = "s3://bucket/out"

    def prepare(self):
        for name, content in self.foreign.items():
            self.world.store.objects[f"out/{name}"] = content

    def objects(self):
        return {key.removeprefix("out/"): content for key, content in self.world.store.objects.items()}


ALL = {"capture": Capture, "overwrite": Overwrite, "stats": Statistics, "shards": Shards, "results": Results, "sweep": Sweep,
       "publish": Publish, "download": Download, "file store": FileStore, "s3 store": S3Store}
