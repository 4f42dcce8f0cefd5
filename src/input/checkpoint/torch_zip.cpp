#include <algorithm>
#include <limits>
#include <string_view>

#include "base/core/convert.h"
#include "base/core/error.h"
#include "base/core/text.h"
#include "base/io/byte_reader.h"
#include "input/checkpoint/safetensors.h"

namespace qkscope {
namespace {

constexpr std::string_view kPickle = "/data.pkl";

// Signatures and fixed sizes of zip records (PKWARE APPNOTE.TXT).
constexpr std::uint32_t kLocalHeader = 0x04034b50;
constexpr std::uint32_t kCentralHeader = 0x02014b50;
constexpr std::uint32_t kEnd = 0x06054b50;
constexpr std::uint32_t kEnd64 = 0x06064b50;
constexpr std::uint32_t kEnd64Locator = 0x07064b50;
constexpr std::uint64_t kLocalSize = 30, kCentralSize = 46, kEndSize = 22, kEnd64Size = 56,
                        kLocatorSize = 20;
constexpr std::uint64_t kLongestComment = 65535;
constexpr std::uint32_t kIn64 = 0xffffffff;  // marks values stored in the zip64 extra field

// Byte range of a zip member in the file.
struct ZipMember {
  std::uint64_t begin = 0;
  std::uint64_t size = 0;
};
using ZipMembers = std::map<std::string, ZipMember>;

std::string_view bytes_as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Reads the central directory of a zip file with uncompressed members, as PyTorch writes it.
class ZipDirectory {
 public:
  ZipDirectory(std::span<const std::byte> file, const std::string& where)
      : where_(where), file_(file, [this](const TruncatedRead&) {
          fail("a record reaches beyond the end of the file");
        }) {}

  ZipMembers read_members() const {
    auto [at, count] = find_directory();
    ZipMembers members;
    for (; count > 0; --count) {
      file_.bytes_at(at, kCentralSize);
      check_signature(at, kCentralHeader, "a record of its directory is not where it should be");
      const auto name_length = file_.integer_at(at + 28, 2);
      const auto extra_length = file_.integer_at(at + 30, 2);
      const std::string name(bytes_as_text(file_.bytes_at(at + kCentralSize, name_length)));
      const auto extra = at + kCentralSize + name_length;
      file_.bytes_at(extra, extra_length);
      if (!members.emplace(name, read_member(name, at, extra, extra_length)).second)
        fail(fmt::format("{} is there twice", quote_text(name)));
      at = extra + extra_length + file_.integer_at(at + 32, 2);
    }
    return members;
  }

 private:
  struct DirectoryLocation {
    std::uint64_t begin;
    std::uint64_t members;
  };
  struct MemberSizes {
    std::uint64_t stored, plain, header;
  };

  DirectoryLocation find_directory() const {
    const auto end = find_end_record();
    const bool has_64 =
        end >= kLocatorSize && file_.integer_at(end - kLocatorSize, 4) == kEnd64Locator;
    if (!has_64) return {file_.integer_at(end + 16, 4), file_.integer_at(end + 10, 2)};
    const auto end64 = file_.integer_at(end - kLocatorSize + 8, 8);
    file_.bytes_at(end64, kEnd64Size);
    check_signature(end64, kEnd64, "the end of its 64-bit directory is not where it should be");
    return {file_.integer_at(end64 + 48, 8), file_.integer_at(end64 + 32, 8)};
  }

  std::uint64_t find_end_record() const {
    if (file_.size() < kEndSize) fail("it is too short");
    const auto last = file_.size() - kEndSize;
    const auto lowest = last > kLongestComment ? last - kLongestComment : 0;
    for (auto at = last + 1; at-- > lowest;)
      if (file_.integer_at(at, 4) == kEnd) return at;
    fail("its directory is missing, so it was cut off");
  }

  ZipMember read_member(const std::string& name, std::uint64_t at, std::uint64_t extra,
                        std::uint64_t extra_length) const {
    const auto sizes = read_member_sizes(at, extra, extra_length);
    if (file_.integer_at(at + 10, 2) != 0 || (file_.integer_at(at + 8, 2) & 1) != 0 ||
        sizes.stored != sizes.plain)
      fail(fmt::format("{} is compressed or encrypted", quote_text(name)));
    file_.bytes_at(sizes.header, kLocalSize);
    check_signature(sizes.header, kLocalHeader, "a member is not where its directory says");
    const auto begin = sizes.header + kLocalSize + file_.integer_at(sizes.header + 26, 2) +
                       file_.integer_at(sizes.header + 28, 2);
    file_.bytes_at(begin, sizes.plain);
    return {begin, sizes.plain};
  }

