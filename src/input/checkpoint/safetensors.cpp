#include "input/checkpoint/safetensors.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/core/convert.h"
#include "base/core/error.h"
#include "base/core/text.h"
#include "base/io/byte_reader.h"
#include "base/io/json.h"
#include "qkscope/model.h"

namespace qkscope {
namespace {

constexpr std::uint64_t kLengthBytes = 8;
constexpr std::uint64_t kLongestHeader = 100'000'000;  // limit of the safetensors library
constexpr std::string_view kMetadata = "__metadata__";

// Unsupported safetensors dtypes with their size in bits, to validate byte counts of tensors.
constexpr std::array kUnsupportedDtypes = {
    std::pair{"F4", 4u},          std::pair{"F6_E2M3", 6u}, std::pair{"F6_E3M2", 6u},
    std::pair{"F8_E5M2", 8u},     std::pair{"F8_E8M0", 8u}, std::pair{"F8_E4M3FNUZ", 8u},
    std::pair{"F8_E5M2FNUZ", 8u}, std::pair{"U16", 16u},    std::pair{"U32", 32u},
    std::pair{"U64", 64u},        std::pair{"C64", 64u},
};

std::optional<std::uint64_t> bits_per_element(const TensorHeaderEntry& entry) {
  if (entry.readable) return 8 * dtype_size(entry.dtype);
  for (const auto& [name, bits] : kUnsupportedDtypes)
    if (name == entry.stored_dtype) return bits;
  return std::nullopt;
}

std::string format_shape(const TensorHeaderEntry& entry) {
  constexpr std::size_t kMost = 16;
  if (entry.shape.size() > kMost) return fmt::format("of {} dimensions", entry.shape.size());
  return fmt::format("[{}]", fmt::join(entry.shape, ", "));
}

std::string_view read_header_text(std::span<const std::byte> file, const std::string& where) {
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  if (text.starts_with("version https://git-lfs"))
    reject("{}: this is a Git LFS pointer, not the weights; run 'git lfs pull' in its folder",
           where);
  const ByteReader reader(file, [&](const TruncatedRead&) {
    reject("{}: not a safetensors file: {} bytes long, expected at least {}; download it again",
           where, file.size(), kLengthBytes);
  });
  const auto length = reader.integer_at(0, kLengthBytes);
  if (length > kLongestHeader)
    reject(
        "{}: not a safetensors file: its first eight bytes give a header of {} bytes, expected at "
        "most {}",
        where, length, kLongestHeader);
  if (length > file.size() - kLengthBytes)
    reject(
        "{}: the file ends inside its header: header of {} bytes, file of {} bytes; download it "
        "again",
        where, length, file.size());
  return text.substr(kLengthBytes, length);
}

// Checks the header fields of a tensor. `where` names the file and the tensor in error messages.
void check_tensor_fields(const Json& json, const std::string& where) {
  if (!json.is_object())
    reject("{}: found {}, expected a map with dtype, shape and data_offsets", where,
           json.type_name());
  for (const char* field : {"dtype", "shape", "data_offsets"})
    if (!json.contains(field)) reject("{}: the field {} is missing", where, field);
  for (const auto& [field, value] : json.items())
    if (field != "dtype" && field != "shape" && field != "data_offsets")
      reject("{}: unknown field {}; expected dtype, shape and data_offsets only", where,
             quote_text(field));
  if (const auto& dtype = json["dtype"]; !dtype.is_string())
    reject("{}: dtype: found {}, expected a string", where, dtype.type_name());
  if (const auto& shape = json["shape"]; !shape.is_array())
    reject("{}: shape: found {}, expected a list", where, shape.type_name());
  if (!json["data_offsets"].is_array() || json["data_offsets"].size() != 2)
    reject("{}: data_offsets must be a list of two numbers, begin and end", where);
}

// The overflow check ignores dimensions of size zero, because the strides of an empty tensor are
// products of the other dimensions and must not overflow either.
void check_tensor_size(const TensorHeaderEntry& entry, const std::string& where) {
  if (entry.begin > entry.end)
    reject("{}: data_offsets are reversed: begin {}, end {}", where, entry.begin, entry.end);
  std::int64_t count = 1;
  bool empty = false;
  for (const auto size : entry.shape) {
    empty |= size == 0;
    if (size != 0 && __builtin_mul_overflow(count, size, &count))
      reject("{}: the shape {} has more elements than 64 bits can count", where,
             format_shape(entry));
  }
  const auto bits_each = bits_per_element(entry);
  if (!bits_each) return;  // unknown dtype: the byte count cannot be validated
  std::uint64_t bits = 0;
  if (__builtin_mul_overflow(empty ? 0 : static_cast<std::uint64_t>(count), *bits_each, &bits))
    reject("{}: the shape {} in {} needs more bytes than 64 bits can count", where,
           format_shape(entry), entry.stored_dtype);
  if (bits % 8 != 0)
    reject("{}: the shape {} in {} does not fill whole bytes", where, format_shape(entry),
           entry.stored_dtype);
  if (bits / 8 != entry.end - entry.begin)
    reject("{}: the shape {} in {} needs {} bytes, but data_offsets give {}", where,
           format_shape(entry), entry.stored_dtype, bits / 8, entry.end - entry.begin);
}

TensorHeaderEntry parse_tensor_entry(const Json& json, const std::string& where) {
  check_tensor_fields(json, where);
  TensorHeaderEntry entry{};
  entry.stored_dtype = json["dtype"].get<std::string>();
  const auto dtype = dtype_from_safetensors(entry.stored_dtype);
  entry.readable = dtype.has_value();
  entry.dtype = dtype.value_or(DType::u8);
  const auto whole_number = [&](const Json& value, const char* list, std::uint64_t most) {
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() > most)
      reject("{}: {} holds {}, expected whole numbers from 0", where, list,
             value.is_number() ? value.dump() : value.type_name());
    return value.get<std::uint64_t>();
  };
  for (const auto& size : json["shape"])
    entry.shape.push_back(static_cast<std::int64_t>(whole_number(size, "the shape", INT64_MAX)));
  entry.begin = whole_number(json["data_offsets"][0], "data_offsets", UINT64_MAX);
  entry.end = whole_number(json["data_offsets"][1], "data_offsets", UINT64_MAX);
  check_tensor_size(entry, where);
  return entry;
}

std::map<std::string, std::string> parse_metadata(const Json& json, const std::string& where) {
  std::map<std::string, std::string> metadata;
  if (json.is_null()) return metadata;
  if (!json.is_object())
    reject("{}: {}: found {}, expected a map of strings", where, kMetadata, json.type_name());
  for (const auto& [key, value] : json.items()) {
    if (!value.is_string())
      reject("{}: {} {}: found {}, expected a string", where, kMetadata, quote_text(key),
             value.type_name());
    metadata.emplace(key, value.get<std::string>());
  }
  return metadata;
}

void check_tensors_cover_data(const SafetensorsHeader& header, std::uint64_t data_size,
                              const std::string& where) {
  using Item = std::pair<const std::string, TensorHeaderEntry>;
  std::vector<const Item*> by_offset;
  for (const auto& item : header.tensors) by_offset.push_back(&item);
  std::ranges::sort(by_offset, {}, [](const Item* item) {
    return std::pair(item->second.begin, item->second.end);
  });
  std::uint64_t covered = 0;
  const Item* previous = nullptr;
  for (const Item* item : by_offset) {
    const auto& [name, entry] = *item;
    if (entry.end > data_size)
      reject(
          "{}: tensor {} ends at byte {} of the data section, which has {} bytes: the file is "
          "truncated or its header is wrong; download it again",
          where, quote_text(name), entry.end, data_size);
    if (entry.begin < covered)
      reject("{}: tensors {} and {} overlap: the second begins at byte {}, the first ends at {}",
             where, quote_text(previous->first), quote_text(name), entry.begin, covered);
    if (entry.begin > covered)
      reject("{}: {} bytes before tensor {} belong to no tensor", where, entry.begin - covered,
             quote_text(name));
    covered = entry.end;
    previous = item;
  }
  if (covered != data_size)
    reject("{}: {} bytes after the last tensor belong to no tensor", where, data_size - covered);
}

constexpr std::size_t kAlignment = 64;  // of the data section in the file

std::string serialize_header(const std::string& path, std::span<const OutputTensorSpec> tensors,
                             const std::map<std::string, std::string>& metadata) {
  Json header = Json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::uint64_t offset = 0;
  for (const auto& tensor : tensors) {
    if (tensor.name == "__metadata__" || header.contains(tensor.name))
      reject("{}: cannot write: the tensor name {} is {}", path, quote_text(tensor.name),
             tensor.name == "__metadata__" ? "reserved" : "given twice");
    Json shape = Json::array();
    for (int i = 0; i < tensor.shape.rank(); ++i) shape.push_back(tensor.shape[i]);
    const auto end = offset + tensor.size_bytes();
    header[tensor.name] = {{"dtype", safetensors_name(tensor.dtype)},
                           {"shape", std::move(shape)},
                           {"data_offsets", {offset, end}}};
    offset = end;
  }
  try {
    return header.dump();
  } catch (const Json::exception&) {
    reject("{}: cannot write: a tensor name or a metadata string is not UTF-8", path);
  }
}

}  // namespace

