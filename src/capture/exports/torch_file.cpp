#include "capture/exports/torch_file.h"

#include <array>
#include <bit>
#include <limits>

#include <fmt/format.h>

#include "base/core/error.h"

namespace qkscope {
namespace {

// Pickle opcodes, named as in Python's pickletools.
namespace op {
constexpr char kProto = '\x80';
constexpr char kMark = '(';
constexpr char kStop = '.';
constexpr char kEmptyDict = '}';
constexpr char kSetItems = 'u';
constexpr char kEmptyList = ']';
constexpr char kAppends = 'e';
constexpr char kBinUnicode = 'X';
constexpr char kBinInt = 'J';
constexpr char kBinFloat = 'G';
constexpr char kTrue = '\x88';
constexpr char kFalse = '\x89';
constexpr char kNone = 'N';
constexpr char kGlobal = 'c';
constexpr char kTuple = 't';
constexpr char kEmptyTuple = ')';
constexpr char kReduce = 'R';
constexpr char kPersistentId = 'Q';
}  // namespace op

constexpr std::size_t kAlignment = 64;
constexpr std::uint16_t kVersion = 20;  // ZIP version needed to extract: 2.0
constexpr std::uint16_t kDate =
    0x21;  // fixed at 1980-01-01, so that equal content gives equal bytes
constexpr std::uint16_t kPadding = 0x4246;  // id of the extra field, "FB" as in PyTorch

constexpr std::array<std::uint32_t, 256> crc_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = value >> 1 ^ (value & 1 ? 0xEDB88320u : 0);
    table[i] = value;
  }
  return table;
}

std::uint32_t crc32_of(std::string_view bytes) {
  static constexpr auto kTable = crc_table();
  std::uint32_t crc = 0xFFFFFFFFu;
  for (const char c : bytes) crc = kTable[(crc ^ static_cast<unsigned char>(c)) & 0xFF] ^ crc >> 8;
  return ~crc;
}

template <typename T>
void put_little_endian(std::string& out, T value) {
  for (std::size_t i = 0; i < sizeof value; ++i)
    out += static_cast<char>(static_cast<unsigned char>(value >> 8 * i));
}

std::uint32_t checked(std::size_t size) {
  if (size > std::numeric_limits<std::uint32_t>::max())
    bad_input("export: the file would be larger than 4 GiB, which its format cannot hold");
  return static_cast<std::uint32_t>(size);
}

}  // namespace

// Fields that the local header and the central directory share.
void ZipFile::put_common_fields(const Member& member) {
  put_little_endian(bytes_, kVersion);
  for (int i = 0; i < 3; ++i) put_little_endian(bytes_, std::uint16_t{0});  // flags, stored, time
  put_little_endian(bytes_, kDate);
  put_little_endian(bytes_, member.crc32);
  put_little_endian(bytes_, member.size);
  put_little_endian(bytes_, member.size);
  put_little_endian(bytes_, static_cast<std::uint16_t>(member.name.size()));
}

void ZipFile::add(const std::string& name, std::string_view content) {
  const Member member{name, crc32_of(content), checked(content.size()), checked(bytes_.size())};
  constexpr std::size_t kHeader = 30;
  const auto unaligned = (bytes_.size() + kHeader + name.size() + 4) % kAlignment;
  const auto padding = static_cast<std::uint16_t>(unaligned == 0 ? 0 : kAlignment - unaligned);
  put_little_endian(bytes_, std::uint32_t{0x04034B50});
  put_common_fields(member);
  put_little_endian(bytes_, static_cast<std::uint16_t>(padding + 4));
  bytes_ += name;
  put_little_endian(bytes_, kPadding);
  put_little_endian(bytes_, padding);
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
    put_little_endian(bytes_, std::uint32_t{0x02014B50});
    put_little_endian(bytes_, kVersion);  // of the writer
    put_common_fields(member);
    for (int i = 0; i < 4; ++i)
      put_little_endian(bytes_, std::uint16_t{0});  // extra, comment, disk, attributes
    put_little_endian(bytes_, std::uint32_t{0});
    put_little_endian(bytes_, member.offset);
    bytes_ += member.name;
  }
  const auto size = checked(bytes_.size()) - directory;
  const auto count = static_cast<std::uint16_t>(members_.size());
  put_little_endian(bytes_, std::uint32_t{0x06054B50});
  put_little_endian(bytes_, std::uint32_t{0});  // disks
  put_little_endian(bytes_, count);
  put_little_endian(bytes_, count);
  put_little_endian(bytes_, size);
  put_little_endian(bytes_, directory);
  put_little_endian(bytes_, std::uint16_t{0});
  return std::move(bytes_);
}

