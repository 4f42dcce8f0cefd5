// What lies in the cache, and taking things out of it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/hub_cache.h"

namespace qkscope {

struct CachedRevision {
  std::string commit;
  std::vector<std::string> refs;  // branches and tags that stand for it
  std::uint64_t bytes = 0;        // of its files; revisions may share some
  std::size_t files = 0;
};

struct CachedEntry {
  RepositoryName repository;
  std::string folder;
  std::uint64_t bytes = 0;             // on disk, each content once
  std::uint64_t incomplete_bytes = 0;  // of them, downloads that were cut off
  std::vector<CachedRevision> revisions;
};

std::vector<CachedEntry> list_cache();  // by kind and id

// These return the bytes that became free. What is not in the cache is bad input.
std::uint64_t remove_repository(const RepositoryName& repository);
std::uint64_t remove_revision(const RepositoryName& repository, const std::string& revision);

// Removes a checkpoint's safetensors files, except those that another revision in the cache has
// too. Config and tokenizer stay; fetch_checkpoint() downloads the weights again. Nothing happens
// where they are not in the cache, or where the name is a local folder.
std::uint64_t evict_weights(const std::string& name_or_folder, const std::string& revision);

}  // namespace qkscope
