#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "base/core/error.h"
#include "input/checkpoint/checkpoint.h"
#include "input/checkpoint/weight_index.h"
#include "input/hub/fetch.h"
#include "input/texts/split_files.h"

namespace qkscope {
namespace {

constexpr const char* kConfig = "config.json";
constexpr const char* kTokenizer = "tokenizer.json";
constexpr const char* kCard = "README.md";
// Small files that transformers requests when it opens the same snapshot.
constexpr const char* kBesideConfig[] = {"generation_config.json"};
constexpr const char* kBesideTokenizer[] = {"added_tokens.json", "special_tokens_map.json",
                                            "tokenizer_config.json"};

using Paths = std::vector<std::string>;

bool has(const Paths& paths, const std::string& path) {
  return std::find(paths.begin(), paths.end(), path) != paths.end();
}

void add_if_there(const Paths& paths, const std::string& path, Paths& chosen) {
  if (has(paths, path)) chosen.push_back(path);
}

void add_tokenizer(const Paths& paths, Paths& chosen) {
  for (const char* name : kBesideTokenizer) add_if_there(paths, name, chosen);
  add_if_there(paths, kTokenizer, chosen);
}

const WeightFormat* find_format(const Paths& paths) {
  for (const auto& format : kWeightFormats)
    if (has(paths, format.single) || has(paths, format.index)) return &format;
  return nullptr;
}

// Returns false if the index could not be read.
bool add_weights(const Paths& paths, const FileReader& read, const std::string& where,
                 Paths& chosen) {
  const auto* format = find_format(paths);
  if (format == nullptr)
    bad_input("{}: no weights that can be read: expected {} or {}; it holds {}", where,
              kWeightFormats[0].single, kWeightFormats[0].index, list_paths(paths));
  if (has(paths, format->single)) {
    chosen.push_back(format->single);
    return true;
  }
  const auto text = read(format->index);
  if (!text) return false;
  std::set<std::string> shards;
  for (const auto& [tensor, shard] : parse_weight_index(*text, where + ": " + format->index))
    shards.insert(shard);
  for (const auto& shard : shards) {
    if (!has(paths, shard))
      bad_input("{}: {} names the shard {}, which is not there", where, format->index, shard);
    chosen.push_back(shard);
  }
  chosen.push_back(format->index);
  return true;
}

void require_config(const Paths& paths, const std::string& where) {
  if (!has(paths, kConfig))
    bad_input("{}: no checkpoint: expected a {}; it holds {}", where, kConfig, list_paths(paths));
}

}  // namespace

std::string list_paths(const std::vector<std::string>& paths) {
  return list_names(paths, 8);
}

FileChoice config_file() {
  return [](const Paths& paths, const FileReader&, const std::string& where) {
    require_config(paths, where);
    return std::optional(Paths{kConfig});
  };
}

FileChoice checkpoint_files(bool weights) {
  return [weights](const Paths& paths, const FileReader& read,
                   const std::string& where) -> std::optional<Paths> {
    require_config(paths, where);
    Paths chosen;
    add_tokenizer(paths, chosen);
    for (const char* name : kBesideConfig) add_if_there(paths, name, chosen);
    if (const auto* format = find_format(paths); !weights && format != nullptr)
      add_if_there(paths, format->index, chosen);
    if (weights && !add_weights(paths, read, where, chosen)) return {};
    chosen.push_back(kConfig);
    return chosen;
  };
}

FileChoice tokenizer_files() {
  return [](const Paths& paths, const FileReader&, const std::string& where) {
    if (!has(paths, kTokenizer))
      bad_input("{}: no tokenizer: expected a {}; it holds {}", where, kTokenizer,
                list_paths(paths));
    Paths chosen;
    add_tokenizer(paths, chosen);
    return std::optional(chosen);
  };
}

FileChoice dataset_files(const std::string& name, const std::string& split) {
  CorpusOptions corpus;
  if (!name.empty()) corpus.name = name;
  corpus.split = split;
  return [corpus](const Paths& paths, const FileReader& read,
                  const std::string& where) -> std::optional<Paths> {
    std::string card;
    if (has(paths, kCard)) {
      const auto text = read(kCard);
      if (!text) return {};
      card = *text;
    }
    auto chosen = choose_split_files(paths, card, corpus, where);
    add_if_there(paths, kCard, chosen);
    return chosen;
  };
}

}  // namespace qkscope
