"""The table of the geometry against NumPy in float64, on demo checkpoints on the CPU.

    python compare_geometry.py PATH_TO_QKSCOPE

Captures of every token before and after RoPE give the rows behind the sums of `qkscope stats`: columns from sums are recomputed
from the rows, columns from attention from the masses of distance.parquet, sampled columns over all pairs."""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from safetensors.numpy import load_file

QKSCOPE = sys.argv[1]
DEMO = Path(__file__).resolve().parents[3] / "share" / "demo"
CHECKPOINT, LENGTH, DOCUMENTS, FIRST = "LC1-1200", 192, 5, 4
BOUND = 1e-9  # relative: sums in another order
failures, worst = [], {}


def check(name, found, expected, bound=BOUND, absolute=1e-12):
    found, expected = float(found), float(expected)
    if np.isnan(found) and np.isnan(expected):
        return
    error = abs(found - expected)
    key = name.split()[0]
    worst[key] = max(worst.get(key, 0.0), error / max(abs(expected), 1e-300))
    if not error <= bound * abs(expected) + absolute:
        failures.append(f"{name}: found {found!r}, expected {expected!r}")


def qkscope(*arguments):
    subprocess.run([QKSCOPE, *map(str, arguments)], check=True, stdout=subprocess.DEVNULL)


def ranks(eigenvalues):
    l = np.sort(eigenvalues)[::-1]
    l = np.where(l < 1e-12 * l[0], 0, l)
    p = l[l > 0] / l.sum()
    top = l[:16][l[:16] > 0] / l[:16].sum()
    return {"rank_participation": l.sum() ** 2 / (l**2).sum(), "rank_entropy": np.exp(-(p * np.log(p)).sum()),
            "rank_90": np.searchsorted(np.cumsum(l), 0.9 * l.sum() * (1 - 1e-15)) + 1,
            "entropy_top": -(top * np.log(top)).sum() / np.log(16)}


def product_eigenvalues(a, b):
    values, vectors = np.linalg.eigh(a)
    root = vectors * np.sqrt(np.maximum(values, 0)) @ vectors.T
    return np.linalg.eigvalsh(root @ b @ root)


def read_table(path):
    """Columns by name; null is NaN in columns of numbers."""
    table = pq.read_table(path)
    return {name: table[name].to_numpy(zero_copy_only=False) for name in table.column_names}


def row_of(table, at):
    return {name: values[at] for name, values in table.items()}


