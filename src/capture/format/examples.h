// The examples of a run: iteration over all parts in dataset order, and examples.parquet, which
// maps the 32-bit example_id of the head files to the texts of the dataset.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "capture/format/journal.h"
#include "capture/format/segment.h"

namespace qkscope {

// Opens segments for reading and limits the number of open files. Thread-safe.
class SegmentCache {
 public:
  // Keeps up to `most` files open, plus one for each thread that is reading.
  SegmentCache(const std::vector<Journal>& journals, std::size_t most)
      : journals_(journals), most_(most) {}

  const std::vector<Journal>& journals() const { return journals_; }
  std::shared_ptr<const SegmentReader> open_segment(std::size_t part, std::size_t segment);

 private:
  const std::vector<Journal>& journals_;
  std::size_t most_;
  std::mutex mutex_;
  // Open segments by part and segment number.
  std::map<std::pair<std::size_t, std::size_t>, std::shared_ptr<const SegmentReader>> open_;
};

// Reads the examples of all shards in dataset order. Needs 200 bytes per shard and one open file.
class OrderedExampleReader {
 public:
  // Starts at segment `first_segment` of every part.
  explicit OrderedExampleReader(SegmentCache& segments, std::size_t first_segment = 0);

  // Advances to the next example. Returns false after the last one.
  bool next();
  const ExampleRecord& example() const { return example_; }
  const std::shared_ptr<const SegmentReader>& segment() const { return segment_; }
  std::size_t index_in_segment() const { return number_; }  // index of the example in segment()

 private:
  // Read position in one part.
  struct SegmentCursor {
    std::size_t part = 0;
    std::size_t segment = 0;
    std::size_t number = 0;    // index of the example in the segment
    std::uint64_t offset = 0;  // byte offset of the next example record
    ExampleRecord example;
  };

  // Inserts the cursor into order_ at its next example; drops it if its part has no more examples.
  void insert_cursor(SegmentCursor cursor);

  SegmentCache& segments_;
  std::multimap<std::int64_t, SegmentCursor> order_;  // by dataset row of the next example
  ExampleRecord example_;
  std::shared_ptr<const SegmentReader> segment_;
  std::size_t number_ = 0;
};

// Visits the examples of all parts in dataset order, after checking all parts for damage.
void for_each_example(const std::vector<Journal>& parts,
                      const std::function<void(const ExampleRecord&)>& take);

// Writes examples.parquet, the table that maps example ids to texts.
class ExamplesWriter {
 public:
  ExamplesWriter(const std::string& path, std::int64_t row_group_size);
  ~ExamplesWriter();

  void append(const ExampleRecord& example);
  void finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace qkscope
