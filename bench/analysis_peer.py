"""Computes the quantities of `qkscope analyze` for one head with NumPy, SciPy and scikit-learn, vectorised, without a
Python loop over pairs."""
import numpy as np
import pyarrow.parquet as pq
from scipy import optimize, stats
from scipy.special import ndtr
from sklearn.decomposition import PCA


def read(path):
    table = pq.read_table(path)
    vectors = table["vector"].combine_chunks()
    x = vectors.values.to_numpy().reshape(len(vectors), -1).astype(np.float64)
    return (x, table["position"].to_numpy().astype(np.float64), table["example_id"].to_numpy(),
            table["bucket"].to_numpy())


def pca(q, tq, k, tk, components=10):
    model = PCA(n_components=components, svd_solver="covariance_eigh").fit(np.vstack([q, k]))
    pq_, pk = model.transform(q), model.transform(k)
    rows = [(stats.pearsonr(pq_[:, i], tq), stats.pearsonr(pk[:, i], tk)) for i in range(components)]
    slopes = stats.linregress(tq, pq_[:, 0]).slope, stats.linregress(tk, pk[:, 0]).slope
    return model.explained_variance_ratio_, rows, slopes


def strongest_rotation(z, t, high):
    size = 1 << int(np.ceil(np.log2(2 * (t.max() + 1))))
    grid = np.zeros(size, complex)
    np.add.at(grid, t.astype(int), z)
    spectrum = np.abs(np.fft.fft(grid))
    last = int(high / (2 * np.pi) * size)
    best = 0
    for sign in (1, -1):
        band = spectrum[:last] if sign > 0 else spectrum[-np.arange(last)]
        w = sign * np.argmax(band) * 2 * np.pi / size
        step = 2 * np.pi / size
        found = optimize.minimize_scalar(lambda v: -abs(np.mean(z * np.exp(-1j * v * t))),
                                         bounds=(w - step, w + step), method="bounded",
                                         options={"xatol": 1e-6 * step})
        best = max(best, -found.fun)
    return best


def best_sinusoid(y, t):
    size = 1 << int(np.ceil(np.log2(2 * (t.max() + 1))))
    grid = np.zeros(size)
    np.add.at(grid, t.astype(int), y - y.mean())
    w = (1 + np.argmax(np.abs(np.fft.rfft(grid))[1:])) * 2 * np.pi / size

    def loss(v):
        design = np.column_stack([np.ones_like(t), np.cos(v * t), np.sin(v * t)])
        return np.linalg.lstsq(design, y, rcond=None)[1].sum()
    return optimize.minimize_scalar(loss, bounds=(w / 2, w * 2), method="bounded").x


def rotation(q, tq, k, tk, pairs=30):
    x, t = np.vstack([q, k]), np.concatenate([tq, tk])
    centred = x - x.mean(0)
    a = centred.T @ (t - t.mean())
    a /= np.linalg.norm(a)
    b = q.mean(0) - k.mean(0)
    b -= a * (a @ b)
    b /= np.linalg.norm(b)
    wave = best_sinusoid(centred @ a, t)
    rest = centred - np.outer(centred @ a, a) - np.outer(centred @ b, b)
    _, s, vt = np.linalg.svd(rest, full_matrices=False)
    strengths = []
    for i in range(pairs):
        u, v = rest @ vt[2 * i], rest @ vt[2 * i + 1]
        strengths.append(strongest_rotation((u + 1j * v) / np.hypot(u, v), t, 1.0))
    return wave, s, strengths


def plasticity(q, tq, bq, k, tk, ek, bk):
    sign = np.sign(np.mean([k[bk == b].mean(0) for b in np.unique(bk)], axis=0))
    q, k = q * sign, k * sign
    tc = tq - tq.mean()
    beta = tc @ (q - q.mean(0)) / (tc @ tc)
    w = np.eye(len(beta))[0] - beta / np.linalg.norm(beta)
    w /= np.linalg.norm(w)
    q, k = q - 2 * np.outer(q @ w, w), k - 2 * np.outer(k @ w, w)
    slope, intercept = np.polyfit(tq, q, 1)
    residual = q - intercept - np.outer(tq, slope)
    variance = residual.var(0, ddof=1)
    skew, kurtosis = stats.skew(residual, bias=False), stats.kurtosis(residual, bias=False)
    z = residual / residual.std(0, ddof=1)
    p = [stats.kstest(z[:, j], "norm", mode="exact").pvalue for j in range(z.shape[1])]
    buckets = np.unique(bq)
    mean_t = np.array([tq[bq == b].mean() for b in buckets])
    mean = np.stack([q[bq == b].mean(0) for b in buckets])
    mean[:, 0] = intercept[0] + slope[0] * mean_t
    spread = np.stack([q[bq == b].var(0, ddof=1) for b in buckets])
    spread[:, 0] = variance[0]
    linear_mean = intercept + np.outer(mean_t, slope)
    sums, counts = np.zeros(len(buckets)), np.zeros(len(buckets))
    table, table_counts = np.zeros((len(buckets),) * 2), np.zeros((len(buckets),) * 2)
    heat, heat_counts = np.zeros((16, 16)), np.zeros((16, 16))
    width = (tk.max() + 1) / 16
    for example in np.unique(ek):
        rows = np.flatnonzero(ek == example)
        x, t, b = k[rows], tk[rows], bk[rows]
        i, j = np.triu_indices(len(rows), 1)
        delta = x[i] - x[j]
        latest = np.maximum(b[i], b[j])
        m, v = delta @ mean.T, delta**2 @ spread.T
        ap = 4 * ndtr(m / np.sqrt(v)) * ndtr(-m / np.sqrt(v))
        eligible = latest[:, None] < buckets[None, :]
        sums += np.where(eligible, ap, 0).sum(0)
        counts += eligible.sum(0)
        pair, column = np.nonzero(eligible)
        near = np.minimum(abs(t[i] - t[j])[pair] // width, 15).astype(int)
        far = np.clip((mean_t[column] - (t[i] + t[j])[pair] / 2) // width, 0, 15).astype(int)
        np.add.at(heat, (near, far), ap[pair, column])
        np.add.at(heat_counts, (near, far), 1)
        same = b[i] == b[j]
        m, v = delta[same] @ linear_mean.T, (delta[same]**2 @ variance)[:, None]
        ap = 4 * ndtr(m / np.sqrt(v)) * ndtr(-m / np.sqrt(v))
        np.add.at(table.T, np.searchsorted(buckets, b[i][same]), ap)
        np.add.at(table_counts.T, np.searchsorted(buckets, b[i][same]), 1)
    return skew, kurtosis, p, sums / np.maximum(counts, 1), table, heat


def analyse(query_path, key_path):
    q, tq, _, bq = read(query_path)
    k, tk, ek, bk = read(key_path)
    pca(q, tq, k, tk)
    rotation(q, tq, k, tk)
    plasticity(q, tq, bq, k, tk, ek, bk)
