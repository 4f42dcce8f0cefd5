#include "input/tokenizer/split_stage.h"

#include <algorithm>

namespace qkscope {
namespace {

// A match is appended to the range before it, unless that range is a match itself.
void merge_with_previous(const std::vector<Match>& stretches, std::vector<Span>& ranges) {
  const std::size_t first = ranges.size();
  bool previous = false;
  for (const auto& [range, matched] : stretches) {
    if (matched && !previous && ranges.size() > first) {
      ranges.back().end = range.end;
    } else {
      ranges.push_back(range);
    }
    previous = matched;
  }
}

void merge_with_next(const std::vector<Match>& stretches, std::vector<Span>& ranges) {
  const auto first = static_cast<std::ptrdiff_t>(ranges.size());
  bool following = false;
  for (auto at = stretches.rbegin(); at != stretches.rend(); ++at) {
    if (at->matched && !following && std::ssize(ranges) > first) {
      ranges.back().begin = at->range.begin;
    } else {
      ranges.push_back(at->range);
    }
    following = at->matched;
  }
  std::reverse(ranges.begin() + first, ranges.end());
}

void join_alike(const std::vector<Match>& stretches, std::vector<Span>& ranges) {
  const std::size_t first = ranges.size();
  bool previous = false;
  for (const auto& [range, matched] : stretches) {
    if (matched == previous && ranges.size() > first) {
      ranges.back().end = range.end;
    } else {
      ranges.push_back(range);
    }
    previous = matched;
  }
}

class SplitStage : public PreTokenizerStage {
 public:
  SplitStage(PatternPointer pattern, SplitOptions options)
      : pattern_(std::move(pattern)), options_(options) {}

  void apply(Pieces& pieces) const override {
    std::vector<Match> scratch;
    std::vector<Span> ranges;
    scratch.reserve(pieces.text.text().size() / 4);
    ranges.reserve(pieces.text.text().size() / 4);
    for (const Span piece : pieces.ranges) {
      split_piece(*pattern_, options_, pieces.text.text(), piece, scratch, ranges);
    }
    pieces.ranges = std::move(ranges);
  }

  AtCut at_cut(CutSpace space) const override {
    if (space == CutSpace::as_space && apart() && pattern_->breaks_before_space()) {
      return AtCut::breaks;
    }
    return options_.by_character ? AtCut::local : AtCut::uncertain;
  }
  bool breaks_after_ideograph() const override {
    return apart() && pattern_->breaks_after_ideograph();
  }

 private:
  bool apart() const {
    return options_.behavior == SplitBehavior::isolated ||
           options_.behavior == SplitBehavior::removed;
  }

  PatternPointer pattern_;
  SplitOptions options_;
};

}  // namespace

void split_piece(const Pattern& pattern, const SplitOptions& options, std::string_view text,
                 Span piece, std::vector<Match>& scratch, std::vector<Span>& ranges) {
  scratch.clear();
  pattern.find(text.substr(piece.begin, piece.end - piece.begin), scratch);
  for (Match& stretch : scratch) {
    stretch.range.begin += piece.begin;
    stretch.range.end += piece.begin;
    stretch.matched ^= options.invert;
  }
  const auto first = std::ssize(ranges);
  switch (options.behavior) {
    case SplitBehavior::isolated:
      for (const Match& stretch : scratch) ranges.push_back(stretch.range);
      break;
    case SplitBehavior::removed:
      for (const Match& stretch : scratch) {
        if (!stretch.matched) ranges.push_back(stretch.range);
      }
      break;
    case SplitBehavior::merged_with_previous:
      merge_with_previous(scratch, ranges);
      break;
    case SplitBehavior::merged_with_next:
      merge_with_next(scratch, ranges);
      break;
    case SplitBehavior::contiguous:
      join_alike(scratch, ranges);
      break;
  }
  const auto empty = [](const Span& range) { return range.begin == range.end; };
  ranges.erase(std::remove_if(ranges.begin() + first, ranges.end(), empty), ranges.end());
}

std::unique_ptr<const PreTokenizerStage> make_split_stage(PatternPointer pattern,
                                                          SplitOptions options) {
  return std::make_unique<SplitStage>(std::move(pattern), options);
}

}  // namespace qkscope
