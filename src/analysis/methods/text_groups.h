// Groups of texts for the delete-a-group jackknife.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "analysis/methods/moments.h"

namespace qkscope {

// Partition of n texts, sorted by key, into G contiguous groups: text i belongs to group i G / n.
class TextGroups {
 public:
  static constexpr int kMost = 20;

  // Splits the texts that have a query or a key into min(kMost, number of texts) groups.
  TextGroups(const RowsView& queries, const RowsView& keys);
  // Groups the given texts; duplicates and any order are allowed.
  static TextGroups from_texts(std::vector<std::int64_t> texts);
  // Restores groups from first_text_of_each_group(): the first text key of each group, ascending.
  explicit TextGroups(std::vector<std::int64_t> first) : first_(std::move(first)) {}

  int size() const { return static_cast<int>(first_.size()); }
  // Returns the group of a text, given its key (RowsView::example). Keys smaller than all keys of
  // group 0 also map to group 0.
  int group_of(std::int64_t example) const;
  const std::vector<std::int64_t>& first_text_of_each_group() const { return first_; }

 private:
  std::vector<std::int64_t> first_;
};

}  // namespace qkscope
