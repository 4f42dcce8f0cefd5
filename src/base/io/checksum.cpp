#include "base/io/checksum.h"

#include <algorithm>
#include <cerrno>
#include <vector>

#define XXH_INLINE_ALL  // header-only, no library to link
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/core/error.h"
#include "base/io/file_descriptor.h"

namespace qkscope {
namespace {

constexpr std::uint64_t kReadWhole = std::uint64_t{1} << 30;
constexpr std::uint64_t kStride = std::uint64_t{16} << 20;
constexpr std::uint64_t kBlock = std::uint64_t{64} << 10;

// Reads a file with pread(). Not mapped, so that a truncation during the read is an exception and
// not SIGBUS.
class InputFile {
 public:
  explicit InputFile(const std::string& path)
      : path_(path), file_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    if (!file_.is_open()) system_error("open", path, errno);
    struct stat status {};
    if (::fstat(file_.number(), &status) != 0) system_error("stat", path, errno);
    if (!S_ISREG(status.st_mode)) bad_input("{}: not a regular file", path);
    size_ = static_cast<std::uint64_t>(status.st_size);
  }

  std::uint64_t size() const { return size_; }

  void add_to(Checksum& sum, std::uint64_t begin, std::uint64_t end) {
    while (begin < end) {
      const auto wanted = std::min<std::uint64_t>(end - begin, buffer_.size());
      const auto count = ::pread(file_.number(), buffer_.data(), wanted, static_cast<off_t>(begin));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) system_error("read", path_, errno);
      if (count == 0) failure("{}: became shorter while it was read", path_);
      sum.add(std::span(buffer_).first(static_cast<std::size_t>(count)));
      begin += static_cast<std::uint64_t>(count);
    }
  }

 private:
  const std::string& path_;
  FileDescriptor file_;
  std::uint64_t size_ = 0;
  std::vector<std::byte> buffer_ = std::vector<std::byte>(std::size_t{1} << 20);
};

}  // namespace

struct Checksum::State {
  XXH3_state_t xxh3;
};

Checksum::Checksum() : state_(std::make_unique<State>()) {
  XXH3_64bits_reset(&state_->xxh3);
}

Checksum::~Checksum() = default;

void Checksum::add(std::span<const std::byte> bytes) {
  if (!bytes.empty()) XXH3_64bits_update(&state_->xxh3, bytes.data(), bytes.size());
}

std::uint64_t Checksum::value() const {
  return XXH3_64bits_digest(&state_->xxh3);
}

std::uint64_t checksum_of(std::string_view text) {
  return XXH3_64bits(text.data(), text.size());
}

std::string checksum_text(std::uint64_t checksum) {
  return fmt::format("{:016x}", checksum);
}

std::string file_fingerprint(const std::string& path) {
  InputFile file(path);
  Checksum sum;
  const auto size = file.size();
  if (size <= kReadWhole) {
    file.add_to(sum, 0, size);
  } else {
    file.add_to(sum, 0, kStride);
    for (auto at = kStride; at + kBlock < size; at += kStride) file.add_to(sum, at, at + kBlock);
    file.add_to(sum, size - kBlock, size);
  }
  return fmt::format("{}-{}", size, checksum_text(sum.value()));
}

}  // namespace qkscope
