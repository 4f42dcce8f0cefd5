// One repository's part of the cache, for writing: blobs named by their content, snapshots of links
// to them, refs that name commits. The layout and the locks are those of huggingface_hub. Listing
// and removing are in qkscope/hub.h.
#pragma once

#include <string>

#include "base/io/file_lock.h"
#include "input/hub/remote_tree.h"

namespace qkscope {

class CacheWriter {
 public:
  explicit CacheWriter(const Repository& repository);

  const std::string& folder() const { return folder_; }
  std::string snapshot(const std::string& commit) const;
  std::string blob(const RemoteFile& file) const;

  // Whether content of the right size is there, under the blob's name or in the snapshot.
  bool has_blob(const RemoteFile& file) const;
  bool has_file(const std::string& commit, const RemoteFile& file) const;

  // Held while a blob is written; waits for whoever else writes it.
  FileLock lock(const RemoteFile& file) const;

  // The blob must be there. An existing link is left alone or put right.
  void link(const std::string& commit, const RemoteFile& file) const;
  void set_ref(const std::string& revision, const std::string& commit) const;

 private:
  std::string folder_;
  std::string locks_;
};

}  // namespace qkscope
