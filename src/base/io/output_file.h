// Files that survive a power failure. Write order: first the data, then the folder entry, and only
// then anything that refers to the new name. docs/explanation/durability.md describes the
// guarantees.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/io/file_descriptor.h"

namespace qkscope {

// fsync of the file's data.
void sync_file(const std::string& path);
// fsync of the folder: makes created, renamed and removed entries durable.
void sync_folder(const std::string& path);

// Renames a file durably: syncs its data, renames it, syncs the folder.
void move_into_place(const std::string& from, const std::string& to);

// Writes a file atomically: the data goes to a temporary file that commit() syncs and renames, so
// the path never holds a partial file.
class OutputFile {
 public:
  // Throws bad input if the folder does not exist.
  explicit OutputFile(const std::string& path);
  ~OutputFile();  // deletes the temporary file unless commit() succeeded
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  void commit();

  std::uint64_t written() const { return written_; }

 private:
  std::string path_;
  std::string temporary_;
  FileDescriptor file_;
  std::uint64_t written_ = 0;
};

// Returns a path in the same folder that is unique over processes and threads.
std::string temporary_name(const std::string& path);

// Writes the whole content through an OutputFile.
void write_file(const std::string& path, std::string_view content);

}  // namespace qkscope
