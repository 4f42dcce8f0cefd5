// Keys and values packed as the left operands of the attention products, in blocks of keys. Scores
// are k qᵀ and the output is vᵀ p: the softmax uses whole vectors of queries, and the attention
// weights p need no packing.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "base/core/numbers.h"
#include "base/core/thread_pool.h"
#include "engine/ops/gemm.h"
#include "qkscope/forward.h"
#include "qkscope/tensor.h"

namespace qkscope {

// Key blocks start at multiples of this, so equal prefixes of sequences have bit-identical sums.
inline constexpr std::int64_t kKeyBlock = 256;

// Calls body(first position, number of keys) for every key block of a sequence.
template <typename Body>
void for_each_key_block(std::int64_t length, Body body) {
  for (std::int64_t first = 0; first < length; first += kKeyBlock)
    body(first, std::min(kKeyBlock, length - first));
}

struct KeyBlock {
  std::int64_t first;   // position of the first key
  std::int64_t keys;    // number of keys
  std::int64_t packed;  // number of keys that the layout has room for
  float* k;             // (key heads, keys, d)
  float* v;             // (key heads, d_value, keys)
};

// Key blocks of several sequences.
class PackedKeyValues {
 public:
  PackedKeyValues(std::int64_t heads, std::int64_t d, std::int64_t d_value)
      : heads_(heads), d_(d), d_value_(d_value) {}

  // add_block() appends a block to the sequence started by the last begin_sequence(). The blocks of
  // a sequence are added in order, starting at position 0.
  void begin_sequence() { first_block_.push_back(blocks_.size()); }
  void add_block(const KeyBlock& block) { blocks_.push_back(block); }

  std::int64_t heads() const { return heads_; }
  std::span<const KeyBlock> blocks() const { return blocks_; }
  const KeyBlock& block(std::size_t sequence, std::int64_t position) const {
    return blocks_[first_block_[sequence] + static_cast<std::size_t>(position / kKeyBlock)];
  }
  const float* keys(const KeyBlock& block, std::int64_t head) const {  // (keys, d)
    return block.k + head * key_floats_per_head(block.packed);
  }
  const float* values(const KeyBlock& block, std::int64_t head) const {  // (d_value, keys)
    return block.v + head * value_floats_per_head(block.packed);
  }

  // Number of floats in the keys (or values) of one head in a block of `key_capacity` keys.
  std::int64_t key_floats_per_head(std::int64_t key_capacity) const {
    return gemm::round_up(key_capacity, gemm::tile_shape().rows) * d_;
  }
  std::int64_t value_floats_per_head(std::int64_t key_capacity) const {
    return gemm::round_up(d_value_, gemm::tile_shape().rows) * key_capacity;
  }

 private:
  std::int64_t heads_;
  std::int64_t d_;
  std::int64_t d_value_;
  std::vector<KeyBlock> blocks_;
  std::vector<std::size_t> first_block_;  // (sequences)
};

// Packs k (rows, heads, d) and v (rows, heads, d_value) into buffers that the next call reuses.
inline PackedKeyValues pack_key_values(ConstTensorView k, ConstTensorView v,
                                       std::span<const Sequence> sequences) {
  const auto heads = k.dim(1);
  const auto d = k.dim(2);
  const auto d_value = v.dim(2);
  PackedKeyValues packed(heads, d, d_value);
  std::int64_t k_floats = 0;
  std::int64_t v_floats = 0;
  for (const auto& sequence : sequences)
    for_each_key_block(sequence.length, [&](std::int64_t, std::int64_t keys) {
      k_floats += heads * packed.key_floats_per_head(keys);
      v_floats += heads * packed.value_floats_per_head(keys);
    });
  thread_local ScratchFloats k_memory;
  thread_local ScratchFloats v_memory;
  float* k_next = k_memory.reserve(k_floats);
  float* v_next = v_memory.reserve(v_floats);
  std::vector<std::int64_t> rows;  // row of k and v at which each block starts
  for (const auto& sequence : sequences) {
    packed.begin_sequence();
    for_each_key_block(sequence.length, [&](std::int64_t first, std::int64_t keys) {
      rows.push_back(sequence.begin + first);
      packed.add_block({first, keys, keys, k_next, v_next});
      k_next += heads * packed.key_floats_per_head(keys);
      v_next += heads * packed.value_floats_per_head(keys);
    });
  }
  parallel_for(std::ssize(rows) * heads, [&](std::int64_t i) {
    const auto head = i % heads;
    const auto& block = packed.blocks()[as_index(i / heads)];
    const auto vector = rows[as_index(i / heads)] * heads + head;
    gemm::pack_left_operand({k.data<float>() + vector * d, heads * d, block.keys, d},
                            block.k + head * packed.key_floats_per_head(block.keys));
    gemm::pack_left_operand(
        {v.data<float>() + vector * d_value, heads * d_value, d_value, block.keys, true},
        block.v + head * packed.value_floats_per_head(block.keys));
  });
  return packed;
}

// KV cache of one layer in packed form. A sequence uses the cache slot Sequence::slot.
class LayerKeyValueCache {
 public:
  struct KeysAndValues {
    Tensor k;
    Tensor v;
  };

