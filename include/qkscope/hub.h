// The Hugging Face Hub: models and datasets by name, the cache they are kept in, and captures
// published as datasets. The variables of the Hub's own tools hold here too: HF_HOME, HF_HUB_CACHE,
// HF_TOKEN, HF_ENDPOINT, HF_HUB_OFFLINE.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "qkscope/version.h"

namespace qkscope {

struct FetchOptions {
  bool weights = true;                      // of a checkpoint; without them only its small files
  bool refresh = false;                     // ask the Hub where the branch is now
  bool quiet = false;                       // no progress
  const std::atomic<bool>* stop = nullptr;  // ends a download, which a later call continues
};

// The next three return a local folder: what the cache lacks is downloaded, what it has is used as
// it is. A path that exists is returned unchanged. They may be called from any thread. A revision
// whose files are all in the cache is used without asking the Hub; with HF_HUB_OFFLINE nothing is
// ever asked.

// The folder of a checkpoint: config.json, tokenizer and weights. `revision`: a branch, tag or
// commit; "" is main.
QKSCOPE_API std::string fetch_checkpoint(const std::string& name_or_folder,
                                         const std::string& revision = "",
                                         const FetchOptions& options = {});

// The folder with the tokenizer.json of a model, without its weights.
QKSCOPE_API std::string fetch_tokenizer(const std::string& name_or_path,
                                        const FetchOptions& options = {});

// The folder of a text dataset with the files of one split. `name`: its configuration, a folder
// inside it; "" is the default one.
QKSCOPE_API std::string fetch_dataset(const std::string& name_or_path, const std::string& name = "",
                                      const std::string& split = "train",
                                      const FetchOptions& options = {});

// The folder of any revision of a dataset on the Hub: with every file where it holds a capture and
// neither configuration nor split is named, else with the files of one split ("" is train).
QKSCOPE_API std::string fetch_dataset_revision(const std::string& id, const std::string& revision,
                                               const std::string& name = "",
                                               const std::string& split = "",
                                               const FetchOptions& options = {});

enum class RepositoryKind { model, dataset };

struct RepositoryName {
  RepositoryKind kind = RepositoryKind::model;
  std::string id;  // "org/name", or "name" alone
};

// The names of its branches, as the Hub tells them now.
QKSCOPE_API std::vector<std::string> list_branches(const RepositoryName& repository);

struct CachedRevision {
  std::string commit;
  std::vector<std::string> refs;  // branches and tags that stand for it
  std::uint64_t bytes = 0;        // of its files; revisions may share some
  std::size_t files = 0;
};

// One repository in the cache.
struct CachedEntry {
  RepositoryName repository;
  std::string folder;
  std::uint64_t bytes = 0;             // on disk, each content once
  std::uint64_t incomplete_bytes = 0;  // of them, downloads that were cut off
  std::vector<CachedRevision> revisions;
};

struct CacheListing {
  std::string folder;                // of the whole cache
  std::vector<CachedEntry> entries;  // by kind and id
};

QKSCOPE_API CacheListing list_cache();

// These return the bytes that became free. What is not in the cache is bad input.
QKSCOPE_API std::uint64_t remove_repository(const RepositoryName& repository);
QKSCOPE_API std::uint64_t remove_revision(const RepositoryName& repository,
                                          const std::string& revision);

struct CheckpointBytes {
  std::uint64_t weights = 0;      // of its files with weights
  std::uint64_t to_download = 0;  // of those, what the cache lacks
};

// By the sizes that the Hub listed when fetch_checkpoint() asked for the small files; nothing is
// asked or downloaded here. A local folder has everything.
QKSCOPE_API CheckpointBytes checkpoint_bytes(const std::string& name_or_folder,
                                             const std::string& revision = "");

// Removes a checkpoint's files with weights, except those that another revision in the cache has
// too, and returns the bytes that became free. Config and tokenizer stay; fetch_checkpoint()
// downloads the weights again. Nothing happens where they are not in the cache, or where the name
// is a local folder.
QKSCOPE_API std::uint64_t evict_weights(const std::string& name_or_folder,
                                        const std::string& revision = "");

struct PublishOptions {
  std::string repo;           // "org/name"; "" takes what the capture's configuration says
  std::string branch;         // the same; main where neither says
  bool private_repo = false;  // a repository that has to be made is private
  bool quiet = false;         // no progress
};

struct PublishResult {
  std::string address;        // of the branch, for a browser
  std::size_t sent = 0;       // files that were new or changed
  std::size_t unchanged = 0;  // files that were there already
  std::size_t removed = 0;    // files of an older capture on that branch
};

// Makes a branch of a dataset repository hold this finished capture and no other, by one commit;
// where that fails, the branch stays as it was. Files that no capture has stay. After an
// interruption the same call continues the upload.
QKSCOPE_API PublishResult publish_capture(const std::string& data_root,
                                          const PublishOptions& options = {});

// Whether there is a token to publish with, and HF_HUB_OFFLINE is not set.
QKSCOPE_API bool can_publish();

}  // namespace qkscope
