#include "input/checkpoint/gguf_file.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <vector>

#include <fmt/ranges.h>

#include "base/core/error.h"
#include "base/core/text.h"
#include "base/core/thread_pool.h"
#include "base/io/folder.h"
#include "input/checkpoint/weight_index.h"

namespace qkscope {
namespace {

constexpr const char* kExtension = ".gguf";

// DType of the tensor in memory.
DType dtype_of(const GgufSource& source) {
  return source.stored_plus_one ? DType::f32 : source.tensor->type->plain.value_or(DType::f32);
}

// Returns the position of row `row` in the file. llama.cpp interleaves RoPE pairs, (0, 1), (2, 3),
// ...; Hugging Face checkpoints rotate halves, (0, d/2), (1, d/2 + 1), ...
std::int64_t stored_row(std::int64_t row, std::int64_t rows_of_head) {
  const auto within = row % rows_of_head;
  const auto half = rows_of_head / 2;
  return row - within + within % half * 2 + within / half;
}

struct Rows {
  std::int64_t count, width;  // width in elements
};

// Splits a tensor into rows; the rows of a bias are single elements.
Rows rows_of(const GgufSource& source, const std::string& where) {
  const auto& shape = source.tensor->shape;
  const auto count = shape.empty() ? 1 : shape.front();
  const Rows rows{count, source.tensor->count() / count};
  const auto heads = source.interleaved_heads;
  if (heads > 0 && count % (2 * heads) != 0)
    bad_input("{}: tensor {} has {} rows, which {} heads cannot share in pairs", where,
              in_quotes(source.tensor->name), count, heads);
  if (rows.width % source.tensor->type->elements != 0)
    bad_input("{}: tensor {} has one dimension and is stored as {}; expected F32, F16 or BF16",
              where, in_quotes(source.tensor->name), source.tensor->type->name);
  return rows;
}

Tensor dequantize(const GgufSource& source, std::span<const std::byte> file,
                  const std::string& where) {
  const auto& stored = *source.tensor;
  const auto rows = rows_of(source, where);
  const auto bytes_of_row = static_cast<std::size_t>(rows.width / stored.type->elements) *
                            static_cast<std::size_t>(stored.type->bytes);
  Tensor result(Shape(std::span(stored.shape)), dtype_of(source));
  const auto size = dtype_size(result.dtype());
  const auto rows_of_head =
      source.interleaved_heads > 0 ? rows.count / source.interleaved_heads : 0;
  parallel_for(rows.count, [&](std::int64_t row) {
    const auto from = rows_of_head > 0 ? stored_row(row, rows_of_head) : row;
    const auto bytes =
        file.subspan(stored.begin + static_cast<std::size_t>(from) * bytes_of_row, bytes_of_row);
    auto* to = result.view().bytes() + static_cast<std::size_t>(row * rows.width) * size;
    if (dtype_of(source) == stored.type->plain)
      std::memcpy(to, bytes.data(), bytes.size());
    else
      dequantize_blocks(*stored.type, bytes, reinterpret_cast<float*>(to));
  });
  if (source.stored_plus_one)
    std::for_each_n(result.data<float>(), result.size(), [](float& weight) { weight -= 1.0f; });
  return result;
}

}  // namespace

std::string find_gguf(const std::string& path) {
  if (!is_folder(path)) return path.ends_with(kExtension) && path_exists(path) ? path : "";
  const auto folder = std::filesystem::path(path);
  for (const auto& format : kWeightFormats)
    for (const auto* name : {format.single, format.index})
      if (path_exists((folder / name).string())) return "";
  auto names = names_in(path);
  std::erase_if(names, [](const std::string& name) { return !name.ends_with(kExtension); });
  if (names.size() > 1)
    bad_input("{}: {} GGUF files are there; give the one to use: {}", path, names.size(),
              fmt::join(names, ", "));
  return names.empty() ? "" : (folder / names.front()).string();
}

GgufFile::GgufFile(const std::string& path)
    : file_(path),
      header_(std::make_unique<const GgufHeader>(parse_gguf(file_.bytes(), path))),
      model_(std::make_unique<const GgufModel>(read_gguf_model(*header_, file_.bytes(), path))) {}

ConstTensorView GgufFile::tensor(const std::string& name) const {
  const auto& source = model_->tensors.at(name);
  const auto& stored = *source.tensor;
  if (source.is_view())
    return {file_.bytes().data() + stored.begin, *stored.type->plain,
            Shape(std::span(stored.shape))};
  return dequantized_->get(name, [&] { return dequantize(source, file_.bytes(), path()); });
}

std::uint64_t GgufFile::stored_bytes() const {
  std::uint64_t bytes = 0;
  for (const auto& [name, source] : model_->tensors)
    bytes += source.tensor->end - source.tensor->begin;
  return bytes;
}

std::uint64_t GgufFile::widened_bytes() const {
  std::uint64_t bytes = 0;
  for (const auto& [name, source] : model_->tensors)
    if (!source.is_view())
      bytes += static_cast<std::uint64_t>(source.tensor->count()) * dtype_size(dtype_of(source));
  return bytes;
}

}  // namespace qkscope