SafetensorsHeader parse_safetensors_header(std::span<const std::byte> file,
                                           const std::string& where) {
  const auto text = read_header_text(file, where);
  const Json json = parse_json(text, where + " (header)", DuplicateKeyPolicy::refuse);
  if (!json.is_object())
    reject("{}: the header is a JSON {}, expected a map of tensors", where, json.type_name());
  SafetensorsHeader header;
  header.data_offset = kLengthBytes + text.size();
  for (const auto& [name, value] : json.items()) {
    if (name == kMetadata)
      header.metadata = parse_metadata(value, where);
    else
      header.tensors.emplace(
          name, parse_tensor_entry(value, fmt::format("{}: tensor {}", where, quote_text(name))));
  }
  check_tensors_cover_data(header, file.size() - header.data_offset, where);
  return header;
}

ConstTensorView SafetensorsFile::tensor(const std::string& name) const {
  const auto found = header_.tensors.find(name);
  if (found == header_.tensors.end())
    reject("{}: no tensor {} in this file", path(), quote_text(name));
  const TensorHeaderEntry& entry = found->second;
  if (!entry.readable)
    reject(
        "{}: tensor {} is stored as {}, which is not supported; supported: F32, F16, BF16, "
        "F8_E4M3, F64, I64, I32, I16, I8, U8, BOOL",
        path(), quote_text(name), quote_text(entry.stored_dtype));
  if (entry.shape.size() > Shape::kMaxRank)
    reject("{}: tensor {} has {} dimensions; at most {} are supported", path(), quote_text(name),
           entry.shape.size(), Shape::kMaxRank);
  const std::byte* bytes = file_.bytes().data() + header_.data_offset + entry.begin;
  const ConstTensorView view(bytes, entry.dtype, Shape(std::span(entry.shape)));
  if (reinterpret_cast<std::uintptr_t>(bytes) % dtype_size(entry.dtype) == 0) return view;
  return aligned_copies_->get_or_make(name, [&] {
    Tensor copy(view.shape(), view.dtype());
    std::memcpy(copy.view().bytes(), view.bytes(), view.size_bytes());
    return copy;
  });
}

