// The `configs:` of a dataset card (the README.md of a Hub dataset): which files make up which
// split.
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
  std::map<std::string, std::vector<std::string>> files;  // split → patterns; empty: by their names
};

// The entries of `configs:` in the front matter; none where there are none. A front matter that is
// not YAML is skipped with a warning that names `where`.
std::vector<CardConfig> read_card_configs(std::string_view card, const std::string& where);

}  // namespace qkscope
