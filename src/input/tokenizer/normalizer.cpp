#include "input/tokenizer/normalizer.h"

#include <vector>

#include "base/core/utf8.h"
#include "base/io/json.h"
#include "input/tokenizer/json_spec.h"
#include "input/tokenizer/unicode.h"

namespace qkscope {
namespace {

class FormNormalizer : public Normalizer {
 public:
  explicit FormNormalizer(unicode::Form form) : form_(form) {}
  void apply(AlignedText& text, SectionEnds) const override { unicode::normalize(text, form_); }
  bool allows_cut_after_ideograph() const override { return true; }

 private:
  unicode::Form form_;
};

class Lowercase : public Normalizer {
 public:
  void apply(AlignedText& text, SectionEnds) const override {
    AlignedText::Rewrite rewrite(text);
    while (rewrite.position() < rewrite.old().size()) {
      const auto [code, size] = utf8::decode(rewrite.old().data() + rewrite.position());
      const auto lower = unicode::lowercase(code);
      if (lower.empty()) {
        rewrite.keep(size);
        continue;
      }
      for (std::size_t i = 0; i < lower.size(); ++i) rewrite.put(lower[i], i == 0 ? size : 0);
    }
    rewrite.finish();
  }
};

class Strip : public Normalizer {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}

  void apply(AlignedText& text, SectionEnds ends) const override {
    const std::string_view old = text.text();
    std::size_t begin = 0, end = old.size();
    while (left_ && ends.begins && begin < end) {
      const auto [code, size] = utf8::decode(old.data() + begin);
      if (!unicode::has(code, unicode::kSpace)) break;
      begin += size;
    }
    while (right_ && ends.ends && end > begin) {
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

 private:
  bool left_, right_;
};

class Replace : public Normalizer {
 public:
  explicit Replace(const JsonSpec& spec)
      : pattern_(spec.pattern(&literal_)), content_(spec.text("content")) {}

  void apply(AlignedText& text, SectionEnds) const override {
    std::vector<Match> stretches;
    pattern_->find(text.text(), stretches);
    AlignedText::Rewrite rewrite(text);
    for (const auto& [range, matched] : stretches) {
      if (!matched) {
        rewrite.keep(range.end - range.begin);
        continue;
      }
      rewrite.drop(range.end - range.begin);
      for (std::size_t at = 0; at < content_.size();) {
        const auto [code, size] = utf8::decode(content_.data() + at);
        rewrite.put(code, 0);
        at += size;
      }
    }
    rewrite.finish();
  }

  // Only simple replacements are certain: a space by U+2581, or one character by others where none
  // of them is white space or U+2581.
  CutSpace cut_space() const override {
    constexpr char32_t kMark = 0x2581;
    if (literal_ == " ") {
      return content_ == utf8::encode(kMark) ? CutSpace::as_mark : CutSpace::uncertain;
    }
    const auto harmless = [&](const std::string& text) {
      for (std::size_t at = 0; at < text.size();) {
        const auto [code, size] = utf8::decode(text.data() + at);
        if (code == kMark || unicode::has(code, unicode::kSpace)) return false;
        at += size;
      }
      return !text.empty();
    };
    const bool plain = harmless(literal_) && harmless(content_) && utf8::count(literal_) == 1;
    return plain ? CutSpace::as_space : CutSpace::uncertain;
  }

 private:
  std::string literal_;
  PatternPointer pattern_;
  std::string content_;
};

class Prepend : public Normalizer {
 public:
  explicit Prepend(std::string prefix) : prefix_(std::move(prefix)) {}

  void apply(AlignedText& text, SectionEnds ends) const override {
    if (text.empty() || !ends.begins || prefix_.empty()) return;
    AlignedText::Rewrite rewrite(text);
    const auto [first, first_size] = utf8::decode(text.text().data());
    for (std::size_t at = 0; at < prefix_.size();) {
      const auto [code, size] = utf8::decode(prefix_.data() + at);
      rewrite.put(code, at == 0 ? first_size : 0);
      at += size;
    }
    rewrite.put(first, 0);
    rewrite.keep(text.text().size() - first_size);
    rewrite.finish();
  }

 private:
  std::string prefix_;
};

class NormalizerSequence : public Normalizer {
 public:
  explicit NormalizerSequence(std::vector<NormalizerPointer> parts) : parts_(std::move(parts)) {}
  void apply(AlignedText& text, SectionEnds ends) const override {
    for (const auto& part : parts_) part->apply(text, ends);
  }
  CutSpace cut_space() const override {
    CutSpace all = CutSpace::as_space;
    for (const auto& part : parts_) {
      const CutSpace one = part->cut_space();
      if (one == CutSpace::uncertain) return one;
      if (one == CutSpace::as_mark) all = one;
    }
    return all;
  }

 private:
  std::vector<NormalizerPointer> parts_;
};

NormalizerPointer make_sequence(const JsonSpec& spec) {
  std::vector<NormalizerPointer> parts;
  for (const Json& part : spec.list("normalizers")) {
    if (auto made = make_normalizer(part, spec.where())) parts.push_back(std::move(made));
  }
  return std::make_unique<NormalizerSequence>(std::move(parts));
}

template <typename Made>
NormalizerPointer checked(const JsonSpec& spec, std::initializer_list<std::string_view> keys,
                          Made made) {
  spec.allow(keys);
  return made();
}

}  // namespace

NormalizerPointer make_normalizer(const Json& json, const std::string& where) {
  if (json.is_null()) return nullptr;
  const JsonSpec spec(json, "normalizer", where);
  const std::string& type = spec.type();
  const auto form = [&](unicode::Form f) {
    return checked(spec, {}, [&] { return std::make_unique<FormNormalizer>(f); });
  };
  if (type == "NFC") return form(unicode::Form::nfc);
  if (type == "NFD") return form(unicode::Form::nfd);
  if (type == "NFKC") return form(unicode::Form::nfkc);
  if (type == "NFKD") return form(unicode::Form::nfkd);
  if (type == "Lowercase") return checked(spec, {}, [] { return std::make_unique<Lowercase>(); });
  if (type == "Strip") {
    return checked(spec, {"strip_left", "strip_right"}, [&] {
      return std::make_unique<Strip>(spec.flag("strip_left"), spec.flag("strip_right"));
    });
  }
  if (type == "Replace") {
    return checked(spec, {"pattern", "content"}, [&] { return std::make_unique<Replace>(spec); });
  }
  if (type == "Prepend") {
    return checked(spec, {"prepend"},
                   [&] { return std::make_unique<Prepend>(spec.text("prepend")); });
  }
  if (type == "Sequence") {
    return checked(spec, {"normalizers"}, [&] { return make_sequence(spec); });
  }
  spec.unknown_type();
}

}  // namespace qkscope
