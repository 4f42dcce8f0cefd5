#include "input/checkpoint/gguf.h"

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <numeric>

#include "base/core/error.h"
#include "base/core/text.h"
#include "base/io/byte_reader.h"

namespace qkscope {
namespace {

constexpr std::string_view kMagic = "GGUF";
constexpr std::uint64_t kDefaultAlignment = 32, kLargestAlignment = 1 << 20;
constexpr std::uint64_t kMostTensors = 1 << 20;
constexpr std::uint64_t kMostKeys = 1 << 16;
constexpr std::uint64_t kMostElements = 1 << 24;  // per list; vocabularies have up to 2^18
constexpr std::uint64_t kLongestName = 1 << 16;
constexpr std::uint32_t kMostDimensions = 4;

constexpr std::uint32_t kList = 9;  // value type of lists

class GgufParser {
 public:
  GgufParser(std::span<const std::byte> file, const std::string& where)
      : where_(where), reader_(file, [&where](const TruncatedRead& read) {
          reject(
              "{}: the file ends inside {}: {} bytes are wanted at byte {} and {} are there; "
              "download it again",
              where, read.field, read.wanted, read.offset, read.available);
        }) {}

  GgufHeader parse() {
    read_version();
    const auto tensors = read_count("the number of tensors", kMostTensors);
    const auto keys = read_count("the number of metadata keys", kMostKeys);
    for (std::uint64_t i = 0; i < keys; ++i) read_key();
    if (const auto parts = GgufMetadata(header_, where_).natural_number("split.count", 1);
        parts > 1)
      reject(
          "{}: one of {} parts of a split model, which is not supported; join them with "
          "llama.cpp's 'llama-gguf-split --merge'",
          where_, parts);
    std::vector<GgufTensor> list;
    for (std::uint64_t i = 0; i < tensors; ++i) list.push_back(read_tensor());
    locate_tensors(list);
    return std::move(header_);
  }

 private:
  void read_version() {
    if (reader_.size() < kMagic.size() || reader_.read_text(kMagic.size()) != kMagic)
      reject("{}: not a GGUF file: it does not begin with 'GGUF'", where_);
    const auto version = reader_.read<std::uint32_t>("its version");
    if (version != 0 && (version & 0xffffu) == 0)
      reject("{}: a GGUF file with the high byte first, which is not supported", where_);
    if (version != 2 && version != 3)
      reject("{}: GGUF version {}, expected 2 or 3", where_, version);
  }

  std::string read_text(std::uint64_t longest, const std::string& what) {
    const auto length = reader_.read<std::uint64_t>(what);
    if (length > longest)
      reject("{}: {} has {} bytes, expected at most {}", where_, what, length, longest);
    return std::string(reader_.read_text(length, what));
  }

  std::uint64_t read_count(const std::string& what, std::uint64_t most) {
    const auto count = reader_.read<std::uint64_t>(what);
    if (count > most) reject("{}: {} is {}, expected at most {}", where_, what, count, most);
    return count;
  }

  void read_key() {
    const auto key = read_text(kLongestName, "the name of a metadata key");
    const auto what = fmt::format("metadata {}", quote_text(key));
    const auto type = reader_.read<std::uint32_t>(what);
    auto value = type == kList ? read_list(what) : read_value(type, what);
    if (!header_.metadata.emplace(key, std::move(value)).second)
      reject("{}: {} is there twice", where_, what);
  }

  Json read_list(const std::string& what) {
    const auto type = reader_.read<std::uint32_t>(what);
    const auto count = read_count(fmt::format("the length of {}", what), kMostElements);
    if (type == kList) reject("{}: {} is a list of lists, which is not supported", where_, what);
    // Every element takes at least one byte, so check the count before reserving memory.
    if (count > reader_.bytes_left())
      reject("{}: {} has {} elements, which the file is too short for", where_, what, count);
    Json list = Json::array();
    list.get_ref<Json::array_t&>().reserve(count);
    for (std::uint64_t i = 0; i < count; ++i) list.push_back(read_value(type, what));
    return list;
  }

