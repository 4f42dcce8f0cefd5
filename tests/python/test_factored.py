"""Factored matrices, circuits and composition, compared with full products."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import typed_calls, untyped

import qkscope
from qkscope import Model
from qkscope import FactoredMatrix


def factors(*leading: int, ldim: int = 7, mdim: int = 3, rdim: int = 7, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(*leading, ldim, mdim)).astype(np.float32),
            rng.normal(size=(*leading, mdim, rdim)).astype(np.float32))


def test_properties_match_the_full_matrix() -> None:
    a, b = factors(2, 4)
    matrix = FactoredMatrix(a, b)
    product = a @ b
    assert matrix.shape == (2, 4, 7, 7) and (matrix.ldim, matrix.mdim, matrix.rdim, matrix.ndim) == (7, 3, 7, 4)
    np.testing.assert_array_equal(matrix.AB, product)
    np.testing.assert_allclose(matrix.T.AB, product.swapaxes(-1, -2), rtol=1e-5)
    np.testing.assert_allclose(matrix.norm(), np.linalg.norm(product, axis=(-2, -1)), rtol=1e-5)
    np.testing.assert_allclose(matrix.S, np.linalg.svd(product)[1][..., :3], rtol=1e-5)
    rebuilt = matrix.U * matrix.S[..., None, :] @ matrix.Vh
    np.testing.assert_allclose(rebuilt, product, atol=1e-5)
    np.testing.assert_allclose(matrix.U.swapaxes(-1, -2) @ matrix.U, np.tile(np.eye(3), (2, 4, 1, 1)), atol=1e-6)
    np.testing.assert_allclose(matrix.make_even().AB, product, atol=1e-5)
    np.testing.assert_allclose(matrix.collapse_r() @ matrix.Vh, product, atol=1e-5)
    np.testing.assert_allclose(matrix.U @ matrix.collapse_l(), product, atol=1e-5)
    largest = np.sort(np.abs(np.linalg.eigvals(a.astype(np.float64) @ b)), axis=-1)[..., -3:]
    np.testing.assert_allclose(np.sort(np.abs(matrix.eigenvalues), axis=-1), largest, rtol=1e-4)
    np.testing.assert_allclose(matrix.get_corner(2), product[:2, :2, :2, :2], rtol=1e-5)
    assert repr(matrix) == "FactoredMatrix(shape=[2, 4, 7, 7], mdim=3)"


def test_products_match_the_full_matrix() -> None:
    a, b = factors(4)
    matrix, product = FactoredMatrix(a, b), a @ b
    other = FactoredMatrix(*factors(4, seed=1))
    vector, wide = np.arange(7, dtype=np.float32), np.ones((7, 5), np.float32)
    np.testing.assert_allclose((matrix @ other).AB, product @ other.AB, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose((matrix @ wide).AB, product @ wide, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose((wide.T @ matrix).AB, wide.T @ product, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(matrix @ vector, product @ vector, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(vector @ matrix, vector @ product, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose((2 * matrix).AB, 2 * product, rtol=1e-5)
    assert (matrix @ other).mdim == 3


def test_indexing_matches_the_full_matrix() -> None:
    a, b = factors(2, 4)
    a, b = np.rint(8 * a), np.rint(8 * b)  # products and sums of small integers are exact in float32
    matrix, product = FactoredMatrix(a, b), a @ b
    np.testing.assert_array_equal(matrix[1].AB, product[1])
    np.testing.assert_array_equal(matrix[1, 2].AB, product[1, 2])
    np.testing.assert_array_equal(matrix[1, 2, 3].AB, product[1, 2, 3:4])
    np.testing.assert_array_equal(matrix[..., -1].AB, product[..., -1:])
    np.testing.assert_array_equal(matrix[0, :, :2, [4, 5]].AB, product[0, :, :2][..., [4, 5]])
    assert matrix.unsqueeze(1).shape == (2, 1, 4, 7, 7)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: FactoredMatrix(np.zeros((3, 4)), np.zeros((5, 3))), "as many as B's rows"),
        (lambda: FactoredMatrix(np.zeros((2, 3, 4)), np.zeros((5, 4, 3))), "leading dimensions that fit"),
        (lambda: untyped.FactoredMatrix(np.zeros(3), 4), "expected two arrays"),
        (lambda: FactoredMatrix(np.zeros((3, 2)), np.zeros((2, 5))).eigenvalues, "expected a square one"),
        (lambda: FactoredMatrix(np.zeros((3, 2)), np.zeros((2, 5))) @ np.zeros((4, 4)), "expected 5 rows"),
        (lambda: FactoredMatrix(np.zeros((3, 2)), np.zeros((2, 5)))[1, 2, 3], "at most 2"),
    ],
)
def test_factors_that_do_not_fit_are_named(call: Callable[[], object], message: str) -> None:
    with pytest.raises(qkscope.InputError, match=message):
        call()


def test_circuits_of_grouped_heads(demo: Model) -> None:
    QK, OV = demo.QK, demo.OV
    assert QK.shape == OV.shape == (8, 8, 128, 128) and QK.mdim == 16
    expected = demo.W_Q[3, 5] @ demo.W_K[3, 1].T
    np.testing.assert_allclose(QK[3, 5].AB, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(OV[3, 5].AB, demo.W_V[3, 1] @ demo.W_O[3, 5], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(demo.blocks[3].attn.QK[5].AB, expected, rtol=1e-5, atol=1e-6)
    assert demo.all_head_labels[:2] == ["L0H0", "L0H1"] and len(demo.all_head_labels) == 64


def test_composition_scores_match_full_products(demo: Model) -> None:
    for mode in "QKV":
        scores = demo.all_composition_scores(mode)
        assert scores.shape == (8, 8, 8, 8) and (scores[3, :, :4] == 0).all()
        write = demo.OV[1, 2].AB
        read = {"Q": demo.QK[4, 6].AB, "K": demo.QK[4, 6].AB.T, "V": demo.OV[4, 6].AB}[mode]
        expected = np.linalg.norm(write @ read) / np.linalg.norm(write) / np.linalg.norm(read)
        np.testing.assert_allclose(scores[1, 2, 4, 6], expected, rtol=1e-4)
    with pytest.raises(qkscope.InputError, match="expected 'Q', 'K' or 'V'"):
        demo.all_composition_scores("O")


@pytest.mark.parametrize(
    ("call", "message"),
    typed_calls([
        (lambda m: m @ np.ones(3), r"@ \[3\]: expected 5 rows"),
        (lambda m: m @ "x", "expected a matrix or a vector"),
        (lambda m: m @ 2.0, r"\* multiplies with a number"),
        (lambda m: m * "x", r"\* 'x': expected a number"),
        (lambda m: m["a"], r"of shape \[5, 5\]"),
        (lambda m: m[0, 0, 0], "found 3 indices, expected at most 2"),
        (lambda m: m.get_corner("x"), "k='x': expected a whole number from 0"),
        (lambda m: m.get_corner(-1), "k=-1: expected a whole number from 0"),
        (lambda m: m.unsqueeze("x"), "k='x': expected a whole number from 0 to 0"),
    ]),
)
def test_wrong_arguments_raise_input_errors(call: Callable[[Any], object], message: str) -> None:
    with pytest.raises(qkscope.InputError, match=message):
        call(qkscope.FactoredMatrix(np.ones((5, 2)), np.ones((2, 5))))


def test_iteration_ends_at_the_last_element(demo: Model) -> None:
    assert len(list(demo.OV)) == len(list(demo.W_Q)) == 8


def test_singular_vectors_are_projected_onto_tokens(demo: Model) -> None:
    interpreter = qkscope.SVDInterpreter(demo)
    vectors = interpreter.get_singular_vectors("OV", 2, num_vectors=4, head_index=3)
    assert vectors.shape == (1024, 1, 4)
    np.testing.assert_allclose(np.abs(vectors[:, 0]), np.abs(demo.W_U.T @ demo.OV[2, 3].V[:, :4]), atol=1e-4)
    for kind in ("w_in", "w_out"):
        assert interpreter.get_singular_vectors(kind, 2).shape == (1024, 1, 10)
    cases: list[tuple[Callable[[], object], str]] = [
        (lambda: interpreter.get_singular_vectors("OV", 2), "head_index=None: expected a whole number from 0 to 7"),
        (lambda: interpreter.get_singular_vectors("w_up", 2), "expected 'OV', 'w_in' or 'w_out'"),
        (lambda: interpreter.get_singular_vectors("w_in", 9), "layer_index=9: expected a whole number from 0 to 7"),
    ]
    for call, message in cases:
        with pytest.raises(qkscope.InputError, match=message):
            call()
