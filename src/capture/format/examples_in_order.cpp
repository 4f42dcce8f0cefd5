#include "capture/format/examples_in_order.h"

namespace qkscope {

SegmentFiles::SegmentFiles(const std::vector<Journal>& parts, std::size_t most)
    : parts_(parts), most_(std::max<std::size_t>(1, most)) {}

std::shared_ptr<const SegmentReader> SegmentFiles::open(std::size_t part, std::size_t segment) {
  const Place place(part, segment);
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = places_.find(place); found != places_.end())
      return kept_[found->second].file;
  }
  const auto& journal = parts_[part];
  auto file = std::make_shared<const SegmentReader>(
      journal.segment_path(journal.entries()[segment].segment), journal.manifest().groups.size());
  const std::lock_guard lock(mutex_);
  keep(place, file);
  return file;
}

// Parts are read in turn, so the least recently used file is needed next: LRU would always miss.
// Evict a random file instead.
void SegmentFiles::keep(const Place& place, const std::shared_ptr<const SegmentReader>& file) {
  if (places_.contains(place)) return;  // another thread opened the file at the same time
  if (kept_.size() < most_) {
    places_[place] = kept_.size();
    kept_.push_back({place, file});
    return;
  }
  const auto at = random_() % kept_.size();
  places_.erase(kept_[at].place);
  places_[place] = at;
  kept_[at] = {place, file};
}

ExamplesInOrder::ExamplesInOrder(SegmentFiles& files, std::size_t first_segment) : files_(files) {
  for (std::size_t part = 0; part < files.parts().size(); ++part) {
    Cursor cursor;
    cursor.part = part;
    cursor.segment = first_segment;
    if (begin_segment(cursor)) order_.add(std::move(cursor));
  }
}

bool ExamplesInOrder::next() {
  if (order_.empty()) return false;
  auto cursor = order_.take();
  segment_ = files_.open(cursor.part, cursor.segment);
  number_ = cursor.number;
  example_ = cursor.example;
  if (advance(cursor)) order_.add(std::move(cursor));
  return true;
}

bool ExamplesInOrder::begin_segment(Cursor& cursor) {
  const auto segments = files_.parts()[cursor.part].entries().size();
  for (; cursor.segment < segments; ++cursor.segment) {
    const auto segment = files_.open(cursor.part, cursor.segment);
    if (segment->examples() == 0) continue;
    cursor.number = 0;
    cursor.offset = 0;
    cursor.example = segment->example(cursor.offset);
    return true;
  }
  return false;
}

bool ExamplesInOrder::advance(Cursor& cursor) {
  if (++cursor.number < segment_->examples()) {
    cursor.example = segment_->example(cursor.offset);
    return true;
  }
  ++cursor.segment;
  return begin_segment(cursor);
}

}  // namespace qkscope
