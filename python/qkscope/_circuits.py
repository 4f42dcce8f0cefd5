"""Quantities computed from the weights alone: QK and OV circuits, composition, singular vectors, biases."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import _options
from ._arrays import Array, like, on_host, stack, weights_as_kind
from ._engine import InputError
from ._factored import FactoredMatrix, _transposed
from ._tokens import TextMethods
from ._weights import Attention, WeightMethods


class CircuitMethods(TextMethods, WeightMethods):
    """Methods of Model that need no forward pass."""

    @property
    def QK(self) -> FactoredMatrix:
        """W_Q W_K^T of every head, [n_layers, n_heads, d_model, d_model]; key heads are repeated for GQA"""
        return _stacked([block.attn.QK for block in self.blocks])

    @property
    def OV(self) -> FactoredMatrix:
        """W_V W_O of every head, [n_layers, n_heads, d_model, d_model]; value heads are repeated for GQA"""
        return _stacked([block.attn.OV for block in self.blocks])

    @property
    def all_head_labels(self) -> list[str]:
        """'L0H0', 'L0H1', ..., layer by layer"""
        return [f"L{layer}H{head}" for layer in range(self.cfg.n_layers) for head in range(self.cfg.n_heads)]

    @_options.checked
    def all_composition_scores(self, mode: str) -> Array:
        """Composition scores of all pairs of heads, [n_layers, n_heads, n_layers, n_heads].

        ||W_OV W|| / (||W_OV|| ||W||) in Frobenius norms, where W is the later head's QK ("Q"), its transpose ("K") or
        its OV ("V"). Zero if the second head is not in a later layer. Weights of norms are ignored unless the model is
        loaded with fold_ln=True.
        """
        if not isinstance(mode, str) or mode not in ("Q", "K", "V"):
            raise InputError(f"all_composition_scores: found mode {mode!r}, expected 'Q', 'K' or 'V'")
        layers, heads = self.cfg.n_layers, self.cfg.n_heads
        scores = np.zeros((layers, heads, layers, heads), dtype=np.float32)
        writes = np.concatenate([_writing_factors(block.attn) for block in self.blocks])
        for later in range(1, layers):
            inner, roots = _reading_factors(self.blocks[later].attn, mode)
            scores[:later, :, later] = _norms(writes[: later * heads], inner, roots).reshape(later, heads, heads)
        return weights_as_kind(scores, self.arrays)

    @_options.checked
    def tokens_to_residual_directions(self, tokens: Any) -> Array:
        """Returns columns of W_U: [d_model] for one token (text or id), [..., d_model] for ids [...].

        The logit of a token is the product of its direction with ln_final.hook_normalized. Fold the norms
        (fold_ln=True) to read directions of the residual stream itself.
        """
        ids = self._token_ids(tokens)
        if ids.size and (ids.min() < 0 or ids.max() >= self.cfg.d_vocab):
            raise InputError(
                f"tokens: found ids from {ids.min()} to {ids.max()}, expected 0 to {self.cfg.d_vocab - 1}")
        return self.W_U.T[ids if ids.ndim else int(ids)]

    def _token_ids(self, tokens: Any) -> np.ndarray:
        """Returns the ids of one or several tokens, each a text or an id."""
        if isinstance(tokens, str):
            tokens = self.to_single_token(tokens)
        if isinstance(tokens, (list, tuple)) and tokens and all(isinstance(token, str) for token in tokens):
            tokens = [self.to_single_token(token) for token in tokens]
        ids = on_host(tokens)
        if not np.issubdtype(ids.dtype, np.integer):
            raise InputError(f"tokens: found {ids.dtype}, expected ids, or texts of one token each")
        return ids

    @_options.checked
    def accumulated_bias(self, layer: int, mlp_input: bool = False, include_mlp_biases: bool = True) -> Array:
        """Sum of the biases that layers below `layer` add to the residual stream, [d_model].

        mlp_input: includes the attention of the layer itself. For families without a norm after attention or MLP.
        """
        own = 1 if _options.flag("mlp_input", mlp_input) else 0
        of_mlps = _options.flag("include_mlp_biases", include_mlp_biases)
        _options.whole("layer", layer, 0, self.cfg.n_layers - own)
        total = np.zeros(self.cfg.d_model, dtype=np.float32)
        for i in range(layer + own):
            attn, mlp = self.blocks[i].attn, self.blocks[i].mlp
            for bias in (attn.b_O, mlp.b_out if of_mlps and i < layer else None):
                if bias is not None:
                    total += on_host(bias) * np.float32(self.cfg.residual_scale)
        return weights_as_kind(total, self.arrays)


class SVDInterpreter:
    """Projects singular vectors of heads and MLPs onto the vocabulary: SVDInterpreter(model)."""

    def __init__(self, model: Any):
        _options.check_model(model)
        self.model = model

    @_options.checked
    def get_singular_vectors(
        self, vector_type: str, layer_index: int, num_vectors: int = 10, head_index: int | None = None
    ) -> Array:
        """Returns the first singular vectors times W_U, [d_vocab, 1, num_vectors]. Their signs are arbitrary.

        vector_type: "OV" (with a head_index), the output of a head; "w_in", the input of the MLP, with the weights of
        the norm before it; "w_out", the output of the MLP.
        """
        vectors = self._right_vectors(vector_type, layer_index, head_index)
        vectors = vectors[: _options.whole("num_vectors", num_vectors, 1)]
        W_U = self.model.W_U
        return (W_U.T @ like(vectors.T, W_U))[:, None]

    def _right_vectors(self, kind: str, layer: int, head: int | None) -> np.ndarray:
        """Returns right singular vectors [vector, d_model]."""
        cfg = self.model.cfg
        _options.whole("layer_index", layer, 0, cfg.n_layers - 1)
        block = self.model.blocks[layer]
        if kind == "OV":
            return on_host(block.attn.OV[_options.whole("head_index", head, 0, cfg.n_heads - 1)].Vh)
        if kind in ("w_in", "w_out") and getattr(block.mlp, "W_out", None) is None:
            raise InputError(f"layer_index={layer}: its MLP is a mixture of experts, expected one with a single matrix")
        if kind == "w_in":
            read = on_host(block.mlp.W_in).T
            return _rows_svd(read if block.ln2.w is None else read * on_host(block.ln2.w))
        if kind == "w_out":
            return _rows_svd(on_host(block.mlp.W_out))
        raise InputError(f"vector_type: found {kind!r}, expected 'OV', 'w_in' or 'w_out'")


def _rows_svd(matrix: np.ndarray) -> np.ndarray:
    return np.linalg.svd(matrix.astype(np.float64), full_matrices=False)[2].astype(np.float32)


def _stacked(layers: list[FactoredMatrix]) -> FactoredMatrix:
    return FactoredMatrix(stack([m.A for m in layers]), stack([m.B for m in layers]))


# Composition scores are Frobenius norms of matrix products A B. If R^T R = A^T A, then R B and A B have the same norm,
# so the tall factors A of both circuits are replaced by small roots R of shape [d_head, d_head].


def _writing_factors(attn: Attention) -> np.ndarray:
    """Returns R W_O with R^T R = W_V^T W_V, [head, d_head, d_model], scaled to norm 1."""
    outer = _repeated(_gram(attn.W_V), attn)
    return _scaled(_root(outer), outer, _gram(_transposed(attn.W_O))) @ on_host(attn.W_O)


def _reading_factors(attn: Attention, mode: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns F [inner head, d_model, d_head] and R [head, d_head, d_head] such that F R^T has the norms of W, and norm 1.

    With GQA, several heads share an inner factor in the modes K and V.
    """
    inner: Array
    outer: Array
    inner, outer = {"Q": (attn.W_Q, attn.W_K), "K": (attn.W_K, attn.W_Q), "V": (attn.W_V, attn.W_O)}[mode]
    gram = _gram(_transposed(outer) if mode == "V" else outer)
    gram = _repeated(gram, attn)
    return on_host(inner), _scaled(_root(gram), gram, _repeated(_gram(inner), attn))


