#include "input/tokenizer/encoder.h"

#include <algorithm>
#include <iterator>

#include "base/core/error.h"
#include "base/core/utf8.h"
#include "input/tokenizer/byte_alphabet.h"
#include "input/tokenizer/unicode.h"

namespace qkscope {

Encoder::Encoder(Parts parts) : parts_(std::move(parts)) {
  const auto& normalizer = parts_.normalizer;
  keeps_alignment_ = normalizer && parts_.pre_tokenizer.needs_alignment();
  if (!parts_.added_tokens.allows_cuts()) return;
  const CutSpace space = normalizer ? normalizer->cut_space : CutSpace::as_space;
  const AtCut at_cut = parts_.pre_tokenizer.at_cut(space);
  if (space == CutSpace::uncertain || at_cut == AtCut::uncertain) return;
  cut_space_ = space;
  cut_by_model_ = at_cut == AtCut::local;
  cut_after_ideograph_ = parts_.pre_tokenizer.breaks_after_ideograph() &&
                         (!normalizer || normalizer->allows_cut_after_ideograph);
}

void Encoder::encode(std::string_view document, Span piece, bool with_sources, Workspace& work,
                     Tokens& tokens) const {
  const std::string_view text = document.substr(piece.begin, piece.end - piece.begin);
  if (const auto at = find_invalid_utf8(text); at != std::string_view::npos)
    bad_input("the text is not UTF-8 at byte {}", piece.begin + at);
  const Job job{document, with_sources, work, tokens};
  work.sections.clear();
  parts_.added_tokens.split(text, false, work.sections);
  for (const auto& [range, id] : work.sections) {
    const Span section{piece.begin + range.begin, piece.begin + range.end};
    if (id < 0) {
      const bool begins = range.begin > 0 || piece.begin == 0;
      const bool ends = range.end < text.size() || piece.end == document.size();
      encode_section(job, section, {begins, ends});
      continue;
    }
    add_token(job, id, section, text.substr(range.begin, range.end - range.begin));
  }
}

void Encoder::add_token(const Job& job, std::int32_t id, Span source, std::string_view string) {
  job.tokens.ids.push_back(id);
  if (!job.with_sources) return;
  job.tokens.sources.push_back(source);
  job.tokens.strings.emplace_back(string);
}

void Encoder::encode_section(const Job& job, Span section, SectionEnds ends) const {
  AlignedText text(job.document.substr(section.begin, section.end - section.begin), section.begin,
                   job.with_sources || keeps_alignment_);
  if (parts_.normalizer) parts_.normalizer->apply(text, ends);
  auto& sections = job.work.inner_sections;
  sections.clear();
  parts_.added_tokens.split(text.text(), true, sections);
  for (const auto& [range, id] : sections) {
    if (id < 0) {
      encode_normalized(job, text, range, ends.begins || range.begin > 0);
      continue;
    }
    add_token(job, id, job.with_sources ? text.source(range) : Span{},
              text.text().substr(range.begin, range.end - range.begin));
  }
}

void Encoder::encode_normalized(const Job& job, const AlignedText& text, Span range,
                                bool begins) const {
  Pieces& pieces = job.work.pieces;
  pieces.text.borrow(text, range);
  pieces.ranges.assign(1, {0, range.end - range.begin});
  pieces.begins = begins;
  parts_.pre_tokenizer.apply(pieces);
  if (job.with_sources) {
    for (const Span word : pieces.ranges) encode_word(job, word);
    return;
  }
  const std::string_view whole = pieces.text.text();
  const char* const end = whole.data() + whole.size();
  for (const Span word : pieces.ranges)
    parts_.model.encode({whole.substr(word.begin, word.end - word.begin), end}, job.work.model,
                        job.tokens.ids);
}

void Encoder::encode_word(const Job& job, Span word) const {
  const Pieces& pieces = job.work.pieces;
  const std::string_view text = pieces.text.text().substr(word.begin, word.end - word.begin);
  parts_.model.encode_symbols(text, job.work.model, job.work.symbols);
  // For every byte of the vocabulary's spelling, the byte of the text it encodes.
  std::vector<std::uint32_t> places;
  for (std::uint32_t i = 0; i < text.size(); ++i) {
    const bool mapped = parts_.pre_tokenizer.gives_bytes();
    places.insert(places.end(), mapped ? size_in_byte_alphabet(text[i]) : 1, word.begin + i);
  }
  std::uint32_t at = 0;
  for (const auto& [id, size] : job.work.symbols) {
    const Span inside{at, at + size};
    at += size;
    // Sizes may exceed the word if a prefix was encoded by byte fallback.
    const bool outside = inside.end > places.size();
    add_token(
        job, id,
        outside ? inside : pieces.text.source({places[inside.begin], places[inside.end - 1] + 1}),
        vocabulary().token(id).value_or(""));
  }
}

bool Encoder::is_space_cut(std::string_view document, std::size_t at) const {
  const auto before = static_cast<unsigned char>(document[at - 1]);
  if (before <= ' ' || before == 0x7F) return false;
  const std::size_t reach = std::min<std::size_t>(at, 4);
  const std::string_view left = document.substr(at - reach, reach);
  if (before >= 0x80) {
    std::size_t lead = left.size() - 1;
    while (lead > 0 && utf8::is_continuation(left[lead])) --lead;
    const std::string_view character = left.substr(lead);
    if (find_invalid_utf8(character) != std::string_view::npos) return false;
    if (unicode::has(utf8::decode(character.data()).code, unicode::kSpace)) return false;
  }
  if (!cut_by_model_) return true;
  return parts_.model.never_joins(left,
                                  cut_space_ == CutSpace::as_mark ? unicode::kSpaceMarkUtf8 : " ");
}

bool Encoder::is_cut(std::string_view document, std::size_t at) const {
  if (document[at] == ' ') {
    if (!is_space_cut(document, at)) return false;
  } else {
    // An ideograph (U+4E00 to U+9FFF) followed by a common CJK punctuation mark.
    if (!cut_after_ideograph_ || at < 3 || document.size() - at < 3) return false;
    const auto lead = static_cast<unsigned char>(document[at - 3]);
    if (lead < 0xE4 || lead > 0xE9 || find_invalid_utf8(document.substr(at - 3, 3)) == 0)
      return false;
    if (lead == 0xE4 && static_cast<unsigned char>(document[at - 2]) < 0xB8) return false;
    constexpr std::string_view kMarks[] = {"\xE3\x80\x81", "\xE3\x80\x82", "\xEF\xBC\x8C"};
    const std::string_view next = document.substr(at, 3);
    if (std::find(std::begin(kMarks), std::end(kMarks), next) == std::end(kMarks)) return false;
  }
  return parts_.added_tokens.allows_cut(document, at);
}

std::size_t Encoder::next_cut(std::string_view document, std::size_t from) const {
  if (cut_space_ == CutSpace::uncertain) return document.size();
  for (std::size_t at = std::max<std::size_t>(from, 1); at < document.size(); ++at) {
    if (is_cut(document, at)) return at;
  }
  return document.size();
}

std::size_t Encoder::previous_cut(std::string_view document, std::size_t from) const {
  if (cut_space_ == CutSpace::uncertain) return 0;
  for (std::size_t at = std::min(from, document.size() - 1); at > 0; --at) {
    if (is_cut(document, at)) return at;
  }
  return 0;
}

}  // namespace qkscope