  LayerKeyValueCache(std::int64_t slots, std::int64_t heads, std::int64_t d, std::int64_t d_value)
      : heads_(heads), d_(d), d_value_(d_value), slots_(as_index(slots)) {}

  // Appends rows of k (rows, heads, d) and v (rows, heads, d_value) to their cached sequences.
  void append(ConstTensorView k, ConstTensorView v, std::span<const Sequence> sequences) {
    const PackedKeyValues sizes(heads_, d_, d_value_);
    for (const auto& sequence : sequences) {
      auto& blocks = slots_[as_index(sequence.slot)];
      const auto needed = (sequence.end() + kKeyBlock - 1) / kKeyBlock;
      while (std::ssize(blocks) < needed) {
        // Zero-filled, because products also read beyond the last key; those results are not used.
        blocks.push_back({zeros(heads_ * sizes.key_floats_per_head(kKeyBlock)),
                          zeros(heads_ * sizes.value_floats_per_head(kKeyBlock))});
      }
      const float* from_k = k.data<float>() + sequence.begin * heads_ * d_;
      const float* from_v = v.data<float>() + sequence.begin * heads_ * d_value_;
      parallel_for_ranges(sequence.length, kKeyBlock, [&](std::int64_t begin, std::int64_t end) {
        for (auto row = begin; row < end; ++row) {
          const auto position = sequence.past + row;
          copy_key_and_value(
              blocks[as_index(position / kKeyBlock)], position % kKeyBlock,
              [&](float& to, std::int64_t i) { to = from_k[row * heads_ * d_ + i]; },
              [&](float& to, std::int64_t i) { to = from_v[row * heads_ * d_value_ + i]; });
        }
      });
    }
  }

  // Returns packed views of the keys and values at all cached positions of the sequences.
  PackedKeyValues packed_view(std::span<const Sequence> sequences) {
    PackedKeyValues packed(heads_, d_, d_value_);
    for (const auto& sequence : sequences) {
      packed.begin_sequence();
      auto& blocks = slots_[as_index(sequence.slot)];
      for_each_key_block(sequence.end(), [&](std::int64_t first, std::int64_t keys) {
        auto& block = blocks[as_index(first / kKeyBlock)];
        packed.add_block({first, keys, kKeyBlock, block.k.data<float>(), block.v.data<float>()});
      });
    }
    return packed;
  }

  // Returns unpacked keys (positions of all sequences, heads, d) and values (…, d_value).
  KeysAndValues unpack(std::span<const Sequence> sequences) const {
    std::int64_t count = 0;
    for (const auto& sequence : sequences) count += sequence.end();
    KeysAndValues rows{Tensor({count, heads_, d_}), Tensor({count, heads_, d_value_})};
    float* k = rows.k.data<float>();
    float* v = rows.v.data<float>();
    for (const auto& sequence : sequences) {
      const auto& blocks = slots_[as_index(sequence.slot)];
      for (std::int64_t p = 0; p < sequence.end(); ++p, k += heads_ * d_, v += heads_ * d_value_)
        copy_key_and_value(
            blocks[as_index(p / kKeyBlock)], p % kKeyBlock,
            [&](float from, std::int64_t i) { k[i] = from; },
            [&](float from, std::int64_t i) { v[i] = from; });
    }
    return rows;
  }

 private:
  static Tensor zeros(std::int64_t count) {
    Tensor tensor({count});
    std::fill_n(tensor.data<float>(), count, 0.0f);
    return tensor;
  }

  // Calls copy_k(packed k, i) for the heads * d elements i of a key, and copy_v(packed v, i) for
  // the heads * d_value elements of its value. In the panels of left operands (gemm.h), a key is a
  // column of k (d, panel), and its value a row of each panel of v (keys, panel).
  template <typename Block, typename CopyKey, typename CopyValue>
  void copy_key_and_value(Block& block, std::int64_t key, CopyKey copy_k, CopyValue copy_v) const {
    const PackedKeyValues sizes(heads_, d_, d_value_);
    const auto panel = gemm::tile_shape().rows;
    auto* const k_values = block.k.template data<float>();
    auto* const v_values = block.v.template data<float>();
    for (std::int64_t head = 0; head < heads_; ++head) {
      const auto k =
          head * sizes.key_floats_per_head(kKeyBlock) + key / panel * panel * d_ + key % panel;
      const auto v = head * sizes.value_floats_per_head(kKeyBlock) + key * panel;
      for (std::int64_t i = 0; i < d_; ++i) copy_k(k_values[k + i * panel], head * d_ + i);
      for (std::int64_t i = 0; i < d_value_; ++i)
        copy_v(v_values[v + i / panel * panel * kKeyBlock + i % panel], head * d_value_ + i);
    }
  }

  std::int64_t heads_;
  std::int64_t d_;
  std::int64_t d_value_;
  std::vector<std::vector<KeysAndValues>> slots_;  // key blocks of each slot
};

}  // namespace qkscope