def bfloat16_tensors(path):
    """Tensors of a safetensors file in float64; NumPy has no bfloat16."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    tensors = {}
    for name, entry in json.loads(data[8:8 + size]).items():
        if name != "__metadata__":
            begin, end = (8 + size + offset for offset in entry["data_offsets"])
            bits = np.frombuffer(data[begin:end], dtype=np.uint16).astype(np.uint32) << 16
            tensors[name] = bits.view(np.float32).astype(np.float64).reshape(entry["shape"])
    return tensors


class Head:
    def __init__(self, root, layer, head, kind):
        table = pq.read_table(root / f"l{layer:02}h{head:02}{kind}" / "data.parquet")
        self.x = np.stack(table["vector"].to_numpy(zero_copy_only=False)).astype(np.float64)
        self.t, self.text = table["position"].to_numpy(), table["example_id"].to_numpy()
        self.metadata = {k.decode(): v.decode() for k, v in table.schema.metadata.items()}

    def body(self):
        return self.x[self.t >= FIRST]


def covariance(x):
    return np.cov(x.T, bias=True)


def check_ranks(row, name, x, suffix=""):
    found = ranks(np.linalg.eigvalsh(covariance(x)))
    for column, expected in found.items():
        check(f"{column} {name}{suffix}", row[f"{column}_{name}"], expected)
    check(f"rank_entropy_share {name}", row[f"rank_entropy_share_{name}"], found["rank_entropy"] / x.shape[1])


def check_logits(row, q, k):
    a_q, a_k = q.T @ q / len(q), k.T @ k / len(k)
    found = ranks(product_eigenvalues(a_q, a_k))
    check("logit_rank_participation", row["logit_rank_participation"], found["rank_participation"])
    check("logit_rank_90", row["logit_rank_90"], found["rank_90"])
    check("trace of the logit spectrum", product_eigenvalues(a_q, a_k).sum(), ((q @ k.T) ** 2).mean(), 1e-9)
    for side, x in (("q", q), ("k", k)):
        rms = np.sqrt((x**2).mean(0))
        check("massive_" + side, row["massive_" + side], rms.max() / rms.mean())
        check("massive_count_" + side, row["massive_count_" + side], (rms > 8 * rms.mean()).sum())


def check_frequencies(row, pairs, q, k, frequencies):
    half = len(frequencies)
    z = {side: x[:, :half] + 1j * x[:, half:2 * half] for side, x in (("q", q), ("k", k))}
    for side in "qk":
        mean_abs = np.abs(z[side]).mean(0)
        concentration = np.abs(z[side].mean(0)) / mean_abs
        check("concentration_" + side, row["concentration_" + side], np.average(concentration, weights=mean_abs))
        for p in range(half):
            check(f"pairs.concentration_{side}", pairs["concentration_" + side][p], concentration[p])
            check(f"pairs.mean_abs_{side}", pairs["mean_abs_" + side][p], mean_abs[p])
    # Covariance of each pair's part of the score with the score, over all independent (query, key).
    parts = np.stack([(z["q"][:, None, p] * z["k"][None, :, p].conj()).real for p in range(half)])
    score = q @ k.T
    shares = np.array([((part - part.mean()) * (score - score.mean())).mean() for part in parts]) / score.var()
    for p in range(half):
        check("pairs.frequency_use", pairs["frequency_use"][p], shares[p], 1e-9, 1e-10)
        check("pairs.inv_freq", pairs["inv_freq"][p], frequencies[p], 1e-6)
    positive = np.maximum(shares, 0) / np.maximum(shares, 0).sum()
    positive = positive[positive > 0]
    check("frequency_use_entropy", row["frequency_use_entropy"], -(positive * np.log(positive)).sum())
    check("frequency_use_slow", row["frequency_use_slow"], shares[np.argsort(frequencies)][:half // 4].sum(), 1e-9, 1e-10)


def preference(q, k, frequencies, scale, length):
    half = len(frequencies)
    z_q, z_k = (x.mean(0)[:half] + 1j * x.mean(0)[half:2 * half] for x in (q, k))
    distance = np.arange(length)
    turned = (z_q * z_k.conj() * np.exp(1j * np.outer(distance, frequencies))).real.sum(1)
    return scale * (turned + q.mean(0)[2 * half:] @ k.mean(0)[2 * half:])


def check_distances(row, score, distance, lengths):
    """`distance`: rows of distance.parquet of the head; `score`: S(D), or None without RoPE."""
    pairs = np.array([np.maximum(0, lengths - d).sum() for d in range(lengths.max())], dtype=float)
    x, y, weight, preferred, measured = [], [], [], [], []
    for low, high, mass in zip(distance["distance_low"], distance["distance_high"], distance["mass"]):
        high = min(high, len(pairs))
        if low >= high or mass == 0:
            continue
        count = pairs[low:high]
        attention = np.log(mass * lengths.sum() / count.sum())
        if score is not None:
            preferred.append(np.average(score[low:high], weights=count))
            measured.append(attention)
        if low >= 4 and 4 * (high - 1) <= lengths.max():
            x.append(np.average(np.log(np.arange(low, high)), weights=count))
            y.append(attention)
            weight.append(pairs[low])
    design = np.stack([np.ones(len(x)), x], axis=1)
    root = np.sqrt(weight)
    (_, slope), *_ = np.linalg.lstsq(design * root[:, None], y * root, rcond=None)
    check("decay_exponent", row["decay_exponent"], slope, 1e-9)
    check("decay_r2", row["decay_r2"], np.cov(x, y, aweights=weight)[0, 1] ** 2 /
          (np.cov(x, aweights=weight) * np.cov(y, aweights=weight)), 1e-9)
    if score is not None:
        check("distance_preference", row["distance_preference"], score.argmax())
        check("distance_preference_range", row["distance_preference_range"], np.ptp(score))
        check("distance_preference_r", row["distance_preference_r"], np.corrcoef(preferred, measured)[0, 1], 1e-9)


def check_sinks(row, q, k, scale):
    above = total = near = 0
    for text in np.unique(q.text):
        score = scale * q.x[q.text == text] @ k.x[k.text == text].T
        score[np.triu_indices(len(score), 1)] = -np.inf
        p = np.exp(score - score.max(1, keepdims=True))
        first = (p / p.sum(1, keepdims=True))[8:, 0]
        above, total = above + (first > 0.5).sum(), total + len(first)
        near += (np.abs(first - 0.5) < 1e-5).sum()  # rounding decides
    check("sink_fraction", row["sink_fraction"], above / total, 0, 1e-12 + near / total)


def bin_of(distance):
    return np.where(distance < 8, distance, 8 + np.floor(4 * (np.log2(np.maximum(distance, 1)) - 3))).astype(int)


def omega_squared(score, level):
    total = ((score - score.mean()) ** 2).sum()
    _, group = np.unique(level, return_inverse=True)
    means = np.bincount(group, score) / np.bincount(group)
    within = ((score - means[group]) ** 2).sum()
    levels = len(means)
    mean_within = within / (len(score) - levels)
    return (total - within - (levels - 1) * mean_within) / (total + mean_within)


def check_shares(row, q, k):
    """`row` was made with all pairs, so only the order of additions differs."""
    i, j = np.nonzero((q.text[:, None] == k.text[None]) & (k.t[None] < q.t[:, None]))
    score = (q.x[i] * k.x[j]).sum(1)
    shares = {"distance_share": omega_squared(score, bin_of(q.t[i] - k.t[j])), "key_share": omega_squared(score, j),
              "query_share": omega_squared(score, i)}
    for name, expected in shares.items():
        check(name, row[name], expected, 1e-9, 1e-9)
    check("residual_share", row["residual_share"], 1 - sum(shares.values()), 1e-9, 1e-9)


def check_sampled(row, exact):
    """A sample of pairs lies within 4 standard errors of all pairs; the jackknife's error over 5 texts is itself rough."""
    for name in ("distance_share", "key_share", "query_share"):
        if abs(row[name] - exact[name]) > 4 * max(row[name + "_se"], 0.01):
            failures.append(f"{name}: sampled {row[name]}, over all pairs {exact[name]}, error {row[name + '_se']}")


