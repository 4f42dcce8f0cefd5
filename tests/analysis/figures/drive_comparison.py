"""Drives the report of two results in headless Chromium: values of both and their difference, CSV of the
filtered rows, links between head maps and heads, the keyboard alone, dark mode and small windows.

usage: drive_comparison.py PATH_TO_QKSCOPE [FOLDER_FOR_SCREENSHOTS]"""

import csv
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from report_page import ReportPage

QKSCOPE = sys.argv[1]
SCREENSHOTS = Path(sys.argv[2]) if len(sys.argv) > 2 else None
FORMULA = '=HYPERLINK("http://example.com/","click")<img src=x onerror=alert(1)>'
failures = []


def expect(what, found, expected):
    if found != expected:
        failures.append(f"{what}: found {found!r}, expected {expected!r}")


def run(*command):
    subprocess.run([QKSCOPE, *map(str, command), "--quiet"], check=True)


def make_results(folder, name, seed, drift, layers=""):
    run("synth", folder / "captures" / name, "--layers", 3, "--head-counts", "4,2", "--dim", 16, "--planes", 2,
        "--examples", 24, "--context", 2048, "--buckets", 8, "--set", f"drift_q={drift}", "--seed", seed)
    more = ["--layers", layers] if layers else []
    run("analyze", folder / "captures" / name, "--out", folder / name, "--label", f"run {name}", "--pairs", 4,
        "--scatter", 24, *more)
    return folder / name


def read(results, table):
    return pq.read_table(results / f"{table}.parquet").to_pandas().set_index(["layer", "head"]).sort_index()


def check_values(page, first, second):
    """The table and the view of a head have both values and their difference; B lacks layer 2."""
    expect("title", page.run("document.getElementById('title').textContent"), "A: run first – B: run second")
    subtitle = page.run("document.getElementById('subtitle').textContent")
    expect("subtitle", subtitle.split(";")[0], "8 heads in both, 4 only in A, 0 only in B (not in the table)")
    a, b = read(first, "taxonomy"), read(second, "taxonomy")
    at = [page.column(title) for title in ("layer", "head", "r_q A", "r_q B", "Δ r_q")]
    for row in page.rows():
        layer, head, *values = (row[i] for i in at)
        key = int(layer), int(head)
        other = b.r_q.get(key, np.nan)
        for value, wanted in zip(values, (a.r_q[key], other, other - a.r_q[key])):
            if (value == "") != np.isnan(wanted) or (value and abs(float(value) - wanted) > 1e-4):
                failures.append(f"r_q of {key}: found {value!r}, expected {wanted}")
    page.choose_text("class differs", "only in A")
    expect("heads without a match", page.count(), "4 of 12 heads")
    page.clear_filters()
    page.bound("r_q (B-A)", low=-2)
    expect("a difference needs both values", page.count(), "8 of 12 heads")
    page.clear_filters()
    page.choose("#values", "difference")
    titles = page.run("headTable.columns().map((column) => column.name)")
    expect("difference alone", ["r_q (B-A)" in titles, "r_q (A)" in titles], [True, False])
    page.choose("#values", "both")
    runs = page.run("[...document.querySelectorAll('#run-table td.name')].map((cell) => cell.textContent)")
    expect("rows of the run table", runs, ["A: run first", "B: run second", "B − A, heads in both"])
    pictures = page.run("document.querySelectorAll('#figure-head_map_rq img').length")
    expect("maps side by side", pictures, 2)


def check_links(page, first, second):
    """A cell of a map opens its head; the view of the head links back to the maps, which outline its cell."""
    cell = page.run("report.figures.find((figure) => figure.name === 'head_map_rq').hover[5]")
    page.click_at("#figure-head_map_rq .frame", 0.5 * (cell[0] + cell[2]), 0.5 * (cell[1] + cell[3]))
    page.settle()
    layer, head = cell[5:]
    title = "document.querySelector('#head-view h3').textContent"
    expect("head of the cell", page.run(title), f"A and B: layer {layer}, head {head}")
    expect("address", page.run("location.hash"), f"#head-{layer}.{head}")
    shown = {row[0]: row[1:] for row in page.run("""[...document.querySelectorAll("#head-view .numbers div")].map(
        (row) => [...row.children].map((cell) => cell.textContent))""")}
    bias = [read(results, "rotated").bias_strength[layer, head] for results in (first, second)]
    for found, wanted in zip(shown["bias_strength"], (*bias, bias[1] - bias[0])):
        if abs(float(found) - wanted) > 0.006 * abs(wanted):  # three digits are shown
            failures.append(f"bias of the head: found {found}, expected {wanted}")
    page.shot("comparison of a head")
    page.click("#head-view .links a[href='#figure-head_map_bias']")
    page.settle()
    top = page.run("document.querySelector('#figure-head_map_bias').getBoundingClientRect().top")
    expect("the link scrolls to the map", 0 <= top < 450, True)
    outlined = page.run("""[...document.querySelectorAll("#figure-head_map_bias .outline")].filter((box) => !box.hidden).length""")
    expect("the head is outlined in both maps", outlined, 2)
    page.shot("head in the map")
    page.run("location.hash = '#head-1.2'")
    page.settle()
    expect("a head has an address", page.run(title), "A and B: layer 1, head 2")


