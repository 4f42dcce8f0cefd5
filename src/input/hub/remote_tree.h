// Files of a repository at one commit: the listing from the Hub or the cache, the local copy in the
// Hugging Face cache, and downloads of selected files. fetch.cpp also implements the fetch
// functions of qkscope/hub.h.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/io/output_file.h"
#include "input/hub/client.h"
#include "qkscope/hub.h"

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

// Reads a file of the repository. Returns nullopt if the file is not cached and may not be
// downloaded.
using FileReader = std::function<std::optional<std::string>(const std::string& path)>;

// Selects the needed files from `paths`, the complete listing of a repository. Returns nullopt if a
// file that the choice depends on could not be read.
using FileChoice = std::function<std::optional<std::vector<std::string>>(
    const std::vector<std::string>& paths, const FileReader& read, const std::string& where)>;

inline bool is_weight_file(const std::string& path) {
  return path.ends_with(".safetensors") || path.ends_with(".bin");
}

// Selects the files of one split and the dataset card. `name` is the dataset configuration; ""
// means the default one.
FileChoice dataset_file_choice(const std::string& name, const std::string& split);

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