with tempfile.TemporaryDirectory() as temporary:
    folder = Path(temporary)
    config = folder / "run.yaml"
    model = DEMO / "checkpoints" / CHECKPOINT
    config.write_text(json.dumps({
        "dataset": {"path": str(DEMO / "corpus.jsonl"), "id_column": "id", "max_samples": DOCUMENTS},
        "model": {"name": str(model), "dtype": "float32", "device_map": "cpu"},
        "tokenizer": {"max_length": LENGTH}, "inference": {"batch_size": 2},
        "capture": {"sampler": {"type": "all"}, "min_bucket_size": 16},
        "stats": {"groups": ["A", "C"], "first": FIRST}}))
    qkscope("stats", "--config", config, "--set", f"output.data_root={folder}/stats", "--quiet")
    for stage in ("pre", "post"):
        qkscope("capture", "--config", config, "--set", f"output.data_root={folder}/{stage}", "--set",
                f"capture.capture_pre_rope={'true' if stage == 'pre' else 'false'}", "--quiet")
    only = ["--only", "geometry", "--quiet"]
    qkscope("analyze", folder / "stats", "--out", folder / "exact", "--weights", model, *only)
    qkscope("analyze", folder / "post", "--out", folder / "rows", "--score-pairs", 10**9, *only)
    qkscope("analyze", folder / "pre", "--out", folder / "pre_rows", "--score-pairs", 10**9, *only)
    qkscope("analyze", folder / "post", "--out", folder / "sampled", "--score-pairs", 4096, *only)

    def table(name, file="geometry"):
        return read_table(folder / name / f"{file}.parquet")

    exact, rows, pre_rows, sampled, pairs = table("exact"), table("rows"), table("pre_rows"), table("sampled"), table("exact", "pairs")
    distance = read_table(folder / "stats" / "distance.parquet")
    sums = load_file(folder / "stats" / "stats.safetensors")
    lengths = sums["documents"]
    weights = bfloat16_tensors(model / "model.safetensors")
    shape = json.loads((model / "config.json").read_text())
    scale = shape["hidden_size"] // shape["num_attention_heads"]
    scale = shape.get("head_dim", scale) ** -0.5
    checked = set()
    for at in range(0, len(exact["layer"]), 9):  # a head of each layer
        row = row_of(exact, at)
        layer, head, key = row["layer"], row["head"], row["k_head"]
        q_pre, q, k_pre, k = (Head(folder / stage, layer, number, kind) for kind, number in (("q", head), ("k", key))
                              for stage in ("pre", "post"))
        for name, vectors in (("q_pre", q_pre), ("q_post", q), ("k_pre", k_pre), ("k_post", k)):
            check_ranks(row, name, vectors.body())
        m2 = sums["v.pre.body.m2"][layer, key]
        v = np.zeros((q.x.shape[1],) * 2)
        v[np.triu_indices(len(v))] = m2
        for column, expected in ranks(np.linalg.eigvalsh(v, UPLO="U")).items():
            check(f"{column} v_pre", row[f"{column}_v_pre"], expected)
        check_logits(row, q.body(), k.body())
        rope = row["rope"] == "rope"
        frequencies = np.array(json.loads(q.metadata["rope_inv_freq"])) if rope else None
        score = None
        if rope:
            own = row_of(pairs, (pairs["layer"] == layer) & (pairs["head"] == head))
            check_frequencies(row, own, q_pre.body(), k_pre.body(), frequencies)
            score = preference(q_pre.body(), k_pre.body(), frequencies, scale, lengths.max())
        elif not np.isnan(row["concentration_q"]):
            failures.append("concentration_q of a NoPE layer is not empty")
        of_head = row_of(distance, (distance["layer"] == layer) & (distance["head"] == head) & np.isnan(distance["bucket"]))
        check_distances(row, score, of_head, lengths)
        check_sinks(row, q, k, scale)
        check_shares(row_of(rows, at), q, k)
        # Rows captured before RoPE are rotated to float32 again.
        for name in ("distance_share", "key_share", "query_share", "symbolic_score", "positional_score"):
            check(f"{name} (pre_rope)", row_of(pre_rows, at)[name], row_of(rows, at)[name], 0, 1e-4)
        if not rope:
            check("symbolic_score (NoPE)", row_of(rows, at)["symbolic_score"], 1, 1e-9)
        check_sampled(row_of(sampled, at), row_of(rows, at))
        d, prefix = q.x.shape[1], f"model.layers.{layer}."
        norm = weights[prefix + "input_layernorm.weight"]
        w_q, w_k = (weights[f"{prefix}self_attn.{side}_proj.weight"][number * d:(number + 1) * d] * norm
                    for side, number in (("q", head), ("k", key)))
        singular = np.linalg.svd(w_q.T @ w_k, compute_uv=False)[:d]
        check("weight_rank_90", row["weight_rank_90"], ranks(singular**2)["rank_90"])
        check("weight_rank_participation", row["weight_rank_participation"], ranks(singular**2)["rank_participation"])
        checked.add(row["rope"])
    if checked != {"rope", "nope"}:
        failures.append(f"heads of {checked} were checked; expected RoPE and NoPE layers")
    summary = json.loads((folder / "exact" / "summary.json").read_text())
    if "needs_rows" not in summary["undefined"]["geometry.csv"]["distance_share"]:
        failures.append("the summary does not say that distance_share needs rows")

for name, error in sorted(worst.items()):
    print(f"{name}: at most {error:.2g}, relative")
for failure in failures[:40]:
    print(failure)
sys.exit(1 if failures else 0)
