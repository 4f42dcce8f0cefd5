#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "base/core/dtype.h"
#include "base/core/error.h"
#include "base/core/text.h"
#include "base/io/byte_reader.h"
#include "base/io/json.h"
#include "input/checkpoint/safetensors.h"

namespace qkscope {
namespace {

constexpr std::uint64_t kLengthBytes = 8;
constexpr std::uint64_t kLongestHeader = 100'000'000;  // limit of the safetensors library
constexpr std::string_view kMetadata = "__metadata__";

// Unsupported dtypes of the format with their size in bits; their byte counts are still validated.
constexpr std::array<std::pair<std::string_view, std::uint64_t>, 11> kOtherTypes = {
    {{"F4", 4},
     {"F6_E2M3", 6},
     {"F6_E3M2", 6},
     {"F8_E5M2", 8},
     {"F8_E8M0", 8},
     {"F8_E4M3FNUZ", 8},
     {"F8_E5M2FNUZ", 8},
     {"U16", 16},
     {"U32", 32},
     {"U64", 64},
     {"C64", 64}}};

std::optional<std::uint64_t> bits_per_element(const TensorEntry& entry) {
  if (entry.readable) return 8 * dtype_size(entry.dtype);
  for (const auto& [name, bits] : kOtherTypes)
    if (name == entry.stored_dtype) return bits;
  return std::nullopt;
}

std::string shape_text(const TensorEntry& entry) {
  constexpr std::size_t kMost = 16;
  if (entry.shape.size() > kMost) return fmt::format("of {} dimensions", entry.shape.size());
  return fmt::format("[{}]", fmt::join(entry.shape, ", "));
}

// Formats an invalid value for an error message.
std::string found_text(const Json& value) {
  return value.is_number() ? value.dump() : value.type_name();
}

// Returns the JSON text of the header.
std::string_view header_text(std::span<const std::byte> file, const std::string& where) {
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  if (text.starts_with("version https://git-lfs"))
    bad_input("{}: this is a Git LFS pointer, not the weights; run 'git lfs pull' in its folder",
              where);
  const ByteReader reader(file, [&](const TruncatedRead&) {
    bad_input("{}: not a safetensors file: {} bytes long, expected at least {}; download it again",
              where, file.size(), kLengthBytes);
  });
  const auto length = reader.number_at(0, kLengthBytes);
  if (length > kLongestHeader)
    bad_input(
        "{}: not a safetensors file: its first eight bytes give a header of {} bytes, expected at "
        "most {}",
        where, length, kLongestHeader);
  if (length > file.size() - kLengthBytes)
    bad_input(
        "{}: the file ends inside its header: header of {} bytes, file of {} bytes; download it "
        "again",
        where, length, file.size());
  return text.substr(kLengthBytes, length);
}

// Parses and validates one tensor entry. `where_` names file and tensor.
class EntryParser {
 public:
  EntryParser(const std::string& file, const std::string& name)
      : where_(fmt::format("{}: tensor {}", file, in_quotes(name))) {}

  TensorEntry parse(const Json& json) const {
    check_fields(json);
    TensorEntry entry{};
    entry.stored_dtype = json["dtype"].get<std::string>();
    const auto dtype = dtype_from_safetensors(entry.stored_dtype);
    entry.readable = dtype.has_value();
    entry.dtype = dtype.value_or(DType::u8);
    for (const auto& size : json["shape"]) entry.shape.push_back(shape_size(size));
    entry.begin = offset(json["data_offsets"][0]);
    entry.end = offset(json["data_offsets"][1]);
    check_size(entry);
    return entry;
  }

 private:
  void check_fields(const Json& json) const {
    if (!json.is_object())
      bad_input("{}: found {}, expected a map with dtype, shape and data_offsets", where_,
                json.type_name());
    for (const char* field : {"dtype", "shape", "data_offsets"})
      if (!json.contains(field)) bad_input("{}: the field {} is missing", where_, field);
    for (const auto& [field, value] : json.items())
      if (field != "dtype" && field != "shape" && field != "data_offsets")
        bad_input("{}: unknown field {}; expected dtype, shape and data_offsets only", where_,
                  in_quotes(field));
    if (const auto& dtype = json["dtype"]; !dtype.is_string())
      bad_input("{}: dtype: found {}, expected a string", where_, dtype.type_name());
    if (const auto& shape = json["shape"]; !shape.is_array())
      bad_input("{}: shape: found {}, expected a list", where_, shape.type_name());
    if (!json["data_offsets"].is_array() || json["data_offsets"].size() != 2)
      bad_input("{}: data_offsets must be a list of two numbers, begin and end", where_);
  }

