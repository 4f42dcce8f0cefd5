#include <algorithm>
#include <filesystem>
#include <iterator>
#include <set>

#include <fmt/format.h>

#include "base/core/error.h"
#include "base/core/log.h"
#include "base/core/text.h"
#include "base/io/folder.h"
#include "base/io/mapped_file.h"
#include "input/checkpoint/checkpoint.h"
#include "input/checkpoint/hub_cache.h"
#include "input/hub/client.h"
#include "input/texts/dataset_files.h"

namespace qkscope {
namespace {

constexpr const char* kConfig = "config.json";
constexpr const char* kTokenizer = "tokenizer.json";
constexpr const char* kCard = "README.md";
// Small files that transformers requests when it loads the same snapshot.
constexpr const char* kBesideConfig[] = {"generation_config.json"};
constexpr const char* kBesideTokenizer[] = {"added_tokens.json", "special_tokens_map.json",
                                            "tokenizer_config.json"};

using Paths = std::vector<std::string>;

bool contains_path(const Paths& paths, const std::string& path) {
  return std::ranges::find(paths, path) != paths.end();
}

void add_tokenizer_files(const Paths& paths, Paths& chosen) {
  for (const char* name : kBesideTokenizer) add_path_if_listed(paths, name, chosen);
  add_path_if_listed(paths, kTokenizer, chosen);
}

const WeightFileNames* find_weight_format(const Paths& paths) {
  for (const auto& format : kWeightFormats)
    if (contains_path(paths, format.single) || contains_path(paths, format.index)) return &format;
  return nullptr;
}

// Adds the weight files to `chosen`. Returns false if the shard index could not be read.
bool add_weight_files(const Paths& paths, const RemoteFileReader& read, const std::string& where,
                      Paths& chosen) {
  const auto* format = find_weight_format(paths);
  if (format == nullptr)
    reject("{}: no weights that can be read: expected {} or {}; it holds {}", where,
           kWeightFormats[0].single, kWeightFormats[0].index, format_name_list(paths));
  if (contains_path(paths, format->single)) {
    chosen.push_back(format->single);
    return true;
  }
  const auto text = read(format->index);
  if (!text) return false;
  std::set<std::string> shards;
  for (const auto& [tensor, shard] : parse_weight_index(*text, where + ": " + format->index))
    shards.insert(shard);
  for (const auto& shard : shards) {
    if (!contains_path(paths, shard))
      reject("{}: {} names the shard {}, which is not there", where, format->index, shard);
    chosen.push_back(shard);
  }
  chosen.push_back(format->index);
  return true;
}

void require_config(const Paths& paths, const std::string& where) {
  if (!contains_path(paths, kConfig))
    reject("{}: no checkpoint: expected a {}; it holds {}", where, kConfig,
           format_name_list(paths));
}

// Selects config.json, weights (single file, or index and shards) and tokenizer. Selects the shard
// index even without `weights`, because it lists the tensors. config.json comes last and
// is therefore linked last: a snapshot that has it is complete.
RemoteFileFilter make_checkpoint_filter(bool weights) {
  return [weights](const Paths& paths, const RemoteFileReader& read,
                   const std::string& where) -> std::optional<Paths> {
    require_config(paths, where);
    Paths chosen;
    add_tokenizer_files(paths, chosen);
    for (const char* name : kBesideConfig) add_path_if_listed(paths, name, chosen);
    if (const auto* format = find_weight_format(paths); !weights && format != nullptr)
      add_path_if_listed(paths, format->index, chosen);
    if (weights && !add_weight_files(paths, read, where, chosen)) return {};
    chosen.push_back(kConfig);
    return chosen;
  };
}

std::optional<Paths> choose_tokenizer_files(const Paths& paths, const RemoteFileReader&,
                                            const std::string& where) {
  if (!contains_path(paths, kTokenizer))
    reject("{}: no tokenizer: expected a {}; it holds {}", where, kTokenizer,
           format_name_list(paths));
  Paths chosen;
  add_tokenizer_files(paths, chosen);
  return chosen;
}

class RevisionFetcher {
 public:
  RevisionFetcher(const RepositoryRevision& target, RemoteFileFilter choice,
                  const FetchOptions& options)
      : repository_{target.repository},
        revision_(target.revision.empty() ? "main" : target.revision),
        pinned_(target.commit),
        choice_(std::move(choice)),
        options_(options),
        client_(hub_settings(), options.stop),
        cache_(repository_) {}

