// A file that appears under its name only when it is whole: written beside it, synced, renamed, and
// the folder synced: after commit() it survives a loss of power.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace qkscope {

class OutputFile {
 public:
  // Missing folders on the way are an error that names the folder.
  explicit OutputFile(const std::string& path);
  ~OutputFile();  // removes what was written if commit() was not reached
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  void commit();

  std::uint64_t written() const { return written_; }

 private:
  std::string path_;
  std::string temporary_;
  int file_ = -1;
  std::uint64_t written_ = 0;
};

// A name beside the path that no other process and no other thread of this one writes to.
std::string temporary_name(const std::string& path);

// The whole content at once.
void write_file(const std::string& path, std::string_view content);

}  // namespace qkscope