  template <typename T>
  Json read_number(const std::string& what) {
    return reader_.read<T>(what);
  }

  Json read_value(std::uint32_t type, const std::string& what) {
    using Reader = Json (GgufParser::*)(const std::string& what);
    static constexpr std::array<Reader, 13> kReaders = {&GgufParser::read_number<std::uint8_t>,
                                                        &GgufParser::read_number<std::int8_t>,
                                                        &GgufParser::read_number<std::uint16_t>,
                                                        &GgufParser::read_number<std::int16_t>,
                                                        &GgufParser::read_number<std::uint32_t>,
                                                        &GgufParser::read_number<std::int32_t>,
                                                        &GgufParser::read_number<float>,
                                                        &GgufParser::read_flag,
                                                        &GgufParser::read_string,
                                                        nullptr,  // kList, which callers handle
                                                        &GgufParser::read_number<std::uint64_t>,
                                                        &GgufParser::read_number<std::int64_t>,
                                                        &GgufParser::read_number<double>};
    if (type >= kReaders.size())
      reject("{}: {} has the value type {}, expected 0 to 12", where_, what, type);
    return (this->*kReaders[type])(what);
  }

  Json read_string(const std::string& what) {
    return read_text(std::numeric_limits<std::uint32_t>::max(), what);
  }

  Json read_flag(const std::string& what) {
    const auto byte = reader_.read<std::uint8_t>(what);
    if (byte > 1) reject("{}: {} is {}, expected a boolean, 0 or 1", where_, what, byte);
    return byte == 1;
  }

  GgufTensor read_tensor() {
    GgufTensor tensor{};
    tensor.name = read_text(kLongestName, "the name of a tensor");
    const auto what = fmt::format("tensor {}", quote_text(tensor.name));
    const auto rank = reader_.read<std::uint32_t>(what);
    if (rank > kMostDimensions)
      reject("{}: {} has {} dimensions; at most {} are supported", where_, what, rank,
             kMostDimensions);
    for (std::uint32_t i = 0; i < rank; ++i) {
      const auto size = reader_.read<std::uint64_t>(what);
      if (size == 0 || size > std::numeric_limits<std::int32_t>::max())
        reject("{}: {} has a dimension of {}, expected 1 to {}", where_, what, size,
               std::numeric_limits<std::int32_t>::max());
      tensor.shape.insert(tensor.shape.begin(), static_cast<std::int64_t>(size));
    }
    // llama.cpp drops outer dimensions of size 1 when it writes a file; its converter keeps them.
    while (tensor.shape.size() > 1 && tensor.shape.front() == 1)
      tensor.shape.erase(tensor.shape.begin());
    const auto type = reader_.read<std::uint32_t>(what);
    tensor.type = find_gguf_dtype(type);
    if (tensor.type == nullptr)
      reject("{}: {} is stored as {}, which is not supported; supported are {}", where_, what,
             gguf_dtype_name(type), supported_gguf_dtype_names());
    tensor.begin = reader_.read<std::uint64_t>(what);
    tensor.end = tensor_size_bytes(tensor, what);
    return tensor;
  }

  // Returns the size of a tensor in bytes. Rows must consist of complete blocks.
  std::uint64_t tensor_size_bytes(const GgufTensor& tensor, const std::string& what) const {
    const auto row = tensor.shape.empty() ? 1 : tensor.shape.back();
    if (row % tensor.type->elements != 0)
      reject("{}: {} has rows of {} elements, which blocks of {} ({}) do not fill", where_, what,
             row, tensor.type->elements, tensor.type->name);
    std::uint64_t blocks = 1;
    for (const auto size : tensor.shape) {
      const auto factor = static_cast<std::uint64_t>(size);
      if (blocks > reader_.size() * 256 / factor)  // 256 elements take at least one byte
        reject("{}: {} has more elements than the file has room for", where_, what);
      blocks *= factor;
    }
    blocks /= static_cast<std::uint64_t>(tensor.type->elements);
    return blocks * tensor.type->bytes;
  }

