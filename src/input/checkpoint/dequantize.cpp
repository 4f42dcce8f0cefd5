// Dequantization of GGUF tensors and of float8 matrices with block scales.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <utility>
#include <vector>

#include <fmt/ranges.h>

#include "base/core/convert.h"
#include "base/core/error.h"
#include "base/core/project.h"
#include "base/core/text.h"
#include "base/core/thread_pool.h"
#include "base/io/folder.h"
#include "input/checkpoint/checkpoint.h"
#include "input/checkpoint/gguf.h"

namespace qkscope {
namespace {

// Blocks are read byte by byte; 16-bit fields are little-endian. q[n]: n bytes of packed integers.
float read_fp16(const std::uint8_t* bytes) {
  return to_float(Fp16{static_cast<std::uint16_t>(bytes[0] | bytes[1] << 8)});
}

constexpr int kSmallBlock = 32;   // elements per block of Q4_0 to Q8_0
constexpr int kLargeBlock = 256;  // elements per block of Q2_K to Q6_K

// Returns nibble i. Low nibbles of 16 bytes hold elements 0 to 15, high nibbles 16 to 31.
int nibble(const std::uint8_t* bytes, int i) {
  return i < 16 ? bytes[i] & 0xf : bytes[i - 16] >> 4;
}

// Returns bit 4 (the fifth bit) of element i. Four bytes hold this bit for 32 elements.
int fifth_bit(const std::uint8_t* bytes, int i) {
  return (bytes[i / 8] >> (i % 8) & 1) << 4;
}

void dequantize_q4_0(const std::uint8_t* block, float* values) {
  const float scale = read_fp16(block);
  for (int i = 0; i < kSmallBlock; ++i)
    values[i] = scale * static_cast<float>(nibble(block + 2, i) - 8);
}

void dequantize_q4_1(const std::uint8_t* block, float* values) {
  const float scale = read_fp16(block);
  const float minimum = read_fp16(block + 2);
  for (int i = 0; i < kSmallBlock; ++i)
    values[i] = scale * static_cast<float>(nibble(block + 4, i)) + minimum;
}

void dequantize_q5_0(const std::uint8_t* block, float* values) {
  const float scale = read_fp16(block);
  for (int i = 0; i < kSmallBlock; ++i)
    values[i] = scale * static_cast<float>((nibble(block + 6, i) | fifth_bit(block + 2, i)) - 16);
}

void dequantize_q5_1(const std::uint8_t* block, float* values) {
  const float scale = read_fp16(block);
  const float minimum = read_fp16(block + 2);
  for (int i = 0; i < kSmallBlock; ++i)
    values[i] =
        scale * static_cast<float>(nibble(block + 8, i) | fifth_bit(block + 4, i)) + minimum;
}

void dequantize_q8_0(const std::uint8_t* block, float* values) {
  const float scale = read_fp16(block);
  for (int i = 0; i < kSmallBlock; ++i)
    values[i] = scale * static_cast<float>(static_cast<std::int8_t>(block[2 + i]));
}

// MXFP4 block: exponent of the scale, q[16]. Each q is an index into a table of 4-bit floats.
void dequantize_mxfp4(const std::uint8_t* block, float* values) {
  constexpr float kTwice[] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
  const float half_scale = std::ldexp(1.0f, block[0] - 128);
  for (int i = 0; i < kSmallBlock; ++i) values[i] = kTwice[nibble(block + 1, i)] * half_scale;
}

// Returns the two-bit field of element i. 32 bytes hold 128 elements, 32 in each pair of bits.
int two_bits(const std::uint8_t* bytes, int i) {
  return bytes[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
}

// Returns the four-bit field of element i. The low nibbles of 32 bytes hold elements 0 to 31, the
// high nibbles elements 32 to 63.
int four_bits(const std::uint8_t* bytes, int i) {
  return bytes[i / 64 * 32 + i % 32] >> (i % 64 / 32 * 4) & 0xf;
}

// Returns the one-bit field of element i < 256: bit i / 32 of byte i % 32.
int one_bit(const std::uint8_t* bytes, int i) {
  return bytes[i % 32] >> (i / 32) & 1;
}

// Q2_K block: scales[16] (4-bit scale and minimum of 16 elements), q[64], scale, scale of minima.
void dequantize_q2_k(const std::uint8_t* block, float* values) {
  const float scale = read_fp16(block + 80);
  const float minimum = read_fp16(block + 82);
  for (int i = 0; i < kLargeBlock; ++i) {
    const std::uint8_t both = block[i / 16];
    values[i] =
        scale * static_cast<float>(both & 0xf) * static_cast<float>(two_bits(block + 16, i)) -
        minimum * static_cast<float>(both >> 4);
  }
}

// Q3_K block: high bits[32], q[64], scales[12] (sixteen 6-bit values), scale.
void dequantize_q3_k(const std::uint8_t* block, float* values) {
  const std::uint8_t* scales = block + 96;
  const float scale = read_fp16(block + 108);
  const auto part = [&](int k) {
    const int low = k < 8 ? scales[k] & 0xf : scales[k - 8] >> 4;
    const int high = scales[8 + k % 4] >> (k / 4 * 2) & 3;
    return scale * static_cast<float>((low | high << 4) - 32);
  };
  for (int i = 0; i < kLargeBlock; ++i) {
    const int q = two_bits(block + 32, i) - (one_bit(block, i) == 1 ? 0 : 4);
    values[i] = part(i / 16) * static_cast<float>(q);
  }
}

// Returns the six-bit scale and minimum of the k-th group of 32 elements from twelve packed bytes.
std::pair<int, int> unpack_scale_and_minimum(const std::uint8_t* bytes, int k) {
  if (k < 4) return {bytes[k] & 0x3f, bytes[k + 4] & 0x3f};
  return {(bytes[k + 4] & 0xf) | (bytes[k - 4] >> 2 & 0x30),
          (bytes[k + 4] >> 4) | (bytes[k] >> 2 & 0x30)};
}

// Q4_K and Q5_K block: scale, scale of the minima, 12 bytes of 6-bit scales and minima, q values.
template <typename Q>
void dequantize_with_minimum(const std::uint8_t* block, float* values, Q q) {
  const float scale = read_fp16(block);
  const float minimum = read_fp16(block + 2);
  for (int i = 0; i < kLargeBlock; ++i) {
    const auto [group_scale, group_minimum] = unpack_scale_and_minimum(block + 4, i / 32);
    values[i] = scale * static_cast<float>(group_scale) * static_cast<float>(q(i)) -
                minimum * static_cast<float>(group_minimum);
  }
}

void dequantize_q4_k(const std::uint8_t* block, float* values) {
  dequantize_with_minimum(block, values, [&](int i) { return four_bits(block + 16, i); });
}

void dequantize_q5_k(const std::uint8_t* block, float* values) {
  dequantize_with_minimum(
      block, values, [&](int i) { return four_bits(block + 48, i) | one_bit(block + 16, i) << 4; });
}

// Q6_K block: low 4 bits of q (128 bytes), high 2 bits (64 bytes), scales[16], scale.
void dequantize_q6_k(const std::uint8_t* block, float* values) {
  const std::uint8_t* scales = block + 192;
  const float scale = read_fp16(block + 208);
  for (int i = 0; i < kLargeBlock; ++i) {
    const int low = block[i / 128 * 64 + i % 64] >> (i % 128 / 64 * 4) & 0xf;
    const int q = (low | two_bits(block + 128, i) << 4) - 32;
    values[i] = scale * static_cast<float>(static_cast<std::int8_t>(scales[i / 16])) *
                static_cast<float>(q);
  }
}

constexpr std::array kTypes = {
    GgufDType{0, "F32", 1, 4, DType::f32,
              [](const std::uint8_t* block, float* value) { std::memcpy(value, block, 4); }},
    GgufDType{1, "F16", 1, 2, DType::f16,
              [](const std::uint8_t* block, float* value) { *value = read_fp16(block); }},
    GgufDType{30, "BF16", 1, 2, DType::bf16,
              [](const std::uint8_t* block, float* value) {
                *value = to_float(Bf16{static_cast<std::uint16_t>(block[0] | block[1] << 8)});
              }},
    GgufDType{8, "Q8_0", kSmallBlock, 34, {}, dequantize_q8_0},
    GgufDType{2, "Q4_0", kSmallBlock, 18, {}, dequantize_q4_0},
    GgufDType{3, "Q4_1", kSmallBlock, 20, {}, dequantize_q4_1},
    GgufDType{6, "Q5_0", kSmallBlock, 22, {}, dequantize_q5_0},
    GgufDType{7, "Q5_1", kSmallBlock, 24, {}, dequantize_q5_1},
    GgufDType{39, "MXFP4", kSmallBlock, 17, {}, dequantize_mxfp4},
    GgufDType{10, "Q2_K", kLargeBlock, 84, {}, dequantize_q2_k},
    GgufDType{11, "Q3_K", kLargeBlock, 110, {}, dequantize_q3_k},
    GgufDType{12, "Q4_K", kLargeBlock, 144, {}, dequantize_q4_k},
    GgufDType{13, "Q5_K", kLargeBlock, 176, {}, dequantize_q5_k},
    GgufDType{14, "Q6_K", kLargeBlock, 210, {}, dequantize_q6_k},
};

// Unsupported GGUF tensor types, listed so that error messages can name them.
constexpr std::array kUnsupportedTypes = {
    std::pair{9, "Q8_1"},    std::pair{15, "Q8_K"},    std::pair{16, "IQ2_XXS"},
    std::pair{17, "IQ2_XS"}, std::pair{18, "IQ3_XXS"}, std::pair{19, "IQ1_S"},
    std::pair{20, "IQ4_NL"}, std::pair{21, "IQ3_S"},   std::pair{22, "IQ2_S"},
    std::pair{23, "IQ4_XS"}, std::pair{24, "I8"},      std::pair{25, "I16"},
    std::pair{26, "I32"},    std::pair{27, "I64"},     std::pair{28, "F64"},
    std::pair{29, "IQ1_M"},  std::pair{34, "TQ1_0"},   std::pair{35, "TQ2_0"},
};

constexpr const char* kExtension = ".gguf";

DType dequantized_dtype(const GgufTensorSource& source) {
  const bool computed =
      source.stored_plus_one || source.stored_negative_exp || source.values != nullptr;
  return computed ? DType::f32 : source.tensor->type->plain.value_or(DType::f32);
}

// Joins the halves of kv_b_proj (MLA): attn_k_b, which GGUF stores transposed, and attn_v_b.
Tensor assemble_kv_b_proj(const GgufTensorSource& source, std::span<const std::byte> file) {
  const auto keys = source.tensor->dequantize(file), values = source.values->dequantize(file);
  const auto rank = source.tensor->shape[1], d_key = source.tensor->shape[2];
  const auto d_value = source.values->shape[1];
  Tensor result(Shape(std::span(source.shape)));
  parallel_for(source.tensor->shape[0], [&](std::int64_t head) {
    const float* from = keys.data() + head * rank * d_key;
    float* to = result.data<float>() + head * (d_key + d_value) * rank;
    for (std::int64_t i = 0; i < d_key * rank; ++i) to[i] = from[i % rank * d_key + i / rank];
    std::copy_n(values.data() + head * d_value * rank, d_value * rank, to + d_key * rank);
  });
  return result;
}

Tensor dequantize(const GgufTensorSource& source, std::span<const std::byte> file,
                  const std::string& where) {
  if (source.values != nullptr) return assemble_kv_b_proj(source, file);
  const auto& stored = *source.tensor;
  const auto& type = *stored.type;
  const auto rows = stored.shape.empty() ? 1 : stored.shape.front();
  const auto width = stored.element_count() / rows;  // the rows of a bias are single elements
  const bool moves_columns = source.order.columns && source.order.outer > 0;
  if (width % type.elements != 0)
    reject("{}: tensor {} has one dimension and is stored as {}; expected F32, F16 or BF16", where,
           quote_text(stored.name), type.name);
  const auto bytes_of_row = static_cast<std::size_t>(width / type.elements) * type.bytes;
  Tensor result(Shape(std::span(source.shape)), dequantized_dtype(source));
  const auto size = dtype_size(result.dtype());
  parallel_for(rows, [&](std::int64_t row) {
    const auto from = moves_columns ? row : source.order.stored_index(row);
    const auto bytes =
        file.subspan(stored.begin + static_cast<std::size_t>(from) * bytes_of_row, bytes_of_row);
    auto* to = result.view().bytes() + static_cast<std::size_t>(row * width) * size;
    if (result.dtype() == type.plain)
      std::memcpy(to, bytes.data(), bytes.size());
    else
      dequantize_blocks(type, bytes, reinterpret_cast<float*>(to));
    if (!moves_columns) return;
    const std::vector<std::byte> copy(to, to + static_cast<std::size_t>(width) * size);
    for (std::int64_t i = 0; i < width; ++i)
      std::memcpy(to + static_cast<std::size_t>(i) * size,
                  copy.data() + static_cast<std::size_t>(source.order.stored_index(i)) * size,
                  size);
  });
  if (source.stored_plus_one)
    std::for_each_n(result.data<float>(), result.size(), [](float& weight) { weight -= 1.0f; });
  for (std::int64_t i = 0; i < result.size() && source.stored_negative_exp; ++i) {
    float& value = result.data<float>()[i];
    if (!(value < 0.0f))
      reject("{}: tensor {} has the value {}, expected negative ones, -exp(A_log)", where,
             quote_text(stored.name), value);
    value = static_cast<float>(std::log(-static_cast<double>(value)));
  }
  return result;
}

}  // namespace

const GgufDType* find_gguf_dtype(std::uint32_t id) {
  const auto* found = std::ranges::find(kTypes, id, &GgufDType::id);
  return found == kTypes.end() ? nullptr : found;
}

std::string gguf_dtype_name(std::uint32_t id) {
  if (const auto* type = find_gguf_dtype(id)) return type->name;
  for (const auto& [number, name] : kUnsupportedTypes)
    if (static_cast<std::uint32_t>(number) == id) return name;
  return fmt::format("type {}", id);
}

std::string supported_gguf_dtype_names() {
  return fmt::format("{}", fmt::join(to_vector(kTypes, &GgufDType::name), ", "));
}

void dequantize_blocks(const GgufDType& type, std::span<const std::byte> blocks, float* values) {
  const auto* block = reinterpret_cast<const std::uint8_t*>(blocks.data());
  for (auto left = blocks.size() / type.bytes; left > 0; --left) {
    type.dequantize(block, values);
    block += type.bytes;
    values += type.elements;
  }
}

std::int64_t TensorPermutation::stored_index(std::int64_t index) const {
  if (outer == 0 || index < first) return index;
  const auto within = (index - first) % (outer * inner * unit);
  const auto moved = within / unit % inner * outer + within / (inner * unit);
  return index - within + moved * unit + within % unit;
}

std::vector<float> GgufTensor::dequantize(std::span<const std::byte> file) const {
  std::vector<float> values(static_cast<std::size_t>(element_count()));
  dequantize_blocks(*type, file.subspan(begin, end - begin), values.data());
  return values;
}

std::string find_gguf_file(const std::string& path) {
  if (!is_folder(path)) return path.ends_with(kExtension) && path_exists(path) ? path : "";
  const auto folder = std::filesystem::path(path);
  for (const auto& format : kWeightFormats)
    for (const auto* name : {format.single, format.index})
      if (path_exists((folder / name).string())) return "";
  auto names = entry_names(path);
  std::erase_if(names, [](const std::string& name) { return !name.ends_with(kExtension); });
  if (names.size() > 1)
    reject("{}: {} GGUF files are there; give the one to use: {}", path, names.size(),
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
  if (!source.needs_conversion())
    return {file_.bytes().data() + stored.begin, *stored.type->plain,
            Shape(std::span(source.shape))};
  return dequantized_->get_or_make(name, [&] { return dequantize(source, file_.bytes(), path()); });
}

std::uint64_t GgufFile::stored_bytes() const {
  std::uint64_t bytes = 0;
  for (const auto& [name, source] : model_->tensors)
    for (const auto* part : {source.tensor, source.values})
      if (part != nullptr) bytes += part->end - part->begin;
  return bytes;
}

std::uint64_t GgufFile::dequantized_bytes() const {
  std::uint64_t bytes = 0;
  for (const auto& [name, source] : model_->tensors)
    if (source.needs_conversion())
      bytes += static_cast<std::uint64_t>(Shape(std::span(source.shape)).count()) *
               dtype_size(dequantized_dtype(source));
  return bytes;
}

std::vector<std::int64_t> float8_scales_shape(const std::vector<std::int64_t>& shape,
                                              const std::vector<std::int64_t>& block) {
  return {(shape[0] + block[0] - 1) / block[0], (shape[1] + block[1] - 1) / block[1]};
}

Tensor dequantize_float8(ConstTensorView values, ConstTensorView scales,
                         const std::vector<std::int64_t>& block) {
  std::vector<float> factors(static_cast<std::size_t>(scales.size()));
  convert_to_float32(scales, factors);
  const auto width = values.dim(1);
  Tensor result(values.shape());
  parallel_for(values.dim(0), [&](std::int64_t row) {
    float* out = result.data<float>() + row * width;
    convert_to_float32(values.rows(row, row + 1), {out, static_cast<std::size_t>(width)});
    const float* own = factors.data() + row / block[0] * scales.dim(1);
    for (std::int64_t i = 0; i < width; ++i) out[i] *= own[i / block[1]];
  });
  return result;
}

}  // namespace qkscope
