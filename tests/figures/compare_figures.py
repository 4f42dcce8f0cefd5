"""Draws the figures of a planted sweep and of a single planted run and checks them: the CSV of every
figure against its definition, recomputed with pandas from the result tables; every file for being
whole, of the right size and not blank; the scripts for drawing the same again.

usage: compare_figures.py PATH_TO_QKSCOPE"""

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
    """Relative 1e-9: only the order of additions differs."""
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


def check_pca_figures(sweep):
    qk = sweep.table("qk")
    first = qk[qk.pc == 0]
    sweep.check_mean("position_signal", "r_q", first, "r_q")
    sweep.check_mean("position_signal", "r_k", first, "r_k")
    if len(sweep.labels) > 1:
        sweep.check_mean("explained_variance", "pc0", first, "explained_variance")
    else:
        means = qk[qk.pc < 10].groupby("pc").explained_variance
        check("explained_variance", sweep.drawn("explained_variance")["mean"], means.mean())
        check("explained_variance", sweep.drawn("explained_variance")["std"], means.std())
    taxonomy = sweep.table("taxonomy")
    drawn = sweep.drawn("taxonomy_evolution")
    for name in CLASSES:
        shares = [np.mean(group == name) for group in sweep.by_run(taxonomy, "class")]
        check(f"taxonomy_evolution {name}", drawn[name], shares)
    check("taxonomy_evolution sum", drawn[CLASSES].sum(axis=1), np.ones(len(sweep.labels)))
    last = first.groupby("model").layer.transform("max")
    bins = np.minimum(9, 10 * first.layer // last)
    for figure, column in (("layer_heatmap_rq", "r_q"), ("layer_heatmap_rk", "r_k")):
        cells = first.groupby([first.model.map(sweep.labels.index), bins])[column]
        drawn = sweep.drawn(figure)
        check(figure, drawn["mean"], cells.mean())
        check(f"{figure} bins", drawn["bin"], cells.mean().index.get_level_values(1))
        check(f"{figure} rows", drawn["row"], -cells.mean().index.get_level_values(0))
    scatter = sweep.drawn("rq_rk_scatter")
    check("rq_rk_scatter r_q", scatter.r_q, first.r_q)
    check("rq_rk_scatter r_k", scatter.r_k, first.r_k)
    check("rq_rk_scatter nope", scatter.nope, first.rope == "nope")
    roles = qk[qk.pc < 10].groupby(["pc", qk.model.map(sweep.labels.index)])
    for side in ("r_q", "r_k"):
        check(f"pc_roles {side}", sweep.drawn("pc_roles")[f"{side}_mean"], roles[side].mean())
        check(f"pc_roles {side}", sweep.drawn("pc_roles")[f"{side}_std"], roles[side].std())
    for rope in ("rope", "nope"):
        sweep.check_mean("nope_vs_rope", f"{rope}_r_q", first[first.rope == rope], "r_q")
        sweep.check_mean("nope_vs_rope", f"{rope}_r_k", first[first.rope == rope], "r_k")
        metrics = sweep.table("head_metrics")
        sweep.check_mean("nope_vs_rope", f"{rope}_ap", metrics[metrics.rope == rope], "ap_overall")


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
    heads = sweep.drawn("bias_vs_separation")
    check("bias_vs_separation", heads.bias_strength, rotated.bias_strength)
    check("bias_vs_separation", heads.separation_strength, rotated.separation_strength)


def check_plasticity_figures(sweep):
    metrics = sweep.table("head_metrics")
    for column in ("ap_first20", "ap_last20"):
        sweep.check_mean("plasticity_trajectory", column, metrics, column)
    sweep.check_mean("plasticity_trajectory", "bias_strength", sweep.table("rotated"),
                     "bias_strength")
    profile = sweep.table("head_profile").dropna(subset=["ap", "position"])
    drawn = sweep.drawn("plasticity_profile")
    means = profile.groupby([profile.model.map(sweep.labels.index), "q_bucket"])
    check("plasticity_profile heads", drawn[drawn.line >= 0].ap, profile.ap)
    check("plasticity_profile positions", drawn[drawn.line >= 0].position, profile.position)
    check("plasticity_profile mean", drawn[drawn.line == -1].ap, means.ap.mean())
    check("plasticity_profile mean", drawn[drawn.line == -1].position, means.position.mean())
    lines = profile.groupby(["model", "layer", "head"]).ngroups
    check("plasticity_profile lines", drawn[drawn.line >= 0].line.nunique(), lines)
    check_heatmap(sweep)
    weights = sweep.table("head_component_weights")
    shares = weights.groupby([weights.model.map(sweep.labels.index), "component"])
    check("component_weights", sweep.drawn("component_weights").mean_share,
          shares.component_weight.mean())


def check_heatmap(sweep):
    cells = sweep.table("pair_heatmap").dropna(subset=["ap"])
    cells["weighted"] = cells.ap * cells.n_pairs
    cells["run"] = cells.model.map(sweep.labels.index)
    for axis in ("key", "query"):
        width = cells[f"{axis}_distance_high"] - cells[f"{axis}_distance_low"]
        cells[axis] = np.rint(cells[f"{axis}_distance_low"] / width)
        cells[f"{axis}_width"] = width.groupby(cells.run).transform("max")
    sums = cells.groupby(["run", "key", "query"])
    drawn = sweep.drawn("plasticity_heatmap")
    check("plasticity_heatmap", drawn.ap, sums.weighted.sum() / sums.n_pairs.sum())
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


def check_scatter(capture, results, per_side):
    """head_scatter.parquet from the capture itself. Axes have a sign of their own."""
    scatter = pq.read_table(results / "head_scatter.parquet").to_pandas()
    for (layer, head, k_head), points in scatter.groupby(["layer", "head", "k_head"]):
        sides = {"q": rows_of(capture, layer, head, "q"), "k": rows_of(capture, layer, k_head, "k")}
        pooled = np.vstack([np.stack(sides[side].vector) for side in "qk"]).astype(float)
        t = np.concatenate([sides[side].position for side in "qk"]).astype(float)
        centred = pooled - pooled.mean(axis=0)
        pcs = np.linalg.svd(centred, full_matrices=False)[2]
        a = centred.T @ (t - t.mean())
        a /= np.linalg.norm(a)
        n = len(sides["q"])
        b = pooled[:n].mean(axis=0) - pooled[n:].mean(axis=0)
        b -= a * (a @ b)
        b /= np.linalg.norm(b)
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
            for name, axis in (("pc0", pcs[0]), ("pc1", pcs[1]), ("c0", rest[0]), ("c1", rest[1])):
                check(f"head_scatter |{name}|", np.abs(found[name]), np.abs(x @ axis))


def check_files(out):
    names = sorted(path.stem for path in out.glob("*.gp"))
    if len(names) != 22:
        failures.append(f"{len(names)} figures, expected 22")
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
    """The kept script draws the same picture."""
    before = (out / "taxonomy_evolution.png").read_bytes()
    (out / "taxonomy_evolution.png").unlink()
    subprocess.run(["gnuplot", "taxonomy_evolution.gp"], cwd=out, check=True)
    if (out / "taxonomy_evolution.png").read_bytes() != before:
        failures.append("gnuplot taxonomy_evolution.gp draws another picture")


def check_holes(results, out):
    """Results with whole columns and runs missing: what is left is drawn."""
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
    missing = {path.stem for path in out.glob("*.svg")} ^ {"bias_strength", "bias_vs_separation",
                                                         "ab_plane_collage"}
    if done.returncode != 0 or len(missing) != 22 or "ab_plane_collage left out" not in done.stderr:
        failures.append(f"results with holes: {done.returncode}, {len(missing)}: {done.stderr}")


def check_all(results, out):
    subprocess.run([QKSCOPE, "figures", str(results), "--out", str(out), "--quiet"], check=True)
    sweep = Sweep(results, out)
    check_pca_figures(sweep)
    check_rotation_figures(sweep)
    check_plasticity_figures(sweep)
    check_collages(sweep)
    check_files(out)


def main():
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        make = Path(__file__).parent / "planted_sweep.py"
        subprocess.run([sys.executable, make, QKSCOPE, folder / "sweep", "--runs", "4"], check=True)
        check_all(folder / "sweep", folder / "figures")
        check_redrawn(folder / "figures")
        one = folder / "sweep" / "runs" / "S1-40K"
        check_all(one, folder / "figures of one")
        check_scatter(folder / "sweep" / "captures" / "S1-40K", one, 48)
        check_holes(folder / "sweep", folder / "figures with holes")
    print("\n".join(failures) or "all figures are as defined")
    sys.exit(1 if failures else 0)


main()
