#include <filesystem>

#include "base/core/error.h"
#include "base/core/translate_exceptions.h"
#include "base/io/json.h"
#include "base/io/mapped_file.h"
#include "input/tokenizer/tokenizer_file.h"
#include "qkscope/experimental/generate.h"

namespace qkscope {
namespace {

std::vector<std::int32_t> ids_of(const Json& value, const std::string& where) {
  if (value.is_number_integer()) return {value.get<std::int32_t>()};
  std::vector<std::int32_t> ids;
  if (value.is_array())
    for (const auto& id : value) {
      if (!id.is_number_integer())
        bad_input("{}: eos_token_id holds {}, expected token ids", where, id.dump());
      ids.push_back(id.get<std::int32_t>());
    }
  return ids;
}

// Reads eos_token_id from the top level of a JSON file or from its text_config section.
std::vector<std::int32_t> ids_in(const std::string& file) {
  if (!std::filesystem::exists(file)) return {};
  const auto json = parse_json(MappedFile(file).text(), file);
  for (const auto* part : {&json, json.contains("text_config") ? &json["text_config"] : nullptr})
    if (part != nullptr && part->is_object() && part->contains("eos_token_id"))
      if (auto ids = ids_of((*part)["eos_token_id"], file); !ids.empty()) return ids;
  return {};
}

}  // namespace

std::vector<std::int32_t> end_tokens(const Model& model) {
  return translate_exceptions([&] {
    auto ids = ids_in(model.folder() + "/generation_config.json");
    if (ids.empty()) ids = ids_in(model.folder() + "/config.json");
    if (!ids.empty()) return ids;
    const auto gguf = tokenizer_gguf(model.folder());
    return gguf.empty() ? ids : gguf_end_tokens(gguf);
  });
}

}  // namespace qkscope