  // Tensor offsets are relative to the data section, which starts at the next aligned position.
  void locate_tensors(std::vector<GgufTensor>& list) {
    const GgufMetadata metadata(header_, where_);
    const auto step =
        static_cast<std::uint64_t>(metadata.natural_number("general.alignment", kDefaultAlignment));
    if (step == 0 || step > kLargestAlignment || step % 8 != 0)
      metadata.fail("general.alignment", "a multiple of 8");
    const auto data = (reader_.offset() + step - 1) / step * step;
    const auto room = data > reader_.size() ? 0 : reader_.size() - data;
    for (auto& tensor : list) {
      const auto bytes = tensor.end;
      if (tensor.begin % step != 0)
        reject("{}: tensor {} begins at byte {} of the data, expected a multiple of {}", where_,
               quote_text(tensor.name), tensor.begin, step);
      if (bytes > room || tensor.begin > room - bytes)
        reject(
            "{}: tensor {} has {} bytes at byte {} of the data, which has {}; the file is "
            "truncated: download it again",
            where_, quote_text(tensor.name), bytes, tensor.begin, room);
      tensor.begin += data;
      tensor.end = tensor.begin + bytes;
      const auto name = tensor.name;
      if (!header_.tensors.emplace(name, std::move(tensor)).second)
        reject("{}: tensor {} is there twice", where_, quote_text(name));
    }
    check_overlaps();
  }

  void check_overlaps() const {
    std::vector<const GgufTensor*> order;
    for (const auto& [name, tensor] : header_.tensors) order.push_back(&tensor);
    std::ranges::sort(order, {}, &GgufTensor::begin);
    for (std::size_t i = 1; i < order.size(); ++i)
      if (order[i]->begin < order[i - 1]->end)
        reject("{}: tensors {} and {} overlap", where_, quote_text(order[i - 1]->name),
               quote_text(order[i]->name));
  }

  const std::string& where_;
  ByteReader reader_;
  GgufHeader header_;
};

}  // namespace

std::int64_t GgufTensor::element_count() const {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

GgufHeader parse_gguf(std::span<const std::byte> file, const std::string& where) {
  return GgufParser(file, where).parse();
}

const Json& GgufMetadata::at(const std::string& key) const {
  const auto found = header_->metadata.find(key);
  if (found == header_->metadata.end())
    reject("{}: the metadata has no {}", where_, quote_text(key));
  return found->second;
}

std::string GgufMetadata::text(const std::string& key, std::optional<std::string> fallback) const {
  if (fallback && !has(key)) return *fallback;
  if (!at(key).is_string()) fail(key, "a string");
  return at(key).get<std::string>();
}

bool GgufMetadata::flag(const std::string& key, bool fallback) const {
  if (!has(key)) return fallback;
  if (!at(key).is_boolean()) fail(key, "true or false");
  return at(key).get<bool>();
}

std::int64_t GgufMetadata::natural_number(const std::string& key,
                                          std::optional<std::int64_t> fallback) const {
  if (fallback && !has(key)) return *fallback;
  const Json& value = at(key);
  const bool whole = value.is_number_unsigned()
                         ? value.get<std::uint64_t>() <= INT64_MAX
                         : value.is_number_integer() && value.get<std::int64_t>() >= 0;
  if (!whole) fail(key, "a whole number, zero or more");
  return value.get<std::int64_t>();
}

double GgufMetadata::real_number(const std::string& key) const {
  if (!at(key).is_number()) fail(key, "a number");
  return at(key).get<double>();
}

const Json& GgufMetadata::array(const std::string& key) const {
  if (!at(key).is_array()) fail(key, "a list");
  return at(key);
}

void GgufMetadata::fail(const std::string& key, std::string_view expected) const {
  std::string found = at(key).dump(-1, ' ', false, Json::error_handler_t::replace);
  if (found.size() > 80) found = found.substr(0, 77) + "...";
  reject("{}: metadata {} is {}, expected {}", where_, quote_text(key), found, expected);
}

}  // namespace qkscope
