"""Sweeps over all checkpoints of repositories: cost estimates, at most two checkpoints on disk, combined tables, SQL."""

import json
import pathlib
import re
import shutil
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import duckdb  # noqa: E402
from hub_test_case import ROOT, HubTestCase, main, tiny_checkpoint  # noqa: E402
from stand_in_server import Status  # noqa: E402

SWEEP = """
name: {name}
base:
  dataset: {{path: texts.jsonl}}
  model: {{dtype: float32}}
  tokenizer: {{max_length: 64}}
  capture:
    sampler: {{type: uniform, base_rate: 4.0}}
    min_bucket_size: 16
checkpoints:
  - repository: {repository}
    {choice}
"""
BY_RULE = "branches:\n      step-{step}: [1, 2, 4, {from: 10, to: 30, every: 10}]"
STEPS = (1, 2, 4, 10, 20, 30)


class AtlasTestCase(HubTestCase):
    def setUp(self):
        super().setUp()
        for repository in ("org/tiny", "org/other"):
            self.put_checkpoints(repository)
        (self.folder / "texts.jsonl").write_text('{"text": "the river and the stone, and what the water knew"}\n' * 4)

    def put_checkpoints(self, repository):
        model = self.hub.model(repository)
        files = tiny_checkpoint()
        small = {name: content for name, content in files.items() if not name.endswith(".safetensors")}
        model.put(small)
        self.weights = len(files["model.safetensors"])
        for step in STEPS:
            weights = files["model.safetensors"][:-8] + repository[4:8].encode() + bytes([0, 0, 0, step])
            model.put({**small, "model.safetensors": weights}, branch=f"step-{step}")

    def write_sweep(self, name="steps", repository="org/tiny", choice=BY_RULE, more=""):
        (self.folder / f"{name}.yaml").write_text(SWEEP.format(name=name, repository=repository, choice=choice) + more)

    def sweep(self, *options, name="steps", **more):
        return self.run_program("sweep", f"{name}.yaml", "--no-figures", *options, **more)

    def labels(self, name="steps"):
        runs = json.loads((self.folder / f"results/{name}/runs.json").read_text())["runs"]
        return [run["label"] for run in runs]

    def downloads(self):
        return len([r for r in self.hub.requests if r.path.endswith("model.safetensors") and r.method == "GET"])

    def weights_on_disk(self):
        """Current disk usage in bytes of complete and incomplete weight blobs."""
        total = 0
        for folder in self.cache.glob("models--*/blobs"):
            for path in folder.iterdir():
                try:
                    size = path.stat().st_size
                except FileNotFoundError:
                    continue
                total += size if path.name.endswith(".incomplete") or size >= self.weights else 0
        return total


class Peak(threading.Thread):
    """Polls the disk usage in a background thread."""

    def __init__(self, look):
        super().__init__()
        self.look, self.most, self.ending = look, 0, threading.Event()
        self.start()

    def run(self):
        while not self.ending.is_set():
            self.most = max(self.most, self.look())
            time.sleep(0.002)

    def end(self):
        self.ending.set()
        self.join()
        return self.most


class Disk(AtlasTestCase):
    def test_at_most_two_checkpoints_are_on_disk(self):
        self.write_sweep()
        peak = Peak(self.weights_on_disk)
        try:
            self.sweep("--evict")
        finally:
            most = peak.end()
        self.assertLessEqual(most, 2 * self.weights)
        self.assertGreater(most, self.weights, "nothing was fetched ahead")
        self.assertEqual(self.weights_on_disk(), 0)
        self.assertEqual(self.downloads(), len(STEPS))

    def test_failed_runs_leave_no_weights(self):
        self.write_sweep(more="    overrides: {capture.heads: [99]}\n")
        peak = Peak(self.weights_on_disk)
        try:
            out = self.sweep("--evict", status=2)
        finally:
            most = peak.end()
        self.assertIn("6 of 6 runs failed", out)
        self.assertLessEqual(most, 2 * self.weights)
        self.assertEqual(self.weights_on_disk(), 0)

    def test_without_evict_all_weights_stay(self):
        self.write_sweep()
        self.sweep()
        self.assertEqual(self.weights_on_disk(), len(STEPS) * self.weights)

    def test_statistics_runs_prefetch_too(self):
        self.write_sweep(more="capture: false\nstatistics: true\nstats: {groups: [A]}\n")
        peak = Peak(self.weights_on_disk)
        try:
            self.sweep("--evict")
        finally:
            most = peak.end()
        self.assertLessEqual(most, 2 * self.weights)
        self.assertGreater(most, self.weights, "nothing was fetched ahead")


