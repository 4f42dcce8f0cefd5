"""Decompositions of the residual stream of a cache into contributions, and their effect on logits.

Definitions follow TransformerLens. A contribution is the vector that a component adds to the residual stream. In
families with a norm after attention or MLP it includes that norm, with the scale of the whole output, so that
contributions sum to the stream.
"""

from __future__ import annotations

from typing import Any, Literal, overload

import numpy as np

from . import _options
from ._arrays import Array, ArrayInput, concatenate, like, moved, stack
from ._contributions import Contributions, SliceInput, projection
from ._engine import InputError


class ResidualMethods(Contributions):
    """Methods of ActivationCache. Stacks are [component, pos, d_model], with a batch [component, batch, pos, d_model].

    layer: contributions of the layers before it; n_layers, -1 and None mean all, the stream before the unembedding.
    mlp_input: up to the input of the MLP of that layer. pos_slice: None, a position (removes the dimension),
    (start, stop), a slice or a list. apply_ln: divides by the scale of the norm at that point of the stream, and
    multiplies by the weights of the norm unless they are folded.
    """

    # Stacks

    @overload
    def accumulated_resid(
        self, layer: int | None = ..., incl_mid: bool = ..., apply_ln: bool = ..., pos_slice: SliceInput = ...,
        mlp_input: bool = ..., return_labels: Literal[False] = ...
    ) -> Array: ...
    @overload
    def accumulated_resid(
        self, layer: int | None = ..., incl_mid: bool = ..., apply_ln: bool = ..., pos_slice: SliceInput = ...,
        mlp_input: bool = ..., *, return_labels: Literal[True]
    ) -> tuple[Array, list[str]]: ...
    @_options.checked
    def accumulated_resid(
        self,
        layer: int | None = None,
        incl_mid: bool = False,
        apply_ln: bool = False,
        pos_slice: SliceInput = None,
        mlp_input: bool = False,
        return_labels: bool = False,
    ) -> Any:
        """The residual stream before each layer, [layer + 1, ..., d_model]: "0_pre", "1_pre", ..., "final_post".

        incl_mid adds the stream between attention and MLP. apply_ln with the final layer normalises each entry with the
        final norm; the product with W_U is then the logit lens.
        """
        layer, last = self._upto(layer, mlp_input), self.model.cfg.n_layers
        keys, labels = [], []
        for i in self._layers(min(layer + 1, last)):
            keys.append(("resid_pre", i))
            labels.append(f"{i}_pre")
            if (incl_mid and i < layer) or (mlp_input and i == layer):
                keys.append(("resid_mid", i))
                labels.append(f"{i}_mid")
        if layer == last:
            keys.append(("resid_post", self._layers(last)[-1]))
            labels.append("final_post")
        components = stack([self._at(key, pos_slice) for key in keys])
        if apply_ln:
            components = self.apply_ln_to_stack(
                components, layer, mlp_input=mlp_input, pos_slice=pos_slice, recompute_ln=layer == last)
        return (components, labels) if return_labels else components

    @overload
    def decompose_resid(
        self, layer: int | None = ..., mlp_input: bool = ..., mode: str = ..., apply_ln: bool = ...,
        pos_slice: SliceInput = ..., incl_embeds: bool = ..., return_labels: Literal[False] = ...
    ) -> Array: ...
    @overload
    def decompose_resid(
        self, layer: int | None = ..., mlp_input: bool = ..., mode: str = ..., apply_ln: bool = ...,
        pos_slice: SliceInput = ..., incl_embeds: bool = ..., *, return_labels: Literal[True]
    ) -> tuple[Array, list[str]]: ...
    @_options.checked
    def decompose_resid(
        self,
        layer: int | None = None,
        mlp_input: bool = False,
        mode: str = "all",
        apply_ln: bool = False,
        pos_slice: SliceInput = None,
        incl_embeds: bool = True,
        return_labels: bool = False,
    ) -> Any:
        """Output of each layer part, [component, ..., d_model]: "embed", "pos_embed", "0_attn_out", "0_mlp_out", ...

        The components sum to the stream. mode: "all", "attn" or "mlp".
        """
        if not isinstance(mode, str) or mode not in ("all", "attn", "mlp"):
            raise InputError(f"decompose_resid: found mode {mode!r}, expected 'all', 'attn' or 'mlp'")
        self._refuse_mixers("decompose_resid")
        layer = self._upto(layer, mlp_input)
        keys = self._embeddings() if incl_embeds else []
        labels = [key.removeprefix("hook_") for key in keys]
        for i in self._layers(layer + (1 if mlp_input else 0)):
            for part in ("attn", "mlp"):
                if mode in ("all", part) and (i < layer or part == "attn"):
                    keys.append((f"{part}_out", i))
                    labels.append(f"{i}_{part}_out")
        if not keys:
            raise InputError(f"decompose_resid: nothing of mode {mode!r} comes before layer {layer}")
        components = stack([self._at(key, pos_slice) for key in keys])
        if apply_ln:
            components = self.apply_ln_to_stack(components, layer, mlp_input=mlp_input, pos_slice=pos_slice)
        return (components, labels) if return_labels else components

    @overload
    def stack_head_results(
        self, layer: int = ..., *, incl_remainder: bool = ..., pos_slice: SliceInput = ..., apply_ln: bool = ...,
        return_labels: Literal[False] = ...
    ) -> Array: ...
    @overload
    def stack_head_results(
        self, layer: int = ..., *, incl_remainder: bool = ..., pos_slice: SliceInput = ..., apply_ln: bool = ...,
        return_labels: Literal[True]
    ) -> tuple[Array, list[str]]: ...
    @_options.checked
    def stack_head_results(
        self,
        layer: int = -1,
        return_labels: bool = False,
        incl_remainder: bool = False,
        pos_slice: SliceInput = None,
        apply_ln: bool = False,
    ) -> Any:
        """Output of each head below `layer`, [layer * head, ..., d_model]: "L0H0", "L0H1", ...

        Computed from z and W_O. incl_remainder appends the rest of the stream: biases, MLPs, embeddings.
        """
        self._refuse_mixers("stack_head_results")
        layer = self._upto(layer)
        layers = self._layers(layer)
        heads = self.model.cfg.n_heads
        self._check_size("stack_head_results", len(layers) * heads, ("resid_pre", 0), pos_slice)
        labels = [f"L{i}H{head}" for i in layers for head in range(heads)]
        parts = [self._head_results(i, pos_slice) for i in layers]
        components = concatenate(parts) if parts else self._none(pos_slice)
        if incl_remainder:
            components = self._with_remainder(components, self._stream(layer, False, pos_slice))
            labels.append("remainder")
        if apply_ln:
            components = self.apply_ln_to_stack(components, layer, pos_slice=pos_slice)
        return (components, labels) if return_labels else components

    @_options.checked
    def get_neuron_results(
        self,
        layer: int,
        neuron_slice: SliceInput = None,
        pos_slice: SliceInput = None,
        project_output_onto: Any = None,
    ) -> Array:
        """Output of each neuron of the MLP of a layer, [..., neuron, d_model].

        project_output_onto: directions [d_model] or [d_model, n]; the result is then [..., neuron] or [..., neuron, n],
        computed without the full vectors.
        """
        project, squeeze = projection(project_output_onto, self.model.cfg.d_model)
        results = self._neurons(layer, neuron_slice, pos_slice, project)
        return results[..., 0] if squeeze else results

    @overload
    def stack_neuron_results(
        self, layer: int, pos_slice: SliceInput = ..., neuron_slice: SliceInput = ..., *, incl_remainder: bool = ...,
        apply_ln: bool = ..., project_output_onto: Any = ..., mlp_input: bool = ...,
        return_labels: Literal[False] = ...
    ) -> Array: ...
    @overload
    def stack_neuron_results(
        self, layer: int, pos_slice: SliceInput = ..., neuron_slice: SliceInput = ..., *, incl_remainder: bool = ...,
        apply_ln: bool = ..., project_output_onto: Any = ..., mlp_input: bool = ..., return_labels: Literal[True]
    ) -> tuple[Array, list[str]]: ...
    @_options.checked
    def stack_neuron_results(
        self,
        layer: int,
        pos_slice: SliceInput = None,
        neuron_slice: SliceInput = None,
        return_labels: bool = False,
        incl_remainder: bool = False,
        apply_ln: bool = False,
        project_output_onto: Any = None,
        mlp_input: bool = False,
    ) -> Any:
        """Output of each neuron below `layer`, [layer * neuron, ..., d_model]: "L0N0", "L0N1", ...

        The result is large: choose positions and neurons, or directions project_output_onto [d_model] or [d_model, n],
        which replace the axis d_model.
        """
        self._refuse_mixers("stack_neuron_results")
        layer = self._upto(layer, mlp_input)
        if isinstance(neuron_slice, (int, np.integer)):
            neuron_slice = [int(neuron_slice)]
        layers = self._layers(layer)
        chosen = self._sliced(np.arange(self.model.cfg.d_mlp), neuron_slice, 0, "neuron_slice")
        labels = [f"L{i}N{neuron}" for i in layers for neuron in chosen]
        project, squeeze = projection(project_output_onto, self.model.cfg.d_model)
        if project is None:
            self._check_size("stack_neuron_results", len(labels), ("post", 0), pos_slice)
        reads = self._read_by(layer, mlp_input, project) if apply_ln else project
        parts = [moved(self._neurons(i, neuron_slice, pos_slice, reads), -2, 0) for i in layers]
        width = None if reads is None else reads.shape[-1]
        components = concatenate(parts) if parts else self._none(pos_slice, width)
        if incl_remainder:
            whole = self._stream(layer, mlp_input, pos_slice)
            components = self._with_remainder(components, whole if reads is None else whole @ like(reads, whole))
            labels.append("remainder")
        if apply_ln:
            scale = self._scale(layer, mlp_input, pos_slice)
            components = components / scale if project is not None else self.apply_ln_to_stack(
                components, layer, mlp_input=mlp_input, pos_slice=pos_slice)
        components = components[..., 0] if squeeze else components
        return (components, labels) if return_labels else components

    @overload
    def get_full_resid_decomposition(
        self, layer: int | None = ..., *, mlp_input: bool = ..., expand_neurons: bool = ..., apply_ln: bool = ...,
        pos_slice: SliceInput = ..., project_output_onto: Any = ..., return_labels: Literal[False] = ...
    ) -> Array: ...
    @overload
    def get_full_resid_decomposition(
        self, layer: int | None = ..., *, mlp_input: bool = ..., expand_neurons: bool = ..., apply_ln: bool = ...,
        pos_slice: SliceInput = ..., project_output_onto: Any = ..., return_labels: Literal[True]
    ) -> tuple[Array, list[str]]: ...
    @_options.checked
    def get_full_resid_decomposition(
        self,
        layer: int | None = None,
        mlp_input: bool = False,
        expand_neurons: bool = True,
        apply_ln: bool = False,
        pos_slice: SliceInput = None,
        return_labels: bool = False,
        project_output_onto: Any = None,
    ) -> Any:
        """Stacks heads, neurons (or MLPs, without expand_neurons), embeddings and "bias", which sum to the stream."""
        layer = self._upto(layer, mlp_input)
        project, squeeze = projection(project_output_onto, self.model.cfg.d_model)

        def finished(components: Any) -> Any:
            if apply_ln:
                components = self.apply_ln_to_stack(components, layer, mlp_input=mlp_input, pos_slice=pos_slice)
            return components if project is None else components @ like(project, components)

        heads, labels = self.stack_head_results(
            layer + (1 if mlp_input else 0), return_labels=True, pos_slice=pos_slice)
        parts = [finished(heads)]
        if layer > 0 and expand_neurons:
            neurons, names = self.stack_neuron_results(
                layer, pos_slice=pos_slice, return_labels=True, apply_ln=apply_ln, project_output_onto=project,
                mlp_input=mlp_input)
            parts.append(neurons)
            labels += names
        elif layer > 0:
            mlps, names = self.decompose_resid(
                layer, mode="mlp", pos_slice=pos_slice, incl_embeds=False, return_labels=True)
            parts.append(finished(mlps))
            labels += names
        for key in self._embeddings():
            parts.append(finished(self._at(key, pos_slice)[None]))
            labels.append(key.removeprefix("hook_"))
        parts.append(finished(self._biases(layer, mlp_input, expand_neurons, pos_slice)[None]))
        labels.append("bias")
        components = concatenate(parts)
        components = components[..., 0] if squeeze else components
        return (components, labels) if return_labels else components

    # Norms and unembedding of a stack

    @_options.checked
    def apply_ln_to_stack(
        self,
        residual_stack: Any,
        layer: int | None = None,
        mlp_input: bool = False,
        pos_slice: SliceInput = None,
        batch_slice: SliceInput = None,
        has_batch_dim: bool | None = None,
        recompute_ln: bool = False,
    ) -> Array:
        """Applies the norm before a layer (n_layers, -1, None: the final norm) to a stack.

        The scale is that of the whole stream in the cache, so the result is linear in the stack. With recompute_ln the
        final norm is applied to each entry, with its own scale and with the bias of the norm. pos_slice must have been
        applied to the stack before; batch_slice is applied here.
        """
        layer = self._upto(layer, mlp_input)
        shape, width = list(getattr(residual_stack, "shape", ())), self.model.cfg.d_model
        if len(shape) < 2 or shape[-1] != width:
            raise InputError(f"residual_stack: found shape {shape}, expected [component, ..., {width}]")
        if self.has_batch_dim if has_batch_dim is None else has_batch_dim:
            residual_stack = self._sliced(residual_stack, batch_slice, 1, "batch_slice")
        norm = self._norm(layer, mlp_input)
        if recompute_ln and layer == self.model.cfg.n_layers:
            scaled = self._centred(residual_stack) / self._scale_of(residual_stack)
            scaled = scaled * like(norm.w, scaled)
            return scaled if norm.b is None else scaled + like(norm.b, scaled)
        scale = self._scale(layer, mlp_input, pos_slice)
        if self.has_batch_dim:
            scale = self._sliced(scale, batch_slice, 0, "batch_slice")
        try:
            return self._centred(residual_stack) / scale * like(norm.w, residual_stack)
        except (ValueError, RuntimeError):
            raise InputError(
                f"residual_stack: found shape {shape}, expected [component, ..., {width}] with "
                f"{list(scale.shape[:-1])} between them: the positions of the cache, or those of pos_slice") from None

    @_options.checked
    def logit_attrs(
        self,
        residual_stack: Any,
        tokens: Any,
        incorrect_tokens: Any = None,
        pos_slice: SliceInput = None,
        batch_slice: SliceInput = None,
        has_batch_dim: bool | None = None,
    ) -> Array:
        """Contribution of each component to the logits of tokens, or to the logit difference, [component, ...].

        tokens: one token (text or id), or ids [batch], [pos] or [batch, pos]. incorrect_tokens: subtracts their logits.
        If the components sum to the residual stream, the attributions sum to the logits, except for the bias of the
        final norm, the bias of the unembedding and a soft cap.
        """
        batched = self.has_batch_dim if has_batch_dim is None else has_batch_dim
        directions = self.model.tokens_to_residual_directions(tokens)
        if incorrect_tokens is not None:
            wrong = self.model.tokens_to_residual_directions(incorrect_tokens)
            if wrong.shape != directions.shape:
                raise InputError(
                    f"logit_attrs: found tokens {list(directions.shape[:-1])} and incorrect_tokens "
                    f"{list(wrong.shape[:-1])}, expected the same shape")
            directions = directions - wrong
        scaled = self.apply_ln_to_stack(
            residual_stack, pos_slice=pos_slice, batch_slice=batch_slice, has_batch_dim=batched)
        directions = like(directions, scaled) * self.model.cfg.logit_scale
        of_each_sequence = batched and scaled.ndim == 4 and directions.ndim == 2
        if of_each_sequence and directions.shape[0] == scaled.shape[1]:
            directions = directions[:, None]
        try:
            return (scaled * directions).sum(-1)
        except (ValueError, RuntimeError):
            raise InputError(
                f"logit_attrs: found tokens {list(directions.shape[:-1])} for components {list(scaled.shape[1:-1])}, "
                "expected one token, [batch], [pos] or [batch, pos]") from None
