// Iterates over the examples of all parts of a run in dataset order: a k-way merge over the
// segments of the parts, with a bounded number of open files.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <utility>
#include <vector>

#include "capture/format/journal.h"
#include "capture/format/segment.h"

namespace qkscope {

// A heap of cursors over parts. Cursor::row() returns the dataset row of the cursor.
template <typename Cursor>
class RowHeap {
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

// Opens segments for reading and keeps a bounded number of them open for any number of shards.
// Thread-safe.
class SegmentFiles {
 public:
  // Keeps up to `most` files open, plus one for each thread that is reading.
  SegmentFiles(const std::vector<Journal>& parts, std::size_t most);

  const std::vector<Journal>& parts() const { return parts_; }
  std::shared_ptr<const SegmentReader> open(std::size_t part, std::size_t segment);

 private:
  using Place = std::pair<std::size_t, std::size_t>;  // part, segment
  struct Kept {
    Place place;
    std::shared_ptr<const SegmentReader> file;
  };
  void keep(const Place& place, const std::shared_ptr<const SegmentReader>& file);

  const std::vector<Journal>& parts_;
  std::size_t most_;
  std::mutex mutex_;
  std::vector<Kept> kept_;
  std::map<Place, std::size_t> places_;  // index into kept_
  std::minstd_rand random_;
};

// Needs about 200 bytes per part and keeps no file open.
class ExamplesInOrder {
 public:
  // Starts at segment `first_segment` of every part.
  explicit ExamplesInOrder(SegmentFiles& files, std::size_t first_segment = 0);

  // Advances to the next example. Returns false after the last one.
  bool next();

  const ExampleRecord& example() const { return example_; }
  const std::shared_ptr<const SegmentReader>& segment() const { return segment_; }
  std::size_t number() const { return number_; }  // index of the example in segment()

 private:
  // Position in one part.
  struct Cursor {
    std::size_t part = 0;
    std::size_t segment = 0;
    std::size_t number = 0;    // index of the example in the segment
    std::uint64_t offset = 0;  // of the next record in the example table
    ExampleRecord example;

    std::int64_t row() const { return example.row; }
  };
  // Moves to the first example of the cursor's segment or of a later one; false if there is none.
  bool begin_segment(Cursor& cursor);
  bool advance(Cursor& cursor);

  SegmentFiles& files_;
  RowHeap<Cursor> order_;
  ExampleRecord example_;
  std::shared_ptr<const SegmentReader> segment_;
  std::size_t number_ = 0;
};

}  // namespace qkscope
