// Sizes and checksums of the files of a finished folder, stored in the folder's state file under
// the key "files". Readers compare them to detect missing, foreign, truncated and damaged files.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/io/json.h"

namespace qkscope {

struct FileListEntry {
  std::uint64_t size = 0;  // bytes
  std::string checksum;    // format_checksum() of the content; "" in folders of older versions
};

using FileList = std::map<std::string, FileListEntry>;  // keys: paths relative to the folder

// Reads the named files, or all regular files below the folder, and returns sizes and checksums.
FileList make_file_list(const std::string& folder, const std::vector<std::string>& names);
FileList make_file_list(const std::string& folder);

Json to_json(const FileList& files);

// Parses the key "files" of a state file. Returns nullopt when the key is missing. Throws a
// bad-input error for a damaged list; `where` names the state file.
std::optional<FileList> parse_file_list(const Json& state, const std::string& where);

// Throws a bad-input error with `advice` if a listed file is missing or its size has changed.
void check_file_sizes(const std::string& folder, const FileList& files, const std::string& advice);
// Verifies the size of one file, and its checksum if the list has one (old versions wrote none).
void check_file_content(const std::string& folder, const std::string& name,
                        const FileListEntry& record, const std::string& advice);

// Snapshot of the identity of files (device, inode, size and modification time), to detect that
// another process replaced or changed them during a long read.
class FileSnapshot {
 public:
  void add(const std::string& path) { stamps_.try_emplace(path, read_stamp(path)); }
  // Throws a bad-input error that names the first file that has changed since add().
  void check_unchanged() const;

 private:
  struct FileStamp {
    std::uint64_t device = 0, inode = 0, size = 0;
    std::int64_t modified_ns = 0;
    bool operator==(const FileStamp&) const = default;
  };
  static FileStamp read_stamp(const std::string& path);

  std::map<std::string, FileStamp> stamps_;
};

}  // namespace qkscope
