// Read-only memory-mapped files. If another process truncates a mapped file, reading the missing
// part raises SIGBUS; report_truncated_mappings() turns the signal into an error message.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace qkscope {

class MappedFile {
 public:
  MappedFile() = default;
  // Maps the whole file. Throws a bad-input error if the path is missing or not a regular file.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  const std::string& path() const { return path_; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }

 private:
  std::string path_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

// Returns how many more files this process may open: ulimit -n minus the open descriptors.
std::size_t available_file_descriptors();

}  // namespace qkscope
