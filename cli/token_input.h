// The tokens a command runs on, and the positions of them it looks at.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace qkscope::cli {

// Exactly one of --text, --text-file and --token-ids, unless the command asks otherwise of the
// group.
struct TokenInput {
  std::string text;
  std::string text_file;
  std::string token_ids;
  bool no_special = false;

  CLI::App& add_to(CLI::App& command);  // the group of the three
  bool given() const { return !text.empty() || !text_file.empty() || !token_ids.empty(); }
  // Texts are tokenized with the tokenizer in the checkpoint's folder.
  std::vector<std::int32_t> read(const std::string& folder) const;
};

// "5", "0,3,7" or "0:128" (end not included), negative counted from the end; ascending, once each.
// Empty for an empty option, which means all.
std::vector<std::int64_t> read_positions(const std::string& option, std::int64_t length);

}  // namespace qkscope::cli
