"""A sweep over branches of one model: the next is fetched while one is at work, and weights leave the cache again."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from hub_test_case import HubTestCase, main, tiny_checkpoint  # noqa: E402

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


class Sweep(HubTestCase):
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

    def test_evicts_what_an_earlier_sweep_left(self):
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


if __name__ == "__main__":
    main()
