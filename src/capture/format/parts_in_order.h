// The examples of all parts of a run in the order of the dataset. Of each part it keeps one record
// and where it is, about 200 bytes, and no file.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "capture/format/dataset_order.h"
#include "capture/format/segment_files.h"

namespace qkscope {

class PartsInOrder {
 public:
  // Of every part from this segment on.
  explicit PartsInOrder(SegmentFiles& files, std::size_t first_segment = 0);

  // Goes to the next example; false after the last.
  bool next();

  const ExampleRecord& example() const { return example_; }
  const std::shared_ptr<const SegmentReader>& segment() const { return segment_; }  // with it
  std::size_t number() const { return number_; }  // in the segment

 private:
  // Where one part is.
  struct Cursor {
    std::size_t part = 0;
    std::size_t segment = 0;
    std::size_t number = 0;    // of the example, in the segment
    std::uint64_t offset = 0;  // of the record after it
    ExampleRecord example;

    std::int64_t row() const { return example.row; }
  };
  // The first example of the cursor's segment or of one after it; false where there is none.
  bool begin_segment(Cursor& cursor);
  bool advance(Cursor& cursor);

  SegmentFiles& files_;
  DatasetOrder<Cursor> order_;
  ExampleRecord example_;
  std::shared_ptr<const SegmentReader> segment_;
  std::size_t number_ = 0;
};

}  // namespace qkscope
