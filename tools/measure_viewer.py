#!/usr/bin/env python3
"""Measures the viewer in Chromium: time to the first row, rows, tiles, scrolling, and an exported page.

    python tools/measure_viewer.py QKSCOPE MODEL [--tokens 32768] [--memory SIZE] [--skip-export]

MODEL is a checkpoint folder with a tokenizer, for example of bench/make_checkpoint.py. The text is the corpus of the demo,
repeated and cut to the number of tokens. Prints one line for each number; docs/how-to/viewer.md has a table of them.
"""
import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "analysis" / "viewer"))
from viewer_page import ViewerPage, served  # noqa: E402


class TracedPage(ViewerPage):
    """A page that records the browser's own trace."""

    def __init__(self):
        self.events = []
        super().__init__()

    def _note(self, message):
        super()._note(message)
        if message.get("method") == "Tracing.dataCollected":
            self.events += message["params"]["value"]

    def traced(self, action):
        """Runs an action and returns the trace events of the page."""
        self.events = []
        self.send("Tracing.start", transferMode="ReportEvents", traceConfig={
            "includedCategories": ["devtools.timeline", "disabled-by-default-devtools.timeline.frame", "toplevel"]})
        action()
        self.send("Tracing.end")
        self.wait_for("Tracing.tracingComplete")
        return self.events


def token_ids(qkscope, model, count, folder):
    """Writes the ids of a text of `count` tokens as JSON."""
    text = folder / "text.txt"
    corpus = [json.loads(line)["text"] for line in (ROOT / "share/demo/corpus.jsonl").read_text().splitlines()]
    text.write_text("\n\n".join(corpus))
    done = subprocess.run([qkscope, "tokenize", "--tokenizer", model, "--text-file", str(text), "--json"], capture_output=True, text=True, check=True)
    ids = json.loads(done.stdout)["ids"]
    while len(ids) < count:
        ids += ids
    file = folder / "ids.json"
    file.write_text(json.dumps(ids[:count]))
    return file


def milliseconds(page, script, repeat):
    """Median and largest time of an asynchronous JavaScript expression, in milliseconds."""
    times = sorted(page.run(f"(async () => {{ const start = performance.now(); await ({script}); return performance.now() - start; }})()")
                   for _ in range(repeat))
    return times[len(times) // 2], times[-1]


def report(what, value, unit="ms", largest=None):
    print(f"{what:<58} {value:9.1f} {unit}" + ("" if largest is None else f"   (largest {largest:.1f})"), flush=True)


def measure_rows(page, tokens, layers, heads):
    row = "source.row(0, [%s, %s], Math.floor(%d * (0.9 + 0.1 * Math.random())))"
    report("row of one head, near the end of the text", *_with_largest(milliseconds(page, row % (layers // 2, 1, tokens), 20)))
    every = f"Promise.all([...Array({heads}).keys()].map((head) => source.row(0, [{layers // 3}, head], {tokens - 1})))"
    report("rows of all heads of a layer", *_with_largest(milliseconds(page, every, 10)))


def _with_largest(times):
    return times[0], "ms", times[1]


def measure_tiles(page, tokens, layer):
    last = f"(level) => Math.floor(({tokens} - 1) / (256 << level))"
    preview = f"source.tile(0, [{layer}, 0], Math.ceil(Math.log2({tokens} / 256)), 0, 0, false)"
    report("preview of the whole matrix", *_with_largest(milliseconds(page, preview, 5)))
    unknown = f"source.tile(0, [{layer}, 0], 0, ({last})(0) - 3, 5, false)"
    report("tile of 256 x 256 tokens, first time", milliseconds(page, unknown, 1)[0])
    start = time.time()
    page.run(f"(async () => {{ while (await source.overview(0, [{layer}, 0]) < 1); }})()")
    report("exact overview of one head", time.time() - start, "s")
    for level in (0, 2, 3):
        tile = f"source.tile(0, [{layer}, 0], {level}, ({last})({level}), Math.floor(Math.random() * ({last})({level})), false)"
        report(f"tile of {256 << level} x {256 << level} tokens", *_with_largest(milliseconds(page, tile, 10)))
    report("tile of the whole matrix, exact", *_with_largest(milliseconds(page, preview, 5)))


def measure_scrolling(page):
    """Scrolls by 400 pixels a frame. Frames are those that the browser's trace says were drawn."""
    script = """new Promise((done) => {
      const pane = document.querySelector(".pane-scroll");
      pane.scrollTop = 0;
      let frames = 0, last = performance.now(), longest = 0;
      const step = (now) => {
        if (frames > 5) longest = Math.max(longest, now - last);
        last = now;
        pane.scrollTop += 400;
        if (++frames < 240) requestAnimationFrame(step); else done(longest);
      };
      requestAnimationFrame(step);
    })"""
    longest = []
    events = page.traced(lambda: longest.append(page.run(script)))
    drawn = sorted(event["ts"] / 1000 for event in events if event["name"] == "DrawFrame")
    gaps = sorted(b - a for a, b in zip(drawn[5:], drawn[6:]))
    tasks = [event["dur"] / 1000 for event in events if event["name"] == "FireAnimationFrame" and "dur" in event]
    report("scrolling: longest gap between animation frames", longest[0])
    if gaps:
        report(f"scrolling, trace of {len(drawn)} frames: longest gap", gaps[-1], "ms", None)
        report("scrolling, trace: median gap", gaps[len(gaps) // 2])
    if tasks:
        report("scrolling, trace: longest script of a frame", max(tasks))


def measure_served(options, ids):
    start = time.time()
    more = ["--memory", options.memory] if options.memory else []
    with served(options.qkscope, "--model", options.model, "--token-ids", ids, *more) as url, TracedPage() as page:
        report("pass, until the address is printed", time.time() - start, "s")
        page.use_window(1280, 720)
        start = time.time()
        page.open(url)
        page.wait_for_row()
        report("row on screen after opening the page", 1000 * (time.time() - start))
        paint = page.run("performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? -1")
        report("first paint of the page", paint)
        layers, heads = page.run("source.info().then((info) => [info.layers.length, info.heads])")
        start = time.time()
        page.wait_until("document.getElementById('head-scale').textContent.includes(' to ')", 600)
        report("map of heads: first layers after", time.time() - start, "s")
        if not options.memory:
            page.run("new Promise((done) => setTimeout(done, 8000))")  # the statistics of all layers
            measure_rows(page, options.tokens, layers, heads)
            measure_tiles(page, options.tokens, layers // 2)
        measure_scrolling(page)
        print("console:", page.complaints)


def measure_export(options, ids, folder):
    file = folder / "page.html"
    start = time.time()
    subprocess.run([options.qkscope, "view", "--quiet", "--device", "cpu", "--model", options.model, "--token-ids", str(ids), "--heads",
                    "1.0,2.1", "--export", str(file)], check=True)
    report("export with the pass", time.time() - start, "s")
    report("size of the exported page", file.stat().st_size / 1e6, "MB")
    with ViewerPage() as page:
        page.use_window(1280, 720)
        start = time.time()
        page.open(file)
        page.wait_for_row()
        report("exported page: row on screen", time.time() - start, "s")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("qkscope")
    parser.add_argument("model")
    parser.add_argument("--tokens", type=int, default=32768)
    parser.add_argument("--memory", default="")
    parser.add_argument("--skip-export", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="qkscope-viewer-") as place:
        ids = token_ids(options.qkscope, options.model, options.tokens, Path(place))
        measure_served(options, ids)
        if not options.skip_export:
            measure_export(options, ids, Path(place))


if __name__ == "__main__":
    main()
