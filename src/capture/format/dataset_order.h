// Cursors over parts of a run, the one whose row comes first in the dataset on top.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

namespace qkscope {

// A cursor has row(), its place in the dataset.
template <typename Cursor>
class DatasetOrder {
 public:
  bool empty() const { return heap_.empty(); }
  void add(Cursor cursor) {
    heap_.push_back(std::move(cursor));
    std::push_heap(heap_.begin(), heap_.end(), later);
  }
  // Takes the first cursor out; it is added again when it has gone on.
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
