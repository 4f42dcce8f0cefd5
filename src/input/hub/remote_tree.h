// Files of a repository at one commit: the listing from the Hub or the cache, and the local copy in
// the Hugging Face cache.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/io/output_file.h"
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

const RemoteFile* find_remote_file(const RemoteTree& tree, const std::string& path);
std::vector<std::string> list_paths(const RemoteTree& tree);

// Asks the Hub for the current commit of a branch, tag or commit. Throws a bad-input error that
// lists the branches if the revision does not exist.
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

// Write access to one repository in the cache: blobs named by content hash, snapshots of symbolic
// links to blobs, and refs that name commits. Layout and locks are compatible with huggingface_hub.
class CacheWriter {
 public:
  explicit CacheWriter(const Repository& repository);

  const std::string& folder() const { return folder_; }
  std::string snapshot_folder(const std::string& commit) const {
    return folder_ + "/snapshots/" + commit;
  }
  std::string blob_path(const RemoteFile& file) const { return folder_ + "/blobs/" + file.etag(); }

  // Return true if the blob, or the file in the snapshot, exists with the right size.
  bool has_blob(const RemoteFile& file) const;
  bool has_file(const std::string& commit, const RemoteFile& file) const;

  // Locks a blob for writing; blocks while another process holds the lock.
  FileLock lock_blob(const RemoteFile& file) const;

  // Links an existing blob into a snapshot. A wrong link is replaced.
  void link_blob(const std::string& commit, const RemoteFile& file) const;
  void set_ref(const std::string& revision, const std::string& commit) const;

 private:
  std::string folder_;
  std::string locks_;
};

// Downloads the files that the cache lacks, in parallel and resuming partial files, verifies size
// and hash, and links all files into the commit's snapshot. Links are made in the given order, so
// that the last link implies that all others exist. Implemented in download.cpp.
void download_files(const HubClient& client, const Repository& repository,
                    const std::string& commit, const std::vector<RemoteFile>& files, bool quiet);

}  // namespace qkscope
