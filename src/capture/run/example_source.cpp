#include "capture/run/example_source.h"

#include <algorithm>
#include <compare>
#include <filesystem>

#include <fmt/format.h>

#include "base/core/error.h"
#include "base/core/text.h"
#include "base/io/checksum.h"

namespace qkscope {
namespace {

// Limit of dataset size for counting documents, which the progress display needs.
constexpr std::uintmax_t kCountedBytes = std::uintmax_t{256} << 20;

// Reads the dataset again up to the second row, to quote both ids.
[[noreturn]] void refuse_ids(const CorpusOptions& options, std::int64_t first,
                             std::int64_t second) {
  const auto corpus = open_corpus(options);
  Document document;
  std::string first_id;
  while (corpus->next(document) && document.row != second)
    if (document.row == first) first_id = document.source_id;
  bad_input(
      "{}: rows {} and {} have {} in column {}: their rows could not be told apart; give each row "
      "an id of its own, or number them with --ids row",
      options.path, first, second,
      first_id == document.source_id
          ? fmt::format("the same id {}", in_quotes(first_id))
          : fmt::format("ids of the same 64 bits, {} and {},", in_quotes(first_id),
                        in_quotes(document.source_id)),
      in_quotes(options.id_column.value_or("")));
}

}  // namespace

CorpusOptions corpus_options(const RunPlan& plan, const Shard& shard) {
  const auto& dataset = plan.config.dataset;
  CorpusOptions options;
  options.path = plan.dataset_path;
  options.name = dataset.name;
  options.split = dataset.split;
  options.text_column = dataset.text_column;
  options.id_column = dataset.id_column;
  options.number_rows = dataset.number_rows;
  options.max_samples = dataset.max_samples.value_or(0);
  options.replace_invalid = dataset.replace_invalid;
  options.shard_index = shard.index;
  options.shard_count = shard.count;
  return options;
}

ExampleSource::ExampleSource(const RunPlan& plan, const Shard& shard)
    : options_(corpus_options(plan, shard)),
      corpus_(open_corpus(options_)),
      tokenizer_(load_tokenizer(plan)),
      max_length_(plan.config.tokenizer.max_length),
      keep_strings_(plan.manifest.token_strings) {}

bool ExampleSource::next(Example& example) {
  if (!corpus_->next(document_)) return false;
  auto encoding = encode();
  example.record = {.row = document_.row,
                    .key = document_.example_key,
                    .source_id = document_.source_id,
                    .tokens = static_cast<std::int32_t>(encoding.ids.size()),
                    .truncated = encoding.truncated,
                    .text = checksum_of(document_.text)};
  example.ids = std::move(encoding.ids);
  example.token_strings.clear();
  if (keep_strings_)
    for (const auto id : example.ids)
      example.token_strings.push_back(tokenizer_.get().token_string(id));
  return true;
}

Tokenizer::Encoding ExampleSource::encode() const {
  const auto& tokenizer = tokenizer_.get();
  try {
    return tokenizer.encode(document_.text,
                            {.add_special_tokens = true, .max_length = max_length_});
  } catch (const Error& error) {
    throw Error(error.kind(),
                fmt::format("{}: row {} (example {}) cannot be tokenized: {}", options_.path,
                            document_.row, in_quotes(document_.source_id), error.what()));
  }
}

void ExampleSource::skip(const std::vector<ExampleRecord>& done) {
  for (const auto& record : done) {
    const bool there = corpus_->next(document_);
    if (there && document_.row == record.row && document_.example_key == record.key &&
        checksum_of(document_.text) == record.text)
      continue;
    bad_input(
        "{}: the dataset changed since this run began: row {} was example {}, now it is {}; start "
        "again with --overwrite",
        options_.path, record.row, in_quotes(record.source_id),
        !there                                ? "missing"
        : document_.example_key == record.key ? "another text"
                                              : in_quotes(document_.source_id));
  }
}

std::int64_t ExampleSource::count_documents() const {
  std::uintmax_t bytes = 0;
  for (const auto& file : corpus_->files()) bytes += std::filesystem::file_size(file);
  if (bytes > kCountedBytes) return 0;
  const auto corpus = open_corpus(options_);
  Document document;
  std::int64_t count = 0;
  while (corpus->next(document)) ++count;
  return count;
}

std::int64_t ExampleSource::check_ids() const {
  auto whole = options_;  // ids must be unique over all shards
  whole.shard_index = 0;
  whole.shard_count = 1;
  const auto corpus = open_corpus(whole);
  Document document;
  std::vector<std::pair<std::int64_t, std::int64_t>> keys;  // example key, dataset row
  std::int64_t count = 0;
  while (corpus->next(document)) {
    keys.emplace_back(document.example_key, document.row);
    count += document.row % options_.shard_count == options_.shard_index;
  }
  std::sort(keys.begin(), keys.end());
  const auto same = std::adjacent_find(
      keys.begin(), keys.end(), [](const auto& a, const auto& b) { return a.first == b.first; });
  if (same != keys.end()) refuse_ids(whole, same->second, (same + 1)->second);
  return count;
}

std::future<std::int64_t> ExampleSource::count(bool checks_ids, bool wanted) const {
  return std::async(std::launch::async, [this, checks_ids, wanted]() -> std::int64_t {
    if (checks_ids) return check_ids();
    return wanted ? count_documents() : 0;
  });
}

}  // namespace qkscope