  // Returns the snapshot folder, or "" in offline mode if the revision is not cached.
  std::string fetch_snapshot() {
    const auto known =
        pinned_.empty() ? cached_commit(repository_.kind, repository_.id, revision_) : pinned_;
    const bool offline = client_.settings().offline;
    if (!known.empty() && (offline || !options_.refresh) && is_fully_cached(known, offline))
      return cache_.snapshot_folder(known);
    const bool usable = !known.empty() && is_folder(cache_.snapshot_folder(known)) &&
                        !read_cached_file_list(cache_.folder(), known);
    if (offline) return usable ? cache_.snapshot_folder(known) : "";
    CommitListing listing;
    try {
      listing = fetch_listing();
    } catch (const Error& error) {
      if (known.empty())
        throw Error(error.kind(),
                    fmt::format("{}: no folder or file of this name here, and no such {} in the "
                                "cache; asking the Hub for it: {}",
                                repository_.id, repository_.kind_name(), error.what()));
      if (!usable || options_.refresh) throw;
      log::warn("{}; using what the cache holds of {}", error.what(), repository_.id);
      return cache_.snapshot_folder(known);
    }
    return download_snapshot(listing);
  }

 private:
  struct CommitListing {
    std::string commit;
    RemoteTree tree;
  };

  std::string describe_revision(const std::string& commit) const {
    return fmt::format("{} {}, revision {} ({})", repository_.kind_name(), repository_.id,
                       revision_, commit.substr(0, 7));
  }

  // Returns true if the cache contains the listing of the commit and all needed files.
  bool is_fully_cached(const std::string& commit, bool explain) const {
    const auto tree = read_cached_file_list(cache_.folder(), commit);
    if (!tree) return false;
    std::vector<std::string> missing;
    try {
      missing = missing_files({commit, *tree});
    } catch (const Error&) {  // a newer commit may contain the file
      if (explain) throw;
      return false;
    }
    if (explain && !missing.empty())
      reject(
          "{}: the cache lacks {}, and HF_HUB_OFFLINE forbids to ask the Hub; run 'qkscope "
          "hub download' with the network on",
          describe_revision(commit), format_name_list(missing));
    return missing.empty();
  }

  std::vector<std::string> missing_files(const CommitListing& listing) const {
    const auto& [commit, tree] = listing;
    const auto there = [&](const std::string& path) {
      return cache_.has_file(listing.commit, *find_remote_file(listing.tree, path));
    };
    std::vector<std::string> missing;
    const auto read = [&](const std::string& path) -> std::optional<std::string> {
      if (there(path))
        return std::string(MappedFile(cache_.snapshot_folder(listing.commit) + "/" + path).text());
      missing.push_back(path);
      return {};
    };
    const auto chosen = choice_(list_tree_paths(tree), read, describe_revision(commit));
    if (chosen) std::ranges::copy_if(*chosen, std::back_inserter(missing), std::not_fn(there));
    return missing;
  }

  CommitListing fetch_listing() const {
    const auto commit = !pinned_.empty()            ? pinned_
                        : is_commit_hash(revision_) ? revision_
                                                    : fetch_commit(client_, repository_, revision_);
    if (auto tree = read_cached_file_list(cache_.folder(), commit))
      return {commit, std::move(*tree)};
    auto tree = fetch_tree(client_, repository_, commit);
    write_cached_file_list(cache_.folder(), commit, tree);
    return {commit, std::move(tree)};
  }

  std::string download_snapshot(const CommitListing& listing) const {
    const auto& [commit, tree] = listing;
    auto folder = cache_.snapshot_folder(commit);
    const auto read = [&](const std::string& path) {
      download_files(client_, repository_, listing.commit, {*find_remote_file(listing.tree, path)},
                     true);
      return std::optional(std::string(MappedFile(folder + "/" + path).text()));
    };
    const auto chosen = choice_(list_tree_paths(tree), read, describe_revision(commit));
    std::vector<RemoteFile> files;
    for (const auto& path : chosen.value()) files.push_back(*find_remote_file(tree, path));
    download_files(client_, repository_, commit, files, options_.quiet);
    cache_.set_ref(revision_, commit);
    return folder;
  }