class Cost(AtlasTestCase):
    def cost(self, out):
        """Parses the summary: bytes to download, bytes on disk, tokens, FLOP."""
        weights = re.search(r"^weights +(.+) to download, at most (.+) of them on the disk", out, re.M)
        tokens = re.search(r"^in all +([\d,]+) tokens", out, re.M)
        work = re.search(r"^work +(\S+) FLOP, (.+) at (\S+)FLOP/s; download (.+) at (\S+) per second", out, re.M)
        return weights.groups(), int(tokens[1].replace(",", "")), float(work[1]), work.groups()[1:]

    def shown(self, count):
        size = count * self.weights / 1024
        return f"{size:.1f} KiB" if size < 1024 else f"{size / 1024:.1f} MiB"

    def test_plan_needs_only_file_sizes(self):
        self.write_sweep()
        (to_download, disk), tokens, flop, _ = self.cost(self.sweep("--dry-run"))
        self.assertEqual(self.downloads(), 0)
        self.assertFalse((self.folder / "results").exists())
        self.assertEqual((to_download, disk), (self.shown(6), self.shown(6)))
        per_run = tokens // len(STEPS)
        one = self.sweep("--dry-run", "--log", "1")
        (to_download, disk), tokens, one_flop, _ = self.cost(one)
        self.assertEqual((to_download, disk, tokens), (self.shown(1), self.shown(1), per_run))
        self.assertAlmostEqual(flop / one_flop, len(STEPS), delta=0.02 * len(STEPS))
        (to_download, disk), _, _, _ = self.cost(self.sweep("--dry-run", "--evict"))
        self.assertEqual((to_download, disk), (self.shown(6), self.shown(2)))

    def test_finished_and_cached_runs_cost_nothing(self):
        self.write_sweep()
        self.sweep("--log", "2")  # steps 1 and 30; the weights stay
        out = self.sweep("--dry-run")
        self.assertEqual(self.cost(out)[0][0], self.shown(4))
        self.assertEqual(out.count("captured, analysed"), 2)

    def test_statistics_are_planned_too(self):
        self.write_sweep()
        _, tokens, flop, _ = self.cost(self.sweep("--dry-run", "--log", "1"))
        self.write_sweep(more="statistics: true\nstats: {groups: [A]}\n")
        _, both_tokens, both_flop, _ = self.cost(self.sweep("--dry-run", "--log", "1"))
        self.assertEqual(both_tokens, tokens)  # the same passes
        self.assertGreater(both_flop, flop)
        _, apart_tokens, apart_flop, _ = self.cost(self.sweep("--dry-run", "--log", "1", "--device", "cpu,cpu"))
        self.assertEqual(apart_tokens, 2 * tokens)
        self.assertAlmostEqual(apart_flop, both_flop + flop, delta=0.01 * apart_flop)
        self.write_sweep(more="capture: false\nstatistics: true\nstats: {groups: [A]}\n")
        out = self.sweep("--dry-run", "--log", "1")
        self.assertIn("statistics to make: 4 examples", out)
        self.assertNotIn("captured", out)
        self.sweep("--log", "1")
        self.assertIn("captured, analysed", self.sweep("--dry-run", "--log", "1"))

    def test_speeds_are_stated(self):
        self.write_sweep()
        _, _, flop, (time_taken, speed, download, bandwidth) = self.cost(
            self.sweep("--dry-run", "--speed", "1M", "--bandwidth", "1KB"))
        self.assertEqual((speed, bandwidth), ("1M", "1KB"))
        self.assertNotEqual(time_taken, "0 s")
        self.assertRegex(download, "h|min")
        self.assertIn("--speed", self.sweep("--dry-run", "--speed", "fast", status=2))
        self.assertIn("--speed", self.sweep("--dry-run", "--speed", "-3T", status=2))
        self.assertIn("--bandwidth", self.sweep("--dry-run", "--bandwidth", "slow", status=2))