  // Reads values that do not fit into 32 bits from the zip64 extra field.
  MemberSizes read_member_sizes(std::uint64_t at, std::uint64_t extra, std::uint64_t length) const {
    MemberSizes sizes{file_.integer_at(at + 20, 4), file_.integer_at(at + 24, 4),
                      file_.integer_at(at + 42, 4)};
    for (auto field = extra; field + 4 <= extra + length;) {
      auto value = field + 4;
      const auto next = value + file_.integer_at(field + 2, 2);
      if (file_.integer_at(field, 2) == 1)
        for (auto* size : {&sizes.plain, &sizes.stored, &sizes.header})
          if (*size == kIn64) {
            *size = file_.integer_at(value, 8);
            value += 8;
          }
      field = next;
    }
    return sizes;
  }

  void check_signature(std::uint64_t at, std::uint32_t signature, const char* what) const {
    if (file_.integer_at(at, 4) != signature) fail(what);
  }
  [[noreturn]] void fail(const std::string& what) const {
    reject("{}: not a zip file as PyTorch writes them: {}", where_, what);
  }

  const std::string& where_;
  ByteReader file_;
};

// Returns the number of elements. Throws a bad-input error unless the tensor is contiguous; the
// stride of a dimension of size one is ignored.
std::uint64_t contiguous_element_count(const std::string& name, const PickledTensor& tensor,
                                       const std::string& where) {
  std::uint64_t count = 1;
  for (std::size_t i = tensor.shape.size(); i-- > 0;) {
    const auto size = static_cast<std::uint64_t>(tensor.shape[i]);
    if (size == 0) return 0;
    if (size > 1 && static_cast<std::uint64_t>(tensor.strides[i]) != count)
      reject(
          "{}: tensor {} is stored with gaps or transposed, which is not supported; save it "
          "contiguous",
          where, quote_text(name));
    if (count > std::numeric_limits<std::int64_t>::max() / size)
      reject("{}: tensor {} has more elements than can be counted", where, quote_text(name));
    count *= size;
  }
  return count;
}

TensorHeaderEntry locate_tensor(const std::string& name, const PickledTensor& tensor,
                                const ZipMember& storage, const std::string& where) {
  const std::uint64_t element = dtype_size(tensor.dtype);
  const auto held = storage.size / element;
  const auto count = contiguous_element_count(name, tensor, where);
  const auto offset = static_cast<std::uint64_t>(tensor.offset);
  if (offset > held || count > held - offset)
    reject("{}: tensor {} needs elements {} to {} of storage {}, which has {}", where,
           quote_text(name), offset, offset + count, quote_text(tensor.storage), held);
  const auto begin = storage.begin + offset * element;
  return {.dtype = tensor.dtype,
          .stored_dtype = std::string(safetensors_name(tensor.dtype)),
          .shape = tensor.shape,
          .begin = begin,
          .end = begin + count * element};
}

}  // namespace

SafetensorsHeader parse_torch_zip_header(std::span<const std::byte> file,
                                         const std::string& where) {
  if (!bytes_as_text(file).starts_with("PK\x03\x04"))
    reject(
        "{}: not a zip file, so PyTorch before 1.6 wrote it, as a pickle that can run code; "
        "convert it to safetensors where it is trusted",
        where);
  const auto members = ZipDirectory(file, where).read_members();
  const auto bytes_of = [&](const ZipMember& member) {
    return file.subspan(static_cast<std::size_t>(member.begin),
                        static_cast<std::size_t>(member.size));
  };
  // PyTorch stores ROOT/data.pkl, ROOT/byteorder and ROOT/data/0, ROOT/data/1, ...
  const auto pickle = std::ranges::find_if(
      members, [](const auto& member) { return member.first.ends_with(kPickle); });
  if (pickle == members.end())
    reject("{}: a zip file, but no checkpoint of PyTorch: it holds no data.pkl", where);
  const auto root = pickle->first.substr(0, pickle->first.size() - kPickle.size());
  if (const auto order = members.find(root + "/byteorder");
      order != members.end() && bytes_as_text(bytes_of(order->second)) != "little")
    reject("{}: its numbers are stored with the byte order {}, expected little", where,
           quote_text(bytes_as_text(bytes_of(order->second)).substr(0, 16)));
  SafetensorsHeader header;
  for (const auto& [name, tensor] : read_tensor_pickle(bytes_of(pickle->second), where)) {
    const auto storage = members.find(root + "/data/" + tensor.storage);
    if (storage == members.end())
      reject("{}: tensor {} lies in storage {}, which is not in the file", where, quote_text(name),
             quote_text(tensor.storage));
    header.tensors.emplace(name, locate_tensor(name, tensor, storage->second, where));
  }
  return header;
}

}  // namespace qkscope
