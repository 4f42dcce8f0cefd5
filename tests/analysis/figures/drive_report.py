"""Opens the report of a planted sweep in headless Chromium and uses it: loads without a word on the
console or a request to the network; sorting, filtering and the view of a head work; a hostile label
is only text.

usage: drive_report.py PATH_TO_QKSCOPE [FOLDER_FOR_SCREENSHOTS]"""

import itertools
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from report_page import ReportPage

QKSCOPE = sys.argv[1]
SCREENSHOTS = Path(sys.argv[2]) if len(sys.argv) > 2 else None
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
failures = []


def expect(what, found, expected):
    if found != expected:
        failures.append(f"{what}: found {found!r}, expected {expected!r}")


def rename_last_run(results):
    """The label of the last run would execute a script if it were parsed as HTML."""
    sweep = json.loads((results / "runs.json").read_text())
    old = sweep["runs"][-1]["label"]
    sweep["runs"][-1]["label"] = HOSTILE
    sweep["runs"].append({"label": "never ran", "phase": "stage9", "order": 99, "state": "failed",
                          "error": "the disk was full"})
    (results / "runs.json").write_text(json.dumps(sweep))
    for path in results.glob("*.parquet"):
        table = pq.read_table(path)
        labels = [HOSTILE if label == old else label for label in table["model"].to_pylist()]
        pq.write_table(table.set_column(0, "model", pa.array(labels)), path)


def check_contents(page, heads):
    expect("title", page.run("document.getElementById('title').textContent"), "planted sweep")
    expect("figures", page.run("document.querySelectorAll('figure').length"), 29)
    expect("runs", page.run("document.querySelectorAll('#run-table tr').length"), 1 + 3 + 1)
    expect("heads", page.count(), f"{heads} of {heads} heads")
    expect("a failed run is shown", page.run("document.querySelector('.failed').textContent"), "failed")
    expect("why", page.run("document.getElementById('provenance').textContent.includes('the disk was full')"), True)
    expect("hostile label", page.run(
        f"[...document.querySelectorAll('#run-table td')].some((cell) => cell.textContent === {json.dumps(HOSTILE)})"), True)
    page.shot("top")
    page.run("window.scrollTo(0, document.body.scrollHeight / 3)")
    page.settle()
    loaded = page.run("""new Promise((done) => setTimeout(() => done([...document.querySelectorAll("figure img")].filter(
        (image) => image.src && image.complete && image.naturalWidth > 100).length), 500))""")
    if not loaded >= 2:
        failures.append(f"only {loaded} pictures came while scrolling")
    page.shot("figures")
    page.click("#figure-position_signal summary")
    page.settle()
    expect("numbers of a figure", page.run("document.querySelectorAll('#figure-position_signal tr').length"), 4)


def check_sorting(page, table):
    at = page.column("plasticity")
    for click, down in ((1, True), (2, False)):
        page.sort_by("plasticity")
        page.settle()
        found = [float(row[at]) for row in page.rows()]
        values = np.sort(table.ap_profile_overall.to_numpy())[::-1 if down else 1]
        expect(f"sorted by plasticity, click {click}", found, [float(f"{x:.4f}") for x in values[:len(found)]])
    page.shot("sorted")


def check_filters(page, table):
    def expect_count(what, rows):
        expect(what, page.count(), f"{len(rows)} of {len(table)} heads")

    page.choose_text("position", "NoPE")
    expect_count("NoPE", table[table.rope == "nope"])
    label = table.model.iloc[0]
    page.choose_text("run", label)
    expect_count("NoPE of one run", table[(table.rope == "nope") & (table.model == label)])
    expect("its rows", {row[page.column("run")] for row in page.rows()}, {label})
    page.clear_filters()
    expect_count("cleared", table)
    expect("no field keeps a value", page.run("document.querySelectorAll('.filter input:not(:placeholder-shown)').length"), 0)
    page.bound("layer", 1, 2)
    expect_count("layers", table[table.layer.between(1, 2)])
    page.clear_filters()
    middle = round(float(table.ap_profile_overall.median()), 3) + 0.0005
    page.bound("ap_profile_overall", low=middle)
    expect_count("plasticity", table[table.ap_profile_overall >= middle])
    page.bound("r_q", high=0.5)
    expect_count("plasticity and r_q", table[(table.ap_profile_overall >= middle) & (table.r_q <= 0.5)])
    page.bound("ap_profile_overall", 2, 3)
    expect("no head left", page.run("document.getElementById('head-body').textContent"), "No head passes the filters.")
    page.clear_filters()
    titles = {"position_dominated": "position-dominated", "content_focused": "content-focused", "mixed": "mixed"}
    for name, title in titles.items():
        if (table["class"] == name).any():
            page.choose_text("class", title)
            expect_count(name, table[table["class"] == name])
    page.clear_filters()


