#include "capture/part_cursor.h"

namespace qkscope {

BlockCursor::BlockCursor(const Journal& journal, std::size_t group)
    : journal_(&journal), group_(group) {
  open_next();
}

void BlockCursor::open_next() {
  segment_.reset();
  at_ = 0;
  const auto& entries = journal_->entries();
  while (!segment_ && next_segment_ < entries.size()) {
    segment_.emplace(journal_->segment_path(entries[next_segment_++].segment),
                     journal_->manifest().groups.size());
    index_ = segment_->index(group_);
    if (index_.empty()) segment_.reset();
  }
}

void BlockCursor::take(std::size_t head, HeadBlock& block) {
  segment_->read(index_[at_], head, journal_->manifest().head_dim, block);
  if (++at_ == index_.size()) open_next();
}

ExampleCursor::ExampleCursor(const Journal& journal) : journal_(&journal) {
  open_next();
}

void ExampleCursor::open_next() {
  table_.clear();
  at_ = 0;
  const auto& entries = journal_->entries();
  while (table_.empty() && next_segment_ < entries.size())
    table_ = SegmentReader(journal_->segment_path(entries[next_segment_++].segment),
                           journal_->manifest().groups.size())
                 .example_table();
}

ExampleRecord ExampleCursor::take() {
  auto record = std::move(table_[at_]);
  if (++at_ == table_.size()) open_next();
  return record;
}

}  // namespace qkscope
