"""Times the transforms of numerics_bench in SciPy (pocketfft) and ducc0, one thread, best of 21.

usage: fourier_peer.py, in an environment with numpy, scipy and ducc0"""
import os

os.environ.update(OMP_NUM_THREADS="1", DUCC0_NUM_THREADS="1")

import time

import ducc0
import numpy as np
import scipy.fft


def best(work):
    """Returns milliseconds of processor time, the minimum of several runs."""
    seconds = []
    for _ in range(21):
        start = time.thread_time()
        work()
        seconds.append(time.thread_time() - start)
    return 1e3 * min(seconds)


random = np.random.default_rng(1)


def signals(*shape):
    return (random.normal(size=shape) + 1j * random.normal(size=shape)).astype(np.complex64)


print("| milliseconds | SciPy | ducc0 |\n| --- | --- | --- |")
for size in (2048, 8192, 65536, 131072):
    times = max(1, 65536 // size)
    apart, together = signals(4, size), signals(size, 4)
    scipy_ms = min(best(lambda: scipy.fft.fft(apart, axis=1, workers=1)),
                   best(lambda: scipy.fft.fft(together, axis=0, workers=1)))
    ducc_ms = min(best(lambda: ducc0.fft.c2c(apart, axes=(1,), nthreads=1)),
                  best(lambda: ducc0.fft.c2c(together, axes=(0,), nthreads=1)))
    print(f"| four signals of {size}, {times} times | {times * scipy_ms:.3f} | {times * ducc_ms:.3f} |")
for length in (131072, 4096):
    # The grid of the C++ NUFFT: 5 points for 14 tokens, 1.4 points per cell; frequencies up to 1 radian per token.
    grid = 2 ** int(np.ceil(np.log2(1.4 * length * 5 / 14)))
    step = 2 * np.pi / (grid * 14 / 5)
    modes = 2 * int(1 / step)
    where = ((random.integers(0, length, (16000, 1)) - length / 2) * step % (2 * np.pi)).astype(np.float32)
    values = [signals(16000) for _ in range(4)]
    out = np.empty(modes, np.complex64)
    plan = ducc0.nufft.plan(nu2u=True, coord=where, grid_shape=(modes,), epsilon=2e-3, nthreads=1,
                            periodicity=2 * np.pi)
    ms = best(lambda: [plan.nu2u(points=value, out=out, forward=True) for value in values])
    print(f"| spectrum of 4 x 16,000 rows over {length} tokens, with a plan | | {ms:.3f} |")
