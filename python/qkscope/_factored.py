"""Low-rank matrices stored as a product of two factors."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, overload

import numpy as np

from . import _options
from ._arrays import Array, ArrayInput, NoSuchIndex, is_torch, like, on_host, torch_or_none
from ._engine import InputError


class FactoredMatrix:
    """The matrix A @ B, stored as factors [..., ldim, mdim] and [..., mdim, rdim] with any leading dimensions.

    Norm, eigenvalues and singular values are computed in float64 from the factors and returned as float32. Factors are
    NumPy arrays or torch tensors; results have the type of A.
    """

    A: Array
    B: Array

    def __init__(self, A: ArrayInput, B: ArrayInput):
        if not hasattr(A, "shape") or not hasattr(B, "shape") or len(A.shape) < 2 or len(B.shape) < 2:
            raise InputError("FactoredMatrix: expected two arrays [..., ldim, mdim] and [..., mdim, rdim]")
        found = f"found A {list(A.shape)} and B {list(B.shape)}"
        if A.shape[-1] != B.shape[-2]:
            raise InputError(f"FactoredMatrix: {found}, expected A's columns to be as many as B's rows")
        try:
            leading = np.broadcast_shapes(A.shape[:-2], B.shape[:-2])
        except ValueError:
            raise InputError(f"FactoredMatrix: {found}, expected leading dimensions that fit") from None
        self.A = _broadcast(A, (*leading, *A.shape[-2:]))
        self.B = _broadcast(like(B, A) if is_torch(A) != is_torch(B) else B, (*leading, *B.shape[-2:]))
        self.ldim, self.mdim, self.rdim = A.shape[-2], A.shape[-1], B.shape[-1]
        self.shape: tuple[int, ...] = (*leading, self.ldim, self.rdim)

    def __repr__(self) -> str:
        return f"FactoredMatrix(shape={list(self.shape)}, mdim={self.mdim})"

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def pair(self) -> tuple[Array, Array]:
        """(A, B)"""
        return self.A, self.B

    @property
    def AB(self) -> Array:
        """The product, [..., ldim, rdim]"""
        return self.A @ self.B

    @property
    def BA(self) -> Array:
        """The product B @ A of a square matrix, [..., mdim, mdim]"""
        if self.ldim != self.rdim:
            raise InputError(f"FactoredMatrix.BA: the matrix is {self.ldim} x {self.rdim}, expected a square one")
        return self.B @ self.A

    @property
    def T(self) -> FactoredMatrix:
        """The transpose"""
        return FactoredMatrix(_transposed(self.B), _transposed(self.A))

    def transpose(self) -> FactoredMatrix:
        """The same as T"""
        return self.T

    # Products

    def __matmul__(self, other: Any) -> Any:
        """Product with a matrix or FactoredMatrix, as FactoredMatrix; with a vector [rdim], a vector [..., ldim]."""
        if isinstance(other, FactoredMatrix):
            return (self @ other.A) @ other.B
        other = self._operand(other)
        rows = other.shape[0] if len(other.shape) == 1 else other.shape[-2]
        if rows != self.rdim:
            raise InputError(f"FactoredMatrix @ {list(other.shape)}: expected {self.rdim} rows")
        if len(other.shape) < 2:
            return (self.A @ (self.B @ other[..., None]))[..., 0]
        if self.rdim > self.mdim:
            return FactoredMatrix(self.A, self.B @ other)
        return FactoredMatrix(self.AB, other)

    def __rmatmul__(self, other: Any) -> Any:
        other = self._operand(other)
        if other.shape[-1] != self.ldim:
            raise InputError(f"{list(other.shape)} @ FactoredMatrix: expected {self.ldim} columns")
        if len(other.shape) < 2:
            return ((other[None, :] @ self.A) @ self.B)[..., 0, :]
        if self.ldim > self.mdim:
            return FactoredMatrix(other @ self.A, self.B)
        return FactoredMatrix(other, self.AB)

    def _operand(self, other: Any) -> Any:
        try:
            other = like(other, self.A)
        except (TypeError, ValueError):
            raise InputError(f"FactoredMatrix @ {other!r}: expected a matrix or a vector") from None
        if not len(other.shape):
            raise InputError(f"FactoredMatrix @ {other}: expected a matrix or a vector; * multiplies with a number")
        return other

    __array_ufunc__ = None  # makes NumPy defer array @ FactoredMatrix to __rmatmul__

    def __mul__(self, scalar: float) -> FactoredMatrix:
        """Product with a number"""
        if np.ndim(scalar) or not isinstance(scalar, (int, float, np.number)) and not is_torch(scalar):
            raise InputError(f"FactoredMatrix * {scalar!r}: expected a number")
        return FactoredMatrix(self.A * scalar, self.B)

    __rmul__ = __mul__

    def __iter__(self) -> Iterator[FactoredMatrix]:
        return (self[i] for i in range(self.shape[0]))

    def __getitem__(self, index: Any) -> FactoredMatrix:
        """Indexes leading dimensions, then rows, then columns; a single row or column keeps its dimension."""
        index = index if isinstance(index, tuple) else (index,)
        leading = self.ndim - 2
        if Ellipsis in [i if i is Ellipsis else None for i in index]:
            at = next(i for i, part in enumerate(index) if part is Ellipsis)
            index = (*index[:at], *[slice(None)] * (self.ndim - len(index) + 1), *index[at + 1 :])
        if len(index) > self.ndim:
            raise InputError(f"FactoredMatrix: found {len(index)} indices, expected at most {self.ndim}")
        head, rows, columns = index[:leading], index[leading : leading + 1], index[leading + 1 :]
        try:
            A, B = self.A[head], self.B[head]
            if rows:
                A = A[..., _kept(rows[0]), :]
            if columns:
                B = B[..., _kept(columns[0])]
        except (IndexError, TypeError) as error:
            raise NoSuchIndex(f"FactoredMatrix of shape {list(self.shape)}: {error}") from None
        return FactoredMatrix(A, B)

    # Spectra

    @functools.cached_property
    def _svd(self) -> tuple[Array, Array, Array]:
        left, right = np.linalg.qr(_float64(self.A)), np.linalg.qr(_float64(_transposed(self.B)))
        u, s, vh = np.linalg.svd(left.R @ right.R.swapaxes(-1, -2))
        return self._like(left.Q @ u), self._like(s), self._like(right.Q @ vh.swapaxes(-1, -2))

    def svd(self) -> tuple[Array, Array, Array]:
        """U [..., ldim, mdim], S [..., mdim] and V [..., rdim, mdim] with A @ B = U diag(S) V^T, S descending."""
        return self._svd

    @property
    def U(self) -> Array:
        """Left singular vectors, [..., ldim, mdim]"""
        return self._svd[0]

    @property
    def S(self) -> Array:
        """Singular values, descending, [..., mdim]"""
        return self._svd[1]

    @property
    def V(self) -> Array:
        """Right singular vectors, [..., rdim, mdim]"""
        return self._svd[2]

    @property
    def Vh(self) -> Array:
        """The transpose of V, [..., mdim, rdim]"""
        return _transposed(self.V)

    @property
    def eigenvalues(self) -> Array:
        """Complex eigenvalues of B @ A, [..., mdim]: the nonzero eigenvalues of A @ B"""
        if self.ldim != self.rdim:
            raise InputError(f"eigenvalues: the matrix is {self.ldim} x {self.rdim}, expected a square one")
        values: Any = np.linalg.eigvals(_float64(self.B) @ _float64(self.A)).astype(np.complex64)
        return torch_or_none().as_tensor(values, device=getattr(self.A, "device")) if is_torch(self.A) else values

    def norm(self) -> Array:
        """Frobenius norm, [...]"""
        a, b = _float64(self.A), _float64(self.B)
        return self._like(np.sqrt(np.einsum("...lm,...ln,...mr,...nr->...", a, a, b, b, optimize=True)))

    def make_even(self) -> FactoredMatrix:
        """Returns the same matrix with the factors U sqrt(S) and sqrt(S) V^T"""
        root = self.S**0.5
        return FactoredMatrix(self.U * root[..., None, :], root[..., :, None] * self.Vh)

    def collapse_l(self) -> Array:
        """Returns diag(S) V^T, [..., mdim, rdim]: the matrix without its orthogonal left factor"""
        return self.S[..., :, None] * self.Vh

    def collapse_r(self) -> Array:
        """Returns U diag(S), [..., ldim, mdim]: the matrix without its orthogonal right factor"""
        return self.U * self.S[..., None, :]

    @_options.checked
    def get_corner(self, k: int = 3) -> Array:
        """Returns the first k rows and columns of the product, and the first k entries of each leading dimension"""
        k = _options.whole("k", k, 0)
        corner = (slice(k),) * (self.ndim - 2)
        return self.A[(*corner, slice(k), slice(None))] @ self.B[(*corner, slice(None), slice(k))]

    @_options.checked
    def unsqueeze(self, k: int) -> FactoredMatrix:
        """Inserts a leading dimension of size 1 at index k"""
        index = (*[slice(None)] * _options.whole("k", k, 0, self.ndim - 2), None)
        return FactoredMatrix(self.A[index], self.B[index])

    def _like(self, values: np.ndarray) -> Any:
        return like(np.asarray(values, dtype=np.float32), self.A)


def _float64(array: Any) -> np.ndarray:
    return on_host(array).astype(np.float64)


def _transposed(array: Any) -> Any:
    return array.swapaxes(-1, -2)


def _broadcast(array: Any, shape: tuple[int, ...]) -> Any:
    if tuple(array.shape) == shape:
        return array
    return array.broadcast_to(shape) if is_torch(array) else np.broadcast_to(array, shape)


def _kept(index: Any) -> Any:
    """Converts an integer index to a slice of length 1."""
    if not isinstance(index, (int, np.integer)):
        return index
    return slice(index, index + 1 or None)
