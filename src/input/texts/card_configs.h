// The `configs:` section of a dataset card (README.md of a Hub dataset), which maps splits to
// files.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace qkscope {

struct CardConfig {
  std::string name = "default";
  bool is_default = false;
  std::string data_dir;                                   // "" for the whole repository
  std::map<std::string, std::vector<std::string>> files;  // split → glob patterns
};

// Returns the `configs:` entries of the front matter; empty if there are none. Front matter that is
// not valid YAML is ignored with a warning that starts with `where`.
std::vector<CardConfig> read_card_configs(std::string_view card, const std::string& where);

}  // namespace qkscope
