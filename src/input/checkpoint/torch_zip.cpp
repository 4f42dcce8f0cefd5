#include "input/checkpoint/torch_zip.h"

#include <limits>
#include <string_view>

#include "base/core/error.h"
#include "base/core/text.h"
#include "input/checkpoint/tensor_pickle.h"
#include "input/checkpoint/zip_directory.h"

namespace qkscope {
namespace {

constexpr std::string_view kPickle = "/data.pkl";

// "archive" in "archive/data.pkl".
std::string find_root(const std::map<std::string, ZipMember>& members, const std::string& where) {
  for (const auto& [name, member] : members)
    if (name.ends_with(kPickle)) return name.substr(0, name.size() - kPickle.size());
  bad_input("{}: a zip file, but no checkpoint of PyTorch: it holds no data.pkl", where);
}

std::string_view text_of(std::span<const std::byte> file, const ZipMember& member) {
  return {reinterpret_cast<const char*>(file.data()) + member.begin,
          static_cast<std::size_t>(member.size)};
}

// Elements, row after row without gaps; a dimension of one element may have any stride.
std::uint64_t dense_count(const std::string& name, const PickledTensor& tensor,
                          const std::string& where) {
  std::uint64_t count = 1;
  for (std::size_t i = tensor.shape.size(); i-- > 0;) {
    const auto size = static_cast<std::uint64_t>(tensor.shape[i]);
    if (size == 0) return 0;
    if (size > 1 && static_cast<std::uint64_t>(tensor.strides[i]) != count)
      bad_input(
          "{}: tensor {} is stored with gaps or transposed, which is not supported; save it "
          "contiguous",
          where, in_quotes(name));
    if (count > std::numeric_limits<std::int64_t>::max() / size)
      bad_input("{}: tensor {} has more elements than can be counted", where, in_quotes(name));
    count *= size;
  }
  return count;
}

TensorEntry place(const std::string& name, const PickledTensor& tensor, const ZipMember& storage,
                  const std::string& where) {
  const std::uint64_t element = dtype_size(tensor.dtype);
  const auto held = storage.size / element;
  const auto count = dense_count(name, tensor, where);
  const auto offset = static_cast<std::uint64_t>(tensor.offset);
  if (offset > held || count > held - offset)
    bad_input("{}: tensor {} needs elements {} to {} of storage {}, which has {}", where,
              in_quotes(name), offset, offset + count, in_quotes(tensor.storage), held);
  const auto begin = storage.begin + offset * element;
  return {.dtype = tensor.dtype,
          .stored_dtype = tensor.stored_dtype,
          .shape = tensor.shape,
          .begin = begin,
          .end = begin + count * element};
}

}  // namespace

SafetensorsHeader parse_torch_zip(std::span<const std::byte> file, const std::string& where) {
  if (!is_zip(file))
    bad_input(
        "{}: not a zip file, so PyTorch before 1.6 wrote it, as a pickle that can run code; "
        "convert "
        "it to safetensors where it is trusted",
        where);
  const auto members = read_zip_directory(file, where);
  const auto root = find_root(members, where);
  if (const auto order = members.find(root + "/byteorder");
      order != members.end() && text_of(file, order->second) != "little")
    bad_input("{}: its numbers are stored with the byte order {}, expected little", where,
              in_quotes(std::string(text_of(file, order->second).substr(0, 16))));
  const auto& pickle = members.at(root + std::string(kPickle));
  SafetensorsHeader header;
  for (const auto& [name, tensor] :
       read_tensor_pickle(file.subspan(static_cast<std::size_t>(pickle.begin),
                                       static_cast<std::size_t>(pickle.size)),
                          where)) {
    const auto storage = members.find(root + "/data/" + tensor.storage);
    if (storage == members.end())
      bad_input("{}: tensor {} lies in storage {}, which is not in the file", where,
                in_quotes(name), in_quotes(tensor.storage));
    header.tensors.emplace(name, place(name, tensor, storage->second, where));
  }
  return header;
}

}  // namespace qkscope
