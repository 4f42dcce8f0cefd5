// The files of some heads of a group on their way: rows come from segments, as many as there are.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "capture/format/buckets.h"
#include "capture/format/dataset_card.h"
#include "capture/format/head_writer.h"
#include "capture/format/manifest.h"
#include "capture/format/segment_files.h"

namespace qkscope {

// Heads whose files one thread writes together: their rows are read at once.
struct HeadsTogether {
  std::size_t group;
  HeadRange heads;
};

// All heads of a run, up to `most` of a group together.
std::vector<HeadsTogether> heads_together(const Manifest& manifest, std::size_t most);

class HeadFiles {
 public:
  // The manifest outlives it.
  HeadFiles(const std::string& folder, const Manifest& manifest, const HeadsTogether& heads);

  // The heads' rows of all parts. Of a single part that has grown since the last call: of the
  // segments that are new.
  void append_new(SegmentFiles& segments);
  void finish();

  std::int64_t rows() const { return rows_; }             // of each of the heads
  const BucketCounts& counts() const { return counts_; }  // over all of them

 private:
  const HeadGroup& group() const { return manifest_.groups[heads_.group]; }
  std::unique_ptr<HeadWriter> open(const std::string& folder, std::int64_t head) const;
  void append(const HeadBlock& block);

  const Manifest& manifest_;
  HeadsTogether heads_;
  Buckets bucket_;
  std::vector<std::unique_ptr<HeadWriter>> writers_;  // (heads)
  std::size_t segments_ = 0;                          // appended
  std::int64_t rows_ = 0;
  BucketCounts counts_;
};

}  // namespace qkscope
