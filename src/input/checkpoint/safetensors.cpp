#include "input/checkpoint/safetensors.h"

#include <cstdint>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "base/core/dtype.h"
#include "base/core/error.h"
#include "base/core/text.h"
#include "base/core/translate_exceptions.h"
#include "input/checkpoint/safetensors_writer.h"
#include "qkscope/model.h"

namespace qkscope {

namespace {

Tensor copy_of(ConstTensorView original) {
  Tensor copy(original.shape(), original.dtype());
  std::memcpy(copy.view().bytes(), original.bytes(), original.size_bytes());
  return copy;
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::string& path)
    : SafetensorsFile(path, parse_safetensors_header) {}

SafetensorsFile::SafetensorsFile(const std::string& path, Parse* parse)
    : file_(path), header_(parse(file_.bytes(), path)), copies_(std::make_unique<KeptTensors>()) {}

SafetensorsFile::~SafetensorsFile() = default;
SafetensorsFile::SafetensorsFile(SafetensorsFile&&) noexcept = default;
SafetensorsFile& SafetensorsFile::operator=(SafetensorsFile&&) noexcept = default;

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
  return copies_->get(name, [&] { return copy_of(view); });
}

void write_safetensors(const std::string& path, std::span<const NamedTensor> tensors,
                       const std::map<std::string, std::string>& metadata) {
  translate_exceptions([&] {
    std::vector<TensorPlace> places;
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