SafetensorsWriter::SafetensorsWriter(const std::string& path,
                                     std::span<const OutputTensorSpec> tensors,
                                     const std::map<std::string, std::string>& metadata)
    : file_(path) {
  std::string header = serialize_header(path, tensors, metadata);
  std::uint64_t length = header.size();
  const auto unaligned = (sizeof length + length) % kAlignment;
  if (unaligned != 0) header.append(kAlignment - unaligned, ' ');
  length = header.size();
  file_.write(std::as_bytes(std::span(&length, 1)));
  file_.write(header);
  end_ = sizeof length + length;
  for (const auto& tensor : tensors) end_ += tensor.size_bytes();
}

void SafetensorsWriter::commit() {
  QKSCOPE_ASSERT(file_.bytes_written() == end_);
  file_.commit();
}

void write_safetensors(const std::string& path, std::span<const NamedTensor> tensors,
                       const std::map<std::string, std::string>& metadata) {
  translate_exceptions([&] {
    std::vector<OutputTensorSpec> specs;
    for (const auto& [name, tensor] : tensors) {
      if (!tensor.is_contiguous() || tensor.device().kind != Device::Kind::cpu)
        reject("{}: cannot write: tensor {} must be contiguous and in host memory", path,
               quote_text(name));
      specs.push_back({name, tensor.dtype(), tensor.shape()});
    }
    SafetensorsWriter file(path, specs, metadata);
    for (const auto& [name, tensor] : tensors) file.write({tensor.bytes(), tensor.size_bytes()});
    file.commit();
  });
}

}  // namespace qkscope