def _repeated(matrices: np.ndarray, attn: Attention) -> np.ndarray:
    """Repeats matrices of key heads for their groups of query heads (GQA)."""
    return np.repeat(matrices, attn.W_Q.shape[0] // len(matrices), axis=0)


def _gram(factor: Array) -> np.ndarray:
    """Returns F^T F of each head in float64, for factors F [head, d_model, d_head]."""
    matrix = on_host(factor).astype(np.float64)
    return _transposed(matrix) @ matrix


def _root(gram: np.ndarray) -> np.ndarray:
    """Returns R with R^T R = gram, also if the matrix is singular."""
    values, vectors = np.linalg.eigh(gram)
    return np.sqrt(np.maximum(values, 0))[..., :, None] * _transposed(vectors)


def _scaled(root: np.ndarray, gram: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Divides by the norms of the products whose factors have these Gram matrices; float32."""
    return (root / np.sqrt((gram * other).sum(axis=(-2, -1), keepdims=True))).astype(np.float32)


def _norms(writes: np.ndarray, inner: np.ndarray, roots: np.ndarray) -> np.ndarray:
    """Returns Frobenius norms of writes[i] F R[j]^T for all pairs, [earlier head, head]."""
    heads, middle, width = writes.shape
    product = writes.reshape(heads * middle, width) @ np.moveaxis(inner, 1, 0).reshape(width, -1)
    by_inner = np.moveaxis(product.reshape(heads * middle, len(inner), -1), 1, 0)  # [inner head, row, d_head]
    right = np.moveaxis(roots.reshape(len(inner), -1, *roots.shape[1:]), -1, 1).reshape(len(inner), middle, -1)
    values = (by_inner @ right).reshape(len(inner), heads, middle, -1, middle)
    return np.sqrt(np.einsum("nhmgk,nhmgk->hng", values, values).reshape(heads, -1))
