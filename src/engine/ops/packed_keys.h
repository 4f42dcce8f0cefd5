// Keys and values as attention reads them: left sides of products, in blocks of keys. Scores are
// k qᵀ and z is vᵀ weights, with queries side by side, so that the softmax runs over whole vectors
// and weights need no packing.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/ops/sequence.h"
#include "qkscope/tensor.h"

namespace qkscope {

// Key blocks begin at multiples of this within a sequence, so that a row's sums run in the same
// order in every sequence that shares its prefix.
inline constexpr std::int64_t kKeyBlock = 256;

// A block of keys with their values. Every key head has its own, one after another.
struct KeyBlock {
  std::int64_t first;   // position of its first key
  std::int64_t keys;    // how many there are
  std::int64_t packed;  // how many it is packed for
  float* k;             // (key heads, keys, d)
  float* v;             // (key heads, d, keys)
};

// The blocks of some sequences.
class PackedKeys {
 public:
  PackedKeys(std::int64_t heads, std::int64_t d) : heads_(heads), d_(d) {}

  // Blocks are added to the sequence that was begun last, from position 0 on.
  void begin_sequence() { first_block_.push_back(blocks_.size()); }
  void add(const KeyBlock& block) { blocks_.push_back(block); }

  std::int64_t heads() const { return heads_; }
  std::span<const KeyBlock> blocks() const { return blocks_; }
  // The block of a sequence that holds the key at `position`.
  const KeyBlock& block(std::size_t sequence, std::int64_t position) const {
    return blocks_[first_block_[sequence] + static_cast<std::size_t>(position / kKeyBlock)];
  }
  const float* keys(const KeyBlock& block, std::int64_t head) const {  // (keys, d)
    return block.k + head * k_size(block.packed);
  }
  const float* values(const KeyBlock& block, std::int64_t head) const {  // (d, keys)
    return block.v + head * v_size(block.packed);
  }

  // Floats of a head's keys and values in a block that is packed for so many.
  std::int64_t k_size(std::int64_t packed) const;
  std::int64_t v_size(std::int64_t packed) const;

 private:
  std::int64_t heads_;
  std::int64_t d_;
  std::vector<KeyBlock> blocks_;
  std::vector<std::size_t> first_block_;  // (sequences)
};

// k and v (rows, heads, d) of whole sequences, in memory that stays until this thread packs others.
PackedKeys pack_keys(ConstTensorView k, ConstTensorView v, std::span<const Sequence> sequences);

// The keys and values of one layer for sequences that grow. Each lies in the slot that its Sequence
// names.
class KeyStore {
 public:
  KeyStore(std::int64_t slots, std::int64_t heads, std::int64_t d);

  // Rows of k and v (rows, heads, d) follow the positions that their sequences have behind them;
  // what a slot held from there on is overwritten.
  void append(ConstTensorView k, ConstTensorView v, std::span<const Sequence> sequences);

  // All positions of these sequences.
  PackedKeys packed(std::span<const Sequence> sequences);

  // The same as rows (positions of all sequences, heads, d), one sequence after another.
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
  // One key and value of all heads, (heads, d), in a block.
  void put(Block& block, std::int64_t key, const float* k, const float* v) const;
  void take(const Block& block, std::int64_t key, float* k, float* v) const;

  std::int64_t heads_;
  std::int64_t d_;
  std::vector<std::vector<Block>> slots_;
};

}  // namespace qkscope
