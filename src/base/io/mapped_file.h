// Read-only memory-mapped files. If another process truncates a mapped file, reading the missing
// part raises SIGBUS; report_truncated_mappings() turns the signal into an error message.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace qkscope {

class MappedFile {
 public:
  MappedFile() = default;
  // Maps the whole file. Throws a bad-input error if the path is missing or not a regular file.
  explicit MappedFile(const std::string& path);

  const std::string& path() const { return path_; }
  std::span<const std::byte> bytes() const { return {data_.get(), data_.get_deleter().size}; }
  std::string_view text() const {
    return {reinterpret_cast<const char*>(data_.get()), data_.get_deleter().size};
  }

 private:
  struct MunmapDeleter {
    std::size_t size;  // bytes; 0 if no file is mapped
    void operator()(const std::byte* data) const;
  };
  std::string path_;
  std::unique_ptr<const std::byte, MunmapDeleter> data_;
};

// Returns how many more files this process may open: ulimit -n minus the open descriptors.
std::size_t count_free_file_descriptors();

}  // namespace qkscope
