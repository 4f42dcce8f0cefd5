// Downloads selected files of one repository revision into the cache. fetch.cpp also implements the
// fetch functions of qkscope/hub.h.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "qkscope/hub.h"

namespace qkscope {

// Reads a file of the repository. Returns nullopt if the file is not cached and may not be
// downloaded.
using FileReader = std::function<std::optional<std::string>(const std::string& path)>;

// Selects the needed files from `paths`, the complete listing of a repository. Returns nullopt if a
// file that the choice depends on could not be read.
using FileChoice = std::function<std::optional<std::vector<std::string>>(
    const std::vector<std::string>& paths, const FileReader& read, const std::string& where)>;

// Returns true if the name is that of a weight file.
inline bool is_weight_file(const std::string& path) {
  return path.ends_with(".safetensors") || path.ends_with(".bin");
}

// Selects the files of one split and the dataset card. `name` is the dataset configuration; ""
// means the default one.
FileChoice dataset_file_choice(const std::string& name, const std::string& split);

// Formats a list for error messages: "a, b and 3 more", or "nothing" if empty.
std::string format_path_list(const std::vector<std::string>& paths);

struct RepositoryRevision {
  RepositoryName repository;
  std::string revision;  // branch, tag or commit; "" means main
  std::string commit;    // commit of the revision; "" to resolve it
};

// Downloads the missing files and returns the snapshot folder. Returns "" in offline mode if the
// revision is not cached.
std::string fetch_files(const RepositoryRevision& target, const FileChoice& choice,
                        const FetchOptions& options);

// Returns all file paths of a cached snapshot's commit, or nullopt if the cache has no listing of
// it, as with older clients.
std::optional<std::vector<std::string>> list_snapshot_files(const RepositoryName& repository,
                                                            const std::string& snapshot);

// Fetches only config.json of a checkpoint and returns its folder.
std::string fetch_config(const std::string& name_or_folder, const std::string& revision,
                         const FetchOptions& options);

}  // namespace qkscope
