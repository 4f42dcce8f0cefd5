#include "cli/token_input.h"

#include <algorithm>

#include "cli/common_options.h"
#include "cli/error.h"
#include "cli/json.h"
#include "qkscope/experimental/text.h"
#include "qkscope/tokenizer.h"

namespace qkscope::cli {
namespace {

std::vector<std::int32_t> ids_from_json(const std::string& path) {
  const Json json = parse_json(read_text_file(path), path);
  const Json& list = json.is_object() && json.contains("ids") ? json["ids"] : json;
  if (!list.is_array())
    bad_input("{}: expected a list of token ids or an object with \"ids\"", path);
  std::vector<std::int32_t> ids;
  for (const auto& item : list) {
    if (!item.is_number_integer() || item < 0 || item > INT32_MAX)
      bad_input("{}: entry {} is {}, expected a token id", path, ids.size(), item.dump());
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
    if (id < 0 || id > INT32_MAX) bad_input("--token-ids: {} is not a token id", id);
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

std::vector<std::int64_t> read_positions(const std::string& option, std::int64_t length,
                                         std::string_view name) {
  std::vector<std::int64_t> positions;
  const auto resolve = [&](const std::string& text, std::int64_t highest) {
    const auto value = parse_integer(text, name);
    const auto position = value < 0 ? value + length : value;
    if (position < 0 || position > highest)
      bad_input("{}: {} is outside the text, which has positions 0 to {}", name, value, length - 1);
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
  if (positions.empty()) bad_input("{}: '{}' names no position", name, option);
  return positions;
}

}  // namespace qkscope::cli
