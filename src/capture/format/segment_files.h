// Opens the segments of all parts of a run for reading, with a bounded number of open files for any
// number of shards. Thread-safe.
#pragma once

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

}  // namespace qkscope
