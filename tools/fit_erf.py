"""Prints the coefficients of the error function in src/engine/ops/vector_math-inl.h and its largest error.

erf(x) = x P(s) with s = x² / 8 - 1, for |x| <= 4; beyond, erf is 1 in float32. P interpolates at the Chebyshev points of
[-1, 1]; its degree is the lowest with an error below 1e-10, a six-hundredth of an ulp of float32.
"""

import math

import numpy as np
from numpy.polynomial import chebyshev


def target(s):
    x = math.sqrt(8.0 * (s + 1.0))
    return math.erf(x) / x if x > 0.0 else 2.0 / math.sqrt(math.pi)


def fit(degree):
    values = chebyshev.chebinterpolate(np.vectorize(target), degree)
    return chebyshev.cheb2poly(values)


def error(coefficients):
    points = np.linspace(-1.0, 1.0, 20001)
    exact = np.vectorize(target)(points)
    return np.max(np.abs(np.polynomial.polynomial.polyval(points, coefficients) / exact - 1.0))


degree = next(d for d in range(10, 40) if error(fit(d)) < 1e-10)
coefficients = fit(degree)
print(f"degree {degree}, relative error {error(coefficients):.1e}")
print(",\n".join(f"{value:.17e}" for value in reversed(coefficients)))
