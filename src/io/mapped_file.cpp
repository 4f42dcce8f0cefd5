#include "io/mapped_file.h"

#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/edge.h"
#include "core/error.h"
#include "qkscope/text.h"

namespace qkscope {

MappedFile::MappedFile(const std::string& path) : path_(path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) system_error("open", path, errno);
  struct stat status {};
  if (::fstat(file, &status) != 0) {
    const int error = errno;
    ::close(file);
    system_error("stat", path, error);
  }
  if (!S_ISREG(status.st_mode)) {
    ::close(file);
    bad_input("{}: not a regular file", path);
  }
  size_ = static_cast<std::size_t>(status.st_size);
  if (size_ > 0) {  // an empty file cannot be mapped and needs no mapping
    void* address = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, file, 0);
    if (address == MAP_FAILED) {
      const int error = errno;
      ::close(file);
      system_error("map", path, error);
    }
    data_ = static_cast<const std::byte*>(address);
  }
  ::close(file);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

std::string read_text_file(const std::string& path) {
  return at_edge([&] { return std::string(MappedFile(path).text()); });
}

}  // namespace qkscope
