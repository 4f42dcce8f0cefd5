// Keys and values packed for attention as left sides of products, in blocks of keys. Scores are k
// qᵀ and z is vᵀ p, so that the softmax uses whole vectors of queries and p needs no packing.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/ops/sequence.h"
#include "qkscope/tensor.h"

namespace qkscope {

// Key blocks start at multiples of this within a sequence, so that the summation order of a row is
// the same in every sequence with the same prefix.
inline constexpr std::int64_t kKeyBlock = 256;

// A block of keys and values of all key heads.
struct KeyBlock {
  std::int64_t first;   // position of the first key
  std::int64_t keys;    // number of keys
  std::int64_t packed;  // number of keys that the layout has room for
  float* k;             // (key heads, keys, d)
  float* v;             // (key heads, d, keys)
};

// Key blocks of several sequences.
class PackedKeys {
 public:
  PackedKeys(std::int64_t heads, std::int64_t d) : heads_(heads), d_(d) {}

  // Appends a block to the sequence begun last; blocks are added from position 0 on.
  void begin_sequence() { first_block_.push_back(blocks_.size()); }
  void add(const KeyBlock& block) { blocks_.push_back(block); }

  std::int64_t heads() const { return heads_; }
  std::span<const KeyBlock> blocks() const { return blocks_; }
  // Returns the block that holds the key at `position`.
  const KeyBlock& block(std::size_t sequence, std::int64_t position) const {
    return blocks_[first_block_[sequence] + static_cast<std::size_t>(position / kKeyBlock)];
  }
  const float* keys(const KeyBlock& block, std::int64_t head) const {  // (keys, d)
    return block.k + head * k_size(block.packed);
  }
  const float* values(const KeyBlock& block, std::int64_t head) const {  // (d, keys)
    return block.v + head * v_size(block.packed);
  }

  // Size in floats of the keys and values of one head in a block packed for that many keys.
  std::int64_t k_size(std::int64_t packed) const;
  std::int64_t v_size(std::int64_t packed) const;

 private:
  std::int64_t heads_;
  std::int64_t d_;
  std::vector<KeyBlock> blocks_;
  std::vector<std::size_t> first_block_;  // (sequences)
};

// Packs k and v (rows, heads, d) of whole sequences; valid until the same thread packs again.
PackedKeys pack_keys(ConstTensorView k, ConstTensorView v, std::span<const Sequence> sequences);

// KV cache of one layer in packed form. Each sequence uses the slot that its Sequence names.
class KeyStore {
 public:
  KeyStore(std::int64_t slots, std::int64_t heads, std::int64_t d);

  // Writes rows of k and v (rows, heads, d) after the past positions of their sequences.
  void append(ConstTensorView k, ConstTensorView v, std::span<const Sequence> sequences);

  // Returns views of all positions of the sequences.
  PackedKeys packed(std::span<const Sequence> sequences);

  // Unpacked keys and values (positions of all sequences, heads, d), sequence by sequence.
  struct Rows {
    Tensor k;
    Tensor v;
  };
  Rows rows(std::span<const Sequence> sequences) const;

 private:
  struct Block {
    Tensor k;
    Tensor v;
  };

  static Tensor zeros(std::int64_t count);
  // Calls copy(packed k, packed v, i) for each of the heads * d elements i of a key in a block.
  template <typename AnyBlock, typename Copy>
  void for_each_element(AnyBlock& block, std::int64_t key, Copy copy) const;

  std::int64_t heads_;
  std::int64_t d_;
  std::vector<std::vector<Block>> slots_;
};

}  // namespace qkscope
