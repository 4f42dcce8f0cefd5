// Python bindings for qkscope/experimental/attribution.h.
#include "qkscope/experimental/attribution.h"

#include <utility>

#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "bind.h"
#include "error.h"
#include "loaded_model.h"
#include "tables.h"
#include "watcher.h"

namespace qkscope::python {
namespace nb = nanobind;
namespace {

using Ids = nb::ndarray<const std::int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Heads = std::vector<std::pair<std::int64_t, std::int64_t>>;

std::vector<AttentionHead> heads_of(const Heads& pairs) {
  std::vector<AttentionHead> heads;
  for (const auto& [layer, head] : pairs) heads.push_back({layer, head});
  return heads;
}

ScoreAttribution attribute(const LoadedModel& model, const Ids& text, const Heads& heads,
                           const std::vector<std::int64_t>& queries, const std::string& keys,
                           bool experts, bool biases, bool effect, const std::string& features) {
  const std::vector<std::int32_t> ids(text.data(), text.data() + text.shape(0));
  const AttributionOptions options{.heads = heads_of(heads),
                                   .queries = queries,
                                   .keys = keys,
                                   .experts = experts,
                                   .biases = biases,
                                   .effect = effect,
                                   .features = features};
  const nb::gil_scoped_release other_threads_may_run;
  return attribute_scores(model.model, ids, options);
}

// Measures composition over several texts. Calls `progress` after each text. If `progress` throws
// or the user presses Ctrl-C, stops and rethrows the exception.
std::pair<HeldTable, HeldTable> compose(const LoadedModel& model, const std::vector<Ids>& texts,
                                        const Heads& heads, std::int64_t samples, bool uniform,
                                        std::uint64_t seed, bool biases, std::int64_t top,
                                        nb::object progress) {
  std::vector<std::vector<std::int32_t>> ids;
  ids.reserve(texts.size());
  for (const auto& text : texts) ids.emplace_back(text.data(), text.data() + text.shape(0));
  Watcher watcher(std::move(progress));
  CompositionOptions options{.heads = heads_of(heads),
                             .samples = samples,
                             .uniform = uniform,
                             .seed = seed,
                             .biases = biases,
                             .top = top};
  options.on_text = [&](std::int64_t done) {
    watcher.tell(done);
    if (watcher.stop()->load()) reject("the caller ended it");
  };
  try {
    const nb::gil_scoped_release other_threads_may_run;
    auto found = composition(model.model, ids, options);
    return {HeldTable{std::move(found.pairs)}, HeldTable{std::move(found.components)}};
  } catch (const Error&) {
    watcher.rethrow();
    throw;
  }
}

}  // namespace

void bind_attribution(nb::module_& module) {
  nb::class_<ScorePair>(module, "ScorePair", "One attributed attention score.")
      .def_prop_ro("layer", [](const ScorePair& pair) { return pair.head.layer; })
      .def_prop_ro("head", [](const ScorePair& pair) { return pair.head.head; })
      .def_ro("query", &ScorePair::query, "Position of the query.")
      .def_ro("key", &ScorePair::key, "Position of the key.")
      .def_ro("score", &ScorePair::score, "Scaled score, before soft cap, mask and softmax.")
      .def_ro("attention", &ScorePair::attention, "Softmax of the scores of the row.")
      .def_ro("residual", &ScorePair::residual, "Score minus the sum of all contributions.")
      .def_ro("magnitude", &ScorePair::magnitude, "Sum of the absolute contributions.");
  nb::class_<ScoreAttribution>(module, "ScoreAttribution")
      .def_prop_ro("pairs", [](const ScoreAttribution& found) { return found.pairs(); })
      .def("q_components", &ScoreAttribution::q_components, nb::arg("pair"))
      .def("k_components", &ScoreAttribution::k_components, nb::arg("pair"))
      .def("matrix", &ScoreAttribution::matrix, nb::arg("pair"))
      .def(
          "table",
          [](const ScoreAttribution& found, std::int64_t top) {
            return HeldTable{found.table(top)};
          },
          nb::arg("top"))
      .def("component_table",
           [](const ScoreAttribution& found) { return HeldTable{found.component_table()}; })
      .def(
          "rotary_table",
          [](const ScoreAttribution& found, bool components, std::int64_t top) {
            return HeldTable{found.rotary_table(components, top)};
          },
          nb::arg("components"), nb::arg("top"))
      .def(
          "distance_table",
          [](const ScoreAttribution& found, bool components, std::int64_t top) {
            return HeldTable{found.distance_table(components, top)};
          },
          nb::arg("components"), nb::arg("top"))
      .def("effect_table",
           [](const ScoreAttribution& found) { return HeldTable{found.effect_table()}; });
  module.def("attribute_scores", &attribute, nb::arg("model"), nb::arg("text"), nb::arg("heads"),
             nb::arg("queries"), nb::arg("keys"), nb::arg("experts"), nb::arg("biases"),
             nb::arg("effect"), nb::arg("features"));
  module.def("composition", &compose, nb::arg("model"), nb::arg("texts"), nb::arg("heads"),
             nb::arg("samples"), nb::arg("uniform"), nb::arg("seed"), nb::arg("biases"),
             nb::arg("top"), nb::arg("progress").none());
}

}  // namespace qkscope::python