  Repository repository_;
  std::string revision_;
  std::string pinned_;  // commit chosen by the caller, or ""
  RemoteFileFilter choice_;
  FetchOptions options_;
  HubClient client_;
  HubCacheWriter cache_;
};

// Names such as "texts.jsonl" and "model.gguf" mean missing local files, not Hub repositories.
bool is_hub_name(const std::string& name) {
  const auto ends = [&](auto ending) { return name.ends_with(ending); };
  return is_repository_id(name) && !ends(".gguf") && std::ranges::none_of(kDataEndings, ends);
}

bool is_remote_checkpoint(const std::string& name, const std::string& revision) {
  return !path_exists(name) && is_hub_name(name) &&
         (revision.empty() || is_valid_revision(revision));
}

// Fetches the selected files of a model. Returns a local folder unchanged.
std::string fetch_model(const std::string& name_or_folder, const std::string& revision,
                        const RemoteFileFilter& choice, const FetchOptions& options) {
  const auto folder =
      is_remote_checkpoint(name_or_folder, revision)
          ? fetch_repository_snapshot({{RepositoryKind::model, name_or_folder}, revision, ""},
                                      choice, options)
          : "";
  return folder.empty() ? resolve_checkpoint_path(name_or_folder, revision) : folder;
}

CheckpointBytes count_checkpoint_bytes(const HubCacheWriter& cache, const std::string& commit,
                                       const RemoteTree& tree) {
  const auto folder = cache.snapshot_folder(commit);
  const auto read = [&](const std::string& path) -> std::optional<std::string> {
    const auto file = folder + "/" + path;
    if (!path_exists(file)) return {};
    return std::string(MappedFile(file).text());
  };
  const auto chosen = make_checkpoint_filter(true)(list_tree_paths(tree), read, folder);
  if (!chosen) reject("{}: the index of its weights is not in the cache", folder);
  CheckpointBytes bytes;
  for (const auto& path : *chosen) {
    const auto& file = *find_remote_file(tree, path);
    if (!is_weight_file(path)) continue;
    bytes.weights += file.size;
    if (!cache.has_file(commit, file) && !cache.has_blob(file)) bytes.to_download += file.size;
  }
  return bytes;
}

}  // namespace

void add_path_if_listed(const Paths& paths, const std::string& path, Paths& chosen) {
  if (contains_path(paths, path)) chosen.push_back(path);
}

RemoteFileFilter make_dataset_filter(const std::string& name, const std::string& split) {
  CorpusOptions corpus;
  if (!name.empty()) corpus.name = name;
  corpus.split = split;
  return [corpus](const Paths& paths, const RemoteFileReader& read,
                  const std::string& where) -> std::optional<Paths> {
    std::string card;
    if (contains_path(paths, kCard)) {
      const auto text = read(kCard);
      if (!text) return {};
      card = *text;
    }
    auto chosen = choose_dataset_files(paths, card, corpus, where);
    add_path_if_listed(paths, kCard, chosen);
    return chosen;
  };
}

std::string fetch_repository_snapshot(const RepositoryRevision& target,
                                      const RemoteFileFilter& choice, const FetchOptions& options) {
  return RevisionFetcher(target, choice, options).fetch_snapshot();
}

std::optional<std::vector<std::string>> list_snapshot_files(const RepositoryName& repository,
                                                            const std::string& snapshot) {
  const auto commit = std::filesystem::path(snapshot).filename().string();
  const auto tree =
      read_cached_file_list(repository_cache_folder(repository.kind, repository.id), commit);
  return tree ? std::optional(list_tree_paths(*tree)) : std::nullopt;
}

std::string fetch_config_folder(const std::string& name_or_folder, const std::string& revision,
                                const FetchOptions& options) {
  const auto only_config = [](const Paths& paths, const RemoteFileReader&,
                              const std::string& where) {
    require_config(paths, where);
    return std::optional(Paths{kConfig});
  };
  return fetch_model(name_or_folder, revision, only_config, options);
}

std::string fetch_checkpoint(const std::string& name_or_folder, const std::string& revision,
                             const FetchOptions& options) {
  return translate_exceptions([&] {
    return fetch_model(name_or_folder, revision, make_checkpoint_filter(options.weights), options);
  });
}

CheckpointBytes checkpoint_bytes(const std::string& name_or_folder, const std::string& revision) {
  return translate_exceptions([&]() -> CheckpointBytes {
    const auto folder = resolve_checkpoint_path(name_or_folder, revision);
    const auto commit = std::filesystem::path(folder).filename().string();
    const HubCacheWriter cache(Repository{{RepositoryKind::model, name_or_folder}});
    const auto tree = is_remote_checkpoint(name_or_folder, revision)
                          ? read_cached_file_list(cache.folder(), commit)
                          : std::nullopt;
    if (tree) return count_checkpoint_bytes(cache, commit, *tree);
    CheckpointBytes bytes;
    for (const auto& file : weight_files(folder))
      if (is_weight_file(file)) bytes.weights += std::filesystem::file_size(file);
    return bytes;
  });
}

std::string fetch_tokenizer(const std::string& name_or_path, const FetchOptions& options) {
  return translate_exceptions([&] {
    if (path_exists(name_or_path) || !is_hub_name(name_or_path)) return name_or_path;
    return fetch_model(name_or_path, "", choose_tokenizer_files, options);
  });
}

std::string fetch_dataset(const std::string& name_or_path, const std::string& name,
                          const std::string& split, const FetchOptions& options) {
  return translate_exceptions([&] {
    if (path_exists(name_or_path) || !is_hub_name(name_or_path)) return name_or_path;
    const auto folder = fetch_repository_snapshot({{RepositoryKind::dataset, name_or_path}, "", ""},
                                                  make_dataset_filter(name, split), options);
    return folder.empty() ? resolve_dataset_path(name_or_path) : folder;
  });
}

}  // namespace qkscope
