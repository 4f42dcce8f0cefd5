// Cutting pieces where a pattern matches.
#pragma once

#include <memory>
#include <string>

#include "input/tokenizer/pre_tokenizer.h"

namespace qkscope {

// How delimiters (the matches of the pattern) are treated.
enum class SplitBehavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

struct SplitOptions {
  SplitBehavior behavior = SplitBehavior::isolated;
  bool invert = false;        // gaps between matches are the delimiters
  bool by_character = false;  // the pattern matches single characters only
};

std::unique_ptr<const PreTokenizerStage> make_split_stage(PatternPointer pattern,
                                                          SplitOptions options);

// Splits one piece and appends to `ranges`. `scratch` is reused memory.
void split_piece(const Pattern& pattern, const SplitOptions& options, std::string_view text,
                 Span piece, std::vector<Match>& scratch, std::vector<Span>& ranges);

}  // namespace qkscope
