// Write access to one repository in the Hugging Face cache: blobs named by content hash, snapshots
// of symbolic links to blobs, and refs that name commits. Layout and locks are compatible with
// huggingface_hub.
#pragma once

#include <string>
#include <vector>

#include "base/io/output_file.h"
#include "input/hub/remote_tree.h"

namespace qkscope {

class CacheWriter {
 public:
  explicit CacheWriter(const Repository& repository);

  const std::string& folder() const { return folder_; }
  std::string snapshot(const std::string& commit) const { return folder_ + "/snapshots/" + commit; }
  std::string blob(const RemoteFile& file) const { return folder_ + "/blobs/" + file.etag(); }

  // Return true if the blob, or the file in the snapshot, exists with the right size.
  bool has_blob(const RemoteFile& file) const;
  bool has_file(const std::string& commit, const RemoteFile& file) const;

  // Locks a blob for writing; blocks while another process holds the lock.
  FileLock lock(const RemoteFile& file) const;

  // Links an existing blob into a snapshot. A wrong link is replaced.
  void link(const std::string& commit, const RemoteFile& file) const;
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
