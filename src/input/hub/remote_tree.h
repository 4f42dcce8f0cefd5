// What a repository holds at a commit, as the Hub lists it and as the cache remembers it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "input/hub/client.h"

namespace qkscope {

struct RemoteFile {
  std::string path;  // within the repository, checked: it cannot leave a folder
  std::uint64_t size = 0;
  std::string git_sha1;
  std::string sha256 = {};    // of large files; "" for the others
  std::string xet_hash = {};  // kept for the Hub's own tools

  // What the Hub calls the content; the name of its blob in the cache.
  const std::string& etag() const { return sha256.empty() ? git_sha1 : sha256; }
};

using RemoteTree = std::vector<RemoteFile>;  // by path

const RemoteFile* find_file(const RemoteTree& tree, const std::string& path);
std::vector<std::string> paths_of(const RemoteTree& tree);

// The commit a branch, tag or commit stands for now. A revision that does not exist is bad input
// that names those that do.
std::string fetch_commit(const HubClient& client, const Repository& repository,
                         const std::string& revision);

RemoteTree fetch_tree(const HubClient& client, const Repository& repository,
                      const std::string& commit);

std::vector<std::string> fetch_branches(const HubClient& client, const Repository& repository);

// CACHED/trees/COMMIT.json, where huggingface_hub keeps listings too. Nothing where there is none
// that we understand.
std::optional<RemoteTree> load_tree(const std::string& cached_repository,
                                    const std::string& commit);
void store_tree(const std::string& cached_repository, const std::string& commit,
                const RemoteTree& tree);

// Whether a path from a server stays inside the folder it is put in.
bool is_safe_path(const std::string& path);

}  // namespace qkscope
