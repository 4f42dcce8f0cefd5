// Chosen files of one revision of a repository, into the cache. fetch.cpp also holds the functions
// of qkscope/hub.h that fetch.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "input/hub/file_choice.h"
#include "qkscope/hub.h"

namespace qkscope {

struct FetchTarget {
  RepositoryName repository;
  std::string revision;  // branch, tag or commit; "" is main
  std::string commit;    // what the revision stands for; "": what the cache or the Hub says
};

// The folder of the snapshot with the chosen files in it; what is missing is downloaded. "" where
// the Hub may not be asked and the cache knows nothing of the revision.
std::string fetch_files(const FetchTarget& target, const FileChoice& choice,
                        const FetchOptions& options);

// All files of the commit whose snapshot this is, by path; nothing where the cache has no listing
// of it, as older clients leave it.
std::optional<std::vector<std::string>> listed_files(const RepositoryName& repository,
                                                     const std::string& snapshot);

// The folder of a checkpoint with its config.json and perhaps nothing else.
std::string fetch_config(const std::string& name_or_folder, const std::string& revision,
                         const FetchOptions& options);

}  // namespace qkscope
