#include "qkscope/experimental/generate.h"

#include <tuple>
#include <utility>

#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "bind.h"
#include "hook_runner.h"
#include "loaded_model.h"

namespace qkscope::python {
namespace nb = nanobind;
namespace {

using Ids = std::vector<std::int32_t>;

// Python hooks of text generation, which may edit the logits before the next token is chosen.
class GeneratingHooks : public HookRunner {
 public:
  using HookRunner::HookRunner;
  bool edits(HookPoint point) const override { return can_be_edited(point.stage); }
};

const char* end_name(GenerateEnd end) {
  switch (end) {
    case GenerateEnd::length:
      return "length";
    case GenerateEnd::stop_token:
      return "stop_token";
    case GenerateEnd::stop_text:
      return "stop_text";
    case GenerateEnd::callback:
      break;
  }
  return "callback";
}

// Results of generate(), one tuple per prompt: new token ids, generated text, finish reason.
using Results = std::vector<std::tuple<Ids, std::string, std::string>>;

Results generate(LoadedModel& model, const std::vector<Ids>& prompts, GenerateOptions options,
                 const Tokenizer* tokenizer, const nb::object& on_token,
                 const std::vector<std::string>& names, const nb::object& call) {
  options.tokenizer = tokenizer;
  if (!on_token.is_none())
    options.on_token = [&on_token](const GeneratedToken& token) {
      const nb::gil_scoped_acquire python;
      const nb::object answer =
          on_token(token.sequence, token.id, nb::str(token.text.data(), token.text.size()));
      return !answer.is(nb::handle(Py_False));
    };
  const auto points = match_hooks(model.model.config(), names);
  GeneratingHooks hooks({.points = points, .score_rows = {}, .logit_rows = {}},
                        nb::borrow<nb::callable>(call), model.keeps_on_device);
  options.observer = &hooks;  // even without hooks, so that Ctrl-C ends a pass
  std::vector<Generated> texts;
  {
    const nb::gil_scoped_release other_threads_may_run;
    texts = qkscope::generate(model.model, prompts, options);
  }
  Results results;
  for (auto& [ids, text, end] : texts)
    results.emplace_back(std::move(ids), std::move(text), end_name(end));
  return results;
}

}  // namespace

void bind_generate(nb::module_& module) {
  nb::class_<GenerateOptions>(module, "GenerateOptions", "How tokens are chosen, and when to stop.")
      .def(nb::init<>())
      .def_rw("max_new_tokens", &GenerateOptions::max_new_tokens)
      .def_rw("temperature", &GenerateOptions::temperature)
      .def_rw("top_k", &GenerateOptions::top_k)
      .def_rw("top_p", &GenerateOptions::top_p)
      .def_rw("seed", &GenerateOptions::seed)
      .def_rw("stop_tokens", &GenerateOptions::stop_tokens)
      .def_rw("stops_at_end", &GenerateOptions::stops_at_end)
      .def_rw("stop_texts", &GenerateOptions::stop_texts);
  module.def(
      "generate", &generate, nb::arg("model"), nb::arg("prompts"), nb::arg("options"),
      nb::arg("tokenizer").none(), nb::arg("on_token").none(), nb::arg("names"),
      nb::arg("call").none(),
      "Continues each prompt; returns (new ids, text, reason of the end). on_token(prompt, id, "
      "text) may return False to end a text; call(hook point index, array) as in Model.run.");
}

}  // namespace qkscope::python
