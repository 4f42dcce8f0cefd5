"""The query models of the plasticity profile by their definitions, in NumPy and float64.

Queries are rows `x` (rows, dim) in rotated coordinates at positions `t`; bins are dictionaries with `low`, `high`
and `rows` (the indices of their queries)."""
import numpy as np
from scipy.special import ndtr

FLOOR = 1e-12


def epanechnikov(t, centre, half_width):
    """Weights of all rows; the half width grows by tenths until 100 rows are effective."""
    scale = max(half_width, 1.0)
    reach = max(abs(t.min() - centre), abs(t.max() - centre))
    while True:
        d = (t - centre) / scale
        w = np.where(abs(d) < 1, 1 - d**2, 0.0)
        if (w.sum() > 0 and w.sum()**2 >= 100 * (w**2).sum()) or scale > 4 * reach + 1:
            return w, scale
        scale *= 1.1


def weighted_fit(x, t, w, centre, scale, degree):
    """Mean at the centre, slope per token and unbiased residual variance of a weighted regression."""
    d = (t - centre) / scale
    design = np.column_stack([np.ones_like(d), d])[:, :degree + 1]
    normal = design.T @ (w[:, None] * design)
    b = np.linalg.solve(normal, design.T @ (w[:, None] * x))
    residual = x - design @ b
    freedom = w.sum() - np.trace(np.linalg.solve(normal, design.T @ (w[:, None]**2 * design)))
    variance = np.maximum((w[:, None] * residual**2).sum(0) / freedom, FLOOR)
    return b[0], (b[1] / scale if degree else np.zeros_like(b[0])), variance, residual


def shrunk(residual, w, variance):
    """Residual covariance with the given diagonal; correlations shrunk by the Ledoit-Wolf intensity."""
    w = w / w.sum()
    s = residual.T @ (w[:, None] * residual)
    squared = residual.T @ (w[:, None]**2 * residual)
    products = (residual**2).T @ (w[:, None]**2 * residual**2)
    off = ~np.eye(len(s), dtype=bool)
    spread = (products - 2 * s * squared + s**2 * (w**2).sum())[off].sum()
    kept = 1 - np.clip(spread / (s[off]**2).sum(), 0, 1) if (s[off]**2).sum() > 0 else 0.0
    root = np.sqrt(np.maximum(np.diag(s), FLOOR))
    correlation = kept * s / np.outer(root, root)
    np.fill_diagonal(correlation, 1)
    return correlation * np.sqrt(np.outer(variance, variance))


def knots_of(bins, half_width):
    """Bin centres at most half a bucket apart; for every bin its knot and the fraction to the next."""
    centre = [(b["low"] + b["high"]) / 2 for b in bins]
    knots = []
    for i, c in enumerate(centre):
        if i == 0 or i + 1 == len(centre) or centre[i + 1] > knots[-1] + 0.5 * half_width:
            knots.append(c)
    at = [int(np.searchsorted(knots, c, side="right")) - 1 for c in centre]
    fraction = [0.0 if k + 1 == len(knots) else (c - knots[k]) / (knots[k + 1] - knots[k])
                for c, k in zip(centre, at)]
    return knots, at, fraction


class Column:
    """A Gaussian query."""

    def __init__(self, mean, variance, covariance=None):
        self.mean, self.variance, self.covariance = mean, variance, covariance

    def z(self, delta):
        v = delta @ self.covariance @ delta if self.covariance is not None else self.variance @ delta**2
        return self.mean @ delta / np.sqrt(v) if v > 0 else 0.0


def fitted(x, t, w, centre, scale, degree, full):
    mean, slope, variance, residual = weighted_fit(x, t, w, centre, scale, degree)
    return Column(mean, variance, shrunk(residual, w, variance) if full else None), slope


def local_columns(x, t, bins, half_width, full=False):
    """The local fits at the knots, their slopes, and each bin's knot and fraction."""
    knots, at, fraction = knots_of(bins, half_width)
    fits = []
    for c in knots:
        w, scale = epanechnikov(t, c, half_width)
        inside = w > 0
        fits.append(fitted(x[inside], t[inside], w[inside], c, scale, 1, full))
    return [f[0] for f in fits], np.array([f[1] for f in fits]), at, fraction


def z_of_bins(kind, x, t, bucket, bins, half_width, line, full=False):
    """For every bin a function of delta that gives z, or None. `line`: (alpha, beta, variance) of all rows."""
    alpha, beta, variance = line
    if kind == "local":
        columns, _, at, fraction = local_columns(x, t, bins, half_width, full)
        return [lambda delta, k=k, f=f: columns[k].z(delta) if f == 0 else
                (1 - f) * columns[k].z(delta) + f * columns[k + 1].z(delta) for k, f in zip(at, fraction)]
    result = []
    for b in bins:
        rows, mean_t = b["rows"], t[b["rows"]].mean()
        if kind == "bin":
            ones = np.ones(len(rows))
            result.append(None if len(rows) < 2 else
                          fitted(x[rows], t[rows], ones, mean_t, 1.0, 0, full)[0].z)
        elif kind == "bucket":
            numbers, sizes = np.unique(bucket[rows], return_counts=True)
            own = bucket == numbers[np.argmax(sizes)]
            if own.sum() < 2:
                result.append(None)
                continue
            mean, spread = x[own].mean(0), np.maximum(x[own].var(0, ddof=1), FLOOR)
            mean[0], spread[0] = alpha[0] + beta[0] * t[own].mean(), variance[0]
            covariance = shrunk(x[own] - x[own].mean(0), np.ones(own.sum()), spread) if full else None
            result.append(Column(mean, spread, covariance).z)
        else:
            residual = x - alpha - np.outer(t, beta)
            covariance = shrunk(residual, np.ones(len(t)), variance) if full else None
            result.append(Column(alpha + beta * mean_t, variance, covariance).z)
    return result


def plasticity(z):
    return 4 * ndtr(z) * ndtr(-z)


def moved_queries(x, t, bins, half_width):
    """The queries of every bin, moved to its centre by the local slope."""
    _, slope, at, fraction = local_columns(x, t, bins, half_width)
    moved = []
    for b, k, f in zip(bins, at, fraction):
        s = slope[k] if f == 0 else (1 - f) * slope[k] + f * slope[k + 1]
        moved.append(x[b["rows"]] + np.outer((b["low"] + b["high"]) / 2 - t[b["rows"]], s))
    return moved


def free_plasticity(queries, delta):
    """4 n / (n - 1) p (1 - p), p the share of the queries that prefer the first key; 1 for equal keys."""
    n, prefer = len(queries), (queries @ delta > 0).sum()
    return 1.0 if not delta.any() else 4 * prefer * (n - prefer) / (n * (n - 1))