def check_columns(page):
    """Every column has a filter and a sentence that explains it, also when all measures are shown."""
    page.click("#all-columns")
    page.settle()
    columns = page.run("""[...document.querySelectorAll("#head-header > div")].map((cell) => [
        cell.querySelector("button").textContent, cell.querySelectorAll(".filter input, .filter select").length])""")
    expect("columns without a filter", [title for title, fields in columns if fields == 0], [])
    meanings = page.run("headTable.columns().map((column) => [column.name, column.meaning])")
    expect("columns", len(meanings) > 40, True)
    vague = [name for name, meaning in meanings if not meaning.endswith(".") or "Column " in meaning or len(meaning) < 20]
    expect("columns without an explanation", vague, [])
    expect("glossary", page.run("document.querySelectorAll('#glossary dd').length"), len(meanings))
    page.hover("#head-header > div:nth-child(2) button", 0.5, 0.5)
    expect("tooltip of a column", page.told(), meanings[1][1])
    page.click("#all-columns")
    page.settle()


def check_head_view(page, table):
    page.sort_by("run")
    page.settle()
    page.click(".head-row:nth-child(3) span")
    page.settle()
    chosen = page.run("document.querySelector('.head-row.chosen').dataset.head")
    head = table.iloc[int(chosen)]
    expect("head", page.run("document.querySelector('#head-view h3').textContent"),
           f"{head.model}: layer {head.layer}, head {head['head']}")
    expect("canvases", page.run("document.querySelectorAll('#head-view canvas').length"), 4)
    for i in range(4):
        if not page.ink(i) > 10:
            failures.append(f"canvas {i} of the head's view is empty")
    numbers = dict(page.run("""[...document.querySelectorAll("#head-view .numbers div")].map(
        (row) => [...row.children].map((cell) => cell.textContent))"""))
    expect("its r_q", abs(float(numbers["r_q"]) - head.r_q) < 1e-4, True)  # four decimals are shown
    page.shot("head")
    page.press("ArrowDown")
    page.settle()
    after = page.run("document.querySelector('.head-row.chosen').dataset.head")
    if after == chosen:
        failures.append("the arrow keys do not walk")


def check_hints(page):
    """Tooltips show the values of cells and the positions of points."""
    cell = page.run("report.figures.find((figure) => figure.name === 'bucket_heatmap').hover[0]")
    page.hover("#figure-bucket_heatmap img", 0.5 * (cell[0] + cell[2]), 0.5 * (cell[1] + cell[3]))
    expect("hint of a cell", page.told(), cell[4])
    if "pairs" not in cell[4]:
        failures.append(f"the hint does not say how many pairs: {cell[4]}")
    page.hover("#figure-bucket_heatmap img", 0.999, 0.999)
    expect("no hint beside the cells", page.told(), "")
    canvas = "#head-view .plots canvas"
    found = ""
    for x, y in itertools.product(np.linspace(0.2, 0.9, 15), np.linspace(0.1, 0.8, 12)):
        page.hover(canvas, x, y)
        found = page.told()
        if found:
            break
    if " at position " not in found:
        failures.append(f"no point of the head says its position: {found!r}")


def check_width(page):
    """At a width of 1,400 pixels no table scrolls horizontally."""
    for what in ("#runs .wide", "#head-scroll"):
        expect(f"{what} fits", page.run(
            f"(() => {{ const box = document.querySelector('{what}'); return box.scrollWidth <= box.clientWidth; }})()"), True)


def check_provenance(page, *words):
    text = page.run("document.getElementById('provenance').textContent")
    for word in ("planted", "taxonomy_high", "analysed on", page.run("report.version"), *words):
        if word not in text:
            failures.append(f"the provenance does not say {word}")


def check_one_run(page, results, out):
    """The report of a single run: cells of head maps open the head, and no run column is shown."""
    subprocess.run([QKSCOPE, "figures", results, "--out", out, "--format", "svg", "--quiet"], check=True)
    page.open(out / "report.html")
    expect("title of one run", page.run("document.getElementById('title').textContent"), "S1-40K")
    expect("no trajectories", page.run("document.getElementById('figure-position_signal')"), None)
    expect("why", page.run("document.getElementById('left-out').textContent.includes('position_signal')"), True)
    expect("no column of runs", "run" in page.run(
        "[...document.querySelectorAll('#head-header button')].map((button) => button.textContent)"), False)
    check_width(page)
    check_provenance(page)
    cell = page.run("report.figures.find((figure) => figure.name === 'head_map_rq').hover[5]")
    page.click_at("#figure-head_map_rq img", 0.5 * (cell[0] + cell[2]), 0.5 * (cell[1] + cell[3]))
    page.settle()
    expect("a click on a map shows the head", page.run("document.querySelector('#head-view h3').textContent"),
           f"S1-40K: layer {cell[5]}, head {cell[6]}")
    page.shot("one run")


