"""Uses the viewer in headless Chromium: every panel of a served and of an exported page, numbers equal to `qkscope trace`, the
keyboard alone, two window sizes, dark mode, hostile text, and requests that the server must refuse.

usage: drive_viewer.py PATH_TO_QKSCOPE [FOLDER_FOR_SCREENSHOTS]"""

import csv
import http.client
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pyarrow.parquet as pq
from safetensors.numpy import load_file

from viewer_page import ViewerPage, served, shown

QKSCOPE = sys.argv[1]
SCREENSHOTS = Path(sys.argv[2]) if len(sys.argv) > 2 else None
DEMO = Path(__file__).resolve().parents[3] / "share" / "demo"
MODEL, OTHER = DEMO / "checkpoints" / "LC2-1200", DEMO / "checkpoints" / "S1-40"
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)> \u202eabc\u202c \u0000 {{data}} &lt;b&gt; 漢字 "
failures = []


def expect(what, found, expected):
    if found != expected:
        failures.append(f"{what}: found {found!r}, expected {expected!r}")


def expect_true(what, condition):
    if not condition:
        failures.append(what)


def traced(text, query):
    """Scores and pattern of one query, (layers, heads, keys)."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([QKSCOPE, "trace", "--quiet", "--device", "cpu", "--model", MODEL, "--text-file", text, "--positions", str(query),
                        "--hooks", "*hook_attn_scores,*hook_pattern", "--out", f"{folder}/trace.safetensors"], check=True)
        tensors = load_file(f"{folder}/trace.safetensors")
    layers = sum(name.endswith("hook_pattern") for name in tensors)
    return [np.stack([tensors[f"blocks.{layer}.attn.{hook}"][:, 0] for layer in range(layers)])
            for hook in ("hook_attn_scores", "hook_pattern")]


def attributed(text, folder):
    """Runs `qkscope attribute` and returns the values of the first key in its table, by components, as the page shows them."""
    subprocess.run([QKSCOPE, "attribute", "--quiet", "--device", "cpu", "--model", MODEL, "--text-file", text, "--head", "1.0", "--query", "60",
                    "--keys", "top:2", "--top", "6", "--no-figures", "--out", folder], check=True, stdout=subprocess.DEVNULL)
    with open(folder / "attribution.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    return {(row["q_component"], row["k_component"]): shown(float(row["value"])) for row in rows if row["key"] == rows[0]["key"]}


def shot(page, name):
    if SCREENSHOTS:
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        page.screenshot(SCREENSHOTS / f"{name}.png")


def check_numbers(page, text, layer, head, query):
    """The table of top keys equals the trace to the printed digits."""
    scores, pattern = traced(text, query)
    weights, values = pattern[layer, head], scores[layer, head]
    found = page.top_keys()
    order = np.argsort(-weights, kind="stable")[:len(found)]
    expect("largest weights", [cells[1] for cells in found], [shown(weights[key]) for key in order])
    for cells in found:
        key = int(cells[0])
        expect(f"row of key {key}", cells[1:4], [shown(weights[key]), shown(values[key]), str(query - key)])
    seen = weights[weights > 0].astype(np.float64)
    summary = page.summary()
    expect("entropy", summary["entropy"], [shown(-(seen * np.log(seen)).sum())])
    expect("sink share", summary["sink share"], [shown(weights[0])])


def check_heads(page):
    page.wait_until("!document.getElementById('head-scale').textContent.includes('computing')")
    page.wait_until("document.getElementById('head-scale').textContent.includes(' to ')")
    expect_true("the map of heads has colours", page.colours("#head-map") > 4)
    page.run("document.getElementById('head-map').focus()")
    for key in ("ArrowDown", "ArrowDown", "ArrowRight", "Enter"):
        page.press(key)
    page.wait_for_row()
    expect("head chosen by keys", page.state()["heads"], "2.1")
    page.press("ArrowRight")
    page.press("Enter", modifiers=8)  # Shift
    page.wait_for_row()
    expect("head added by keys", page.state()["heads"], "2.1,2.2")
    expect("panes", page.run("document.querySelectorAll('.pane').length"), 2)
    expect("numbers of both heads", len(page.summary()["entropy"]), 2)
    shot(page, "two_heads")


def check_text(page, tokens):
    page.run("document.querySelector('.pane-scroll').scrollTop = 0")
    page.settle()
    drawn = page.run("document.querySelectorAll('.pane:first-child .token').length")
    expect_true(f"only tokens on screen are drawn, found {drawn} of {tokens}", 50 < drawn < tokens * 0.8)
    page.click('.pane .token[data-token="40"]')
    page.wait_for_row()
    expect("query chosen by a click", page.state()["query"], "40")
    expect_true("keys are shaded", page.run("[...document.querySelectorAll('.token')].some((token) => token.style.backgroundColor)"))
    expect_true("arrows", page.run("document.querySelectorAll('.arrows path').length") > 0)
    expect_true("minimap", page.colours(".minimap") > 3)
    page.hover('.pane .token[data-token="20"]', 0.5, 0.5)
    expect_true(f"tooltip: {page.told()}", "key 20" in page.told() and "distance 20" in page.told() and "query 40" in page.told())
    page.run("document.querySelector('.pane-scroll').focus()")
    for key in ("ArrowRight", "ArrowRight", "ArrowLeft", "Enter"):
        page.press(key)
    page.wait_for_row()
    expect("query chosen by keys", page.state()["query"], "41")
    page.press("]")
    page.wait_for_row()
    expect("next query", page.state()["query"], "42")
    page.press("/")
    page.choose("#search", "day")
    page.press("Enter")
    expect_true("search", page.text_of("#matches").startswith("1 of ") or " of " in page.text_of("#matches"))
    expect_true("found tokens are marked", page.run("document.querySelectorAll('.token.found').length") > 0)


def check_matrix(page):
    page.wait_until("matrixMap.loaded()")
    page.settle()
    expect_true("the matrix has colours", page.colours("#matrix-map") > 10)
    page.run("document.getElementById('matrix-map').focus()")
    for key in ("+", "+", "ArrowDown", "ArrowRight"):
        page.press(key)
    page.wait_until("matrixMap.loaded()")
    expect_true("zoom is in the address", "zoom" in page.state())
    page.hover("#matrix-map", 0.3, 0.9)
    expect_true(f"tooltip of the matrix: {page.told()}", "attention" in page.told() and "query" in page.told())
    shot(page, "matrix")
    page.click("#zoom-all")


def check_files(page):
    """Files are made in the page; nothing is sent anywhere."""
    saved = page.run("""new Promise((done) => {
      const names = [];
      HTMLAnchorElement.prototype.click = function () { names.push(this.download); };
      for (const part of ["text", "matrix", "distance", "frequency"]) for (const kind of ["svg", "png"]) document.getElementById(`save-${part}-${kind}`).click();
      for (const kind of ["csv", "json"]) document.getElementById(`save-row-${kind}`).click();
      const wait = () => (names.length === 10 ? done(names) : setTimeout(wait, 20));
      setTimeout(() => done(names), 5000);
      wait();
    })""")
    expect("kinds of files", sorted(name.split(".")[-1] for name in saved), ["csv", "json"] + ["png"] * 4 + ["svg"] * 4)


def check_layout(page, url, width, height, dark, name):
    page.at(url, width=width, height=height, dark=dark)
    expect_true(f"{name}: nothing is wider than the window",
                page.run("document.documentElement.scrollWidth <= window.innerWidth"))
    nameless = page.run("""[...document.querySelectorAll("button, input, select, canvas, [tabindex]")].filter((control) =>
        !(control.textContent || control.labels?.length || control.getAttribute("aria-label") || control.title)).map((control) => control.outerHTML)""")
    expect(f"{name}: controls without a name", nameless, [])
    # WCAG AA asks for a contrast of 4.5 between text and background.
    contrast = page.run("""(() => {
      const light = (colour) => colour.match(/[\\d.]+/g).slice(0, 3).map((value) => value / 255).map((value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4)).reduce((sum, value, i) => sum + value * [0.2126, 0.7152, 0.0722][i], 0);
      const over = (top, below) => { const [r, g, b, a = 1] = top.match(/[\\d.]+/g).map(Number); const base = below.match(/[\\d.]+/g).map(Number); return `rgb(${[r, g, b].map((value, i) => a * value + (1 - a) * base[i])})`; };
      const back = getComputedStyle(document.body).backgroundColor;
      let worst = 99;
      for (const made of document.querySelectorAll(".token, .note, th, td, label, button, h2, h3, p")) {
        const style = getComputedStyle(made);
        if (made.textContent.trim() === "" || style.display === "none") continue;
        const behind = style.backgroundColor === "rgba(0, 0, 0, 0)" ? back : over(style.backgroundColor, back);
        const [a, b] = [light(style.color), light(behind)].sort((x, y) => y - x);
        worst = Math.min(worst, (a + 0.05) / (b + 0.05));
      }
      return worst;
    })()""")
    expect_true(f"{name}: contrast {contrast:.2f}, expected 4.5", contrast >= 4.5)
    shot(page, name)


def answer(url, path, **headers):
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=20)
    connection.putrequest("GET", path, skip_host=True)
    for name, value in {"Host": parts.netloc, **headers}.items():
        connection.putheader(name, value)
    connection.endheaders()
    found = connection.getresponse()
    found.read()
    return found


def check_security(url):
    path = urlsplit(url).path
    page = answer(url, path)
    expect("the page", page.status, 200)
    policy = page.getheader("Content-Security-Policy")
    expect_true(f"strict policy: {policy}", "default-src 'none'" in policy and "unsafe" not in policy and "frame-ancestors 'none'" in policy)
    expect("no referrer", page.getheader("Referrer-Policy"), "no-referrer")
    wrong = path.replace(path[1], "0" if path[1] != "0" else "1", 1)
    for what, status, target, headers in (
            ("no token", 404, "/", {}), ("wrong token", 404, wrong + "info", {}), ("other files", 404, path + "../../etc/passwd", {}),
            ("unknown name", 404, path + "nothing", {}), ("Host of another site", 403, path, {"Host": "evil.example"}),
            ("Host that looks like ours", 403, path, {"Host": "127.0.0.1.evil.example:80"}),
            ("Origin of another site", 403, path + "info", {"Origin": "http://evil.example"}),
            ("own Origin", 200, path + "info", {"Origin": f"http://{urlsplit(url).netloc}"}),
            ("forwarded port", 200, path, {"Host": "localhost:9999"}),
            ("layer that does not exist", 400, path + "row?run=0&layer=999&head=0&query=0", {}),
            ("query that does not exist", 400, path + "row?run=0&layer=0&head=0&query=-1", {}),
            ("no number", 400, path + "row?run=0&layer=x&head=0&query=0", {}),
            ("tile that does not exist", 400, path + "tile?run=0&layer=0&head=0&level=99&row=0&column=0&sum=0", {}),
            ("run that does not exist", 400, path + "statistics?run=7&layer=0&head=0", {}),
            ("very long request", 414, path + "x" * 20000, {})):
        expect(what, answer(url, target, **headers).status, status)


def check_served(folder):
    text = folder / "text.txt"
    entries = [json.loads(line)["text"] for line in (DEMO / "corpus.jsonl").read_text().splitlines()[:2]]
    text.write_text((HOSTILE + "x" * 5000 + " " + " ".join(entries))[:9000])
    attribution = folder / "attributed"
    attribution.mkdir()
    (attribution / "attribution.csv").write_text(
        "text,layer,head,query,key,query_token,key_token,score,attention,q_component,k_component,value\n"
        "0,1,0,60,5,a,b,1.5,0.2,embed,L0H1,1.25\n0,1,0,60,5,a,b,1.5,0.2,<b>embed</b>,embed,0.25\n")
    with served(QKSCOPE, "--model", MODEL, "--checkpoint", OTHER, "--text-file", text, "--results", attribution, "--heads", "1.0",
                "--query", "60") as url, ViewerPage() as page:
        check_security(url)
        page.at(url)
        expect("no HTML from the text", page.run("document.querySelectorAll('img, main script').length"), 0)
        tokens = int(page.text_of("#subtitle").split(" tokens")[0].split()[-1].replace(",", ""))
        check_numbers(page, text, 1, 0, 60)
        expect("attribution", page.run("[...document.querySelectorAll('#attribution-matrix td, #attribution-matrix th')].map((cell) => cell.textContent)"),
               ["", "L0H1", "embed", "embed", "1.2500", "", "<b>embed</b>", "", "0.2500"])
        check_text(page, tokens)
        check_heads(page)
        check_matrix(page)
        before = page.state()
        page.send("Page.reload")
        page.wait_for("Page.loadEventFired")
        page.wait_for_row()
        expect("the address restores the view", page.state(), before)
        page.choose("#run", 1)
        page.wait_for_row()
        expect("checkpoint of the slider", page.text_of("#run-name"), OTHER.name)
        expect("run in the address", page.state()["run"], "1")
        check_files(page)
        for width, height, dark, name in ((1280, 720, False, "wide"), (390, 844, False, "narrow"), (1280, 720, True, "dark"),
                                          (390, 844, True, "narrow_dark")):
            check_layout(page, url, width, height, dark, name)
        expect("console and dialogs", page.complaints, [])
        expect("requests elsewhere", [request for request in page.requests if not request.startswith((url, "data:", "blob:"))], [])


def check_exported(folder):
    text = folder / "exported.txt"
    text.write_text("Entry 1, day 4. " + HOSTILE + "A letter came for Orn. " * 60)
    file = folder / "page.html"
    contributions = attributed(text, folder / "attribution")
    subprocess.run([QKSCOPE, "view", "--quiet", "--device", "cpu", "--model", MODEL, "--text-file", text, "--heads", "1.0,2.1", "--query", "60",
                    "--results", folder / "attribution", "--export", file, "--budget", "3MB"], check=True)
    expect_true("the budget holds", file.stat().st_size <= 3_000_000)
    with ViewerPage() as page:
        page.at_file(file)
        found = page.top_keys()
        scores, pattern = traced(text, 60)
        order = np.argsort(-pattern[1, 0], kind="stable")[:len(found)]
        expect("exported weights", [cells[1] for cells in found], [shown(pattern[1, 0][key]) for key in order])
        expect("exported scores", [cells[2] for cells in found],
               [shown(scores[1, 0][int(cells[0])]) for cells in found])
        keys, *lines = page.run("[...document.querySelectorAll('#attribution-matrix tr')].map((line) => [...line.cells].map((cell) => cell.textContent))")
        expect("exported attribution", {(line[0], key): value for line in lines for key, value in zip(keys[1:], line[1:]) if value}, contributions)
        expect_true("the page says what is inside", "This file holds heads 1.0, 2.1" in page.text_of("#status"))
        page.wait_until("matrixMap.loaded()")
        expect_true("exported matrix", page.colours("#matrix-map") > 5)
        expect_true("exported statistics", page.colours("#head-map") > 4)
        expect("console and dialogs of the export", page.complaints, [])
        expect("requests of the export", [request for request in page.requests if not request.startswith(("file:", "data:", "blob:"))], [])
        shot(page, "exported")
    refused = subprocess.run([QKSCOPE, "view", "--quiet", "--device", "cpu", "--model", MODEL, "--text-file", text, "--export", file,
                              "--budget", "10kB"], capture_output=True, text=True)
    expect("a budget that is too small", refused.returncode, 2)
    expect_true(f"its message: {refused.stderr}", "--budget" in refused.stderr)


def check_capture(folder):
    """A capture opens with its own model and text; captured heads and positions are marked."""
    texts = folder / "texts.jsonl"
    entries = (DEMO / "corpus.jsonl").read_text().splitlines()
    texts.write_text("\n".join(json.dumps({"text": json.loads(entry)["text"]}) for entry in entries[:2]))
    data = folder / "capture"
    (folder / "run.yaml").write_text(json.dumps({
        "dataset": {"path": str(texts)}, "model": {"name": str(MODEL), "dtype": "float32"}, "tokenizer": {"max_length": 200},
        "capture": {"layers": [1, 2], "heads": [1], "sampler": {"type": "uniform", "base_rate": 2}, "min_bucket_size": 8},
        "output": {"data_root": str(data)}}))
    subprocess.run([QKSCOPE, "capture", "--quiet", "--device", "cpu", "--config", folder / "run.yaml"], check=True)
    positions = [row["position"] for row in pq.read_table(data / "l01h01q" / "data.parquet").to_pylist() if row["example_key"] == 1]
    with served(QKSCOPE, "--capture", data, "--row", "1") as url, ViewerPage() as page:
        page.at(url)
        expect("model of the capture", page.text_of("#title"), MODEL.name)
        expect_true("text of the capture", "200 tokens" in page.text_of("#subtitle"))
        expect("head of the capture", page.state()["heads"], "1.1")
        expect_true("number of captured positions", f", {len(positions)} captured positions" in page.text_of(".pane h3"))
        drawn = page.run("[...document.querySelectorAll('.token')].map((token) => [Number(token.dataset.token), token.classList.contains('sampled')])")
        expect("captured positions", sorted(token for token, sampled in drawn if sampled), sorted({token for token, _ in drawn} & set(positions)))
        expect("console and dialogs of the capture", page.complaints, [])
        shot(page, "capture")


def check_refused():
    """Wrong options end with exit code 2 and a sentence that names them."""
    for options, words in ((["--text", "a b c", "--heads", "99.0"], "heads 99.0: the model has layers 0 to 7"),
                           (["--text", "a b c", "--heads", "3"], "--heads: found '3', expected LAYER.HEAD"),
                           (["--text", "a b c", "--heads", "0.0,0.1,0.2,0.3,0.4"], "expected at most 4"),
                           (["--text", "a b c", "--query", "500"], "query 500: the text has positions 0 to"),
                           (["--text", "a b c", "--memory", "1KiB"], "--memory"),
                           (["--text", "a b c", "--results", "/nowhere"], "/nowhere"),
                           (["--capture", "/nowhere"], "/nowhere/_saver_state.json"),
                           (["--dataset", str(DEMO / "corpus.jsonl"), "--row", "1000000"], "no text in row 1000000")):
        refused = subprocess.run([QKSCOPE, "view", "--no-open", "--device", "cpu", "--model", MODEL, *options], capture_output=True, text=True,
                                 timeout=60)
        expect(f"exit code of {options}", refused.returncode, 2)
        expect_true(f"message of {options}: {refused.stderr}", words in refused.stderr)


with tempfile.TemporaryDirectory(prefix="qkscope-viewer-") as place:
    check_refused()
    check_served(Path(place))
    check_capture(Path(place))
    check_exported(Path(place))
for failure in failures:
    print(failure)
sys.exit(1 if failures else 0)