TorchFile::TorchFile(std::string name) : name_(std::move(name)) {
  put(op::kProto);
  put('\x02');
}

void TorchFile::begin_dict() {
  put(op::kEmptyDict);
  put(op::kMark);
}
void TorchFile::end_dict() {
  put(op::kSetItems);
}

void TorchFile::begin_list() {
  put(op::kEmptyList);
  put(op::kMark);
}
void TorchFile::end_list() {
  put(op::kAppends);
}

void TorchFile::text(std::string_view value) {
  put(op::kBinUnicode);
  put_little_endian(pickle_, static_cast<std::uint32_t>(value.size()));
  pickle_ += value;
}

void TorchFile::integer(std::int64_t value) {
  QKSCOPE_ASSERT(value >= std::numeric_limits<std::int32_t>::min() &&
                 value <= std::numeric_limits<std::int32_t>::max());
  put(op::kBinInt);
  put_little_endian(pickle_, static_cast<std::uint32_t>(value));
}

void TorchFile::real(double value) {
  put(op::kBinFloat);
  const auto bits = std::bit_cast<std::uint64_t>(value);
  for (int i = 7; i >= 0; --i) put(static_cast<char>(static_cast<unsigned char>(bits >> 8 * i)));
}

void TorchFile::boolean(bool value) {
  put(value ? op::kTrue : op::kFalse);
}

void TorchFile::none() {
  put(op::kNone);
}

void TorchFile::put_global(std::string_view module, std::string_view name) {
  put(op::kGlobal);
  pickle_ += fmt::format("{}\n{}\n", module, name);
}

// ("storage", torch.FloatStorage, "0", "cpu", size): the values are in the member data/0.
void TorchFile::put_storage(std::size_t size) {
  put(op::kMark);
  text("storage");
  put_global("torch", "FloatStorage");
  text(fmt::format("{}", sizes_.size()));
  text("cpu");
  integer(static_cast<std::int64_t>(size));
  put(op::kTuple);
  put(op::kPersistentId);
}

void TorchFile::tensor(std::span<const float> values) {
  static_assert(std::endian::native == std::endian::little);
  put_global("torch._utils", "_rebuild_tensor_v2");
  put(op::kMark);
  put_storage(values.size());
  integer(0);  // offset
  put(op::kMark);
  integer(std::ssize(values));  // shape
  put(op::kTuple);
  put(op::kMark);
  integer(1);  // strides
  put(op::kTuple);
  boolean(false);  // needs no gradient
  put_global("collections", "OrderedDict");
  put(op::kEmptyTuple);
  put(op::kReduce);
  put(op::kTuple);
  put(op::kReduce);
  sizes_.push_back(values.size_bytes());
  storages_.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
}

std::string TorchFile::finish() {
  put(op::kStop);
  zip_.add(name_ + "/data.pkl", pickle_);
  zip_.add(name_ + "/byteorder", "little");
  std::size_t at = 0;
  for (std::size_t i = 0; i < sizes_.size(); ++i) {
    zip_.add(fmt::format("{}/data/{}", name_, i),
             std::string_view(storages_).substr(at, sizes_[i]));
    at += sizes_[i];
  }
  zip_.add(name_ + "/version", "3\n");
  return zip_.finish();
}

}  // namespace qkscope
