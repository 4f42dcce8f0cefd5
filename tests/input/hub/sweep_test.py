"""Sweep over branches of one model: prefetches the next checkpoint and evicts weights after use."""

import json
import pathlib
import shutil
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from hub_test_case import HubTestCase, main, tiny_checkpoint  # noqa: E402
from stand_in_server import Status  # noqa: E402

SWEEP = """
name: steps
base:
  dataset: {path: texts.jsonl}
  model: {name: org/tiny, dtype: float32}
  tokenizer: {max_length: 64}
  capture:
    sampler: {type: uniform, base_rate: 4.0}
    min_bucket_size: 16
runs:
  - {label: one, overrides: {model.revision: step-1}}
  - {label: two, overrides: {model.revision: step-2}}
  - {label: again, overrides: {model.revision: step-2, capture.min_bucket_size: 8}}
"""


class SweepTestCase(HubTestCase):
    def setUp(self):
        super().setUp()
        model = self.hub.model("org/tiny")
        files = tiny_checkpoint()
        small = {name: content for name, content in files.items() if not name.endswith(".safetensors")}
        model.put(small)
        for step in (1, 2):
            weights = files["model.safetensors"][:-4] + bytes([0, 0, 0, step])  # another last number
            model.put({**small, "model.safetensors": weights}, branch=f"step-{step}")
        (self.folder / "texts.jsonl").write_text('{"text": "the river and the stone"}\n' * 4)
        (self.folder / "sweep.yaml").write_text(SWEEP)

    def sweep(self, *options, **more):
        return self.run_program("sweep", "sweep.yaml", "--no-figures", *options, **more)

    def weights(self, step):
        return (self.snapshot(revision=f"step-{step}") / "model.safetensors").exists()


class Sweep(SweepTestCase):
    def test_fetches_every_checkpoint_once(self):
        self.sweep()
        self.assertEqual(len(self.hub.asked("resolve/step-", "GET")), 0, "files are asked for by commit")
        self.assertTrue(self.weights(1) and self.weights(2))
        self.assertTrue((self.folder / "results/steps/runs/again/summary.json").exists())

    def test_evicts_weights_after_their_last_run(self):
        out = self.sweep("--evict")
        self.assertIn("one: ", out)
        self.assertFalse(self.weights(1) or self.weights(2))
        self.assertTrue((self.snapshot(revision="step-2") / "config.json").exists())
        asked = len([r for r in self.hub.requests if "model.safetensors" in r.path and r.method == "GET"])
        self.sweep("--evict")  # all done: nothing is downloaded again
        self.assertEqual(len([r for r in self.hub.requests if "model.safetensors" in r.path and r.method == "GET"]), asked)

    def test_evicts_weights_of_an_earlier_sweep(self):
        self.sweep()
        self.assertTrue(self.weights(1) and self.weights(2))
        self.sweep("--evict", "--jobs", "2")
        self.assertFalse(self.weights(1) or self.weights(2))

    def test_a_missing_branch_fails_its_run_alone(self):
        text = SWEEP.replace("step-1}", "step-9}")
        (self.folder / "sweep.yaml").write_text(text)
        out = self.sweep(status=2)
        self.assertIn("step-9", out)
        self.assertTrue((self.folder / "results/steps/runs/two/summary.json").exists())

    def test_a_dry_run_downloads_no_weights(self):
        out = self.sweep("--dry-run")
        self.assertIn("to capture", out)
        self.assertFalse(self.weights(1) or self.weights(2))


REPO = "org/vectors"


class Publishing(SweepTestCase):
    def setUp(self):
        super().setUp()
        publish = f"publish: {{repo: {REPO}, branch: '{{label}}-texts', private: true}}\n"
        (self.folder / "sweep.yaml").write_text(SWEEP + publish)

    @property
    def repository(self):
        return self.hub.repositories[("datasets", REPO)]

    def commits(self, label):
        return [sha for name, sha in self.repository.log if name == f"{label}-texts"]

    def writes(self):
        return [r for r in self.hub.requests if r.method != "GET"]

    def assert_published(self, label):
        folder = self.folder / "results/steps/captures" / label
        here = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        there = self.repository.files(f"{label}-texts")
        there.pop(".gitattributes", None)
        self.assertEqual(there, here)
        self.assertEqual(len(self.commits(label)), 1)

    def test_each_run_goes_to_its_branch(self):
        out = self.sweep()
        self.assertIn("3 published, 0 were published before", out)
        for label in ("one", "two", "again"):
            self.assert_published(label)
        self.assertTrue(self.repository.private)
        runs = json.loads((self.folder / "results/steps/runs.json").read_text())["runs"]
        self.assertEqual([run["published"] for run in runs], [f"{REPO}@{r['label']}-texts" for r in runs])

    def test_published_runs_are_not_checked_again(self):
        self.sweep()
        self.hub.requests.clear()
        self.assertIn("0 published, 3 were published before", self.sweep())
        self.assertEqual(self.hub.requests, [])
        shutil.rmtree(self.folder / "results/steps/published")  # the Hub is asked, nothing is sent
        self.assertIn("0 published, 3 were published before", self.sweep())
        self.assertEqual(self.writes(), [])

    def test_a_failed_publish_keeps_the_results_and_is_retried(self):
        self.hub.fault("/commit/two-texts", Status(400), times=9)
        out = self.sweep(status=1)
        self.assertIn("1 of 3 runs are not published: two", out)
        self.assertIn("3 done", out)
        runs = json.loads((self.folder / "results/steps/runs.json").read_text())["runs"]
        self.assertEqual([run["state"] for run in runs], ["done"] * 3)
        self.assertNotIn("published", runs[1])
        self.hub.faults.clear()
        self.hub.requests.clear()
        out = self.sweep()
        self.assertIn("0 done, 3 were done before", out)
        self.assertIn("1 published, 2 were published before", out)
        self.assertEqual(self.hub.asked("one-texts"), [])
        self.assert_published("two")

    def test_another_capture_is_published_again(self):
        self.sweep("--only", "one")
        self.sweep("--only", "one", "--set", "capture.min_bucket_size=8", "--overwrite")
        self.assertEqual(len(self.commits("one")), 2)

    def test_jobs_and_shards(self):
        self.sweep("--jobs", "3")
        for label in ("one", "two", "again"):
            self.assert_published(label)

    def test_publishing_needs_a_token_and_can_be_disabled(self):
        out = self.sweep(token=None)
        self.assertIn("nothing will be published", out)
        self.assertIn("3 done", out)
        self.sweep("--no-publish")
        self.assertNotIn(("datasets", REPO), self.hub.repositories)
        out = self.sweep("--dry-run")
        self.assertIn(f"captured, analysed, to publish to {REPO}@one-texts", out)
        self.sweep()
        self.assert_published("one")

    def test_a_refusal_is_bad_input(self):
        self.hub.may_write = False
        self.assertIn("3 of 3 runs are not published", self.sweep(status=2))


if __name__ == "__main__":
    main()
