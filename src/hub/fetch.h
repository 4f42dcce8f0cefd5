// Models and datasets by name: what the cache lacks is downloaded, what it has is used as it is.
#pragma once

#include <atomic>
#include <string>

#include "checkpoint/hub_cache.h"
#include "qkscope/texts.h"

namespace qkscope {

struct FetchOptions {
  bool weights = true;                      // of a checkpoint; without them only its small files
  bool refresh = false;                     // ask the Hub where the branch is now
  bool quiet = false;                       // no progress
  const std::atomic<bool>* stop = nullptr;  // ends a download, which a later call continues
};

// These return the folder (a local path as it is) and may be called from any thread. A revision
// whose files are all in the cache is used without asking the Hub; HF_HUB_OFFLINE never asks.
std::string fetch_checkpoint(const std::string& name_or_folder, const std::string& revision,
                             const FetchOptions& options = {});
std::string fetch_tokenizer(const std::string& name_or_path, const FetchOptions& options = {});
std::string fetch_dataset(const CorpusOptions& corpus, const FetchOptions& options = {});

}  // namespace qkscope
