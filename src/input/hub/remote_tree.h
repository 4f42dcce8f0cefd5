// File listing of a repository at one commit, from the Hub or from the cache.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "input/hub/client.h"

namespace qkscope {

struct RemoteFile {
  std::string path;  // relative and validated: cannot escape a folder
  std::uint64_t size = 0;
  std::string git_sha1;
  std::string sha256 = {};    // for large files (LFS); else ""
  std::string xet_hash = {};  // stored for huggingface_hub

  // Content hash used by the Hub, which is also the blob name in the cache.
  const std::string& etag() const { return sha256.empty() ? git_sha1 : sha256; }
};

using RemoteTree = std::vector<RemoteFile>;  // sorted by path

const RemoteFile* find_file(const RemoteTree& tree, const std::string& path);
std::vector<std::string> paths_of(const RemoteTree& tree);

// Asks the Hub for the current commit of a branch, tag or commit. Throws bad input that lists the
// branches if the revision does not exist.
std::string fetch_commit(const HubClient& client, const Repository& repository,
                         const std::string& revision);

RemoteTree fetch_tree(const HubClient& client, const Repository& repository,
                      const std::string& commit);

std::vector<std::string> fetch_branches(const HubClient& client, const Repository& repository);

// Reads CACHED/trees/COMMIT.json, a listing that huggingface_hub also uses. Returns nullopt if it
// is absent or not understood.
std::optional<RemoteTree> load_tree(const std::string& cached_repository,
                                    const std::string& commit);
void store_tree(const std::string& cached_repository, const std::string& commit,
                const RemoteTree& tree);

// Returns true if a path received from a server stays inside its folder.
bool is_safe_path(const std::string& path);

}  // namespace qkscope
