#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/core/text.h"
#include "base/io/json.h"
#include "input/tokenizer/tokenizer_components.h"
#include "input/tokenizer/unicode.h"

namespace qkscope {
namespace {

// How the pre-tokenizer Split treats delimiters (the matches of its pattern).
enum class SplitBehavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

struct SplitRule {
  SplitBehavior delimiters = SplitBehavior::isolated;
  bool invert = false;        // gaps between matches are the delimiters
  bool by_character = false;  // the pattern matches single characters only
};

void merge_with_next(const std::vector<MatchOrGap>& matches, std::vector<ByteRange>& ranges) {
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

void append_split_ranges(const std::vector<MatchOrGap>& matches, SplitBehavior delimiters,
                         std::vector<ByteRange>& ranges) {
  if (delimiters == SplitBehavior::merged_with_next) return merge_with_next(matches, ranges);
  const std::size_t first = ranges.size();
  bool previous = false;
  for (const auto& [range, matched] : matches) {
    if (matched && delimiters == SplitBehavior::removed) continue;
    const bool joins =
        (delimiters == SplitBehavior::merged_with_previous && matched && !previous) ||
        (delimiters == SplitBehavior::contiguous && matched == previous);
    if (joins && ranges.size() > first)
      ranges.back().end = range.end;
    else
      ranges.push_back(range);
    previous = matched;
  }
}

// Splits every piece at the matches of the pattern and updates `pieces.ranges`.
void split_pieces(const SearchPattern& pattern, SplitRule rule, PretokenizedSection& pieces) {
  const std::string_view text = pieces.text.text();
  std::vector<MatchOrGap> matches;
  std::vector<ByteRange> ranges;
  matches.reserve(text.size() / 4);
  ranges.reserve(text.size() / 4);
  for (const ByteRange piece : pieces.ranges) {
    matches.clear();
    pattern.find(text.substr(piece.begin, piece.end - piece.begin), matches);
    for (MatchOrGap& match : matches) {
      match.range.begin += piece.begin;
      match.range.end += piece.begin;
      match.matched ^= rule.invert;
    }
    append_split_ranges(matches, rule.delimiters, ranges);
  }
  std::erase_if(ranges, [](const ByteRange& range) { return range.begin == range.end; });
  pieces.ranges = std::move(ranges);
}

PreTokenizer make_split_pre_tokenizer(const SearchPattern& pattern, SplitRule rule) {
  const bool separates =
      rule.delimiters == SplitBehavior::isolated || rule.delimiters == SplitBehavior::removed;
  const auto at_mark = rule.by_character ? TextCutEffect::local : TextCutEffect::uncertain;
  return {.apply = [=](PretokenizedSection& pieces) { split_pieces(pattern, rule, pieces); },
          .at_space = separates && pattern.breaks_before_space ? TextCutEffect::breaks : at_mark,
          .at_mark = at_mark,
          .breaks_after_ideograph = separates && pattern.breaks_after_ideograph};
}

// Calls change(rewrite, piece) for every piece; each call must advance `rewrite` past the piece.
template <typename Change>
void rewrite_pieces(PretokenizedSection& pieces, Change change) {
  SourceMappedText::TextRewriter rewrite(pieces.text);
  std::uint32_t written = 0;
  for (ByteRange& piece : pieces.ranges) {
    rewrite.drop_bytes(piece.begin - rewrite.position());
    change(rewrite, piece);
    piece = {written, static_cast<std::uint32_t>(rewrite.bytes_written())};
    written = piece.end;
  }
  rewrite.finish();
}

void insert_prefix_before_piece(SourceMappedText::TextRewriter& rewrite, char32_t prefix) {
  const auto [first, size] =
      utf8::decode_character(rewrite.original_text().data() + rewrite.position());
  rewrite.replace_by_character(prefix, size);
  rewrite.replace_by_character(first, 0);
}

// Copies the text up to the next space and replaces that space with `mark`.
void replace_next_space(SourceMappedText::TextRewriter& rewrite, std::size_t end, char32_t mark) {
  const std::size_t at = rewrite.position();
  const std::size_t space = rewrite.original_text().substr(0, end).find(' ', at);
  if (space == std::string_view::npos) return rewrite.copy_unchanged(end - at);
  rewrite.copy_unchanged(space - at);
  rewrite.replace_by_character(mark, 1);
}

PreTokenizer make_metaspace_pre_tokenizer(const TokenizerComponentSpec& spec) {
  const std::string replacement = spec.character("replacement");
  const std::string scheme = spec.text("prepend_scheme", "always");
  const bool never = scheme == "never", only_first = scheme == "first";
  if (!never && !only_first && scheme != "always")
    spec.fail(fmt::format("has the unknown prepend_scheme \"{}\"", scheme));
  if (!spec.flag("add_prefix_space", true) && !never)
    spec.fail("says add_prefix_space false and a prepend_scheme other than \"never\"");
  const bool split = spec.flag("split", true);
  const char32_t mark = utf8::decode_character(replacement.data()).code;
  const auto wants_mark = [=](const PretokenizedSection& pieces, ByteRange piece) {
    if (never || (piece.begin == 0 && !pieces.begins)) return false;
    if (only_first && !pieces.text.is_document_start(piece.begin)) return false;
    const char32_t first = utf8::decode_character(pieces.text.text().data() + piece.begin).code;
    return first != U' ' && first != mark;
  };
  const auto apply = [=, pattern = make_string_pattern(replacement)](PretokenizedSection& pieces) {
    rewrite_pieces(pieces, [&](SourceMappedText::TextRewriter& rewrite, ByteRange piece) {
      if (wants_mark(pieces, piece)) insert_prefix_before_piece(rewrite, mark);
      while (rewrite.position() < piece.end) replace_next_space(rewrite, piece.end, mark);
    });
    if (split) split_pieces(pattern, {SplitBehavior::merged_with_next}, pieces);
  };
  const auto at_space = split ? TextCutEffect::breaks : TextCutEffect::local;
  return {.apply = apply,
          .at_space = at_space,
          .at_mark = mark == unicode::kSpaceMark ? at_space : TextCutEffect::uncertain,
          .needs_document_start = only_first};
}

void add_prefix_spaces(PretokenizedSection& pieces) {
  const auto wants_space = [&](ByteRange piece) {
    return pieces.text.text()[piece.begin] != ' ' && (piece.begin > 0 || pieces.begins);
  };
  if (std::ranges::none_of(pieces.ranges, wants_space)) return;
  rewrite_pieces(pieces, [&](SourceMappedText::TextRewriter& rewrite, ByteRange piece) {
    if (wants_space(piece)) insert_prefix_before_piece(rewrite, U' ');
    rewrite.copy_unchanged(piece.end - rewrite.position());
  });
}

void map_bytes_to_alphabet(PretokenizedSection& pieces) {
  rewrite_pieces(pieces, [](SourceMappedText::TextRewriter& rewrite, ByteRange piece) {
    while (rewrite.position() < piece.end) {
      const char* at = rewrite.original_text().data() + rewrite.position();
      const std::uint32_t size = utf8::character_size(*at);
      for (std::uint32_t i = 0; i < size; ++i)
        rewrite.replace_by_character(byte_alphabet_char(at[i]), i == 0 ? size : 0);
    }
  });
}

// As the last stage, ByteLevel leaves bytes unchanged, because BpeModel reads raw bytes.
PreTokenizer make_byte_level_pre_tokenizer(const TokenizerComponentSpec& spec, bool last) {
  const bool prefix_space = spec.flag("add_prefix_space");
  PreTokenizer stage;
  if (spec.flag("use_regex", true))
    stage = make_split_pre_tokenizer(*make_builtin_pattern(kGpt2Expression), {});
  stage.apply = [=, split = stage.apply](PretokenizedSection& pieces) {
    if (prefix_space) add_prefix_spaces(pieces);
    if (split) split(pieces);
    if (!last) map_bytes_to_alphabet(pieces);
  };
  return stage;
}

SplitBehavior parse_split_behavior(const TokenizerComponentSpec& spec, const std::string& name) {
  if (name == "Removed") return SplitBehavior::removed;
  if (name == "Isolated") return SplitBehavior::isolated;
  if (name == "MergedWithPrevious") return SplitBehavior::merged_with_previous;
  if (name == "MergedWithNext") return SplitBehavior::merged_with_next;
  if (name == "Contiguous") return SplitBehavior::contiguous;
  spec.fail(fmt::format("has the unknown behavior \"{}\"", name));
}

PreTokenizer make_pre_tokenizer_stage(const TokenizerComponentSpec& spec, bool last) {
  if (spec.has_type("Split", {"pattern", "behavior", "invert"}))
    return make_split_pre_tokenizer(
        spec.read_pattern(),
        {parse_split_behavior(spec, spec.text("behavior")), spec.flag("invert")});
  if (spec.is_metaspace()) return make_metaspace_pre_tokenizer(spec);
  if (spec.is_byte_level()) return make_byte_level_pre_tokenizer(spec, last);
  if (spec.has_type("Digits", {"individual_digits"})) {
    const auto behavior =
        spec.flag("individual_digits") ? SplitBehavior::isolated : SplitBehavior::contiguous;
    return make_split_pre_tokenizer(make_unicode_class_pattern(unicode::kDigit),
                                    {behavior, false, true});
  }
  if (spec.has_type("Punctuation", {"behavior"})) {
    const auto behavior = parse_split_behavior(spec, spec.text("behavior", "Isolated"));
    return make_split_pre_tokenizer(make_unicode_class_pattern(unicode::kPunctuation),
                                    {behavior, false, true});
  }
  if (spec.has_type("Whitespace"))
    return make_split_pre_tokenizer(make_word_or_punctuation_pattern(),
                                    {SplitBehavior::removed, true});
  if (spec.has_type("WhitespaceSplit"))
    return make_split_pre_tokenizer(make_unicode_class_pattern(unicode::kSpace),
                                    {SplitBehavior::removed});
  spec.fail_unknown_type();
}

// Flattens nested Sequence components into one list of stages.
void flatten_sequence(const Json& json, const std::string& where, std::vector<const Json*>& out) {
  const TokenizerComponentSpec spec(json, "pre_tokenizer", where);
  if (!spec.has_type("Sequence", {"pretokenizers"})) return out.push_back(&json);
  for (const Json& part : spec.list("pretokenizers")) flatten_sequence(part, where, out);
}

}  // namespace

PreTokenizer make_pre_tokenizer(const Json& json, const std::string& where) {
  std::vector<const Json*> specs;
  if (!json.is_null()) flatten_sequence(json, where, specs);
  PreTokenizer whole;
  std::vector<PreTokenizer> stages;
  for (const Json* part : specs) {
    const TokenizerComponentSpec spec(*part, "pre_tokenizer", where);
    const bool last = part == specs.back();
    const auto& stage = stages.emplace_back(make_pre_tokenizer_stage(spec, last));
    // The first stage whose behavior at a cut is not `local` determines that of the whole sequence.
    if (whole.at_space == TextCutEffect::local) whole.at_space = stage.at_space;
    if (whole.at_mark == TextCutEffect::local) whole.at_mark = stage.at_mark;
    whole.needs_document_start |= stage.needs_document_start;
    whole.is_byte_level = last && spec.is_byte_level();
  }
  whole.breaks_after_ideograph = !stages.empty() && stages.front().breaks_after_ideograph;
  whole.apply = [stages = std::move(stages)](PretokenizedSection& pieces) {
    for (const auto& stage : stages) stage.apply(pieces);
  };
  return whole;
}

}  // namespace qkscope
