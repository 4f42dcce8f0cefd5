#include "checkpoint/safetensors_writer.h"

#include <array>
#include <cstdint>

#include "core/dtype.h"
#include "core/error.h"
#include "core/text.h"
#include "io/json.h"
#include "io/output_file.h"

namespace qkscope {
namespace {

constexpr std::size_t kAlignment = 64;

std::string header_text(const std::string& path, std::span<const NamedTensor> tensors,
                        const std::map<std::string, std::string>& metadata) {
  Json header = Json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::uint64_t offset = 0;
  for (const auto& [name, tensor] : tensors) {
    QKSCOPE_ASSERT(tensor.is_contiguous());
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
  std::string header = header_text(path, tensors, metadata);
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
}

}  // namespace qkscope
