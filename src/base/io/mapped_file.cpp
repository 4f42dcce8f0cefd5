#include "base/io/mapped_file.h"

#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/core/error.h"
#include "base/core/translate_exceptions.h"
#include "base/io/cut_files.h"
#include "base/io/folder.h"
#include "qkscope/experimental/text.h"

namespace qkscope {
namespace {

// A file descriptor that is closed again.
class Descriptor {
 public:
  // Not waiting: a pipe without a writer would never open.
  explicit Descriptor(const std::string& path)
      : number_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    if (number_ < 0) system_error("open", path, errno);
  }
  ~Descriptor() { ::close(number_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int number() const { return number_; }

 private:
  int number_;
};

}  // namespace

MappedFile::MappedFile(const std::string& path) : path_(path) {
  check_regular_file(path);
  const Descriptor file(path);
  struct stat status {};
  if (::fstat(file.number(), &status) != 0) system_error("stat", path, errno);
  if (!S_ISREG(status.st_mode)) bad_input("{}: it became something else while it was opened", path);
  size_ = static_cast<std::size_t>(status.st_size);
  if (size_ == 0) return;  // an empty file cannot be mapped and needs no mapping
  void* address = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, file.number(), 0);
  if (address == MAP_FAILED) system_error("map", path, errno);
  data_ = static_cast<const std::byte*>(address);
  list_mapping(bytes(), path_);
}

MappedFile::~MappedFile() {
  if (data_ == nullptr) return;
  unlist_mapping(data_);
  ::munmap(const_cast<std::byte*>(data_), size_);
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
  return translate_exceptions([&] { return std::string(MappedFile(path).text()); });
}

}  // namespace qkscope
