#include "capture/exports/zip_file.h"

#include <array>
#include <limits>

#include "base/core/error.h"

namespace qkscope {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::uint16_t kVersion = 20;      // of the format that readers need
constexpr std::uint16_t kDate = 0x21;       // 1980-01-01: the same content gives the same bytes
constexpr std::uint16_t kPadding = 0x4246;  // extra field "FB", as PyTorch names it

constexpr std::array<std::uint32_t, 256> crc_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = value >> 1 ^ (value & 1 ? 0xEDB88320u : 0);
    table[i] = value;
  }
  return table;
}

std::uint32_t crc32(std::string_view bytes) {
  static constexpr auto kTable = crc_table();
  std::uint32_t crc = 0xFFFFFFFFu;
  for (const char c : bytes) crc = kTable[(crc ^ static_cast<unsigned char>(c)) & 0xFF] ^ crc >> 8;
  return ~crc;
}

template <typename T>
void put(std::string& out, T value) {
  for (std::size_t i = 0; i < sizeof value; ++i)
    out += static_cast<char>(static_cast<unsigned char>(value >> 8 * i));
}

std::uint32_t checked(std::size_t size) {
  if (size > std::numeric_limits<std::uint32_t>::max())
    bad_input("export: the file would be larger than 4 GiB, which its format cannot hold");
  return static_cast<std::uint32_t>(size);
}

}  // namespace

void ZipFile::add(const std::string& name, std::string_view content) {
  const Member member{name, crc32(content), checked(content.size()), checked(bytes_.size())};
  constexpr std::size_t kHeader = 30;
  const auto unaligned = (bytes_.size() + kHeader + name.size() + 4) % kAlignment;
  const auto padding = static_cast<std::uint16_t>(unaligned == 0 ? 0 : kAlignment - unaligned);
  put(bytes_, std::uint32_t{0x04034B50});
  put(bytes_, kVersion);
  put(bytes_, std::uint16_t{0});  // flags
  put(bytes_, std::uint16_t{0});  // stored
  put(bytes_, std::uint16_t{0});  // time
  put(bytes_, kDate);
  put(bytes_, member.checksum);
  put(bytes_, member.size);
  put(bytes_, member.size);
  put(bytes_, static_cast<std::uint16_t>(name.size()));
  put(bytes_, static_cast<std::uint16_t>(padding + 4));
  bytes_ += name;
  put(bytes_, kPadding);
  put(bytes_, padding);
  bytes_.append(padding, 'Z');
  bytes_ += content;
  members_.push_back(member);
}

std::string ZipFile::finish() {
  if (members_.size() > std::numeric_limits<std::uint16_t>::max())
    bad_input("export: the file would have {} members; its format holds at most 65,535",
              members_.size());
  const auto directory = checked(bytes_.size());
  for (const auto& member : members_) {
    put(bytes_, std::uint32_t{0x02014B50});
    put(bytes_, kVersion);
    put(bytes_, kVersion);
    put(bytes_, std::uint16_t{0});
    put(bytes_, std::uint16_t{0});
    put(bytes_, std::uint16_t{0});
    put(bytes_, kDate);
    put(bytes_, member.checksum);
    put(bytes_, member.size);
    put(bytes_, member.size);
    put(bytes_, static_cast<std::uint16_t>(member.name.size()));
    for (int i = 0; i < 4; ++i) put(bytes_, std::uint16_t{0});  // extra, comment, disk, attributes
    put(bytes_, std::uint32_t{0});
    put(bytes_, member.offset);
    bytes_ += member.name;
  }
  const auto size = checked(bytes_.size()) - directory;
  const auto count = static_cast<std::uint16_t>(members_.size());
  put(bytes_, std::uint32_t{0x06054B50});
  put(bytes_, std::uint32_t{0});  // disks
  put(bytes_, count);
  put(bytes_, count);
  put(bytes_, size);
  put(bytes_, directory);
  put(bytes_, std::uint16_t{0});
  return std::move(bytes_);
}

}  // namespace qkscope
