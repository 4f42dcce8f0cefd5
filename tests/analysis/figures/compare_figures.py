"""Draws the figures of a planted sweep and of a single planted run and checks them: the CSV of every
figure against its definition, recomputed with pandas from the result tables; every file for being
whole, of the right size and not blank; the scripts for drawing the same again.

usage: compare_figures.py PATH_TO_QKSCOPE"""

import json
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
from PIL import Image

QKSCOPE = sys.argv[1]
CLASSES = ["position_dominated", "q_positional", "k_positional", "content_focused", "mixed"]
failures = []


def check(name, found, expected):
    """Relative tolerance 1e-9: sums may be added in another order."""
    found, expected = np.asarray(found, float), np.asarray(expected, float)
    if found.shape != expected.shape:
        failures.append(f"{name}: shape {found.shape}, expected {expected.shape}")
    elif not np.allclose(found, expected, rtol=1e-9, atol=1e-12, equal_nan=True):
        worst = np.nanargmax(np.abs(found - expected))
        failures.append(f"{name}: {found.flat[worst]} instead of {expected.flat[worst]}")


class Sweep:
    """Result tables and drawn CSVs of one folder."""

    def __init__(self, results, out):
        self.results, self.out = results, out
        self.labels = list(self.table("qk").model.unique())

    def table(self, name):
        return pq.read_table(self.results / f"{name}.parquet").to_pandas()

    def drawn(self, name):
        return pd.read_csv(self.out / f"{name}.csv", keep_default_na=False, na_values=[""])

    def by_run(self, frame, column):
        return [frame[frame.model == label][column].dropna().to_numpy() for label in self.labels]

    def check_mean(self, figure, prefix, frame, column):
        drawn, groups = self.drawn(figure), self.by_run(frame, column)
        check(f"{figure} {prefix}_mean", drawn[f"{prefix}_mean"], [g.mean() for g in groups])
        check(f"{figure} {prefix}_std", drawn[f"{prefix}_std"], [g.std(ddof=1) for g in groups])
        check(f"{figure} {prefix}_heads", drawn[f"{prefix}_heads"], [len(g) for g in groups])

    def check_quartiles(self, figure, prefix, frame, column):
        drawn, groups = self.drawn(figure), self.by_run(frame, column)
        for name, fraction in (("q25", 0.25), ("median", 0.5), ("q75", 0.75)):
            check(f"{figure} {prefix}_{name}", drawn[f"{prefix}_{name}"],
                  [np.quantile(g, fraction) for g in groups])
        check(f"{figure} {prefix}_mean", drawn[f"{prefix}_mean"], [g.mean() for g in groups])


