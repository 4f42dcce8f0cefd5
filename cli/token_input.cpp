#include "cli/token_input.h"

#include <algorithm>

#include "cli/common_options.h"
#include "cli/error.h"
#include "cli/json.h"
#include "qkscope/experimental/text.h"
#include "qkscope/texts.h"
#include "qkscope/tokenizer.h"

namespace qkscope::cli {
namespace {

std::vector<std::int32_t> ids_from_json(const std::string& path) {
  const Json json = parse_json(read_text_file(path), path);
  const Json& list = json.is_object() && json.contains("ids") ? json["ids"] : json;
  if (!list.is_array()) reject("{}: expected a list of token ids or an object with \"ids\"", path);
  std::vector<std::int32_t> ids;
  for (const auto& item : list) {
    if (!item.is_number_integer() || item < 0 || item > INT32_MAX)
      reject("{}: entry {} is {}, expected a token id", path, ids.size(), item.dump());
    ids.push_back(item.get<std::int32_t>());
  }
  return ids;
}

// Parses "1,2,3", or reads a JSON file.
std::vector<std::int32_t> read_token_ids(const std::string& option) {
  if (option.find_first_not_of("0123456789, -") != std::string::npos) return ids_from_json(option);
  std::vector<std::int32_t> ids;
  for (const auto& part : split(option, ',')) {
    const auto id = parse_integer(part, "--token-ids");
    if (id < 0 || id > INT32_MAX) reject("--token-ids: {} is not a token id", id);
    ids.push_back(static_cast<std::int32_t>(id));
  }
  return ids;
}

}  // namespace

CLI::App& TokenInput::add_to(CLI::App& command) {
  auto* input = command.add_option_group("input", "Input, one of these");
  input->add_option("--text", text, "The text itself");
  input->add_option("--text-file", text_file, "A file with the text");
  input->add_option("--token-ids", token_ids,
                    "Token ids (1,2,3), or a JSON file with a list of them");
  input->require_option(1);
  start_section(command, "Texts");
  command.add_flag("--no-special", no_special, "Add no special tokens, such as BOS, to a text");
  return *input;
}

std::vector<std::int32_t> TokenInput::read(const std::string& folder) const {
  if (!token_ids.empty()) return read_token_ids(token_ids);
  const auto tokenizer = Tokenizer::load(folder);
  const auto content = text_file.empty() ? text : read_text_file(text_file);
  return tokenizer.encode(content, {.add_special_tokens = !no_special}).ids;
}

void DatasetInput::add_to(CLI::App& command, CLI::App& input) {
  input.add_option("--dataset", dataset,
                   "A text dataset: Parquet, JSON Lines, JSON, CSV, plain text, or a folder");
  command.add_option("--text-column", text_column, "Column of the texts in the dataset")
      ->capture_default_str();
  command.add_option("--limit", limit, "Number of texts of the dataset to use")
      ->check(positive())
      ->capture_default_str();
  command.add_option("--max-tokens", max_tokens, "Cut texts of the dataset to N tokens")
      ->check(positive())
      ->capture_default_str();
}

std::vector<std::vector<std::int32_t>> DatasetInput::read(const std::string& folder,
                                                          bool no_special) const {
  const auto tokenizer = Tokenizer::load(folder);
  CorpusOptions corpus_options;
  corpus_options.path = dataset;
  corpus_options.text_column = text_column;
  corpus_options.max_samples = limit;
  const auto corpus = open_corpus(corpus_options);
  std::vector<std::vector<std::int32_t>> texts;
  for (Document document; corpus->next(document);) {
    auto ids =
        tokenizer
            .encode(document.text, {.add_special_tokens = !no_special, .max_length = max_tokens})
            .ids;
    if (!ids.empty()) texts.push_back(std::move(ids));
  }
  return texts;
}

std::vector<std::int64_t> read_positions(const std::string& option, std::int64_t length,
                                         const std::string& what) {
  std::vector<std::int64_t> positions;
  const auto resolve = [&](const std::string& text, std::int64_t highest) {
    const auto value = parse_integer(text, what);
    const auto position = value < 0 ? value + length : value;
    if (position < 0 || position > highest)
      reject("{}: {} is outside the text, which has positions 0 to {}", what, value, length - 1);
    return position;
  };
  if (option.empty()) return positions;
  for (const auto& part : split(option, ',')) {
    const auto colon = part.find(':');
    if (colon == std::string::npos) {
      positions.push_back(resolve(part, length - 1));
      continue;
    }
    const auto first = colon == 0 ? 0 : resolve(part.substr(0, colon), length);
    const auto last = colon + 1 == part.size() ? length : resolve(part.substr(colon + 1), length);
    for (auto position = first; position < last; ++position) positions.push_back(position);
  }
  std::sort(positions.begin(), positions.end());
  positions.erase(std::unique(positions.begin(), positions.end()), positions.end());
  if (positions.empty()) reject("{}: '{}' names no position", what, option);
  return positions;
}

}  // namespace qkscope::cli
