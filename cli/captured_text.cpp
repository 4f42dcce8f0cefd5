#include "cli/captured_text.h"

#include <algorithm>

#include <fmt/format.h>

#include "cli/error.h"
#include "cli/json.h"
#include "qkscope/experimental/store.h"
#include "qkscope/tables.h"

namespace qkscope::cli {
namespace {

// Tokenizes a text and calls found(ids) for the whole text, or for each chunk if the configuration
// cuts texts into chunks, until found() returns true.
template <typename Found>
bool find_example(const Document& document, const TokenizerConfig& config,
                  const Tokenizer& tokenizer, Found found) {
  if (config.chunk.size == 0)
    return found(tokenizer.encode(document.text, {.max_length = config.max_length}).ids);
  const auto text = encode_chunks(tokenizer, document.text, config.chunk, {});
  return std::ranges::any_of(text.chunks, [&](const auto& chunk) { return found(chunk.ids); });
}

}  // namespace

CaptureConfig read_captured_config(const std::string& capture) {
  const auto file = capture + "/_saver_state.json";
  const auto state = parse_json(read_text_file(file), file);
  if (!state.is_object() || !state.contains("configuration"))
    reject(
        "{}: found no configuration, expected the state of a run of 'qkscope capture'; name the "
        "model with --model and the text with --dataset instead of --capture",
        file);
  Json sections = Json::object();
  for (const char* name : {"dataset", "model", "tokenizer"})
    sections[name] = state["configuration"].value(name, Json::object());
  return parse_capture_config(dump_json(sections));  // JSON is YAML
}

CapturedText read_captured_text(const std::string& capture, const CaptureConfig& config,
                                const std::string& folder, std::int64_t number) {
  const auto file = capture + "/examples.parquet";
  const auto examples = read_parquet_table(file, {"example_key", "source_id", "tokens"});
  if (number >= examples.rows())
    reject("--row {}: {} has examples 0 to {}", number, file, examples.rows() - 1);
  const auto row = static_cast<std::size_t>(number);
  const auto& columns = examples.columns();
  const auto& dataset = config.dataset;
  const auto& name = config.tokenizer.name;
  const auto tokenizer =
      Tokenizer::load(name.empty() || name == config.model.name ? folder : fetch_tokenizer(name));
  const auto path =
      fetch_dataset(fetch_input(dataset.path), dataset.name.value_or(""), dataset.split);
  const auto corpus = open_corpus({.path = path,
                                   .name = dataset.name,
                                   .split = dataset.split,
                                   .text_column = dataset.text_column,
                                   .id_column = dataset.id_column,
                                   .number_rows = dataset.number_rows,
                                   .max_samples = dataset.max_samples.value_or(0),
                                   .replace_invalid = dataset.replace_invalid});
  CapturedText text{.title = fmt::format("{}, {}", dataset.path, columns[1].texts[row]),
                    .ids = {},
                    .key = columns[0].integers[row]};
  const bool whole = config.tokenizer.chunk.size == 0;
  std::int64_t seen = 0;
  const auto found = [&](const std::vector<std::int32_t>& ids) {
    if (!whole && seen++ < number) return false;
    text.ids = ids;
    return true;
  };
  for (Document document; text.ids.empty() && corpus->next(document);)
    if (!whole || document.example_key == text.key)
      find_example(document, config.tokenizer, tokenizer, found);
  if (std::ssize(text.ids) != columns[2].integers[row])
    reject(
        "{}: example {} has {} tokens in this dataset, expected {} as in the capture; has the "
        "dataset or the tokenizer changed?",
        path, number, text.ids.size(), columns[2].integers[row]);
  return text;
}

std::vector<CapturedHead> read_captured_heads(const std::string& capture, std::int64_t key,
                                              const std::vector<ViewerHead>& shown) {
  std::vector<CapturedHead> heads;
  const auto index = index_capture(capture, true);
  for (const auto& id : index.queries) {
    auto& head = heads.emplace_back(CapturedHead{{id.layer, id.head}});
    if (std::ranges::find(shown, head.head) == shown.end()) continue;
    const auto rows = read_head_file(head_file_path(index.data_root, id)).rows;
    for (std::size_t row = 0; row < rows.position.size(); ++row)
      if (rows.example(row) == key) head.positions.push_back(rows.position[row]);
  }
  return heads;
}

}  // namespace qkscope::cli