def check_pca_over_runs(sweep):
    qk = sweep.table("qk")
    first = qk[qk.pc == 0]
    sweep.check_mean("position_signal", "r_q", first, "r_q")
    sweep.check_mean("position_signal", "r_k", first, "r_k")
    sweep.check_mean("explained_variance", "pc0", first, "explained_variance")
    taxonomy = sweep.table("taxonomy")
    drawn = sweep.drawn("taxonomy_evolution")
    for name in CLASSES:
        shares = [np.mean(group == name) for group in sweep.by_run(taxonomy, "class")]
        check(f"taxonomy_evolution {name}", drawn[name], shares)
    check("taxonomy_evolution sum", drawn[CLASSES].sum(axis=1), np.ones(len(sweep.labels)))
    rotated = sweep.table("rotated")
    rotated["abs_r_k_a"] = rotated.r_k_a.abs()
    for figure, frame, column in (("layer_heatmap_rq", first, "r_q"), ("layer_heatmap_rk", first, "r_k"),
                                  ("layer_heatmap_rka", rotated, "abs_r_k_a"),
                                  ("layer_heatmap_bias", rotated, "bias_strength")):
        last = frame.groupby("model").layer.transform("max")
        bins = np.minimum(9, 10 * frame.layer // last)
        cells = frame.groupby([frame.model.map(sweep.labels.index), bins])[column]
        drawn = sweep.drawn(figure)
        check(figure, drawn["mean"], cells.mean())
        check(f"{figure} bins", drawn["bin"], cells.mean().index.get_level_values(1))
        check(f"{figure} rows", drawn["row"], -cells.mean().index.get_level_values(0))
    metrics = sweep.table("head_metrics")
    for rope in ("rope", "nope"):
        sweep.check_mean("nope_vs_rope", f"{rope}_r_q", first[first.rope == rope], "r_q")
        sweep.check_mean("nope_vs_rope", f"{rope}_r_k", first[first.rope == rope], "r_k")
        sweep.check_mean("nope_vs_rope", f"{rope}_ap", metrics[metrics.rope == rope],
                         "ap_profile_overall")


def check_pca_figures(sweep):
    qk = sweep.table("qk")
    first = qk[qk.pc == 0]
    scatter = sweep.drawn("rq_rk_scatter")
    check("rq_rk_scatter r_q", scatter.r_q, first.r_q)
    check("rq_rk_scatter r_k", scatter.r_k, first.r_k)
    check("rq_rk_scatter nope", scatter.nope, first.rope == "nope")
    roles = qk[qk.pc < 10].groupby(["pc", qk.model.map(sweep.labels.index)])
    for side in ("r_q", "r_k"):
        check(f"pc_roles {side}", sweep.drawn("pc_roles")[f"{side}_mean"], roles[side].mean())
        check(f"pc_roles {side}", sweep.drawn("pc_roles")[f"{side}_std"], roles[side].std())
    rotated = sweep.table("rotated")
    heads = sweep.drawn("bias_vs_separation")
    check("bias_vs_separation", heads.bias_strength, rotated.bias_strength)
    check("bias_vs_separation", heads.separation_strength, rotated.separation_strength)


MAPS = {"rq": ("qk", "r_q"), "rk": ("qk", "r_k"), "pc0_variance": ("qk", "explained_variance"),
        "position_r": ("rotated", "position_r"), "rka": ("rotated", "abs_r_k_a"),
        "bias": ("rotated", "bias_strength"), "separation": ("rotated", "separation_strength"),
        "plane_variance": ("rotated", "plane_var_fraction"),
        "plasticity": ("head_metrics", "ap_profile_overall"), "ap_drop": ("head_metrics", "ap_drop")}


# Maps of columns that older results do not have.
NEW_MAPS = {"class_axis": ("taxonomy", "class_axis"), "rq_axis": ("taxonomy", "r_q_axis"),
            "rk_axis": ("taxonomy", "r_k_axis"), "plasticity_free": ("head_metrics", "ap_free_overall")}


def new_maps(sweep):
    """Returns the maps of NEW_MAPS whose column the results have."""
    return {name: (table, column) for name, (table, column) in NEW_MAPS.items()
            if column in sweep.table(table)}


def geometry_maps(sweep):
    """Returns the columns of the geometry that have a value, without errors and nulls: each has a map."""
    table = sweep.table("geometry")
    columns = list(table.columns)[list(table.columns).index("n_k") + 1:]
    return [name for name in columns if not name.endswith(("_se", "_null")) and table[name].notna().any()]


def check_new_maps(sweep):
    for name, (table, column) in new_maps(sweep).items():
        drawn, expected = sweep.drawn(f"head_map_{name}"), sweep.table(table)[column]
        if name == "class_axis":
            if list(drawn[column]) != list(expected):
                failures.append("head_map_class_axis: other classes than taxonomy.parquet")
        elif name.endswith("_axis"):
            check(f"head_map_{name}", drawn[f"abs_{column}"], expected.abs())
        else:
            check(f"head_map_{name}", drawn[column], expected)


def check_one_run(sweep):
    """Figures of a single run."""
    qk = sweep.table("qk")
    means = qk[qk.pc < 10].groupby("pc").explained_variance
    check("explained_variance", sweep.drawn("explained_variance")["mean"], means.mean())
    check("explained_variance", sweep.drawn("explained_variance")["std"], means.std())
    frames = {"qk": qk[qk.pc == 0], "rotated": sweep.table("rotated"),
              "head_metrics": sweep.table("head_metrics")}
    frames["rotated"]["abs_r_k_a"] = frames["rotated"].r_k_a.abs()
    for figure, (table, column) in MAPS.items():
        drawn = sweep.drawn(f"head_map_{figure}")
        for name in ("layer", "head", column):
            check(f"head_map_{figure} {name}", drawn[name], frames[table][name])
        check(f"head_map_{figure} nope", drawn.nope, frames[table].rope == "nope")
    taxonomy = sweep.table("taxonomy")
    drawn = sweep.drawn("head_map_class")
    if list(drawn["class"]) != list(taxonomy["class"]):
        failures.append("head_map_class: other classes than taxonomy.parquet")
    counts = sweep.drawn("class_counts")
    check("class_counts", counts.heads, [np.sum(taxonomy["class"] == name) for name in CLASSES])
    spread = sweep.drawn("distributions")
    for measure, panel in spread.groupby("measure"):
        table = next(frame for frame in frames.values() if measure in frame)
        values = table[measure].abs() if measure == "r_k_a" else table[measure]
        nope = table.rope == "nope"
        edges = np.append(panel.low, panel.high.iloc[-1])
        inside = values.clip(edges[0], edges[-1] - 1e-12 * (edges[-1] - edges[0]))
        check(f"distributions {measure}", panel.heads, np.histogram(inside[~nope], edges)[0])
        check(f"distributions {measure}", panel.nope_heads, np.histogram(inside[nope], edges)[0])
        check(f"distributions {measure} mean", panel["mean"].iloc[0], values.mean())


def check_rotation_figures(sweep):
    rotated = sweep.table("rotated")
    rotated["abs_r_k_a"] = rotated.r_k_a.abs()
    rotated["slope_ratio"] = rotated.alpha_k / rotated.alpha_q
    for column in ("abs_r_k_a", "separation_strength", "bias_strength", "plane_var_fraction"):
        sweep.check_quartiles("rotation_trajectory", column, rotated, column)
    for column in ("mu_q_a", "alpha_k", "bias_strength"):
        sweep.check_quartiles("bias_decomposition", column, rotated, column)
    for column in ("r_q_a", "r_k_a"):
        sweep.check_quartiles("drift_correlations", column, rotated, column)
    sweep.check_quartiles("bias_strength", "bias_strength", rotated, "bias_strength")
    sweep.check_quartiles("slope_ratio", "slope_ratio", rotated, "slope_ratio")
    shares = sweep.drawn("variance_decomposition")
    for column in ("var_frac_a", "var_frac_b"):
        check(f"variance_decomposition {column}", shares[column],
              [group.mean() for group in sweep.by_run(rotated, column)])
    check("variance_decomposition sum", shares.var_frac_a + shares.var_frac_b + shares.rest,
          np.ones(len(sweep.labels)))
    metrics = sweep.table("head_metrics")
    for column in ("ap_first20", "ap_last20"):
        sweep.check_mean("plasticity_trajectory", column, metrics, column)
    sweep.check_mean("plasticity_trajectory", "bias_strength", rotated, "bias_strength")


def check_families(sweep):
    rotated = sweep.table("rotated")
    rotated["family"] = rotated.model.map(lambda label: "early" if label.startswith("S") else "late")
    points = sweep.drawn("family_scatter")
    for name, heads in rotated.groupby("family"):
        shown = points[points.family == name]
        check(f"family_scatter {name}", np.sort(shown.bias_strength), np.sort(heads.bias_strength))
        check(f"family_scatter r of {name}", shown.r_family.iloc[0],
              np.corrcoef(heads.bias_strength, heads.separation_strength)[0, 1])
        bins = sweep.drawn("bias_histogram")
        bins = bins[bins.family == name]
        check(f"bias_histogram {name}", bins.heads.sum(), len(heads))
        check(f"bias_histogram {name}", bins.fraction.sum(), 1)
        edges = np.append(bins.low, bins.high.iloc[-1])
        inside = heads.bias_strength.between(edges[1], edges[-2])
        check(f"bias_histogram {name}", bins.heads.iloc[1:-1],
              np.histogram(heads.bias_strength[inside], edges[1:-1])[0])


def check_scores(sweep):
    metrics = sweep.table("head_metrics")
    drops = metrics.groupby("model").ap_drop.mean()
    drawn = sweep.drawn("ap_drop_vs_score").set_index("model")
    if sorted(drawn.index) != sorted(sweep.labels):
        failures.append(f"ap_drop_vs_score: {list(drawn.index)}")
    for label in drawn.index:
        check(f"ap_drop_vs_score {label}", drawn.ap_drop[label], drops[label])
        check(f"score of {label}", drawn.score[label], 30 + sweep.labels.index(label) ** 2)
    check("ap_drop_vs_score r", drawn.r.iloc[0], np.corrcoef(drawn.ap_drop, drawn.score)[0, 1])


def check_errors(sweep):
    """Error bars have the intervals of errors.parquet."""
    drawn = sweep.drawn("position_signal")
    first = sweep.table("qk").query("pc == 0")
    means = np.array([group.mean() for group in sweep.by_run(first, "r_q")])
    check("position_signal r_q_low", drawn.r_q_low, means - 0.02)
    check("position_signal r_q_high", drawn.r_q_high, means + 0.03)
    if "r_k_low" in drawn or "jackknife" not in (sweep.out / "position_signal.txt").read_text():
        failures.append("position_signal: bars without errors, or errors that are not said")
    null = [group.mean() for group in sweep.by_run(sweep.table("rotated"), "r_k_a_null")]
    check("rotation_trajectory null", sweep.drawn("rotation_trajectory").r_k_a_null, null)


def check_plasticity_figures(sweep):
    profile = sweep.table("head_profile").dropna(subset=["ap", "position"])
    drawn = sweep.drawn("plasticity_profile")
    bins = "bin" if "bin" in profile else "q_bucket"
    means = profile.groupby([profile.model.map(sweep.labels.index), bins])
    check("plasticity_profile heads", drawn[drawn.line >= 0].ap, profile.ap)
    check("plasticity_profile positions", drawn[drawn.line >= 0].position, profile.position)
    check("plasticity_profile mean", drawn[drawn.line == -1].ap, means.ap.mean())
    check("plasticity_profile mean", drawn[drawn.line == -1].position, means.position.mean())
    check("plasticity_profile band", drawn[drawn.line == -1].high,
          means.ap.mean() + 1.96 * means["se" if "se" in profile else "stderr"].mean())
    lines = profile.groupby(["model", "layer", "head"]).ngroups
    check("plasticity_profile lines", drawn[drawn.line >= 0].line.nunique(), lines)
    check_heatmap(sweep)
    check_bucket_heatmap(sweep)
    weights = sweep.table("head_component_weights")
    shares = weights.groupby([weights.model.map(sweep.labels.index), "component"])
    check("component_weights", sweep.drawn("component_weights").mean_share,
          shares.component_weight.mean())


def check_bucket_heatmap(sweep):
    cells = sweep.table("head_bucket_plasticity").dropna(subset=["ap_bucket"])
    cells = cells[cells.n_pairs > 0]
    cells["weighted"] = cells.ap_bucket * cells.n_eligible
    sums = cells.groupby([cells.model.map(sweep.labels.index), "k_bucket", "q_bucket"])
    drawn = sweep.drawn("bucket_heatmap")
    check("bucket_heatmap", drawn.ap, sums.weighted.sum() / sums.n_eligible.sum())
    check("bucket_heatmap pairs", drawn.n_pairs, sums.n_pairs.sum())
    check("bucket_heatmap keys", drawn.k_bucket_low + 0.5, sums.k_bucket.first())
    check("bucket_heatmap queries", drawn.q_bucket_low + 0.5, sums.q_bucket.first())


def check_heatmap(sweep):
    cells = sweep.table("pair_heatmap").dropna(subset=["ap"])
    weight = "n_eligible" if "n_eligible" in cells else "n_pairs"
    cells["weighted"] = cells.ap * cells[weight]
    cells["run"] = cells.model.map(sweep.labels.index)
    for axis in ("key", "query"):
        width = cells[f"{axis}_distance_high"] - cells[f"{axis}_distance_low"]
        cells[axis] = np.rint(cells[f"{axis}_distance_low"] / width)
        cells[f"{axis}_width"] = width.groupby(cells.run).transform("max")
    sums = cells.groupby(["run", "key", "query"])
    drawn = sweep.drawn("plasticity_heatmap")
    check("plasticity_heatmap", drawn.ap, sums.weighted.sum() / sums[weight].sum())
    check("plasticity_heatmap pairs", drawn.n_pairs, sums.n_pairs.sum())
    for axis in ("key", "query"):
        low = sums[axis].first() * sums[f"{axis}_width"].first()
        check(f"plasticity_heatmap {axis}", drawn[f"{axis}_distance_low"], low)
        check(f"plasticity_heatmap {axis}", drawn[f"{axis}_distance_high"],
              low + sums[f"{axis}_width"].first())


def check_collages(sweep):
    scatter = sweep.table("head_scatter")
    scatter = scatter[scatter.model == sweep.labels[-1]].set_index(["layer", "head"])
    for figure, x, y in (("qk_collage", "pc0", "pc1"), ("ab_plane_collage", "a", "b"),
                         ("complement_collage", "c0", "c1")):
        drawn = sweep.drawn(figure)
        heads = drawn.groupby("panel")[["layer", "head"]].first()
        if not 1 <= len(heads) <= 12 or len(heads) != min(12, scatter.index.nunique()):
            failures.append(f"{figure}: {len(heads)} heads")
        for panel, place in heads.iterrows():
            rows = scatter.loc[(place.layer, place["head"])]
            shown = drawn[drawn.panel == panel]
            check(f"{figure} {x}", shown[x], rows[x])
            check(f"{figure} {y}", shown[y], rows[y])
            check(f"{figure} side", shown.key, rows.side == "k")
        check(f"{figure} shade", drawn.shade, drawn.position / drawn.position.max())


def rows_of(capture, layer, head, kind):
    table = pq.read_table(capture / f"l{layer:02}h{head:02}{kind}" / "data.parquet").to_pandas()
    return table.sort_values(["position", "example_id"], ignore_index=True)


def axes_of(sides):
    """Returns all rows, queries first, and the axes a and b."""
    pooled = np.vstack([np.stack(sides[side].vector) for side in "qk"]).astype(float)
    t = np.concatenate([sides[side].position for side in "qk"]).astype(float)
    a = (pooled - pooled.mean(axis=0)).T @ (t - t.mean())
    a /= np.linalg.norm(a)
    n = len(sides["q"])
    b = pooled[:n].mean(axis=0) - pooled[n:].mean(axis=0)
    b -= a * (a @ b)
    return pooled, a, b / np.linalg.norm(b)


def check_scatter(capture, results, per_side):
    """Recomputes head_scatter.parquet from the capture. The sign of an axis is arbitrary."""
    scatter = pq.read_table(results / "head_scatter.parquet").to_pandas()
    for (layer, head, k_head), points in scatter.groupby(["layer", "head", "k_head"]):
        sides = {"q": rows_of(capture, layer, head, "q"), "k": rows_of(capture, layer, k_head, "k")}
        pooled, a, b = axes_of(sides)
        centred = pooled - pooled.mean(axis=0)
        pcs = np.linalg.svd(centred, full_matrices=False)[2]
        rest = np.linalg.svd(centred - np.outer(centred @ a, a) - np.outer(centred @ b, b),
                             full_matrices=False)[2]
        for side, rows in sides.items():
            found = points[points.side == side]
            kept = [(2 * i + 1) * len(rows) // (2 * per_side) for i in range(per_side)] \
                if len(rows) > per_side else range(len(rows))
            rows = rows.iloc[list(kept)]
            x = np.stack(rows.vector).astype(float)
            check("head_scatter position", found.position, rows.position)
            check("head_scatter a", found.a, x @ a)
            check("head_scatter b", found.b, x @ b)
            x = x - pooled.mean(axis=0)
            axes = {f"pc{i}": pcs[i] for i in range(10)} | {"c0": rest[0], "c1": rest[1]}
            for name, axis in axes.items():
                check(f"head_scatter |{name}|", np.abs(found[name]), np.abs(x @ axis))


def check_planes(capture, results, figures, pairs):
    """Recomputes head_planes.parquet and the drawn CSV from the capture."""
    planes = pq.read_table(results / "head_planes.parquet").to_pandas()
    if set(zip(planes.layer, planes["head"])) != {(1, 0), (2, 3)}:
        failures.append("head_planes: other heads than those asked for")
    for (layer, head, k_head), points in planes.groupby(["layer", "head", "k_head"]):
        sides = {"q": rows_of(capture, layer, head, "q"), "k": rows_of(capture, layer, k_head, "k")}
        pooled, a, b = axes_of(sides)
        centred = pooled - pooled.mean(axis=0)
        rest = np.linalg.svd(centred - np.outer(centred @ a, a) - np.outer(centred @ b, b),
                             full_matrices=False)[2]
        check("planes", sorted(points.plane.unique()), range(pairs))
        for side, rows in sides.items():
            for plane in range(pairs):
                found = points[(points.side == side) & (points.plane == plane)]
                rows_there = rows.set_index(["position"]).vector
                for axis, column in ((rest[2 * plane], "x"), (rest[2 * plane + 1], "y")):
                    x = [sorted(np.abs((np.stack([v]) - pooled.mean(axis=0)) @ axis)[0]
                                for v in rows_there.loc[[position]]) for position in found.position]
                    near = [min(options, key=lambda o: abs(o - abs(f))) for options, f in zip(x, found[column])]
                    check(f"head_planes |{column}| of plane {plane}", np.abs(found[column]), near)
    drawn = pd.read_csv(figures / "head_planes.csv")
    first = planes[(planes.layer == 1) & (planes["head"] == 0)]
    check("head_planes drawn", drawn.x, first.x)
    check("head_planes drawn", drawn.key, first.side == "k")


def check_files(out, expected):
    names = sorted(path.stem for path in out.glob("*.gp"))
    if len(names) != expected:
        failures.append(f"{len(names)} figures, expected {expected}: {names}")
    for name in names:
        sizes = dict(line.split("#")[0].split(" = ") for line in
                     (out / f"{name}.gp").read_text().splitlines()
                     if line.startswith(("width = ", "height = ")))
        width, height = float(sizes["width"]), float(sizes["height"])
        image = Image.open(out / f"{name}.png")
        image.load()
        if max(abs(image.width - 300 * width), abs(image.height - 300 * height)) > 1:
            failures.append(f"{name}.png: {image.size}, expected 300 dots per inch")
        dark = np.mean(np.asarray(image.convert("L")) < 200)
        if not 0.004 < dark < 0.9:
            failures.append(f"{name}.png: {dark:.2%} of it is not white")
        svg = xml.parse(out / f"{name}.svg").getroot()
        if abs(float(svg.get("width")) - 72 * width) > 1 or len(list(svg.iter())) < 60:
            failures.append(f"{name}.svg: wrong size, or next to nothing in it")
        pdf = (out / f"{name}.pdf").read_bytes()
        if not pdf.startswith(b"%PDF-") or b"%%EOF" not in pdf[-32:] or len(pdf) < 4000:
            failures.append(f"{name}.pdf: not a whole PDF")
        if len((out / f"{name}.txt").read_text()) < 100:
            failures.append(f"{name}.txt: no caption")


def check_redrawn(out):
    """The script in the output folder draws the same picture again."""
    before = (out / "taxonomy_evolution.png").read_bytes()
    (out / "taxonomy_evolution.png").unlink()
    subprocess.run(["gnuplot", "taxonomy_evolution.gp"], cwd=out, check=True)
    if (out / "taxonomy_evolution.png").read_bytes() != before:
        failures.append("gnuplot taxonomy_evolution.gp draws another picture")


def check_holes(results, out):
    """Figures are drawn from results with missing columns and runs."""
    for name, change in {
        "rotated": lambda t: t.assign(separation_strength=np.nan, bias_strength=np.nan),
        "head_metrics": lambda t: t.assign(ap_last20=np.nan),
        "head_profile": lambda t: t[t.order > 0],
        "pair_heatmap": lambda t: t[t.order > 0],
        "head_scatter": lambda t: t.assign(c0=t.c0.where(t.layer > 0), b=np.nan),
        "taxonomy": lambda t: t.assign(**{"class": t["class"].where(t.order > 0, "")}),
    }.items():
        table = pq.read_table(results / f"{name}.parquet").to_pandas()
        change(table).to_parquet(results / f"{name}.parquet", index=False)
    done = subprocess.run([QKSCOPE, "figures", str(results), "--out", str(out), "--format", "svg"],
                          capture_output=True, text=True)
    left_out = {"bias_strength", "bias_vs_separation", "ab_plane_collage", "layer_heatmap_bias",
                "bias_histogram", "family_scatter", "ap_drop_vs_score"}
    drawn = {path.stem for path in out.glob("*.svg")}
    if done.returncode != 0 or drawn & left_out or len(drawn) != OF_SWEEP - 7 or \
            not re.search("ab_plane_collage[a-z_, ]* left out", done.stderr):
        failures.append(f"results with holes: {done.returncode}, {sorted(drawn)}: {done.stderr}")


OF_SWEEP = 32  # figures of several runs, including those of any number of runs
OF_ONE = 25


def add_to_sweep(results):
    """Adds errors, null values, families and scores to the planted results."""
    sweep = json.loads((results / "runs.json").read_text())
    for run in sweep["runs"]:
        run["family"] = "early" if run["label"].startswith("S") else "late"
    (results / "runs.json").write_text(json.dumps(sweep))
    qk = pq.read_table(results / "qk.parquet").to_pandas().query("pc == 0")
    means = qk.groupby("model").r_q.mean()
    errors = pd.DataFrame({"model": means.index, "quantity": "r_q", "heads": "all", "mean": means.values,
                           "se": 0.01, "low": means.values - 0.02, "high": means.values + 0.03,
                           "texts": 24, "n_heads": 16})
    errors.to_parquet(results / "errors.parquet", index=False)
    rotated = pq.read_table(results / "rotated.parquet").to_pandas()
    rotated["r_k_a_null"] = 0.1 + 0.01 * rotated.layer
    rotated.to_parquet(results / "rotated.parquet", index=False)
    labels = list(qk.model.unique())
    rows = [f"Test,{label.lower()},{label},score,{30 + i ** 2}" for i, label in enumerate(labels)]
    (results / "scores.csv").write_text("\n".join(["benchmark,model,model_in_study,metric,value", *rows]))


def check_sweep(results, out):
    subprocess.run([QKSCOPE, "figures", str(results), "--out", str(out), "--quiet",
                    "--scores", str(results / "scores.csv")], check=True)
    sweep = Sweep(results, out)
    check_pca_over_runs(sweep)
    check_pca_figures(sweep)
    check_rotation_figures(sweep)
    check_plasticity_figures(sweep)
    check_families(sweep)
    check_scores(sweep)
    check_errors(sweep)
    check_collages(sweep)
    check_files(out, OF_SWEEP)


def check_run(results, out):
    subprocess.run([QKSCOPE, "figures", str(results), "--out", str(out), "--quiet"], check=True)
    sweep = Sweep(results, out)
    check_one_run(sweep)
    check_pca_figures(sweep)
    check_plasticity_figures(sweep)
    check_collages(sweep)
    check_new_maps(sweep)
    check_files(out, OF_ONE + len(new_maps(sweep)) + len(geometry_maps(sweep)))


def main():
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        make = Path(__file__).parent / "planted_sweep.py"
        subprocess.run([sys.executable, make, QKSCOPE, folder / "sweep", "--runs", "4"], check=True)
        add_to_sweep(folder / "sweep")
        check_sweep(folder / "sweep", folder / "figures")
        check_redrawn(folder / "figures")
        one = folder / "sweep" / "runs" / "S1-40K"
        check_run(one, folder / "figures of one")
        check_scatter(folder / "sweep" / "captures" / "S1-40K", one, 48)
        check_planes(folder / "sweep" / "captures" / "S1-40K", one, folder / "figures of one", 5)
        check_holes(folder / "sweep", folder / "figures with holes")
    print("\n".join(failures) or "all figures are as defined")
    sys.exit(1 if failures else 0)


main()
