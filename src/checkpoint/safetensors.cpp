#include "checkpoint/safetensors.h"

#include <array>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "core/dtype.h"
#include "core/edge.h"
#include "core/error.h"
#include "core/text.h"
#include "io/json.h"
#include "io/output_file.h"
#include "qkscope/model.h"

namespace qkscope {

struct SafetensorsFile::AlignedCopies {
  std::mutex mutex;
  std::map<std::string, Tensor> tensors;

  ConstTensorView of(const std::string& name, ConstTensorView original) {
    const std::lock_guard lock(mutex);
    auto found = tensors.find(name);
    if (found == tensors.end()) {
      Tensor copy(original.shape(), original.dtype());
      std::memcpy(copy.view().bytes(), original.bytes(), original.size_bytes());
      found = tensors.emplace(name, std::move(copy)).first;
    }
    return found->second;
  }
};

SafetensorsFile::SafetensorsFile(const std::string& path)
    : SafetensorsFile(path, parse_safetensors_header) {}

SafetensorsFile::SafetensorsFile(const std::string& path, Parse* parse)
    : file_(path),
      header_(parse(file_.bytes(), path)),
      copies_(std::make_unique<AlignedCopies>()) {}

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
  return copies_->of(name, view);
}

namespace {

constexpr std::size_t kAlignment = 64;  // of the data section within the file

std::string written_header(const std::string& path, std::span<const NamedTensor> tensors,
                           const std::map<std::string, std::string>& metadata) {
  Json header = Json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::uint64_t offset = 0;
  for (const auto& [name, tensor] : tensors) {
    if (!tensor.is_contiguous() || tensor.device().kind != Device::Kind::cpu)
      bad_input("{}: cannot write: tensor {} must be contiguous and in host memory", path,
                in_quotes(name));
    if (name == "__metadata__" || header.contains(name))
      bad_input("{}: cannot write: the tensor name {} is {}", path, in_quotes(name),
                name == "__metadata__" ? "reserved" : "given twice");
    Json shape = Json::array();
    for (int i = 0; i < tensor.rank(); ++i) shape.push_back(tensor.dim(i));
    const auto end = offset + tensor.size_bytes();
    header[name] = {{"dtype", safetensors_name(tensor.dtype())},
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

void write_safetensors(const std::string& path, std::span<const NamedTensor> tensors,
                       const std::map<std::string, std::string>& metadata) {
  at_edge([&] {
    std::string header = written_header(path, tensors, metadata);
    std::array<std::byte, 8> length{};
    const auto unaligned = (length.size() + header.size()) % kAlignment;
    if (unaligned != 0) header.append(kAlignment - unaligned, ' ');
    for (std::size_t i = 0; i < length.size(); ++i)
      length[i] = static_cast<std::byte>(header.size() >> 8 * i);

    OutputFile file(path);
    file.write(length);
    file.write(header);
    for (const auto& [name, tensor] : tensors) file.write({tensor.bytes(), tensor.size_bytes()});
    file.commit();
  });
}

}  // namespace qkscope
