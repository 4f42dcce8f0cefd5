#include "input/tokenizer/normalizer.h"

#include <vector>

#include "base/core/utf8.h"
#include "base/io/json.h"
#include "input/tokenizer/json_spec.h"
#include "input/tokenizer/unicode.h"

namespace qkscope {
namespace {

void lowercase(AlignedText& text, SectionEnds) {
  AlignedText::Rewrite rewrite(text);
  while (rewrite.position() < rewrite.old().size()) {
    const auto [code, size] = utf8::decode(rewrite.old().data() + rewrite.position());
    const auto lower = unicode::lowercase(code);
    if (lower.empty()) rewrite.keep(size);
    for (std::size_t i = 0; i < lower.size(); ++i) rewrite.put(lower[i], i == 0 ? size : 0);
  }
  rewrite.finish();
}

// Removes white space at the left or right end of a section.
void strip(AlignedText& text, bool left, bool right) {
  const std::string_view old = text.text();
  std::size_t begin = 0, end = old.size();
  while (left && begin < end) {
    const auto [code, size] = utf8::decode(old.data() + begin);
    if (!unicode::has(code, unicode::kSpace)) break;
    begin += size;
  }
  while (right && end > begin) {
    const auto [code, size] = utf8::decode_last(old.data() + end);
    if (!unicode::has(code, unicode::kSpace)) break;
    end -= size;
  }
  if (begin == 0 && end == old.size()) return;
  AlignedText::Rewrite rewrite(text);
  rewrite.drop(begin);
  rewrite.keep(end - begin);
  rewrite.finish();
}

void replace(AlignedText& text, const Pattern& pattern, const std::string& content) {
  std::vector<Match> matches;
  pattern.find(text.text(), matches);
  AlignedText::Rewrite rewrite(text);
  for (const auto& [range, matched] : matches) {
    if (!matched) {
      rewrite.keep(range.end - range.begin);
      continue;
    }
    rewrite.drop(range.end - range.begin);
    for (std::size_t at = 0; at < content.size();) {
      const auto [code, size] = utf8::decode(content.data() + at);
      rewrite.put(code, 0);
      at += size;
    }
  }
  rewrite.finish();
}

// Only simple replacements are certain: a space by U+2581, or one character by others where none of
// them is white space or U+2581.
CutSpace cut_space_of_replace(const std::string& literal, const std::string& content) {
  if (literal == " ")
    return content == unicode::kSpaceMarkUtf8 ? CutSpace::as_mark : CutSpace::uncertain;
  const auto harmless = [&](const std::string& text) {
    for (std::size_t at = 0; at < text.size();) {
      const auto [code, size] = utf8::decode(text.data() + at);
      if (code == unicode::kSpaceMark || unicode::has(code, unicode::kSpace)) return false;
      at += size;
    }
    return !text.empty();
  };
  const bool plain = harmless(literal) && harmless(content) && utf8::count_characters(literal) == 1;
  return plain ? CutSpace::as_space : CutSpace::uncertain;
}

void prepend(AlignedText& text, const std::string& prefix) {
  AlignedText::Rewrite rewrite(text);
  const auto [first, first_size] = utf8::decode(text.text().data());
  for (std::size_t at = 0; at < prefix.size();) {
    const auto [code, size] = utf8::decode(prefix.data() + at);
    rewrite.put(code, at == 0 ? first_size : 0);
    at += size;
  }
  rewrite.put(first, 0);
  rewrite.keep(text.text().size() - first_size);
  rewrite.finish();
}

Normalizer make_sequence(const JsonSpec& spec) {
  std::vector<Normalizer> parts;
  CutSpace cut_space = CutSpace::as_space;
  for (const Json& json : spec.list("normalizers")) {
    const auto part = make_normalizer(json, spec.where());
    if (!part) continue;
    parts.push_back(*part);
    if (cut_space != CutSpace::uncertain && part->cut_space != CutSpace::as_space)
      cut_space = part->cut_space;
  }
  const auto apply = [parts](AlignedText& text, SectionEnds ends) {
    for (const auto& part : parts) part.apply(text, ends);
  };
  return {.apply = apply, .cut_space = cut_space};
}

}  // namespace

std::optional<Normalizer> make_normalizer(const Json& json, const std::string& where) {
  if (json.is_null()) return std::nullopt;
  const JsonSpec spec(json, "normalizer", where);
  const std::string& type = spec.type();
  const auto form = [&](unicode::Form f) {
    spec.allow({});
    return Normalizer{.apply = [f](AlignedText& text, SectionEnds) { unicode::normalize(text, f); },
                      .allows_cut_after_ideograph = true};
  };
  if (type == "NFC") return form(unicode::Form::nfc);
  if (type == "NFD") return form(unicode::Form::nfd);
  if (type == "NFKC") return form(unicode::Form::nfkc);
  if (type == "NFKD") return form(unicode::Form::nfkd);
  if (type == "Lowercase") {
    spec.allow({});
    return Normalizer{.apply = lowercase};
  }
  if (type == "Strip") {
    spec.allow({"strip_left", "strip_right"});
    return Normalizer{.apply = [left = spec.flag("strip_left"), right = spec.flag("strip_right")](
                                   AlignedText& text, SectionEnds ends) {
      strip(text, left && ends.begins, right && ends.ends);
    }};
  }
  if (type == "Replace") {
    spec.allow({"pattern", "content"});
    std::string literal;
    const auto pattern = spec.pattern(&literal);
    const auto content = spec.text("content");
    return Normalizer{
        .apply = [=](AlignedText& text, SectionEnds) { replace(text, pattern, content); },
        .cut_space = cut_space_of_replace(literal, content)};
  }
  if (type == "Prepend") {
    spec.allow({"prepend"});
    return Normalizer{
        .apply = [prefix = spec.text("prepend")](AlignedText& text, SectionEnds ends) {
          if (!text.empty() && ends.begins && !prefix.empty()) prepend(text, prefix);
        }};
  }
  if (type == "Sequence") {
    spec.allow({"normalizers"});
    return make_sequence(spec);
  }
  spec.unknown_type();
}

}  // namespace qkscope
