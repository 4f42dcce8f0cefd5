#include <vector>

#include "base/core/error.h"
#include "base/core/text.h"
#include "base/io/json.h"
#include "input/tokenizer/tokenizer_components.h"
#include "input/tokenizer/unicode.h"

namespace qkscope {
namespace {

// Limits the size of normalized text; Unicode normalization enlarges text at most 11-fold (U+FDFA).
std::size_t max_normalized_bytes(std::size_t size) {
  return 64 * size + (1 << 16);
}

void lowercase(SourceMappedText& text, SectionBoundaryFlags) {
  SourceMappedText::TextRewriter rewrite(text);
  while (rewrite.position() < rewrite.original_text().size()) {
    const auto [code, size] =
        utf8::decode_character(rewrite.original_text().data() + rewrite.position());
    const auto lower = unicode::lowercase(code);
    if (lower.empty()) rewrite.copy_unchanged(size);
    for (std::size_t i = 0; i < lower.size(); ++i)
      rewrite.replace_by_character(lower[i], i == 0 ? size : 0);
  }
  rewrite.finish();
}

void strip_whitespace(SourceMappedText& text, bool left, bool right) {
  const std::string_view old = text.text();
  std::size_t begin = 0, end = old.size();
  while (left && begin < end) {
    const auto [code, size] = utf8::decode_character(old.data() + begin);
    if (!unicode::has_character_property(code, unicode::kSpace)) break;
    begin += size;
  }
  while (right && end > begin) {
    const auto [code, size] = utf8::decode_last_character(old.data() + end);
    if (!unicode::has_character_property(code, unicode::kSpace)) break;
    end -= size;
  }
  if (begin == 0 && end == old.size()) return;
  SourceMappedText::TextRewriter rewrite(text);
  rewrite.drop_bytes(begin);
  rewrite.copy_unchanged(end - begin);
  rewrite.finish();
}

void replace_pattern(SourceMappedText& text, const SearchPattern& pattern,
                     const std::string& content) {
  std::vector<MatchOrGap> matches;
  pattern.find(text.text(), matches);
  SourceMappedText::TextRewriter rewrite(text);
  for (const auto& [range, matched] : matches) {
    if (!matched) {
      rewrite.copy_unchanged(range.end - range.begin);
      continue;
    }
    rewrite.drop_bytes(range.end - range.begin);
    rewrite.replace_by_text(content, 0);
  }
  rewrite.finish();
}

// Classifies a Replace normalizer: as_mark if U+2581 replaces a space, as_space if a nonempty text
// replaces one character and neither contains white space or U+2581, uncertain otherwise.
SpaceRepresentation space_representation_after_replace(const std::string& literal,
                                                       const std::string& content) {
  if (literal == " ")
    return content == unicode::kSpaceMarkUtf8 ? SpaceRepresentation::as_mark
                                              : SpaceRepresentation::uncertain;
  const auto harmless = [&](const std::string& text) {
    for (std::size_t at = 0; at < text.size();) {
      const auto [code, size] = utf8::decode_character(text.data() + at);
      if (code == unicode::kSpaceMark || unicode::has_character_property(code, unicode::kSpace))
        return false;
      at += size;
    }
    return !text.empty();
  };
  const bool plain = harmless(literal) && harmless(content) && utf8::count_characters(literal) == 1;
  return plain ? SpaceRepresentation::as_space : SpaceRepresentation::uncertain;
}

void prepend_prefix(SourceMappedText& text, const std::string& prefix) {
  SourceMappedText::TextRewriter rewrite(text);
  const auto [first, first_size] = utf8::decode_character(text.text().data());
  rewrite.replace_by_text(prefix, first_size);
  rewrite.replace_by_character(first, 0);
  rewrite.copy_unchanged(text.text().size() - first_size);
  rewrite.finish();
}

}  // namespace

SourceMappedText::SourceMappedText(std::string_view text, std::uint32_t offset, bool aligned)
    : text_(text), offset_(offset), most_(max_normalized_bytes(text.size())), aligned_(aligned) {
  if (!aligned) return;
  spans_.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const std::uint32_t size = utf8::character_size(text[at]);
    const auto begin = offset + static_cast<std::uint32_t>(at);
    spans_.insert(spans_.end(), size, ByteRange{begin, begin + size});
    at += size;
  }
}

void SourceMappedText::assign_subview(const SourceMappedText& whole, ByteRange range) {
  text_ = whole.text_.substr(range.begin, range.end - range.begin);
  offset_ = whole.offset_ + range.begin;
  most_ = max_normalized_bytes(text_.size());
  aligned_ = whole.aligned_;
  spans_.clear();
  if (aligned_) spans_.assign(whole.spans_.begin() + range.begin, whole.spans_.begin() + range.end);
}

