// Downloads selected files of one repository revision into the cache. fetch.cpp also implements the
// fetch functions of qkscope/hub.h.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "input/hub/file_choice.h"
#include "qkscope/hub.h"

namespace qkscope {

struct FetchTarget {
  RepositoryName repository;
  std::string revision;  // branch, tag or commit; "" means main
  std::string commit;    // commit of the revision; "" to resolve it
};

// Downloads the missing files and returns the snapshot folder. Returns "" if the Hub may not be
// asked and the revision is not cached.
std::string fetch_files(const FetchTarget& target, const FileChoice& choice,
                        const FetchOptions& options);

// Returns all file paths of a cached snapshot's commit, or nullopt if the cache has no listing of
// it, as with older clients.
std::optional<std::vector<std::string>> listed_files(const RepositoryName& repository,
                                                     const std::string& snapshot);

// Fetches only config.json of a checkpoint and returns its folder.
std::string fetch_config(const std::string& name_or_folder, const std::string& revision,
                         const FetchOptions& options);

}  // namespace qkscope
