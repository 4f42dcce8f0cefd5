"""Compares the output of function_table with SciPy, and with 60-digit arithmetic where SciPy underflows."""
import subprocess
import sys
from decimal import Decimal, getcontext

import numpy as np
from scipy import special, stats

getcontext().prec = 60
failures = []
worst = {}


def check(name, found, expected, tolerance, absolute=0.0):
    error = abs(found - expected)
    allowed = tolerance * abs(expected) + absolute
    relative = error / abs(expected) if expected else error
    worst[name.split()[0]] = max(worst.get(name.split()[0], 0.0), relative)
    if not error <= allowed:
        failures.append(f"{name}: found {found!r}, expected {expected!r}, off by {relative:.3g}")


def log_beta_tail(n, r):
    """ln I_x(a, 1/2), x = 1 - r^2, a = n/2 - 1, from the power series of the integral in decimals."""
    x = 1 - Decimal(r) * Decimal(r)
    a = Decimal(n - 2) / 2
    # I_x(a, 1/2) B(a, 1/2) = x^a sum_k (1/2)_k x^k / (k! (a + k))
    term, total, k = Decimal(1), Decimal(0), 0
    while True:
        piece = term / (a + k)
        total += piece
        if piece < total * Decimal(10) ** -30 or k > 200000:
            break
        term = term * (Decimal(k) + Decimal("0.5")) / (k + 1) * x
        k += 1
    log_beta = Decimal(0)  # ln B(a, 1/2) = ln Gamma(a) + ln Gamma(1/2) - ln Gamma(a + 1/2), by products
    b = a
    product = Decimal(1)
    while b < 60:
        product *= b / (b + Decimal("0.5"))
        b += 1
    # Gamma(b + 1/2) / Gamma(b) for b >= 60 by its series
    inverse = 1 / b
    series = (inverse * (Decimal(-1) / 8 + inverse**2 * (Decimal(1) / 192 + inverse**2 * (
        Decimal(-1) / 640 + inverse**2 * (Decimal(17) / 14336 - inverse**2 * Decimal(31) / 18432)))))
    log_ratio = b.ln() / 2 + series
    pi = Decimal("3.14159265358979323846264338327950288419716939937510582097494")
    log_beta = pi.ln() / 2 - log_ratio - product.ln()
    return float(a * x.ln() + total.ln() - log_beta)


lines = subprocess.run([sys.argv[1]], check=True, capture_output=True, text=True).stdout.splitlines()
sample = None
for line in lines:
    kind, *fields = line.split(",")
    if kind == "pearson":
        n, r, log_p = int(fields[0]), float(fields[1]), float(fields[2])
        # Use the tail that does not cancel.
        p = (1 - special.betainc(0.5, n / 2 - 1, r * r) if r * r < 1e-3 * n**-0.5
             else special.betainc(n / 2 - 1, 0.5, (1 - r) * (1 + r)))
        if p > 1e-290:
            check(f"pearson n={n} r={r}", np.exp(log_p), p, 1e-9)
        elif r * r > 0.2:  # the series converges
            check(f"pearson_log n={n} r={r}", log_p, log_beta_tail(n, r), 1e-12)
    elif kind == "by_chance":
        n = int(fields[0])  # E|r| of n unrelated rows; scipy's beta has no b = 0
        expected = special.beta(1, n / 2 - 1) / special.beta(0.5, n / 2 - 1) if n > 2 else 1.0
        check(f"by_chance n={n}", float(fields[1]), expected, 1e-9)  # SciPy's beta loses digits at large n
    elif kind == "student":
        degrees, p, t = int(fields[0]), float(fields[1]), float(fields[2])
        check(f"student df={degrees} p={p}", t, stats.t.isf(p / 2, degrees), 1e-9)
    elif kind == "kolmogorov":
        n, d, p = int(fields[0]), float(fields[1]), float(fields[2])
        # Near p = 1 the absolute error matters.
        check(f"kolmogorov n={n} d={d}", p, float(stats.kstwo.sf(d, n)), 1e-9, 1e-300)
    elif kind == "phi":
        z, value = float(fields[1]), float(fields[2])
        check(f"phi z={z}", value, special.ndtr(z), 2e-12)  # rounding of z / sqrt(2) changes ln phi by z^2 1e-16
    elif kind == "erfc":
        u, value = float(fields[1]), float(fields[2])
        check(f"erfc u={u}", value, special.erfc(u), 2e-14 if u < 5 else 4e-13)
    elif kind == "plasticity":
        z, value = float(fields[1]), float(fields[2])
        check(f"plasticity z={z}", value, 4 * special.ndtr(z) * special.ndtr(-z), 0, 1e-6)  # float32
    elif kind == "sample":
        sample = np.array([float(x) for x in fields[2:]])
    elif kind == "normality":
        skew, kurtosis, p, distance = map(float, fields)
        name = f"n={len(sample)} "
        check("skew " + name, skew, stats.skew(sample, bias=False), 1e-9)
        check("kurtosis " + name, kurtosis, stats.kurtosis(sample, bias=False), 1e-9, 1e-9)
        z = (sample - sample.mean()) / sample.std(ddof=1)
        expected = stats.kstest(z, "norm", mode="exact")
        check("ks_distance " + name, distance, expected.statistic, 1e-12, 1e-14)
        check("ks_p " + name, p, expected.pvalue, 1e-9, 1e-290)

for name, error in sorted(worst.items()):
    print(f"{name}: largest relative difference {error:.2e}")
print(f"{len(lines)} lines checked")
if failures:
    sys.exit("\n".join(failures))
