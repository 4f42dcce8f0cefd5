#include "input/checkpoint/zip_directory.h"

#include <algorithm>

#include "base/core/error.h"
#include "base/core/text.h"

namespace qkscope {
namespace {

// Records of the format (APPNOTE.TXT of PKWARE): their first four bytes, and their sizes without
// what varies.
constexpr std::uint32_t kLocalHeader = 0x04034b50;
constexpr std::uint32_t kCentralHeader = 0x02014b50;
constexpr std::uint32_t kEnd = 0x06054b50;
constexpr std::uint32_t kEnd64 = 0x06064b50;
constexpr std::uint32_t kEnd64Locator = 0x07064b50;
constexpr std::uint64_t kLocalSize = 30, kCentralSize = 46, kEndSize = 22, kEnd64Size = 56,
                        kLocatorSize = 20;
constexpr std::uint64_t kLongestComment = 65535;
constexpr std::uint32_t kIn64 = 0xffffffff;  // the value stands in the 64-bit field

class Bytes {
 public:
  Bytes(std::span<const std::byte> file, const std::string& where) : file_(file), where_(where) {}

  std::uint64_t size() const { return file_.size(); }

  // Little endian, `count` bytes at `at`.
  std::uint64_t number(std::uint64_t at, std::uint64_t count) const {
    check(at, count);
    std::uint64_t value = 0;
    for (std::uint64_t i = count; i-- > 0;)
      value = value << 8 | std::to_integer<std::uint64_t>(file_[at + i]);
    return value;
  }
  std::string text(std::uint64_t at, std::uint64_t count) const {
    check(at, count);
    return {reinterpret_cast<const char*>(file_.data()) + at, count};
  }
  void check(std::uint64_t at, std::uint64_t count) const {
    if (at > file_.size() || count > file_.size() - at)
      complain("a record reaches beyond the end of the file");
  }
  void expect(std::uint64_t at, std::uint32_t signature, const char* what) const {
    if (number(at, 4) != signature) complain(what);
  }
  [[noreturn]] void complain(const std::string& what) const {
    bad_input("{}: not a zip file as PyTorch writes them: {}", where_, what);
  }

 private:
  std::span<const std::byte> file_;
  const std::string& where_;
};

std::uint64_t find_end(const Bytes& file) {
  if (file.size() < kEndSize) file.complain("it is too short");
  const auto last = file.size() - kEndSize;
  const auto lowest = last > kLongestComment ? last - kLongestComment : 0;
  for (auto at = last + 1; at-- > lowest;)
    if (file.number(at, 4) == kEnd) return at;
  file.complain("its directory is missing, so it was cut off");
}

struct Directory {
  std::uint64_t begin;
  std::uint64_t members;
};

Directory find_directory(const Bytes& file) {
  const auto end = find_end(file);
  const bool has_64 = end >= kLocatorSize && file.number(end - kLocatorSize, 4) == kEnd64Locator;
  if (!has_64) return {file.number(end + 16, 4), file.number(end + 10, 2)};
  const auto end64 = file.number(end - kLocatorSize + 8, 8);
  file.check(end64, kEnd64Size);
  file.expect(end64, kEnd64, "the end of its 64-bit directory is not where it should be");
  return {file.number(end64 + 48, 8), file.number(end64 + 32, 8)};
}

// Sizes and place of a member, from the extra field with 64-bit values where they do not fit.
struct Sizes {
  std::uint64_t stored, plain, header;
};

Sizes read_sizes(const Bytes& file, std::uint64_t at, std::uint64_t extra, std::uint64_t length) {
  Sizes sizes{file.number(at + 20, 4), file.number(at + 24, 4), file.number(at + 42, 4)};
  for (auto field = extra; field + 4 <= extra + length;) {
    auto value = field + 4;
    const auto next = value + file.number(field + 2, 2);
    if (file.number(field, 2) == 1)
      for (auto* size : {&sizes.plain, &sizes.stored, &sizes.header})
        if (*size == kIn64) {
          *size = file.number(value, 8);
          value += 8;
        }
    field = next;
  }
  return sizes;
}

}  // namespace

bool is_zip(std::span<const std::byte> file) {
  return file.size() >= 4 && Bytes(file, {}).number(0, 4) == kLocalHeader;
}

std::map<std::string, ZipMember> read_zip_directory(std::span<const std::byte> bytes,
                                                    const std::string& where) {
  const Bytes file(bytes, where);
  auto [at, count] = find_directory(file);
  std::map<std::string, ZipMember> members;
  for (; count > 0; --count) {
    file.check(at, kCentralSize);
    file.expect(at, kCentralHeader, "a record of its directory is not where it should be");
    const auto name_length = file.number(at + 28, 2);
    const auto extra_length = file.number(at + 30, 2);
    const auto name = file.text(at + kCentralSize, name_length);
    const auto extra = at + kCentralSize + name_length;
    file.check(extra, extra_length);
    const auto sizes = read_sizes(file, at, extra, extra_length);
    if (file.number(at + 10, 2) != 0 || (file.number(at + 8, 2) & 1) != 0 ||
        sizes.stored != sizes.plain)
      file.complain(fmt::format("{} is compressed or encrypted", in_quotes(name)));
    file.check(sizes.header, kLocalSize);
    file.expect(sizes.header, kLocalHeader, "a member is not where its directory says");
    const auto begin = sizes.header + kLocalSize + file.number(sizes.header + 26, 2) +
                       file.number(sizes.header + 28, 2);
    file.check(begin, sizes.plain);
    if (!members.emplace(name, ZipMember{begin, sizes.plain}).second)
      file.complain(fmt::format("{} is there twice", in_quotes(name)));
    at = extra + extra_length + file.number(at + 32, 2);
  }
  return members;
}

}  // namespace qkscope