class Checkpoints(AtlasTestCase):
    def test_a_selection_can_be_extended(self):
        self.write_sweep()
        self.sweep("--log", "2")
        self.assertEqual(self.labels(), ["1", "30"])
        self.assertIn("4 done, 2 were done before", self.sweep("--every", "1"))
        self.assertEqual(self.labels(), [str(step) for step in STEPS])
        self.assertEqual(self.downloads(), len(STEPS))

    def test_branch_lists_are_cached(self):
        self.write_sweep(choice="match: 'step-*'\n    prefix: tiny-")
        self.sweep("--log", "2", "--dry-run")
        self.assertFalse((self.folder / "results").exists())
        self.sweep("--log", "2")
        self.assertEqual(self.labels(), ["tiny-1", "tiny-30"])
        self.hub.model("org/tiny").put({"config.json": b"{}"}, branch="step-99")
        self.hub.requests.clear()
        self.sweep("--log", "2")
        self.assertEqual(self.labels(), ["tiny-1", "tiny-30"])
        self.assertEqual(self.hub.asked("/refs"), [])
        shutil.rmtree(self.folder / "results/steps/branches")
        self.assertIn("tiny-99", self.sweep("--log", "2", "--dry-run", status=2))

    def test_a_missing_branch_fails_only_its_run(self):
        self.write_sweep(choice="branches:\n      step-{step}: [1, 3]")
        self.assertIn("step-3", self.sweep("--dry-run", status=2))
        out = self.sweep(status=2)
        self.assertIn("1 of 2 runs failed: 3", out)
        self.assertIn("did you mean step-1?", out)

    def test_an_unreachable_hub_is_reported(self):
        self.write_sweep(choice="match: 'step-*'")
        self.hub.fault("/refs", Status(404), times=9)
        self.assertIn("org/tiny", self.sweep(status=2))
        self.assertFalse((self.folder / "results").exists())


