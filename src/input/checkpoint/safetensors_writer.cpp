#include "input/checkpoint/safetensors_writer.h"

#include <array>

#include "base/core/dtype.h"
#include "base/core/error.h"
#include "base/core/text.h"
#include "base/io/json.h"

namespace qkscope {
namespace {

constexpr std::size_t kAlignment = 64;  // of the data section in the file

std::string written_header(const std::string& path, std::span<const TensorPlace> tensors,
                           const std::map<std::string, std::string>& metadata) {
  Json header = Json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::uint64_t offset = 0;
  for (const auto& tensor : tensors) {
    if (tensor.name == "__metadata__" || header.contains(tensor.name))
      bad_input("{}: cannot write: the tensor name {} is {}", path, in_quotes(tensor.name),
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
    bad_input("{}: cannot write: a tensor name or a metadata string is not UTF-8", path);
  }
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(const std::string& path, std::span<const TensorPlace> tensors,
                                     const std::map<std::string, std::string>& metadata)
    : file_(path) {
  std::string header = written_header(path, tensors, metadata);
  std::array<std::byte, 8> length{};
  const auto unaligned = (length.size() + header.size()) % kAlignment;
  if (unaligned != 0) header.append(kAlignment - unaligned, ' ');
  for (std::size_t i = 0; i < length.size(); ++i)
    length[i] = static_cast<std::byte>(header.size() >> 8 * i);
  file_.write(length);
  file_.write(header);
  end_ = length.size() + header.size();
  for (const auto& tensor : tensors) end_ += tensor.size_bytes();
}

void SafetensorsWriter::write(std::span<const std::byte> bytes) {
  file_.write(bytes);
}

void SafetensorsWriter::commit() {
  QKSCOPE_ASSERT(file_.written() == end_);
  file_.commit();
}

}  // namespace qkscope
