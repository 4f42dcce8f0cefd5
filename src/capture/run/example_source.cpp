#include "capture/run/example_source.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "base/core/error.h"
#include "base/core/project.h"
#include "base/core/text.h"
#include "base/core/thread_pool.h"
#include "base/io/checksum.h"
#include "base/io/folder.h"
#include "input/checkpoint/checkpoint.h"
#include "input/texts/dataset_files.h"
#include "input/tokenizer/tokenizer_file.h"

namespace qkscope {
namespace {

// The progress display counts documents only in datasets up to this size.
constexpr std::uintmax_t kCountedBytes = std::uintmax_t{256} << 20;
constexpr std::uintmax_t kTokenizedBytes = std::uintmax_t{8} << 20;  // when counting chunks

namespace fs = std::filesystem;

using Files = std::map<std::string, std::string>;  // displayed name to path

Files existing_files(const std::string& folder, const std::vector<std::string>& names) {
  Files files;
  for (const auto& name : names)
    if (auto path = (fs::path(folder) / name).string(); path_exists(path)) files[name] = path;
  return files;
}

// Maps each path relative to `root` to the full path. If `root` is a file, the key is its name.
Files files_by_relative_path(const std::string& root, const std::vector<std::string>& paths) {
  Files files;
  for (const auto& path : paths) {
    const auto name = fs::path(path).lexically_relative(root).string();
    files[name == "." ? fs::path(path).filename().string() : name] = path;
  }
  return files;
}

// Returns the tokenizer files: a GGUF file, or tokenizer.json and tokenizer_config.json.
Files tokenizer_files(const std::string& folder_or_file) {
  if (const auto gguf = find_gguf_tokenizer(folder_or_file); !gguf.empty())
    return files_by_relative_path(folder_or_file, {gguf});
  if (is_folder(folder_or_file))
    return existing_files(folder_or_file, {"tokenizer.json", "tokenizer_config.json"});
  const fs::path file = folder_or_file;
  return existing_files(parent_folder(folder_or_file),
                        {file.filename().string(), "tokenizer_config.json"});
}

Files dataset_files(const RunPlan& plan) {
  if (!path_exists(plan.dataset_path)) return {};
  return files_by_relative_path(plan.dataset_path, find_corpus_files(corpus_options(plan, {})));
}

using FilesByKind = std::map<std::string, Files>;

FilesByKind small_input_files(const RunPlan& plan) {
  if (plan.engine)  // the engine's identity covers the model files
    return plan.tokenizer_folder.empty()
               ? FilesByKind()
               : FilesByKind{{"tokenizer", tokenizer_files(plan.tokenizer_folder)}};
  return {{"config", existing_files(plan.model_folder, {"config.json"})},
          {"tokenizer", tokenizer_files(plan.tokenizer_folder)}};
}

FilesByKind all_input_files(const RunPlan& plan) {
  auto kinds = small_input_files(plan);
  if (!plan.engine)
    kinds["weights"] = files_by_relative_path(plan.model_folder, weight_files(plan.model_folder));
  kinds["dataset"] = dataset_files(plan);
  return kinds;
}

Json fingerprint_files(const FilesByKind& kinds) {
  Json inputs = Json::object();
  for (const auto& [kind, files] : kinds) {
    const auto prints =
        parallel_map(to_vector(files, &Files::value_type::second), file_fingerprint);
    for (auto print = prints.begin(); const auto& [name, path] : files)
      inputs[kind][name] = *print++;
  }
  return inputs;
}

}  // namespace

CorpusOptions corpus_options(const RunPlan& plan, const Shard& shard) {
  const auto& dataset = plan.config.dataset;
  return {.path = plan.dataset_path,
          .name = dataset.name,
          .split = dataset.split,
          .text_column = dataset.text_column,
          .id_column = dataset.id_column,
          .number_rows = dataset.number_rows,
          .max_samples = dataset.max_samples.value_or(0),
          .shard_index = shard.index,
          .shard_count = shard.count,
          .replace_invalid = dataset.replace_invalid};
}

ExampleSource::ExampleSource(const RunPlan& plan, const Shard& shard)
    : options_(corpus_options(plan, shard)),
      corpus_(open_corpus(options_)),
      engine_(plan.engine_tokenizes ? plan.engine : nullptr),
      tokenizer_(engine_ ? std::shared_future<Tokenizer>() : start_loading_tokenizer(plan)),
      tokenizer_config_(plan.config.tokenizer),
      keep_strings_(plan.manifest.token_strings) {}

bool ExampleSource::read_document() {
  if (!corpus_->next(document_)) return false;
  text_checksum_ = checksum_of(document_.text);
  encoded_ = false;
  next_chunk_ = 0;
  return true;
}

bool ExampleSource::next(Example& example) {
  while (!encoded_ || next_chunk_ == chunks_.size()) {
    if (encoded_ && !read_document()) {
      if (dropped_chunks_ > 0 && examples_ == 0 && options_.shard_count == 1)
        reject("{}: none of the {} texts has {} tokens (tokenizer.chunk_min)", options_.path,
               dropped_chunks_, tokenizer_config_.chunk.min_length);
      return false;
    }
    auto text = encode_document(document_);
    chunks_ = std::move(text.chunks);
    dropped_chunks_ += text.dropped;
    encoded_ = true;
  }
  auto& chunk = chunks_[next_chunk_];
  example.record = make_example_record();
  example.record.tokens = static_cast<std::int32_t>(chunk.ids.size());
  example.record.truncated = chunk.truncated;
  example.ids = std::move(chunk.ids);
  example.token_strings.clear();
  if (keep_strings_)
    for (const auto id : example.ids)
      example.token_strings.push_back(tokenizer_.get().token_string(id));
  ++next_chunk_;
  ++examples_;
  return true;
}

TextChunks ExampleSource::encode_document(const Document& document) const {
  const auto& chunk = tokenizer_config_.chunk;
  try {
    if (chunk.size > 0) return encode_chunks(tokenizer_.get(), document.text, chunk, {});
    TextChunks text;
    const auto length = tokenizer_config_.max_length;
    text.chunks.push_back(engine_ ? engine_->encode(document.text, length)
                                  : tokenizer_.get().encode(document.text, {.max_length = length}));
    return text;
  } catch (const Error& error) {
    throw Error(error.kind(),
                fmt::format("{}: row {} (example {}) cannot be tokenized: {}", options_.path,
                            document.row, quote_text(document.source_id), error.what()));
  }
}

ExampleRecord ExampleSource::make_example_record() const {
  ExampleRecord record{.row = document_.row,
                       .key = document_.example_key,
                       .source_id = document_.source_id,
                       .text = text_checksum_};
  if (tokenizer_config_.chunk.size == 0) return record;
  const auto number = options_.number_rows ? std::to_string(document_.row) : document_.source_id;
  record.key = derive_example_key(ExampleId::from_string(chunk_id(number, next_chunk_)));
  record.source_id = chunk_id(document_.source_id, next_chunk_);
  return record;
}

void ExampleSource::skip_stored_example(const ExampleRecord& stored) {
  // Does not tokenize: a text without stored chunks is assumed to be too short for a chunk.
  bool there = !encoded_ && document_.row == stored.row;
  while (!there && read_document())
    there = document_.row >= stored.row || tokenizer_config_.chunk.size == 0;
  const auto found = make_example_record();
  if (!there || found.row != stored.row || found.key != stored.key || found.text != stored.text)
    reject(
        "{}: the dataset changed since this run began: row {} was example {}, now it is {}; "
        "start again with --overwrite",
        options_.path, stored.row, quote_text(stored.source_id),
        !there                    ? "missing"
        : found.key == stored.key ? "another text"
                                  : quote_text(found.source_id));
  ++next_chunk_;
  ++examples_;
}

std::int64_t ExampleSource::check_ids_and_count_documents() const {
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
  std::ranges::sort(keys);
  const auto same = std::ranges::adjacent_find(
      keys, [](const auto& a, const auto& b) { return a.first == b.first; });
  if (same == keys.end()) return count;
  const auto first = same->second;
  const auto second = (same + 1)->second;
  std::string first_id;
  const auto again = open_corpus(whole);  // second pass finds the ids of the two rows
  while (again->next(document) && document.row != second)
    if (document.row == first) first_id = document.source_id;
  reject(
      "{}: rows {} and {} have {} in column {}: their rows could not be told apart; give each row "
      "an id of its own, or number them with --ids row",
      whole.path, first, second,
      first_id == document.source_id
          ? fmt::format("the same id {}", quote_text(first_id))
          : fmt::format("ids of the same 64 bits, {} and {},", quote_text(first_id),
                        quote_text(document.source_id)),
      quote_text(whole.id_column.value_or("")));
}

std::future<std::int64_t> ExampleSource::scan_examples_async(bool checks_ids, bool counts) const {
  return run_in_background([this, checks_ids, counts]() -> std::int64_t {
    const bool in_chunks = tokenizer_config_.chunk.size > 0;
    const auto documents = checks_ids ? check_ids_and_count_documents() : 0;
    if (checks_ids && !in_chunks) return documents;
    if (!counts) return 0;
    std::uintmax_t bytes = 0;
    for (const auto& file : corpus_->files()) bytes += std::filesystem::file_size(file);
    if (bytes > (in_chunks ? kTokenizedBytes : kCountedBytes)) return 0;
    const auto corpus = open_corpus(options_);
    Document document;
    std::int64_t count = 0;
    while (corpus->next(document))
      count += in_chunks ? std::ssize(encode_document(document).chunks) : 1;
    return count;
  });
}

Json fingerprint_config_and_tokenizer(const RunPlan& plan) {
  return fingerprint_files(small_input_files(plan));
}

FileSnapshot snapshot_inputs(const RunPlan& plan) {
  FileSnapshot snapshot;
  for (const auto& [kind, files] : all_input_files(plan))
    for (const auto& [name, path] : files) snapshot.add(path);
  return snapshot;
}

Manifest make_fingerprinted_manifest(const RunPlan& plan) {
  Manifest manifest = plan.manifest;
  manifest.identity[kInputs] = fingerprint_files(all_input_files(plan));
  return manifest;
}

}  // namespace qkscope
