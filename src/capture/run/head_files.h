// Writes the files of a range of heads from segments.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "capture/format/buckets.h"
#include "capture/format/dataset_card.h"
#include "capture/format/examples_in_order.h"
#include "capture/format/head_writer.h"
#include "capture/format/manifest.h"

namespace qkscope {

// Consecutive heads of a group whose files one thread writes, because their rows are read at once.
struct GroupHeads {
  std::size_t group;
  HeadRange heads;
};

// Splits all heads of a run into ranges of at most `most` heads.
std::vector<GroupHeads> split_heads(const Manifest& manifest, std::size_t most);

class HeadFiles {
 public:
  // The manifest must outlive this object.
  HeadFiles(const std::string& folder, const Manifest& manifest, const GroupHeads& heads);

  // Appends the rows of all parts. A single growing part may be passed repeatedly: each call
  // appends only the segments that are new since the last call.
  void append_new(SegmentFiles& segments);
  void finish();

  std::int64_t rows() const { return rows_; }             // per head
  const BucketCounts& counts() const { return counts_; }  // summed over the heads

 private:
  const HeadGroup& group() const { return manifest_.groups[heads_.group]; }
  std::unique_ptr<HeadWriter> open(const std::string& folder, std::int64_t head) const;
  void append(const HeadBlock& block);

  const Manifest& manifest_;
  GroupHeads heads_;
  Buckets bucket_;
  std::vector<std::unique_ptr<HeadWriter>> writers_;  // (heads)
  std::size_t segments_ = 0;                          // appended so far
  std::int64_t rows_ = 0;
  BucketCounts counts_;
};

}  // namespace qkscope