SourceMappedText::TextRewriter::TextRewriter(SourceMappedText& target) : target_(target) {
  text_.reserve(target.text_.size() + 16);
}

void SourceMappedText::TextRewriter::copy_unchanged(std::size_t size) {
  text_.append(target_.text_.substr(at_, size));
  if (target_.aligned_) {
    const auto from = target_.spans_.begin() + static_cast<std::ptrdiff_t>(at_);
    spans_.insert(spans_.end(), from, from + static_cast<std::ptrdiff_t>(size));
  }
  at_ += size;
  check_size_limit();
}

void SourceMappedText::TextRewriter::replace_by_character(char32_t code, std::size_t consumed) {
  const std::size_t before = text_.size();
  utf8::append_code_point(text_, code);
  if (target_.aligned_) {
    const ByteRange source = consumed > 0 ? target_.spans_[at_]
                             : at_ > 0    ? target_.spans_[at_ - 1]
                                          : ByteRange{};
    spans_.insert(spans_.end(), text_.size() - before, source);
  }
  at_ += consumed;
  check_size_limit();
}

void SourceMappedText::TextRewriter::replace_by_text(std::string_view text, std::size_t consumed) {
  for (std::size_t at = 0; at < text.size();) {
    const auto [code, size] = utf8::decode_character(text.data() + at);
    replace_by_character(code, at == 0 ? consumed : 0);
    at += size;
  }
}

void SourceMappedText::TextRewriter::check_size_limit() const {
  if (text_.size() > target_.most_)
    reject(
        "the tokenizer makes more than {} bytes of one piece of text: its normalizers let the "
        "text grow more than 64 times, which no real tokenizer does",
        target_.most_);
}

void SourceMappedText::TextRewriter::finish() {
  target_.storage_ = std::move(text_);
  target_.text_ = target_.storage_;
  if (target_.aligned_) target_.spans_ = std::move(spans_);
}

std::optional<Normalizer> make_normalizer(const Json& json, const std::string& where) {
  if (json.is_null()) return std::nullopt;
  const TokenizerComponentSpec spec(json, "normalizer", where);
  const auto form = [](unicode::NormalizationForm f) {
    return Normalizer{
        .apply = [f](SourceMappedText& text, SectionBoundaryFlags) { unicode::normalize(text, f); },
        .allows_cut_after_ideograph = true};
  };
  if (spec.has_type("NFC")) return form(unicode::kNfc);
  if (spec.has_type("NFD")) return form(unicode::kNfd);
  if (spec.has_type("NFKC")) return form(unicode::kNfkc);
  if (spec.has_type("NFKD")) return form(unicode::kNfkd);
  if (spec.has_type("Lowercase")) return Normalizer{.apply = lowercase};
  if (spec.has_type("Strip", {"strip_left", "strip_right"})) {
    return Normalizer{.apply = [left = spec.flag("strip_left"), right = spec.flag("strip_right")](
                                   SourceMappedText& text, SectionBoundaryFlags ends) {
      strip_whitespace(text, left && ends.begins, right && ends.ends);
    }};
  }
  if (spec.has_type("Replace", {"pattern", "content"})) {
    std::string literal;
    const auto pattern = spec.read_pattern(&literal);
    const auto content = spec.text("content");
    return Normalizer{
        .apply = [=](SourceMappedText& text,
                     SectionBoundaryFlags) { replace_pattern(text, pattern, content); },
        .space_form = space_representation_after_replace(literal, content)};
  }
  if (spec.has_type("Prepend", {"prepend"})) {
    return Normalizer{.apply = [prefix = spec.text("prepend")](SourceMappedText& text,
                                                               SectionBoundaryFlags ends) {
      if (!text.empty() && ends.begins && !prefix.empty()) prepend_prefix(text, prefix);
    }};
  }
  if (spec.has_type("Sequence", {"normalizers"})) {
    std::vector<Normalizer> parts;
    SpaceRepresentation space_form = SpaceRepresentation::as_space;
    for (const Json& part_json : spec.list("normalizers")) {
      const auto part = make_normalizer(part_json, where);
      if (!part) continue;
      parts.push_back(*part);
      if (space_form != SpaceRepresentation::uncertain &&
          part->space_form != SpaceRepresentation::as_space)
        space_form = part->space_form;
    }
    const auto apply = [parts](SourceMappedText& text, SectionBoundaryFlags ends) {
      for (const auto& part : parts) part.apply(text, ends);
    };
    return Normalizer{.apply = apply, .space_form = space_form};
  }
  spec.fail_unknown_type();
}

}  // namespace qkscope
