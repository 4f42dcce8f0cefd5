// Python bindings for the weights in qkscope/model.h.
#include <tuple>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "arrays.h"
#include "bind.h"
#include "error.h"
#include "qkscope/model.h"

namespace qkscope::python {
namespace nb = nanobind;
namespace {

// A weight array, or None if the model family does not have the weight. Typed as Any, so that type
// checkers do not require a None check for weights that every family has.
using MaybeArray = nb::typed<nb::object, nb::any>;

// Returns float32 weights as a view of the mapped file; other types are converted to a new array.
MaybeArray matrix_array(const WeightMatrix& matrix, nb::handle owner) {
  if (matrix.values.empty()) return nb::none();
  const bool as_it_lies = matrix.values.dtype() == DType::f32 && matrix.values.is_contiguous();
  if (as_it_lies && matrix.scale == 1.0f) return nb::cast(view_of(matrix.values, owner));
  return nb::cast(to_read_only_array(to_float32(matrix)));
}

// Returns (type, matrix of shape (out, in)) as a view of the file; 16-bit floats appear as
// integers. Returns None if the matrix is missing or stored in another format (FP8, interleaved).
MaybeArray stored_array(const WeightMatrix& matrix, nb::handle owner) {
  const auto& values = matrix.values;
  if (values.empty() || values.rank() != 2 || matrix.scale != 1.0f) return nb::none();
  const std::size_t shape[] = {static_cast<std::size_t>(values.dim(0)),
                               static_cast<std::size_t>(values.dim(1))};
  const std::int64_t strides[] = {values.stride(0), values.stride(1)};
  const auto view = [&](auto number) {
    using Stored = nb::ndarray<nb::numpy, const decltype(number)>;
    return nb::make_tuple(dtype_name(values.dtype()),
                          Stored(values.bytes(), 2, shape, owner, strides));
  };
  if (values.dtype() == DType::f32) return view(float{});
  if (values.dtype() == DType::bf16 || values.dtype() == DType::f16) return view(std::uint16_t{});
  return nb::none();
}

MaybeArray vector_array(const std::vector<float>& values, nb::handle owner) {
  if (values.empty()) return nb::none();
  return nb::cast(view_of(values, owner));
}

const LayerWeights& layer_of(const ModelWeights& weights, std::size_t index) {
  const auto& layer = weights.layers.at(index);
  if (layer.q.weight.values.empty() && !layer.mixer.output.weight.values.empty())
    reject("layer {} has no attention: the weights of its mixer are not offered here", index);
  if (layer.q.weight.values.empty() && !layer.mlp_norm.empty())
    reject("layer {} has no attention: it is an MLP", index);
  if (layer.q.weight.values.empty())
    reject("layer {} is a cross-attention layer: it does not run on text and has no weights",
           index);
  return layer;
}

// Returns a getter for a weight field. The returned array keeps the owning object alive.
template <typename Owner, typename Field, typename Show>
auto array_getter(Field Owner::*field, Show show) {
  return [field, show](nb::pointer_and_handle<Owner> self) { return show(self.p->*field, self.h); };
}

}  // namespace

void bind_weights(nb::module_& module) {
  nb::class_<Linear>(module, "Linear")
      .def_prop_ro(
          "weight",
          [](nb::pointer_and_handle<Linear> self) { return matrix_array(self.p->weight, self.h); },
          "[out, in], or None where the family has no such matrix")
      .def_prop_ro(
          "stored",
          [](nb::pointer_and_handle<Linear> self) { return stored_array(self.p->weight, self.h); },
          "(type, [out, in]) as the file stores it, or None")
      .def_prop_ro("bias", array_getter(&Linear::bias, vector_array), "[out] or None");
  nb::class_<NormWeights>(module, "NormWeights")
      .def_prop_ro("weight", array_getter(&NormWeights::weight, vector_array), "[n] or None")
      .def_prop_ro("bias", array_getter(&NormWeights::bias, vector_array), "[n] or None");
  nb::class_<ExpertWeights>(module, "ExpertWeights")
      .def_ro("gate", &ExpertWeights::gate)
      .def_ro("up", &ExpertWeights::up)
      .def_ro("down", &ExpertWeights::down);
  nb::class_<LayerWeights>(module, "LayerWeights")
      .def_ro("q", &LayerWeights::q)
      .def_ro("k", &LayerWeights::k)
      .def_ro("v", &LayerWeights::v)
      .def_prop_ro("sinks", array_getter(&LayerWeights::sinks, vector_array), "[n_heads] or None")
      .def_ro("o", &LayerWeights::o)
      .def_ro("gate", &LayerWeights::gate)
      .def_ro("up", &LayerWeights::up)
      .def_ro("down", &LayerWeights::down)
      .def_ro("router", &LayerWeights::router)
      .def_prop_ro(
          "n_experts", [](const LayerWeights& layer) { return layer.experts.size(); },
          "0 where the MLP is no mixture of experts")
      .def(
          "expert",
          [](const LayerWeights& layer, std::size_t index) -> const ExpertWeights& {
            return layer.experts.at(index);
          },
          nb::arg("index"), nb::rv_policy::reference_internal)
      .def_ro("input_norm", &LayerWeights::input_norm)
      .def_ro("mlp_norm", &LayerWeights::mlp_norm)
      .def_ro("q_norm", &LayerWeights::q_norm)
      .def_ro("k_norm", &LayerWeights::k_norm)
      .def_ro("post_attention_norm", &LayerWeights::post_attention_norm)
      .def_ro("post_mlp_norm", &LayerWeights::post_mlp_norm)
      .def_prop_ro(
          "xielu",
          [](const LayerWeights& layer) {
            const auto& x = layer.xielu;
            return std::tuple(x.alpha_p, x.alpha_n, x.beta, x.eps);
          },
          "alpha_p, alpha_n, beta, eps");
  nb::class_<ModelWeights>(module, "Weights")
      .def_prop_ro("embedding", array_getter(&ModelWeights::embedding, matrix_array),
                   "[rows, d_model]")
      .def_prop_ro("positions", array_getter(&ModelWeights::positions, matrix_array),
                   "[n_ctx, d_model] or None")
      .def_prop_ro("stored_embedding", array_getter(&ModelWeights::embedding, stored_array))
      .def_prop_ro("stored_positions", array_getter(&ModelWeights::positions, stored_array))
      .def_ro("head", &ModelWeights::head)
      .def_ro("final_norm", &ModelWeights::final_norm)
      .def("layer", &layer_of, nb::arg("index"), nb::rv_policy::reference_internal);
}

}  // namespace qkscope::python
