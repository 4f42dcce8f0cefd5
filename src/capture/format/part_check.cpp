#include "capture/format/part_check.h"

#include <algorithm>
#include <filesystem>

#include "base/core/error.h"
#include "base/core/thread_pool.h"
#include "capture/format/layout.h"
#include "capture/format/segment.h"

namespace qkscope {
namespace {

class SegmentCheck {
 public:
  SegmentCheck(const Journal& journal, const Shard& shard, const JournalEntry& entry)
      : journal_(journal),
        shard_(shard),
        entry_(entry),
        path_(journal.segment_path(entry.segment)),
        segment_(path_, journal.manifest().groups.size()) {}

  RowRange run() const {
    if (segment_.checksum() != entry_.checksum)
      bad_input("{}: not the segment that the journal means; start again with --overwrite", path_);
    segment_.check_all();
    const auto table = segment_.example_table();
    expect("rows", check_blocks(table), entry_.rows);
    return check_examples(table);
  }

 private:
  void expect(const char* what, std::int64_t found, std::int64_t said) const {
    if (found != said)
      bad_input("{}: has {} {}, the journal says {}; start again with --overwrite", path_, found,
                what, said);
  }

  // Checks that every block belongs to its example. Returns the rows over all heads.
  std::int64_t check_blocks(const std::vector<ExampleRecord>& table) const {
    std::int64_t rows = 0;
    const auto& groups = journal_.manifest().groups;
    for (std::size_t group = 0; group < groups.size(); ++group) {
      const auto blocks = segment_.index(group);
      for (std::size_t i = 0; i < blocks.size(); ++i) check_block(blocks[i], table[i]);
      for (const auto& block : blocks)
        rows += std::int64_t{block.rows} * std::ssize(groups[group].heads);
    }
    return rows;
  }

  void check_block(const BlockEntry& block, const ExampleRecord& example) const {
    const bool strings = journal_.manifest().token_strings && block.rows > 0;
    if (block.example_row != example.row || block.example_key != example.key ||
        std::int64_t{block.rows} > example.tokens || (block.string_bytes > 0) != strings)
      bad_input("{}: its index and row {} of the dataset disagree; start again with --overwrite",
                path_, example.row);
  }

  RowRange check_examples(const std::vector<ExampleRecord>& table) const {
    RowRange range;
    std::int64_t tokens = 0;
    for (const auto& example : table) {
      if (example.row <= range.last || example.row % shard_.count != shard_.index)
        bad_input("{}: row {} of the dataset is out of its turn; start again with --overwrite",
                  path_, example.row);
      if (range.first < 0) range.first = example.row;
      range.last = example.row;
      tokens += example.tokens;
    }
    expect("examples", std::ssize(table), entry_.examples);
    expect("tokens", tokens, entry_.tokens);
    return range;
  }

  const Journal& journal_;
  const Shard& shard_;
  const JournalEntry& entry_;
  std::string path_;
  SegmentReader segment_;
};

}  // namespace

PartCheck::PartCheck(const Journal& journal)
    : journal_(&journal),
      shard_(parse_part_name(std::filesystem::path(journal.folder()).filename().string())
                 .value_or(Shard{})) {}

std::size_t PartCheck::begin() {
  ranges_.assign(journal_->entries().size() - checked_, {});
  return ranges_.size();
}

void PartCheck::check(std::size_t index) {
  ranges_[index] = SegmentCheck(*journal_, shard_, journal_->entries()[checked_ + index]).run();
}

void PartCheck::finish() {
  for (const auto& range : ranges_) {
    const auto& entry = journal_->entries()[checked_++];
    if (range.first < 0) continue;
    if (range.first <= last_)
      bad_input("{}: row {} of the dataset is there twice; start again with --overwrite",
                journal_->segment_path(entry.segment), range.first);
    last_ = range.last;
  }
}

void check_new_segments(std::span<PartCheck> parts) {
  std::vector<std::size_t> ends;  // (parts) cumulative numbers of new segments
  ends.reserve(parts.size());
  for (auto& part : parts) ends.push_back((ends.empty() ? 0 : ends.back()) + part.begin());
  if (ends.empty()) return;
  parallel_for(static_cast<std::int64_t>(ends.back()), [&](std::int64_t i) {
    const auto at = static_cast<std::size_t>(i);
    const auto part = std::upper_bound(ends.begin(), ends.end(), at) - ends.begin();
    auto& check = parts[static_cast<std::size_t>(part)];
    check.check(at - (ends[static_cast<std::size_t>(part)] - check.ranges_.size()));
  });
  for (auto& part : parts) part.finish();
}

void check_parts(std::span<const Journal> parts) {
  std::vector<PartCheck> checks(parts.begin(), parts.end());
  check_new_segments(checks);
}

void check_part(const Journal& journal) {
  check_parts({&journal, 1});
}

}  // namespace qkscope
