// Hugging Face Hub: downloads models and datasets by name, manages the local cache, and publishes
// captures as datasets. The environment variables of huggingface_hub apply: HF_HOME, HF_HUB_CACHE,
// HF_TOKEN, HF_ENDPOINT, HF_HUB_OFFLINE.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "qkscope/version.h"

namespace qkscope {

// Options of the fetch functions.
struct FetchOptions {
  bool weights = true;   // download the weights; if false, only config and tokenizer
  bool refresh = false;  // ask the Hub for the current commit of the branch
  bool quiet = false;    // suppress the progress bar
  const std::atomic<bool>* stop = nullptr;  // set to true to cancel (resumable)
};

// The fetch functions return a local folder and download only files missing from the cache.
// Existing local paths are returned unchanged. A revision that is complete in the cache is used
// without a network request; with HF_HUB_OFFLINE no request is ever sent. All are thread-safe.

// Fetches a checkpoint: config.json, tokenizer and weights. `revision` is a branch, tag or commit;
// "" means main.
QKSCOPE_API std::string fetch_checkpoint(const std::string& name_or_folder,
                                         const std::string& revision = "",
                                         const FetchOptions& options = {});

// Fetches the tokenizer.json of a model without its weights.
QKSCOPE_API std::string fetch_tokenizer(const std::string& name_or_path,
                                        const FetchOptions& options = {});

// Fetches the files of one split of a text dataset. `name` is the dataset configuration (subset);
// "" means the default one.
QKSCOPE_API std::string fetch_dataset(const std::string& name_or_path, const std::string& name = "",
                                      const std::string& split = "train",
                                      const FetchOptions& options = {});

// Fetches a given revision of a dataset: all files if the dataset is a published capture and
// neither `name` nor `split` is given, else the files of one split ("" means train).
QKSCOPE_API std::string fetch_dataset_revision(const std::string& id, const std::string& revision,
                                               const std::string& name = "",
                                               const std::string& split = "",
                                               const FetchOptions& options = {});

enum class RepositoryKind { model, dataset };

// A repository on the Hub.
struct RepositoryName {
  RepositoryKind kind = RepositoryKind::model;
  std::string id;  // "org/name" or "name"
};

// Queries the Hub for the current branch names of a repository.
QKSCOPE_API std::vector<std::string> list_branches(const RepositoryName& repository);

// One commit of a repository in the cache.
struct CachedRevision {
  std::string commit;
  std::vector<std::string> refs;  // branches and tags that point to this commit
  std::uint64_t bytes = 0;        // size of its files; revisions may share files
  std::size_t files = 0;
};

// One repository in the cache.
struct CachedEntry {
  RepositoryName repository;
  std::string folder;
  std::uint64_t bytes = 0;             // disk usage; shared blobs count once
  std::uint64_t incomplete_bytes = 0;  // part of `bytes` used by interrupted downloads
  std::vector<CachedRevision> revisions;
};

// Content of the local cache.
struct CacheListing {
  std::string folder;                // root folder of the cache
  std::vector<CachedEntry> entries;  // sorted by kind and id
};

// Returns the content of the cache.
QKSCOPE_API CacheListing list_cache();

// Remove a repository or one revision from the cache and return the number of bytes freed. Throw a
// bad-input error if the cache does not contain it.
QKSCOPE_API std::uint64_t remove_repository(const RepositoryName& repository);
QKSCOPE_API std::uint64_t remove_revision(const RepositoryName& repository,
                                          const std::string& revision);

// Size of a checkpoint's weights.
struct CheckpointBytes {
  std::uint64_t weights = 0;      // size of all weight files
  std::uint64_t to_download = 0;  // part of `weights` missing from the cache
};

// Returns the size of a checkpoint's weights from the file listing that fetch_checkpoint() cached;
// sends no request. `to_download` is 0 for a local folder.
QKSCOPE_API CheckpointBytes checkpoint_bytes(const std::string& name_or_folder,
                                             const std::string& revision = "");

// Deletes a checkpoint's weight files from the cache, except blobs shared with another cached
// revision, and returns the number of bytes freed. Config and tokenizer stay; fetch_checkpoint()
// downloads the weights again. No effect on local folders or if the weights are not cached.
QKSCOPE_API std::uint64_t evict_weights(const std::string& name_or_folder,
                                        const std::string& revision = "");

// Options of publish_capture().
struct PublishOptions {
  std::string repo;           // "org/name"; "": the repository in the capture's configuration
  std::string branch;         // "": the branch in the configuration, else main
  bool private_repo = false;  // create the repository as private
  bool quiet = false;         // suppress the progress bar
};

// Result of publish_capture().
struct PublishResult {
  std::string address;        // web page of the branch
  std::size_t sent = 0;       // files uploaded because they are new or changed
  std::size_t unchanged = 0;  // files already present on the branch
  std::size_t removed = 0;    // files deleted that belong to an older capture
};

// Uploads a finished capture to a branch of a dataset repository in a single commit, replacing any
// older capture there. Other files on the branch stay. If the upload fails the branch is unchanged;
// calling the function again resumes the upload.
QKSCOPE_API PublishResult publish_capture(const std::string& data_root,
                                          const PublishOptions& options = {});

// Returns true if an access token is available and HF_HUB_OFFLINE is not set.
QKSCOPE_API bool can_publish();

}  // namespace qkscope