  std::int64_t shape_size(const Json& size) const {
    constexpr auto kLargest = std::uint64_t{std::numeric_limits<std::int64_t>::max()};
    if (!size.is_number_unsigned() || size.get<std::uint64_t>() > kLargest)
      bad_input("{}: the shape holds {}, expected whole numbers from 0", where_, found_text(size));
    return size.get<std::int64_t>();
  }

  std::uint64_t offset(const Json& value) const {
    if (!value.is_number_unsigned())
      bad_input("{}: data_offsets holds {}, expected whole numbers from 0", where_,
                found_text(value));
    return value.get<std::uint64_t>();
  }

  // Zero dimensions are left out of the overflow check, because strides multiply the other sizes.
  void check_size(const TensorEntry& entry) const {
    if (entry.begin > entry.end)
      bad_input("{}: data_offsets are reversed: begin {}, end {}", where_, entry.begin, entry.end);
    std::int64_t count = 1;
    bool empty = false;
    for (const auto size : entry.shape) {
      empty |= size == 0;
      if (size != 0 && __builtin_mul_overflow(count, size, &count))
        bad_input("{}: the shape {} has more elements than 64 bits can count", where_,
                  shape_text(entry));
    }
    const auto bits_each = bits_per_element(entry);
    if (!bits_each) return;  // unknown dtype: the byte count cannot be validated
    std::uint64_t bits = 0;
    if (__builtin_mul_overflow(empty ? 0 : static_cast<std::uint64_t>(count), *bits_each, &bits))
      bad_input("{}: the shape {} in {} needs more bytes than 64 bits can count", where_,
                shape_text(entry), entry.stored_dtype);
    if (bits % 8 != 0)
      bad_input("{}: the shape {} in {} does not fill whole bytes", where_, shape_text(entry),
                entry.stored_dtype);
    if (bits / 8 != entry.end - entry.begin)
      bad_input("{}: the shape {} in {} needs {} bytes, but data_offsets give {}", where_,
                shape_text(entry), entry.stored_dtype, bits / 8, entry.end - entry.begin);
  }

  std::string where_;
};

std::map<std::string, std::string> parse_metadata(const Json& json, const std::string& where) {
  std::map<std::string, std::string> metadata;
  if (json.is_null()) return metadata;
  if (!json.is_object())
    bad_input("{}: {}: found {}, expected a map of strings", where, kMetadata, json.type_name());
  for (const auto& [key, value] : json.items()) {
    if (!value.is_string())
      bad_input("{}: {} {}: found {}, expected a string", where, kMetadata, in_quotes(key),
                value.type_name());
    metadata.emplace(key, value.get<std::string>());
  }
  return metadata;
}

// Checks that the tensors cover the data section without gaps or overlaps.
void check_cover(const SafetensorsHeader& header, std::uint64_t data_size,
                 const std::string& where) {
  using Item = std::pair<const std::string, TensorEntry>;
  std::vector<const Item*> by_place;
  for (const auto& item : header.tensors) by_place.push_back(&item);
  std::sort(by_place.begin(), by_place.end(), [](const Item* a, const Item* b) {
    return std::tie(a->second.begin, a->second.end) < std::tie(b->second.begin, b->second.end);
  });
  std::uint64_t covered = 0;
  const Item* previous = nullptr;
  for (const Item* item : by_place) {
    const auto& [name, entry] = *item;
    if (entry.end > data_size)
      bad_input(
          "{}: tensor {} ends at byte {} of the data section, which has {} bytes: the file is "
          "truncated or its header is wrong; download it again",
          where, in_quotes(name), entry.end, data_size);
    if (entry.begin < covered)
      bad_input("{}: tensors {} and {} overlap: the second begins at byte {}, the first ends at {}",
                where, in_quotes(previous->first), in_quotes(name), entry.begin, covered);
    if (entry.begin > covered)
      bad_input("{}: {} bytes before tensor {} belong to no tensor", where, entry.begin - covered,
                in_quotes(name));
    covered = entry.end;
    previous = item;
  }
  if (covered != data_size)
    bad_input("{}: {} bytes after the last tensor belong to no tensor", where, data_size - covered);
}

}  // namespace

SafetensorsHeader parse_safetensors_header(std::span<const std::byte> file,
                                           const std::string& where) {
  const auto text = header_text(file, where);
  const Json json = parse_json(text, where + " (header)", RepeatedKeys::refuse);
  if (!json.is_object())
    bad_input("{}: the header is a JSON {}, expected a map of tensors", where, json.type_name());
  SafetensorsHeader header;
  header.data_offset = kLengthBytes + text.size();
  for (const auto& [name, value] : json.items()) {
    if (name == kMetadata)
      header.metadata = parse_metadata(value, where);
    else
      header.tensors.emplace(name, EntryParser(where, name).parse(value));
  }
  check_cover(header, file.size() - header.data_offset, where);
  return header;
}

}  // namespace qkscope
