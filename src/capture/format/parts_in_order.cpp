#include "capture/format/parts_in_order.h"

#include <utility>

namespace qkscope {

PartsInOrder::PartsInOrder(SegmentFiles& files, std::size_t first_segment) : files_(files) {
  for (std::size_t part = 0; part < files.parts().size(); ++part) {
    Cursor cursor;
    cursor.part = part;
    cursor.segment = first_segment;
    if (begin_segment(cursor)) order_.add(std::move(cursor));
  }
}

bool PartsInOrder::next() {
  if (order_.empty()) return false;
  auto cursor = order_.take();
  segment_ = files_.open(cursor.part, cursor.segment);
  number_ = cursor.number;
  example_ = cursor.example;
  if (advance(cursor)) order_.add(std::move(cursor));
  return true;
}

bool PartsInOrder::begin_segment(Cursor& cursor) {
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

bool PartsInOrder::advance(Cursor& cursor) {
  if (++cursor.number < segment_->examples()) {
    cursor.example = segment_->example(cursor.offset);
    return true;
  }
  ++cursor.segment;
  return begin_segment(cursor);
}

}  // namespace qkscope
