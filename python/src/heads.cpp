// Python bindings for qkscope/experimental/heads.h.
#include "qkscope/experimental/heads.h"

#include <functional>
#include <utility>

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bind.h"
#include "engine.h"
#include "error.h"
#include "loaded_model.h"
#include "tables.h"
#include "watcher.h"

namespace qkscope::python {
namespace nb = nanobind;
namespace {

using Texts = std::vector<std::vector<std::int32_t>>;
using Ids = nb::ndarray<const std::int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

HeadScoreOptions options_of(bool exclude_bos, bool exclude_current_token,
                            const std::string& measure) {
  HeadScoreOptions options;
  options.measure =
      measure == "abs" ? HeadScoreOptions::Measure::abs : HeadScoreOptions::Measure::mul;
  options.exclude_bos = exclude_bos;
  options.exclude_current_token = exclude_current_token;
  return options;
}

// Scores the attention heads on `texts`. Calls progress(number of finished texts) after each text.
// If `progress` raises an exception or the user presses Ctrl-C, stops and rethrows.
HeldTable score(const std::function<Table(const Texts&, const HeadScoreOptions&)>& run,
                const std::vector<Ids>& texts, bool exclude_bos, bool exclude_current_token,
                const std::string& measure, bool all_keys, nb::object progress) {
  Texts ids;
  ids.reserve(texts.size());
  for (const auto& text : texts) ids.emplace_back(text.data(), text.data() + text.shape(0));
  auto options = options_of(exclude_bos, exclude_current_token, measure);
  options.all_keys = all_keys;
  Watcher watcher(std::move(progress));
  options.on_batch = [&](std::int64_t done) {
    watcher.tell(done);
    if (watcher.stop()->load()) reject("the caller ended it");
  };
  try {
    return {run_without_gil([&] { return run(ids, options); })};
  } catch (const Error&) {
    watcher.rethrow();
    throw;
  }
}

using Matrix = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

// Returns one score per head, at index layer * n_heads + head.
std::vector<double> score_user_pattern(const LoadedModel& model, const Ids& text,
                                       const Matrix& pattern, bool exclude_bos,
                                       bool exclude_current_token, const std::string& measure) {
  const std::vector<std::int32_t> ids(text.data(), text.data() + text.shape(0));
  const std::vector<float> values(pattern.data(), pattern.data() + pattern.size());
  const nb::gil_scoped_release other_threads_may_run;
  return score_pattern(model.model, ids, values,
                       options_of(exclude_bos, exclude_current_token, measure));
}

}  // namespace

void bind_heads(nb::module_& module) {
  module.def(
      "repeated_texts",
      [](const LoadedModel& model, std::uint64_t seed, bool bos) {
        return repeated_texts(model.model, {.seed = seed, .bos = bos});
      },
      nb::arg("model"), nb::arg("seed"), nb::arg("bos"));
  module.def(
      "score_heads",
      [](const LoadedModel& model, const std::vector<Ids>& texts, bool bos, bool current,
         const std::string& measure, bool all_keys, nb::object progress) {
        return score([&](const Texts& ids,
                         const auto& options) { return score_heads(model.model, ids, options); },
                     texts, bos, current, measure, all_keys, std::move(progress));
      },
      nb::arg("model"), nb::arg("texts"), nb::arg("exclude_bos"), nb::arg("exclude_current_token"),
      nb::arg("measure"), nb::arg("all_keys"), nb::arg("progress").none());
  module.def(
      "score_engine_heads",
      [](PythonEngine& engine, const std::vector<Ids>& texts, bool bos, bool current,
         const std::string& measure, bool all_keys, nb::object progress) {
        return score([&](const Texts& ids,
                         const auto& options) { return score_heads(engine, ids, options); },
                     texts, bos, current, measure, all_keys, std::move(progress));
      },
      nb::arg("engine"), nb::arg("texts"), nb::arg("exclude_bos"), nb::arg("exclude_current_token"),
      nb::arg("measure"), nb::arg("all_keys"), nb::arg("progress").none());
  module.def("score_pattern", &score_user_pattern, nb::arg("model"), nb::arg("text"),
             nb::arg("pattern"), nb::arg("exclude_bos"), nb::arg("exclude_current_token"),
             nb::arg("measure"));
}

}  // namespace qkscope::python
