"""Computes the quantities of `qkscope analyze` for one head as a plain script: library calls per component,
coordinate and frequency, and a loop over buckets and texts with vectorised pairs. bench/analysis_peer.py is the
vectorised version."""
import numpy as np
from scipy import stats
from scipy.special import ndtr
from sklearn.decomposition import PCA

from analysis_peer import best_sinusoid, read, strongest_rotation


def pca(q, tq, k, tk, components=10):
    model = PCA(n_components=components, svd_solver="full").fit(np.vstack([q, k]))
    rows = []
    for i in range(components):
        u, v = model.transform(q)[:, i], model.transform(k)[:, i]
        rows.append((stats.pearsonr(u, tq), stats.pearsonr(v, tk), stats.linregress(tq, u),
                     stats.linregress(tk, v)))
    return model.explained_variance_ratio_, rows


def rotation(q, tq, k, tk, pairs=30):
    x, t = np.vstack([q, k]), np.concatenate([tq, tk])
    centred = x - x.mean(0)
    a = np.array([np.cov(column, t)[0, 1] for column in centred.T])
    a /= np.linalg.norm(a)
    b = q.mean(0) - k.mean(0)
    b -= a * (a @ b)
    b /= np.linalg.norm(b)
    numbers = [np.corrcoef(centred @ a, t)[0, 1], stats.linregress(tq, q @ a), stats.linregress(tk, k @ a)]
    wave = best_sinusoid(centred @ a, t)
    rest = centred - np.outer(centred @ a, a) - np.outer(centred @ b, b)
    _, s, vt = np.linalg.svd(rest, full_matrices=False)
    left_over = max(abs(np.corrcoef(rest @ axis, t)[0, 1]) for axis in vt[:-2])
    strengths = []
    for i in range(pairs):
        theta = np.arctan2(rest @ vt[2 * i + 1], rest @ vt[2 * i])
        strengths.append(strongest_rotation(np.exp(1j * theta), t, 1.0))
    return numbers, wave, s, left_over, strengths


def preference(delta, mean, variance):
    p = ndtr(delta @ mean / np.sqrt(delta**2 @ variance))
    return 4 * p * (1 - p)


def table(k, ek, bk, buckets, mean_t, alpha, beta, variance):
    cells = {}
    for q_bucket in buckets:
        for k_bucket in buckets[buckets < q_bucket]:
            values = []
            for example in np.unique(ek[bk == k_bucket]):
                rows = k[(ek == example) & (bk == k_bucket)]
                i, j = np.triu_indices(len(rows), 1)
                values.append(preference(rows[i] - rows[j], alpha + beta * mean_t[q_bucket], variance))
            values = np.concatenate(values)
            cells[q_bucket, k_bucket] = values.mean() if len(values) else np.nan
    return cells


def profile(q, bq, k, tk, ek, bk, buckets, mean_t, alpha, beta, variance):
    means, heat, heat_counts = {}, np.zeros((16, 16)), np.zeros((16, 16))
    edges = np.linspace(0, tk.max() + 1, 17)
    for bucket in buckets:
        mean, spread = q[bq == bucket].mean(0), q[bq == bucket].var(0, ddof=1)
        mean[0], spread[0] = alpha[0] + beta[0] * mean_t[bucket], variance[0]
        values, near, far = [], [], []
        for example in np.unique(ek):
            rows = (ek == example) & (bk < bucket)
            x, t = k[rows], tk[rows]
            i, j = np.triu_indices(len(x), 1)
            values.append(preference(x[i] - x[j], mean, spread))
            near.append(abs(t[i] - t[j]))
            far.append(mean_t[bucket] - (t[i] + t[j]) / 2)
        values, near, far = map(np.concatenate, (values, near, far))
        means[bucket] = values.mean() if len(values) else np.nan
        heat += np.histogram2d(near, far, (edges, edges), weights=values)[0]
        heat_counts += np.histogram2d(near, far, (edges, edges))[0]
    return means, heat / np.maximum(heat_counts, 1)


def plasticity(q, tq, bq, k, tk, ek, bk):
    sign = np.sign(np.mean([k[bk == b].mean(0) for b in np.unique(bk)], axis=0))
    q, k = q * sign, k * sign
    fits = [stats.linregress(tq, column) for column in q.T]
    beta = np.array([fit.slope for fit in fits])
    first = np.eye(len(beta))[0]
    w = (first - beta / np.linalg.norm(beta)) / np.linalg.norm(first - beta / np.linalg.norm(beta))
    householder = np.eye(len(beta)) - 2 * np.outer(w, w)
    scalar = stats.linregress(q @ beta / np.linalg.norm(beta), np.log2(tq + 1))
    q, k = q @ householder, k @ householder
    fits = [stats.linregress(tq, column) for column in q.T]
    alpha, beta = np.array([f.intercept for f in fits]), np.array([f.slope for f in fits])
    residual = q - alpha - np.outer(tq, beta)
    variance = residual.var(0, ddof=1)
    normality = []
    for column in residual.T:
        z = (column - column.mean()) / column.std(ddof=1)
        normality.append((stats.skew(column, bias=False), stats.kurtosis(column, bias=False),
                          stats.kstest(z, "norm", mode="exact").pvalue))
    buckets = np.unique(bq)
    mean_t = {b: tq[bq == b].mean() for b in buckets}
    cells = table(k, ek, bk, buckets, mean_t, alpha, beta, variance)
    return scalar, normality, cells, profile(q, bq, k, tk, ek, bk, buckets, mean_t, alpha, beta, variance)


def analyse(query_path, key_path):
    q, tq, _, bq = read(query_path)
    k, tk, ek, bk = read(key_path)
    return pca(q, tq, k, tk), rotation(q, tq, k, tk), plasticity(q, tq, bq, k, tk, ek, bk)
