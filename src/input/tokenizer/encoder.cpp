#include "input/tokenizer/encoder.h"

#include <iterator>

#include "base/core/error.h"
#include "base/core/text.h"
#include "input/tokenizer/unicode.h"

namespace qkscope {
namespace {

bool ends_with(std::string_view text, std::uint16_t flags) {
  return !text.empty() && unicode::has_character_property(
                              utf8::decode_last_character(text.data() + text.size()).code, flags);
}

bool starts_with(std::string_view text, std::uint16_t flags) {
  return !text.empty() &&
         unicode::has_character_property(utf8::decode_character(text.data()).code, flags);
}

}  // namespace

void TokenTrie::add(std::string_view text, std::int32_t id) {
  if (text.empty()) return;
  std::uint32_t node = 0;
  for (const char byte : text) {
    const std::uint64_t edge = std::uint64_t{node} << 8 | static_cast<unsigned char>(byte);
    const auto [child, added] = children_.emplace(edge, ids_.size());
    if (added) ids_.push_back(-1);
    node = child->second;
  }
  ids_[node] = id;
  longest_ = std::max(longest_, text.size());
  if (starts_.find(text.front()) == std::string::npos) starts_.push_back(text.front());
}

std::optional<TextSection> TokenTrie::find_next(std::string_view text, std::size_t from) const {
  if (empty()) return std::nullopt;
  const auto next_start = [&](std::size_t at) {
    return starts_.size() == 1 ? text.find(starts_.front(), at) : text.find_first_of(starts_, at);
  };
  for (; (from = next_start(from)) != std::string_view::npos; ++from) {
    std::optional<TextSection> longest;
    std::uint32_t node = 0;
    for (std::size_t at = from; at < text.size(); ++at) {
      const auto child =
          children_.find(std::uint64_t{node} << 8 | static_cast<unsigned char>(text[at]));
      if (child == children_.end()) break;
      node = child->second;
      if (ids_[node] >= 0) {
        const ByteRange range{static_cast<std::uint32_t>(from), static_cast<std::uint32_t>(at + 1)};
        longest = TextSection{range, ids_[node]};
      }
    }
    if (longest) return longest;
  }
  return std::nullopt;
}

bool TokenTrie::has_match_at(std::string_view text, std::size_t at) const {
  const std::size_t begin = at - std::min(at, longest_);
  const std::string_view window = text.substr(begin, 2 * longest_);
  for (std::size_t from = 0; from <= at - begin; ++from) {
    const auto found = find_next(window, from);
    if (!found || begin + found->range.begin > at) return false;
    if (begin + found->range.end >= at) return true;
    from = found->range.begin;
  }
  return false;
}

void AddedTokens::add(const AddedToken& token, const Vocabulary& vocabulary,
                      const std::optional<Normalizer>& normalizer) {
  if (token.content.empty()) return;
  std::int32_t id = find(token.content);
  if (id < 0) id = vocabulary.find(token.content);
  if (id < 0) {
    const auto size = static_cast<std::int32_t>(vocabulary.size());
    id = by_id_.empty() ? size : std::max(size, by_id_.rbegin()->first + 1);
  }
  std::string shown = token.content;
  if (token.normalized && normalizer) {
    SourceMappedText text(token.content, 0, false);
    normalizer->apply(text, {});
    shown = text.text();
  }
  ids_[token.content] = id;
  if (token.special) special_.insert(token.content);
  (token.normalized ? normalized_ : raw_).add(shown, id);
  by_id_[id] = {token, std::move(shown)};
}

void AddedTokens::split_at_added_tokens(std::string_view text, bool normalized,
                                        std::vector<TextSection>& sections) const {
  const TokenTrie& finder = normalized ? normalized_ : raw_;
  std::uint32_t done = 0;
  for (std::size_t from = 0; const auto found = finder.find_next(text, from);) {
    auto [begin, end] = found->range;
    from = end;
    const AddedToken& token = by_id_.at(found->id).token;
    if (token.single_word && (ends_with(text.substr(0, begin), unicode::kWord) ||
                              starts_with(text.substr(end), unicode::kWord)))
      continue;
    while (token.lstrip && begin > done && ends_with(text.substr(0, begin), unicode::kSpace))
      begin -= utf8::decode_last_character(text.data() + begin).size;
    while (token.rstrip && starts_with(text.substr(end), unicode::kSpace))
      end += utf8::character_size(text[end]);
    if (done < begin) sections.push_back({{done, begin}, -1});
    sections.push_back({{begin, end}, found->id});
    done = end;
  }
  if (done < text.size()) sections.push_back({{done, static_cast<std::uint32_t>(text.size())}, -1});
}

// Each part of a split text is searched for added tokens separately. Normalized text may therefore
// be split only where no added token that is searched for in normalized text can span the split.
bool AddedTokens::can_split_normalized_text() const {
  return std::ranges::none_of(by_id_, [](const auto& entry) {
    const auto& [token, shown] = entry.second;
    return token.normalized &&
           (token.rstrip || token.single_word || shown.find(' ') != std::string::npos ||
            shown.find(unicode::kSpaceMarkUtf8) != std::string::npos);
  });
}

std::optional<std::string_view> AddedTokens::token_string(std::int32_t id) const {
  const auto found = by_id_.find(id);
  if (found == by_id_.end()) return std::nullopt;
  return found->second.shown;
}

std::int32_t AddedTokens::find(std::string_view content) const {
  const auto found = ids_.find(std::string(content));
  return found == ids_.end() ? -1 : found->second;
}

std::size_t AddedTokens::count_tokens_missing_from(const Vocabulary& vocabulary) const {
  return static_cast<std::size_t>(std::ranges::count_if(
      ids_, [&](const auto& entry) { return vocabulary.find(entry.first) < 0; }));
}

Encoder::Encoder(TokenizationPipeline parts) : parts_(std::move(parts)) {
  const auto& normalizer = parts_.normalizer;
  keeps_alignment_ = normalizer && parts_.pre_tokenizer.needs_document_start;
  if (!parts_.added_tokens.can_split_normalized_text()) return;
  const SpaceRepresentation space =
      normalizer ? normalizer->space_form : SpaceRepresentation::as_space;
  const auto at_cut = space == SpaceRepresentation::as_mark ? parts_.pre_tokenizer.at_mark
                                                            : parts_.pre_tokenizer.at_space;
  if (space == SpaceRepresentation::uncertain || at_cut == TextCutEffect::uncertain) return;
  space_form_ = space;
  cut_by_model_ = at_cut == TextCutEffect::local;
  cut_after_ideograph_ = parts_.pre_tokenizer.breaks_after_ideograph &&
                         (!normalizer || normalizer->allows_cut_after_ideograph);
}

void Encoder::encode(std::string_view document, ByteRange piece, bool with_sources,
                     EncodingWorkspace& work, EncodedTokens& tokens) const {
  const std::string_view text = document.substr(piece.begin, piece.end - piece.begin);
  if (const auto at = find_invalid_utf8(text); at != std::string_view::npos)
    reject("the text is not UTF-8 at byte {}", piece.begin + at);
  const EncodeRequest job{document, with_sources, work, tokens};
  work.sections.clear();
  parts_.added_tokens.split_at_added_tokens(text, false, work.sections);
  for (const auto& [range, id] : work.sections) {
    const ByteRange section{piece.begin + range.begin, piece.begin + range.end};
    if (id < 0) {
      const bool begins = range.begin > 0 || piece.begin == 0;
      const bool ends = range.end < text.size() || piece.end == document.size();
      encode_section(job, section, {begins, ends});
      continue;
    }
    add_token(job, id, section, text.substr(range.begin, range.end - range.begin));
  }
}

void Encoder::add_token(const EncodeRequest& job, std::int32_t id, ByteRange source,
                        std::string_view string) {
  job.tokens.ids.push_back(id);
  if (!job.with_sources) return;
  job.tokens.offsets.push_back({source.begin, source.end});
  job.tokens.strings.emplace_back(string);
}

void Encoder::encode_section(const EncodeRequest& job, ByteRange section,
                             SectionBoundaryFlags ends) const {
  SourceMappedText text(job.document.substr(section.begin, section.end - section.begin),
                        section.begin, job.with_sources || keeps_alignment_);
  if (parts_.normalizer) parts_.normalizer->apply(text, ends);
  auto& sections = job.work.inner_sections;
  sections.clear();
  parts_.added_tokens.split_at_added_tokens(text.text(), true, sections);
  for (const auto& [range, id] : sections) {
    if (id < 0) {
      encode_normalized(job, text, range, ends.begins || range.begin > 0);
      continue;
    }
    add_token(job, id, job.with_sources ? text.source_of(range) : ByteRange{},
              text.text().substr(range.begin, range.end - range.begin));
  }
}

void Encoder::encode_normalized(const EncodeRequest& job, const SourceMappedText& text,
                                ByteRange range, bool begins) const {
  PretokenizedSection& pieces = job.work.pieces;
  pieces.text.assign_subview(text, range);
  pieces.ranges.assign(1, {0, range.end - range.begin});
  pieces.begins = begins;
  parts_.pre_tokenizer.apply(pieces);
  if (job.with_sources) {
    for (const ByteRange word : pieces.ranges) encode_word(job, word);
    return;
  }
  const std::string_view whole = pieces.text.text();
  const char* const end = whole.data() + whole.size();
  for (const ByteRange word : pieces.ranges)
    parts_.model.encode({whole.substr(word.begin, word.end - word.begin), end}, job.work.model,
                        job.tokens.ids);
}

void Encoder::encode_word(const EncodeRequest& job, ByteRange word) const {
  const PretokenizedSection& pieces = job.work.pieces;
  const std::string_view text = pieces.text.text().substr(word.begin, word.end - word.begin);
  parts_.model.encode_to_symbols(text, job.work.model, job.work.symbols);
  // places[i]: text position of byte i of the word (written in the byte-level alphabet, if used).
  std::vector<std::uint32_t> places;
  for (std::uint32_t i = 0; i < text.size(); ++i) {
    const bool mapped = parts_.pre_tokenizer.is_byte_level;
    places.insert(places.end(), mapped ? utf8_length_in_byte_alphabet(text[i]) : 1, word.begin + i);
  }
  std::uint32_t at = 0;
  for (const auto& [id, size] : job.work.symbols) {
    const ByteRange inside{at, at + size};
    at += size;
    // The sum of token sizes may exceed the word size if byte fallback encoded a subword prefix.
    const bool outside = inside.end > places.size();
    add_token(job, id,
              outside ? inside
                      : pieces.text.source_of({places[inside.begin], places[inside.end - 1] + 1}),
              vocabulary().token_string(id).value_or(""));
  }
}

bool Encoder::can_split_before_space(std::string_view document, std::size_t at) const {
  const auto before = static_cast<unsigned char>(document[at - 1]);
  if (before <= ' ' || before == 0x7F) return false;
  const std::size_t reach = std::min<std::size_t>(at, 4);
  const std::string_view left = document.substr(at - reach, reach);
  if (before >= 0x80) {
    std::size_t lead = left.size() - 1;
    while (lead > 0 && utf8::is_continuation_byte(left[lead])) --lead;
    const std::string_view character = left.substr(lead);
    if (find_invalid_utf8(character) != std::string_view::npos) return false;
    if (unicode::has_character_property(utf8::decode_character(character.data()).code,
                                        unicode::kSpace))
      return false;
  }
  if (!cut_by_model_) return true;
  return parts_.model.never_merges_across(
      left, space_form_ == SpaceRepresentation::as_mark ? unicode::kSpaceMarkUtf8 : " ");
}

bool Encoder::is_split_position(std::string_view document, std::size_t at) const {
  if (document[at] == ' ') {
    if (!can_split_before_space(document, at)) return false;
  } else {
    // A cut is allowed between an ideograph (U+4E00 to U+9FFF) and a common CJK punctuation mark.
    if (!cut_after_ideograph_ || at < 3 || document.size() - at < 3) return false;
    const auto lead = static_cast<unsigned char>(document[at - 3]);
    if (lead < 0xE4 || lead > 0xE9 || find_invalid_utf8(document.substr(at - 3, 3)) == 0)
      return false;
    if (lead == 0xE4 && static_cast<unsigned char>(document[at - 2]) < 0xB8) return false;
    constexpr std::string_view kMarks[] = {"\xE3\x80\x81", "\xE3\x80\x82", "\xEF\xBC\x8C"};
    const std::string_view next = document.substr(at, 3);
    if (std::find(std::begin(kMarks), std::end(kMarks), next) == std::end(kMarks)) return false;
  }
  return parts_.added_tokens.allows_cut_at(document, at);
}

std::size_t Encoder::next_split_position(std::string_view document, std::size_t from) const {
  if (space_form_ == SpaceRepresentation::uncertain) return document.size();
  for (std::size_t at = std::max<std::size_t>(from, 1); at < document.size(); ++at)
    if (is_split_position(document, at)) return at;
  return document.size();
}

std::size_t Encoder::previous_split_position(std::string_view document, std::size_t from) const {
  if (space_form_ == SpaceRepresentation::uncertain) return 0;
  for (std::size_t at = std::min(from, document.size() - 1); at > 0; --at)
    if (is_split_position(document, at)) return at;
  return 0;
}

}  // namespace qkscope
