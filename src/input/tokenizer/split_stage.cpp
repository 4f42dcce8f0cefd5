#include <algorithm>

#include "input/tokenizer/pre_tokenizer.h"

namespace qkscope {
namespace {

// Appends ranges. A range is joined with the previous one if `joins(matched, previous_matched)`.
template <typename Joins>
void join_ranges(const std::vector<Match>& matches, std::vector<Span>& ranges, Joins joins) {
  const std::size_t first = ranges.size();
  bool previous = false;
  for (const auto& [range, matched] : matches) {
    if (ranges.size() > first && joins(matched, previous))
      ranges.back().end = range.end;
    else
      ranges.push_back(range);
    previous = matched;
  }
}

void merge_with_next(const std::vector<Match>& matches, std::vector<Span>& ranges) {
  const auto first = static_cast<std::ptrdiff_t>(ranges.size());
  bool following = false;
  for (auto at = matches.rbegin(); at != matches.rend(); ++at) {
    if (at->matched && !following && std::ssize(ranges) > first)
      ranges.back().begin = at->range.begin;
    else
      ranges.push_back(at->range);
    following = at->matched;
  }
  std::reverse(ranges.begin() + first, ranges.end());
}

void add_ranges(const std::vector<Match>& matches, SplitBehavior behavior,
                std::vector<Span>& ranges) {
  switch (behavior) {
    case SplitBehavior::isolated:
      for (const Match& match : matches) ranges.push_back(match.range);
      break;
    case SplitBehavior::removed:
      for (const Match& match : matches)
        if (!match.matched) ranges.push_back(match.range);
      break;
    case SplitBehavior::merged_with_previous:
      join_ranges(matches, ranges,
                  [](bool matched, bool previous) { return matched && !previous; });
      break;
    case SplitBehavior::merged_with_next:
      merge_with_next(matches, ranges);
      break;
    case SplitBehavior::contiguous:
      join_ranges(matches, ranges, std::equal_to<>());
      break;
  }
}

class SplitStage : public PreTokenizerStage {
 public:
  SplitStage(Pattern pattern, SplitOptions options)
      : pattern_(std::move(pattern)), options_(options) {}

  void apply(Pieces& pieces) const override { split_pieces(pattern_, options_, pieces); }

  AtCut at_cut(CutSpace space) const override {
    if (space == CutSpace::as_space && separates() && pattern_.breaks_before_space)
      return AtCut::breaks;
    return options_.by_character ? AtCut::local : AtCut::uncertain;
  }
  bool breaks_after_ideograph() const override {
    return separates() && pattern_.breaks_after_ideograph;
  }

 private:
  bool separates() const {
    return options_.behavior == SplitBehavior::isolated ||
           options_.behavior == SplitBehavior::removed;
  }

  Pattern pattern_;
  SplitOptions options_;
};

}  // namespace

void split_pieces(const Pattern& pattern, const SplitOptions& options, Pieces& pieces) {
  const std::string_view text = pieces.text.text();
  std::vector<Match> matches;
  std::vector<Span> ranges;
  matches.reserve(text.size() / 4);
  ranges.reserve(text.size() / 4);
  for (const Span piece : pieces.ranges) {
    matches.clear();
    pattern.find(text.substr(piece.begin, piece.end - piece.begin), matches);
    for (Match& match : matches) {
      match.range.begin += piece.begin;
      match.range.end += piece.begin;
      match.matched ^= options.invert;
    }
    add_ranges(matches, options.behavior, ranges);
  }
  std::erase_if(ranges, [](const Span& range) { return range.begin == range.end; });
  pieces.ranges = std::move(ranges);
}

std::unique_ptr<const PreTokenizerStage> make_split_stage(Pattern pattern, SplitOptions options) {
  return std::make_unique<SplitStage>(std::move(pattern), options);
}

}  // namespace qkscope
