#include "input/checkpoint/safetensors.h"

#include <cstring>

#include "base/core/dtype.h"
#include "base/core/error.h"
#include "base/core/text.h"
#include "base/io/json.h"
#include "input/checkpoint/safetensors_writer.h"
#include "qkscope/model.h"

namespace qkscope {
namespace {

constexpr std::size_t kAlignment = 64;  // of the data section in the file

Tensor copy_of(ConstTensorView original) {
  Tensor copy(original.shape(), original.dtype());
  std::memcpy(copy.view().bytes(), original.bytes(), original.size_bytes());
  return copy;
}

std::string header_json(const std::string& path, std::span<const TensorDeclaration> tensors,
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

ConstTensorView SafetensorsFile::tensor(const std::string& name) const {
  const auto found = header_.tensors.find(name);
  if (found == header_.tensors.end())
    bad_input("{}: no tensor {} in this file", path(), in_quotes(name));
  const TensorEntry& entry = found->second;
  if (!entry.readable)
    bad_input(
        "{}: tensor {} is stored as {}, which is not supported; supported: F32, F16, BF16, "
        "F8_E4M3, F64, I64, I32, I16, I8, U8, BOOL",
        path(), in_quotes(name), in_quotes(entry.stored_dtype));
  if (entry.shape.size() > Shape::kMaxRank)
    bad_input("{}: tensor {} has {} dimensions; at most {} are supported", path(), in_quotes(name),
              entry.shape.size(), Shape::kMaxRank);
  const std::byte* bytes = file_.bytes().data() + header_.data_offset + entry.begin;
  const ConstTensorView view(bytes, entry.dtype, Shape(std::span(entry.shape)));
  if (reinterpret_cast<std::uintptr_t>(bytes) % dtype_size(entry.dtype) == 0) return view;
  return aligned_copies_->get(name, [&] { return copy_of(view); });
}

SafetensorsWriter::SafetensorsWriter(const std::string& path,
                                     std::span<const TensorDeclaration> tensors,
                                     const std::map<std::string, std::string>& metadata)
    : file_(path) {
  std::string header = header_json(path, tensors, metadata);
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
  QKSCOPE_ASSERT(file_.written() == end_);
  file_.commit();
}

void write_safetensors(const std::string& path, std::span<const NamedTensor> tensors,
                       const std::map<std::string, std::string>& metadata) {
  translate_exceptions([&] {
    std::vector<TensorDeclaration> places;
    for (const auto& [name, tensor] : tensors) {
      if (!tensor.is_contiguous() || tensor.device().kind != Device::Kind::cpu)
        bad_input("{}: cannot write: tensor {} must be contiguous and in host memory", path,
                  in_quotes(name));
      places.push_back({name, tensor.dtype(), tensor.shape()});
    }
    SafetensorsWriter file(path, places, metadata);
    for (const auto& [name, tensor] : tensors) file.write({tensor.bytes(), tensor.size_bytes()});
    file.commit();
  });
}

}  // namespace qkscope
