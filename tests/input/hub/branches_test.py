"""Checkpoints stored as branches of a repository: listing, selecting and sweeping over them."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from hub_test_case import HubTestCase, main, tiny_checkpoint  # noqa: E402
from stand_in_server import Status  # noqa: E402

CONFIG = """
dataset: {path: texts.jsonl}
model: {name: other/model, dtype: float32}
tokenizer: {name: org/tiny, max_length: 64}
capture:
  sampler: {type: uniform, base_rate: 4.0}
  min_bucket_size: 16
"""
BRANCHES = ["lc-4k-to-32k-step-4000", "stage1-step-100", "stage1-step-20", "stage1-step-3", "stage2-step-200"]


class Branches(HubTestCase):
    def setUp(self):
        super().setUp()
        model = self.hub.model("org/tiny")
        files = tiny_checkpoint()
        model.put(files)
        for branch in BRANCHES:
            model.put(files, branch=branch)
        (self.folder / "capture.yaml").write_text(CONFIG)
        (self.folder / "texts.jsonl").write_text('{"text": "the river and the stone"}\n' * 4)

    def branches(self, *options, **more):
        return self.run_program("hub", "branches", "org/tiny", *options, **more)

    def listed(self, out):
        return [line.split()[-1] for line in out.splitlines() if line.split()[-1] in [*BRANCHES, "main"]]

    def test_branches_are_listed_in_training_order(self):
        out = self.branches()
        order = ["stage1-step-3", "stage1-step-20", "stage1-step-100", "stage2-step-200", "lc-4k-to-32k-step-4000"]
        self.assertEqual(self.listed(out), order)
        self.assertIn("S1-100", out)
        self.assertIn("LC1-4K", out)
        self.assertIn("5 of 6 branches", out)

    def test_branches_are_selected_by_step_and_phase(self):
        self.assertEqual(self.listed(self.branches("--match", "stage1*", "--match", "main")),
                         ["stage1-step-3", "stage1-step-20", "stage1-step-100", "main"])
        self.assertEqual(self.listed(self.branches("--every", 2)),
                         ["stage1-step-3", "stage1-step-100", "lc-4k-to-32k-step-4000"])
        self.assertEqual(self.listed(self.branches("--match", "stage1*", "--log", 2)),
                         ["stage1-step-3", "stage1-step-100"])

    def test_a_sweep_over_branches_runs(self):
        self.branches("--match", "stage1-*", "--every", 2, "--write-sweep", "sweeps/tiny.yaml", "--config", "capture.yaml")
        out = self.run_program("sweep", "sweeps/tiny.yaml", "--no-figures")
        self.assertIn("2 runs in", out)
        self.assertTrue((self.folder / "results/tiny/runs/S1-3/summary.json").exists())
        self.assertTrue((self.folder / "results/tiny/runs/S1-100/summary.json").exists())
        text = (self.folder / "sweeps/tiny.yaml").read_text()
        self.assertIn("base: \"../capture.yaml\"", text)
        refused = self.branches("--write-sweep", "sweeps/tiny.yaml", "--config", "capture.yaml", status=2)
        self.assertIn("--overwrite replaces it", refused)
        self.branches("--write-sweep", "sweeps/tiny.yaml", "--config", "capture.yaml", "--overwrite")
        self.assertIn("LC1-4K", (self.folder / "sweeps/tiny.yaml").read_text())

    def test_branches_of_a_dataset_are_listed(self):
        self.hub.dataset("org/captures").put({"README.md": b""}, branch="step-1")
        self.assertIn("step-1", self.run_program("hub", "branches", "org/captures", "--dataset"))

    def test_invalid_arguments_are_reported(self):
        self.assertIn("has no such model", self.run_program("hub", "branches", "org/none", status=2))
        self.assertIn("not the name of a repository", self.run_program("hub", "branches", "a/b/c", status=2))
        self.assertIn("none of its 6 branches matches", self.branches("--match", "x*", status=2))
        self.assertIn("expected --config FILE", self.branches("--write-sweep", "s.yaml", status=2))
        self.assertIn("--every excludes --log", self.branches("--every", 2, "--log", 2, status=2))
        self.assertIn("--every", self.branches("--every", 0, status=2))
        self.assertIn("no such capture configuration",
                      self.branches("--write-sweep", "s.yaml", "--config", "none.yaml", status=2))
        self.assertIn("HF_HUB_OFFLINE is set", self.branches(status=2, HF_HUB_OFFLINE="1"))
        self.hub.fault("/refs", Status(500), times=99)
        self.assertIn("the Hub is in trouble", self.branches(status=1))


if __name__ == "__main__":
    main()
