// Token input of commands that run a single text, and parsing of the positions to keep.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>

namespace qkscope::cli {

// The options --text, --text-file and --token-ids. Exactly one is required by default.
struct TokenInput {
  std::string text;
  std::string text_file;
  std::string token_ids;
  bool no_special = false;

  // Adds the options to `command`. Callers may extend the returned CLI11 group or make it optional.
  CLI::App& add_to(CLI::App& command);
  bool is_given() const { return !text.empty() || !text_file.empty() || !token_ids.empty(); }
  // Returns token ids; texts are tokenized with the tokenizer of the checkpoint folder.
  std::vector<std::int32_t> read(const std::string& folder) const;
};

// The options --dataset, --text-column, --limit and --max-tokens: the first texts of a dataset.
struct DatasetInput {
  std::string dataset;
  std::string text_column = "text";
  std::int64_t limit = 100;
  std::int64_t max_tokens = 1024;

  // `input`: option group of TokenInput, to which --dataset is added as a further alternative.
  void add_to(CLI::App& command, CLI::App& input);
  bool is_given() const { return !dataset.empty(); }
  // Returns the token ids of every text that is not empty.
  std::vector<std::vector<std::int32_t>> read(const std::string& folder, bool no_special) const;
};

// Parses "5", "0,3,7" or "0:128" (end excluded); negative positions count from the end. Returns
// sorted, distinct positions. An empty option gives an empty list, which means all positions.
// `what` names the option in messages.
std::vector<std::int64_t> read_positions(const std::string& option, std::int64_t length,
                                         const std::string& what = "--positions");

}  // namespace qkscope::cli
