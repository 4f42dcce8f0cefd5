#include <filesystem>
#include <utility>

#include "checkpoint/checkpoint.h"
#include "core/error.h"
#include "io/folder.h"

namespace qkscope {

Json load_config(const std::string& folder) {
  if (!path_exists(folder)) bad_input("{}: no such folder; expected a checkpoint folder", folder);
  if (!is_folder(folder))
    bad_input("{}: not a folder; expected a checkpoint folder with config.json and weights",
              folder);
  const auto path = (std::filesystem::path(folder) / "config.json").string();
  if (!path_exists(path))
    bad_input("{}: no config.json in this folder; expected a Hugging Face checkpoint", folder);
  Json config = load_json(path);
  if (!config.is_object())
    bad_input("{}: found a JSON {}, expected a map of the model's settings", path,
              config.type_name());
  return config;
}

Json merge_overrides(Json config, const Json& overrides) {
  if (!config.is_object() || !overrides.is_object()) return overrides;
  for (const auto& [key, value] : overrides.items()) {
    Json& target = config[key];
    target = merge_overrides(std::move(target), value);
  }
  return config;
}

}  // namespace qkscope
