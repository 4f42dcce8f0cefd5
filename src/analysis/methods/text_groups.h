// Groups of texts that are left out together when an error is estimated from the texts.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "analysis/methods/moments.h"

namespace qkscope {

// Texts in the order of their keys, in groups of neighbours: text i of n is in group i G / n.
class TextGroups {
 public:
  static constexpr int kMost = 20;

  // The texts that have a query or a key; G is kMost, or their number where there are fewer.
  TextGroups(const Rows& queries, const Rows& keys);
  // Of these texts, in any order and as often as they come.
  static TextGroups of_texts(std::vector<std::int64_t> texts);
  // The first key of each group, ascending, as first() gives them.
  explicit TextGroups(std::vector<std::int64_t> first) : first_(std::move(first)) {}

  int size() const { return static_cast<int>(first_.size()); }
  // Of a text by its key (Rows::example). Texts before the first count to the first group.
  int of(std::int64_t example) const;
  const std::vector<std::int64_t>& first() const { return first_; }

 private:
  std::vector<std::int64_t> first_;
};

}  // namespace qkscope
