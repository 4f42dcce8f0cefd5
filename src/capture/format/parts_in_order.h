// Iterates over the examples of all parts of a run in dataset order. Needs about 200 bytes per part
// and keeps no file open.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "capture/format/dataset_order.h"
#include "capture/format/segment_files.h"

namespace qkscope {

class PartsInOrder {
 public:
  // Starts at segment `first_segment` of every part.
  explicit PartsInOrder(SegmentFiles& files, std::size_t first_segment = 0);

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
  DatasetOrder<Cursor> order_;
  ExampleRecord example_;
  std::shared_ptr<const SegmentReader> segment_;
  std::size_t number_ = 0;
};

}  // namespace qkscope
