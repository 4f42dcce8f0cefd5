// A heap of cursors over the parts of a run, for a k-way merge in dataset order.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

namespace qkscope {

// Cursor::row() returns the dataset row of the cursor.
template <typename Cursor>
class DatasetOrder {
 public:
  bool empty() const { return heap_.empty(); }
  void add(Cursor cursor) {
    heap_.push_back(std::move(cursor));
    std::push_heap(heap_.begin(), heap_.end(), later);
  }
  // Removes the cursor with the smallest row; the caller advances it and adds it again.
  Cursor take() {
    std::pop_heap(heap_.begin(), heap_.end(), later);
    auto first = std::move(heap_.back());
    heap_.pop_back();
    return first;
  }

 private:
  static bool later(const Cursor& a, const Cursor& b) { return a.row() > b.row(); }

  std::vector<Cursor> heap_;
};

}  // namespace qkscope