def add_new_columns(results):
    """Adds attention kinds, the class along the drift axis and model-free plasticity to a run."""
    for path in results.glob("*.parquet"):
        table = pq.read_table(path).to_pandas()
        if "layer" not in table:
            continue
        table["attention"] = np.where(table.layer % 2 == 1, "full", "sliding:64")
        if path.stem == "taxonomy":
            table["class_axis"] = "k_positional"
        if path.stem == "head_profile":
            table["ap_free"] = table.ap - 0.01
        table.to_parquet(path, index=False)
    summary = json.loads((results / "summary.json").read_text())
    del summary["files"]  # the sizes of the tables before this change
    (results / "summary.json").write_text(json.dumps(summary))


def check_new_columns(page, results, out):
    """Both classes are shown; the filter and the run table split heads by attention kind."""
    add_new_columns(results)
    subprocess.run([QKSCOPE, "figures", results, "--out", out, "--format", "svg", "--quiet"], check=True)
    page.open(out / "report.html")
    layers = page.run("[...heads.layer]")
    expect("class along the axis", page.run("axisClassOf(0).title"), "K-positional")
    expect("rows by attention kind", page.run(
        "[...document.querySelectorAll('#run-table tr.part td.name')].map((cell) => cell.textContent)"),
        ["full attention", "sliding:64 attention"])
    page.choose_text("attention", "full")
    expect("heads with full attention", page.count(), f"{sum(layer % 2 for layer in layers)} of {len(layers)} heads")
    expect("column of attention", {row[page.column("attention")] for row in page.rows()}, {"full"})
    profile = page.run("profileOf(0)[0]")
    expect("model-free plasticity", round(profile["y"] - profile["free"], 5), 0.01)
    page.shot("attention kinds")


def check_points(page, results):
    """Unpacked points of a head are accurate to 1/254 of their range."""
    scatter = pq.read_table(results / "head_scatter.parquet").to_pandas()
    for place in (0, page.run("heads.count") - 1):
        run, layer, head = page.run(f"[report.runs[heads.run[{place}]].label, heads.layer[{place}], heads.head[{place}]]")
        rows = scatter[(scatter.model == run) & (scatter.layer == layer) & (scatter["head"] == head)]
        points = page.run(f"pointsOf({place})")
        expect("points", [point["key"] for point in points], list(rows.side == "k"))
        expect("positions", [point["position"] for point in points], list(rows.position))
        shades = rows.position / scatter[scatter.model == run].position.max()
        if np.abs(np.array([point["shade"] for point in points]) - shades).max() > 1e-12:
            failures.append(f"shades of head {place} are not those of its own run")
        for axis in ("pc0", "pc1", "a", "b", "c0", "c1"):
            found, expected = np.array([point[axis] for point in points]), rows[axis].to_numpy()
            if np.abs(found - expected).max() > 0.51 * np.ptp(expected) / 254:
                failures.append(f"{axis} of head {place} is off by {np.abs(found - expected).max()}")


def check_narrow(page):
    page.send("Emulation.setDeviceMetricsOverride", width=700, height=900, deviceScaleFactor=1, mobile=False)
    page.settle()
    wide = page.run("document.documentElement.scrollWidth <= 700")
    expect("a narrow window needs no sideways scrolling", wide, True)
    page.shot("narrow")


def main():
    with tempfile.TemporaryDirectory() as folder:
        results, out = Path(folder) / "sweep", Path(folder) / "figures"
        make = Path(__file__).parent / "planted_sweep.py"
        subprocess.run([sys.executable, make, QKSCOPE, results, "--runs", "3"], check=True)
        rename_last_run(results)
        subprocess.run([QKSCOPE, "figures", results, "--out", out, "--format", "svg", "--quiet"], check=True)
        read = lambda name: pq.read_table(results / f"{name}.parquet").to_pandas()
        metrics = read("head_metrics")
        table = metrics[["order", "model", "layer", "head", "rope", "ap_profile_overall"]].merge(
            read("taxonomy")[["model", "layer", "head", "r_q", "class"]], on=["model", "layer", "head"])
        table = table.sort_values(["order", "layer", "head"], ignore_index=True)
        with ReportPage(SCREENSHOTS) as page:
            page.open(out / "report.html")
            check_contents(page, len(table))
            check_sorting(page, table)
            check_filters(page, table)
            check_columns(page)
            check_head_view(page, table)
            check_points(page, results)
            check_hints(page)
            check_width(page)
            check_provenance(page, "bfloat16")
            check_one_run(page, results / "runs" / "S1-40K", Path(folder) / "one")
            check_new_columns(page, results / "runs" / "S1-40K", Path(folder) / "new")
            check_narrow(page)
            expect("console", page.complaints, [])
            asked = [url for url in page.requests if not url.startswith(("data:", "file:"))]
            expect("requests", asked, [])
    print("\n".join(failures) or "the report works")
    sys.exit(1 if failures else 0)


main()