class Combine(AtlasTestCase):
    def setUp(self):
        super().setUp()
        self.write_sweep("tiny")
        self.write_sweep("other", repository="org/other", choice="match: 'step-*'\n    log: 3\n    prefix: o-")
        self.sweep("--log", "3", name="tiny")
        self.sweep(name="other")

    def combine(self, *arguments, **options):
        return self.run_program("combine", *arguments, **options)

    def ask(self, query):
        """Returns the rows. Opens one connection per query because tests run in parallel."""
        for folder in ("atlas", "results"):
            query = query.replace(f"'{folder}/", f"'{self.folder}/{folder}/")
        with duckdb.connect() as connection:
            return connection.execute(query).fetchall()

    def test_combined_tables_have_the_rows_of_all_sweeps(self):
        out = self.combine("results/tiny", "results/other", "--out", "atlas")
        self.assertIn("tables are in atlas", out)
        for name in ("overview", "taxonomy", "head_metrics"):
            rows = self.ask(f"SELECT sweep, count(*) FROM 'atlas/{name}.parquet' GROUP BY sweep ORDER BY sweep")
            expected = [(sweep, *self.ask(f"SELECT count(*) FROM 'results/{sweep}/{name}.parquet'")[0])
                        for sweep in ("other", "tiny")]
            self.assertEqual(rows, expected, name)
        runs = self.ask("SELECT model, checkpoint, step FROM 'atlas/runs.parquet' WHERE sweep = 'other' ORDER BY step")
        self.assertEqual(runs, [("o-1", "org/other", 1), ("o-4", "org/other", 4), ("o-30", "org/other", 30)])

    def test_combined_values_equal_those_of_the_sweeps(self):
        self.combine("results/tiny", "results/other", "--out", "atlas")
        for sweep in ("tiny", "other"):
            ours = self.ask(f"SELECT * EXCLUDE sweep FROM 'atlas/qk.parquet' WHERE sweep = '{sweep}'")
            theirs = self.ask(f"SELECT * FROM 'results/{sweep}/qk.parquet'")
            self.assertEqual(list(map(repr, ours)), list(map(repr, theirs)))

    def test_missing_columns_are_null(self):
        self.write_sweep("exact", more="statistics: true\nstats: {groups: [A, B]}\n")
        self.sweep("--log", "2", name="exact")
        self.combine("results/tiny", "results/exact", "--out", "atlas")
        counts = self.ask("SELECT sweep, count(*), count(r_q_exact) FROM 'atlas/overview.parquet' GROUP BY sweep ORDER BY sweep")
        (exact, exact_rows, exact_values), (tiny, rows, values) = counts
        self.assertEqual((exact, tiny, values), ("exact", "tiny", 0))
        self.assertGreater(exact_values, 0)
        self.assertEqual(self.ask("SELECT DISTINCT sweep FROM 'atlas/sampling.parquet'"), [("exact",)])

    def test_contradictory_options_are_rejected(self):
        self.ask("COPY (SELECT * REPLACE (CAST(layer AS VARCHAR) AS layer) FROM 'results/other/qk.parquet') "
                 "TO 'results/other/qk.new' (FORMAT parquet)")
        (self.folder / "results/other/qk.new").replace(self.folder / "results/other/qk.parquet")
        out = self.combine("results/tiny", "results/other", "--out", "atlas", status=2)
        self.assertIn('"layer" is string', out)
        self.assertFalse((self.folder / "atlas").exists(), "nothing is written")

    def test_clashing_names_and_folders_are_rejected(self):
        self.assertIn("both called", self.combine("results/tiny", "results/tiny", "--out", "atlas", status=2))
        self.combine("results/tiny", "again=results/tiny", "--out", "atlas")
        self.assertEqual(self.ask("SELECT DISTINCT sweep FROM 'atlas/qk.parquet' ORDER BY 1"), [("again",), ("tiny",)])
        self.assertIn("one of the sweeps", self.combine("results/tiny", "--out", "results/tiny", status=2))
        self.assertIn("runs.json", self.combine("results", "--out", "atlas", status=2))

    def test_repeating_the_command_replaces_the_tables(self):
        self.write_sweep("exact", more="statistics: true\nstats: {groups: [A]}\n")
        self.sweep("--log", "1", name="exact")
        self.combine("results/exact", "--out", "atlas")
        self.assertTrue((self.folder / "atlas/sampling.parquet").exists())
        (self.folder / "atlas/mine.parquet").write_text("of the user")
        self.combine("results/tiny", "--out", "atlas")
        self.assertFalse((self.folder / "atlas/sampling.parquet").exists())
        self.assertTrue((self.folder / "atlas/mine.parquet").exists())

    def test_documented_queries_run(self):
        self.combine("results/tiny", "results/other", "--out", "atlas")
        page = (ROOT / "docs/how-to/atlas.md").read_text()
        queries = re.findall(r"```sql\n(.*?)```", page, re.S)
        self.assertEqual(len(queries), 3)
        training, settled, plastic = [self.ask(query) for query in queries]
        steps = [row[:2] for row in training]
        self.assertEqual(steps, [("org/other", 1), ("org/other", 4), ("org/other", 30),
                                 ("org/tiny", 1), ("org/tiny", 4), ("org/tiny", 30)])
        heads = self.ask("SELECT count(DISTINCT (layer, head)) FROM 'atlas/taxonomy.parquet'")[0][0]
        self.assertEqual(len(settled), 2 * heads)
        self.assertEqual([row[:2] for row in plastic], [("other", heads), ("tiny", heads)])


if __name__ == "__main__":
    main()
