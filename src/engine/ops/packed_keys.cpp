#include "engine/ops/packed_keys.h"

#include <algorithm>

#include "base/core/index.h"
#include "base/core/thread_pool.h"
#include "engine/ops/gemm.h"

namespace qkscope {
namespace {

// Calls body(first position, keys) for every block of a sequence.
template <typename Body>
void for_each_block(std::int64_t length, Body body) {
  for (std::int64_t first = 0; first < length; first += kKeyBlock)
    body(first, std::min(kKeyBlock, length - first));
}

}  // namespace

std::int64_t PackedKeys::k_size(std::int64_t packed) const {
  return gemm::round_up(packed, gemm::tile_shape().rows) * d_;
}

std::int64_t PackedKeys::v_size(std::int64_t packed) const {
  return gemm::round_up(d_, gemm::tile_shape().rows) * packed;
}

PackedKeys pack_keys(ConstTensorView k, ConstTensorView v, std::span<const Sequence> sequences) {
  const auto heads = k.dim(1);
  const auto d = k.dim(2);
  PackedKeys packed(heads, d);
  std::int64_t k_floats = 0;
  std::int64_t v_floats = 0;
  for (const auto& sequence : sequences)
    for_each_block(sequence.length, [&](std::int64_t, std::int64_t keys) {
      k_floats += heads * packed.k_size(keys);
      v_floats += heads * packed.v_size(keys);
    });
  thread_local Workspace k_memory;
  thread_local Workspace v_memory;
  float* k_next = k_memory.floats(k_floats);
  float* v_next = v_memory.floats(v_floats);
  std::vector<std::int64_t> rows;  // row of k and v at which each block starts
  for (const auto& sequence : sequences) {
    packed.begin_sequence();
    for_each_block(sequence.length, [&](std::int64_t first, std::int64_t keys) {
      rows.push_back(sequence.begin + first);
      packed.add({first, keys, keys, k_next, v_next});
      k_next += heads * packed.k_size(keys);
      v_next += heads * packed.v_size(keys);
    });
  }
  const auto stride = heads * d;
  parallel_for(std::ssize(rows) * heads, [&](std::int64_t i) {
    const auto head = i % heads;
    const auto& block = packed.blocks()[as_index(i / heads)];
    const auto offset = rows[as_index(i / heads)] * stride + head * d;
    gemm::pack_left({k.data<float>() + offset, stride, block.keys, d},
                    block.k + head * packed.k_size(block.keys));
    gemm::pack_left_transposed({v.data<float>() + offset, stride, d, block.keys},
                               block.v + head * packed.v_size(block.keys));
  });
  return packed;
}

KeyStore::KeyStore(std::int64_t slots, std::int64_t heads, std::int64_t d)
    : heads_(heads), d_(d), slots_(as_index(slots)) {}

void KeyStore::append(ConstTensorView k, ConstTensorView v, std::span<const Sequence> sequences) {
  const PackedKeys sizes(heads_, d_);
  for (const auto& sequence : sequences) {
    auto& blocks = slots_[as_index(sequence.slot)];
    const auto needed = (sequence.end() + kKeyBlock - 1) / kKeyBlock;
    while (std::ssize(blocks) < needed) {
      // Zeros, because products also read beyond the last key; the results are not used.
      blocks.push_back(
          {zeros(heads_ * sizes.k_size(kKeyBlock)), zeros(heads_ * sizes.v_size(kKeyBlock))});
    }
    const float* from_k = k.data<float>() + sequence.begin * heads_ * d_;
    const float* from_v = v.data<float>() + sequence.begin * heads_ * d_;
    parallel_ranges(sequence.length, kKeyBlock, [&](std::int64_t begin, std::int64_t end) {
      for (auto row = begin; row < end; ++row) {
        const auto position = sequence.past + row;
        for_each_element(blocks[as_index(position / kKeyBlock)], position % kKeyBlock,
                         [&](float& to_k, float& to_v, std::int64_t i) {
                           to_k = from_k[row * heads_ * d_ + i];
                           to_v = from_v[row * heads_ * d_ + i];
                         });
      }
    });
  }
}

// Element i of a key is at row key % panel of a (d, panel) panel of k, and at row i % panel of a
// (keys, panel) panel of v, as gemm.h packs left sides.
template <typename AnyBlock, typename Copy>
void KeyStore::for_each_element(AnyBlock& block, std::int64_t key, Copy copy) const {
  const PackedKeys sizes(heads_, d_);
  const auto panel = gemm::tile_shape().rows;
  auto* const k_values = block.k.template data<float>();
  auto* const v_values = block.v.template data<float>();
  for (std::int64_t head = 0; head < heads_; ++head) {
    const auto k = head * sizes.k_size(kKeyBlock) + key / panel * panel * d_ + key % panel;
    const auto v = head * sizes.v_size(kKeyBlock) + key * panel;
    for (std::int64_t i = 0; i < d_; ++i)
      copy(k_values[k + i * panel], v_values[v + i / panel * panel * kKeyBlock + i % panel],
           head * d_ + i);
  }
}

PackedKeys KeyStore::packed(std::span<const Sequence> sequences) {
  PackedKeys packed(heads_, d_);
  for (const auto& sequence : sequences) {
    packed.begin_sequence();
    auto& blocks = slots_[as_index(sequence.slot)];
    for_each_block(sequence.end(), [&](std::int64_t first, std::int64_t keys) {
      auto& block = blocks[as_index(first / kKeyBlock)];
      packed.add({first, keys, kKeyBlock, block.k.data<float>(), block.v.data<float>()});
    });
  }
  return packed;
}

KeyStore::Rows KeyStore::rows(std::span<const Sequence> sequences) const {
  std::int64_t count = 0;
  for (const auto& sequence : sequences) count += sequence.end();
  Rows rows{Tensor({count, heads_, d_}), Tensor({count, heads_, d_})};
  float* k = rows.k.data<float>();
  float* v = rows.v.data<float>();
  for (const auto& sequence : sequences) {
    const auto& blocks = slots_[as_index(sequence.slot)];
    for (std::int64_t p = 0; p < sequence.end(); ++p, k += heads_ * d_, v += heads_ * d_)
      for_each_element(blocks[as_index(p / kKeyBlock)], p % kKeyBlock,
                       [&](float from_k, float from_v, std::int64_t i) {
                         k[i] = from_k;
                         v[i] = from_v;
                       });
  }
  return rows;
}

Tensor KeyStore::zeros(std::int64_t count) {
  Tensor tensor({count});
  std::fill_n(tensor.data<float>(), count, 0.0f);
  return tensor;
}

}  // namespace qkscope
