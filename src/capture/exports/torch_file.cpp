#include "capture/exports/torch_file.h"

#include <bit>
#include <cstring>
#include <limits>

#include <fmt/format.h>

#include "base/core/error.h"

namespace qkscope {
namespace {

// The instructions of pickle that are used, by their names in Python's pickletools.
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

void put_little(std::string& out, std::uint32_t value) {
  for (int i = 0; i < 4; ++i) out += static_cast<char>(static_cast<unsigned char>(value >> 8 * i));
}

}  // namespace

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
  put_little(pickle_, static_cast<std::uint32_t>(value.size()));
  pickle_ += value;
}

void TorchFile::integer(std::int64_t value) {
  QKSCOPE_ASSERT(value >= std::numeric_limits<std::int32_t>::min() &&
                 value <= std::numeric_limits<std::int32_t>::max());
  put(op::kBinInt);
  put_little(pickle_, static_cast<std::uint32_t>(value));
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

// ("storage", torch.FloatStorage, "0", "cpu", size): its numbers are in the member data/0.
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
