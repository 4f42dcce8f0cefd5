"""Tests the helper scripts of `./run.sh demo-real`: passages of a text, and the first rows of a table. Standard library only."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TOOLS = Path(__file__).resolve().parents[3] / "tools" / "demo"


def run(tool, *arguments):
    return subprocess.run([sys.executable, TOOLS / tool, *map(str, arguments)], capture_output=True, text=True,
                          check=False)


class Passages(unittest.TestCase):
    def setUp(self):
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.text = self.folder / "book.txt"

    def test_paragraphs_become_lines_and_tables_go(self):
        paragraphs = [f"   Paragraph {i}\n   goes on." for i in range(300)]
        self.text.write_text("\n\n".join([*paragraphs, "│ a table │"]), encoding="utf-8")
        out = self.folder / "texts"
        self.assertEqual(run("passages.py", self.text, out, "--count", 3, "--characters", 200).returncode, 0)
        texts = [path.read_text(encoding="utf-8") for path in sorted(out.iterdir())]
        self.assertEqual([len(text) for text in texts], [200] * 3)
        for text, number in zip(texts, (0, 101, 201)):
            self.assertRegex(text, rf"^Paragraph {number // 10}\d* goes on\.\n\nParagraph")

    def test_a_short_text_is_refused(self):
        self.text.write_text("short", encoding="utf-8")
        done = run("passages.py", self.text, self.folder / "texts")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("too few for 24 passages", done.stderr)


class HeadsFound(unittest.TestCase):
    def test_best_heads_stand_beside_expected_ones(self):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "attention.csv").write_text(
                "model,layer,head,sink_0,previous_token_head,induction_head_nobos\n"
                "m,0,0,0.9,0.1,0.2\nm,0,1,0.2,0.8,0.3\nm,1,0,0.6,0.2,0.7\n", encoding="utf-8")
            done = run("heads_found.py", folder, "--expect", "induction_head_nobos=1.0")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"induction +1\.0 \(0\.70\), 0\.1 .*reference: 1\.0")
        self.assertRegex(done.stdout, r"previous token +0\.1 \(0\.80\)")
        self.assertIn("2 of 3 heads", done.stdout)


if __name__ == "__main__":
    unittest.main()