def check_keyboard(page):
    """Arrow keys and Enter do what the mouse does."""
    page.run("document.querySelector('#figure-head_map_rq .frame').focus()")
    for key in ("ArrowRight", "ArrowRight", "ArrowUp"):
        page.press(key)
    told = page.told()
    expect("the tooltip follows the arrow keys", "layer 1, head 1" in told.lower(), True)
    page.press("Enter")
    page.settle()
    expect("Enter opens the head", page.run("document.querySelector('#head-view h3').textContent"), "A and B: layer 1, head 1")
    expect("and goes there", page.run("document.activeElement.id"), "head-view")
    page.run("document.getElementById('head-scroll').focus()")
    page.press("End")
    expect("End", page.run("document.querySelector('.chosen').dataset.head"), "11")
    page.press("Home")
    expect("Home", page.run("document.querySelector('.chosen').dataset.head"), "0")
    page.press("Tab")
    expect("the next stop is the first column", page.run("document.activeElement.textContent"), "layer ▲")
    expect("its explanation shows", page.told(), "Number of the layer, from 0.")
    page.press("Escape")
    expect("Escape hides it", page.told(), "")
    page.run("document.querySelector('#head-view canvas').focus()")
    page.press("ArrowRight")
    expect("points can be walked", "at position" in page.told(), True)


def check_csv(page, folder, first):
    """The CSV has the filtered rows in the order and with the columns of the table, and no formula."""
    page.send("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(folder))
    page.bound("layer", 1, 2)
    page.sort_by("r_q A")
    page.click("#download")
    path = folder / "heads.csv"
    for _ in range(100):
        if path.exists() and path.stat().st_size > 0:
            break
        time.sleep(0.1)
    rows = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
    table = read(first, "taxonomy").query("layer >= 1").sort_values("r_q", ascending=False)
    expect("rows of the CSV", [(int(row["layer"]), int(row["head"])) for row in rows], list(table.index))
    found = [float(row["r_q (A)"]) for row in rows]
    expect("digits of float32", np.array_equal(np.float32(found), np.float32(table.r_q)), True)
    expect("no value is empty", {row["r_q (B)"] for row in rows if row["layer"] == "2"}, {""})
    page.clear_filters()
    cells = {'a "b", c': '"a ""b"", c"', "=1+1": '"\'=1+1"', " @x": '"\' @x"', "-2+3": '"\'-2+3"', "\t=1": '"\'\t=1"',
             "full": '"full"', "－1": '"\'－1"'}
    for text, cell in cells.items():
        expect(f"CSV cell of {text!r}", page.run(f"csvCell({json.dumps(text)})"), cell)
    expect("CSV cells of numbers", page.run("[-0.5, NaN, Infinity, 3].map(csvCell)"), ["-0.5", "", "", "3"])


def check_sizes(page):
    """Nothing but the tables scrolls sideways, and text is readable in both colour schemes."""
    for width, height in ((1280, 800), (800, 600)):
        page.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        for scheme in ("light", "dark"):
            page.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
            page.settle()
            expect(f"width of the page at {width}", page.run(f"document.documentElement.scrollWidth <= {width}"), True)
            contrast = page.run("""["body", ".note", "#head-header button", ".head-row.chosen span", "nav a"].map((selector) => {
                const luminance = (colour) => {
                  const [r, g, b] = colour.match(/\\d+/g).map((part) => {
                    const x = part / 255;
                    return x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4;
                  });
                  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
                };
                let behind = document.querySelector(selector);
                const ink = luminance(getComputedStyle(behind).color);
                while (getComputedStyle(behind).backgroundColor === "rgba(0, 0, 0, 0)") behind = behind.parentElement;
                const paper = luminance(getComputedStyle(behind).backgroundColor);
                return (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
              })""")
            expect(f"contrast, {scheme}", [ratio >= 4.5 for ratio in contrast], [True] * 5)  # WCAG AA
            page.shot(f"comparison {width} {scheme}")


def check_hostile_labels(page, folder, second):
    """Labels of both results are text, never markup, and no formula in the CSV."""
    for name in ("qk", "taxonomy"):
        table = pq.read_table(second / f"{name}.parquet")
        table = table.set_column(table.column_names.index("model"), "model", [[FORMULA] * len(table)])
        (folder / "hostile").mkdir(exist_ok=True)
        pq.write_table(table, folder / "hostile" / f"{name}.parquet")
    run("report", folder / "hostile", "--compare", folder / "hostile", "--out", folder / "hostile.html")
    page.open(folder / "hostile.html")
    both = f"A: {FORMULA} (hostile) – B: {FORMULA} (hostile)"
    expect("title of hostile labels", page.run("document.getElementById('title').textContent"), both)
    expect("no element from a label", page.run("document.querySelectorAll('img[src=x]').length"), 0)
    expect("label in the CSV", page.run(f"csvCell({json.dumps(FORMULA)})")[:3], '"\'=')


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        first = make_results(folder, "first", 1, 0.001)
        second = make_results(folder, "second", 2, 0.004, layers="0-1")
        run("report", first, "--compare", second, "--out", folder / "report.html")
        with ReportPage(SCREENSHOTS, width=1280, height=800) as page:
            page.open(folder / "report.html")
            check_values(page, first, second)
            check_links(page, first, second)
            check_keyboard(page)
            check_csv(page, folder, first)
            check_sizes(page)
            check_hostile_labels(page, folder, second)
            expect("console", page.complaints, [])
            asked = [url for url in page.requests if not url.startswith(("data:", "file:", "blob:"))]
            expect("requests", asked, [])
    print("\n".join(failures) or "the comparison works")
    sys.exit(1 if failures else 0)


main()
