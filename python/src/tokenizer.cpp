#include "qkscope/tokenizer.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bind.h"

namespace qkscope::python {
namespace nb = nanobind;
namespace {

using Ids = std::vector<std::int32_t>;

Ids encode(const Tokenizer& tokenizer, const std::string& text, bool add_special_tokens,
           std::int64_t max_length) {
  return tokenizer
      .encode(text, {.add_special_tokens = add_special_tokens, .max_length = max_length})
      .ids;
}

std::string decode(const Tokenizer& tokenizer, const Ids& ids, bool skip_special) {
  return tokenizer.decode(ids, skip_special);
}

}  // namespace

void bind_tokenizer(nb::module_& module) {
  module.def("has_tokenizer", &has_tokenizer, nb::arg("folder_or_file"));
  nb::class_<Tokenizer>(module, "Tokenizer", "A tokenizer.json at work.")
      .def_static(
          "load", [](const std::string& folder_or_file) { return Tokenizer::load(folder_or_file); },
          nb::arg("folder_or_file"), nb::call_guard<nb::gil_scoped_release>())
      .def("encode", &encode, nb::arg("text"), nb::arg("add_special_tokens") = true,
           nb::arg("max_length") = 0, nb::call_guard<nb::gil_scoped_release>())
      .def("decode", &decode, nb::arg("ids"), nb::arg("skip_special") = false)
      .def("token_string", &Tokenizer::token_string, nb::arg("id"))
      .def_prop_ro("vocab_size", &Tokenizer::vocab_size)
      .def_prop_ro("bos_id", &Tokenizer::bos_id)
      .def_prop_ro("eos_id", &Tokenizer::eos_id)
      .def_prop_ro("prefix_ids", &Tokenizer::prefix_ids);
}

}  // namespace qkscope::python
