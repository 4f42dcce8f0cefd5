#include "input/tokenizer/aligned_text.h"

#include "base/core/error.h"
#include "base/core/utf8.h"

namespace qkscope {
namespace {

// Real normalizers grow a text at most 11-fold (NFKC of U+FDFA).
std::size_t most_bytes(std::size_t size) {
  return 64 * size + (1 << 16);
}

}  // namespace

AlignedText::AlignedText(std::string_view text, std::uint32_t offset, bool aligned)
    : text_(text), offset_(offset), most_(most_bytes(text.size())), aligned_(aligned) {
  if (!aligned) return;
  spans_.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const std::uint32_t size = utf8::length(text[at]);
    const auto begin = offset + static_cast<std::uint32_t>(at);
    spans_.insert(spans_.end(), size, Span{begin, begin + size});
    at += size;
  }
}

void AlignedText::borrow(const AlignedText& whole, Span range) {
  text_ = whole.text_.substr(range.begin, range.end - range.begin);
  offset_ = whole.offset_ + range.begin;
  most_ = most_bytes(text_.size());
  aligned_ = whole.aligned_;
  spans_.clear();
  if (aligned_) spans_.assign(whole.spans_.begin() + range.begin, whole.spans_.begin() + range.end);
}

AlignedText::Rewrite::Rewrite(AlignedText& target) : target_(target) {
  text_.reserve(target.text_.size() + 16);
}

void AlignedText::Rewrite::keep(std::size_t size) {
  text_.append(target_.text_.substr(at_, size));
  if (target_.aligned_) {
    const auto from = target_.spans_.begin() + static_cast<std::ptrdiff_t>(at_);
    spans_.insert(spans_.end(), from, from + static_cast<std::ptrdiff_t>(size));
  }
  at_ += size;
  check_growth();
}

void AlignedText::Rewrite::put(char32_t code, std::size_t consumed) {
  const std::size_t before = text_.size();
  utf8::append_code_point(text_, code);
  if (target_.aligned_) {
    const Span source = consumed > 0 ? target_.spans_[at_]
                        : at_ > 0    ? target_.spans_[at_ - 1]
                                     : Span{};
    spans_.insert(spans_.end(), text_.size() - before, source);
  }
  at_ += consumed;
  check_growth();
}

void AlignedText::Rewrite::check_growth() const {
  if (text_.size() > target_.most_)
    bad_input(
        "the tokenizer makes more than {} bytes of one piece of text: its normalizers let the "
        "text grow more than 64 times, which no real tokenizer does",
        target_.most_);
}

void AlignedText::Rewrite::finish() {
  target_.storage_ = std::move(text_);
  target_.text_ = target_.storage_;
  if (target_.aligned_) target_.spans_ = std::move(spans_);
}

}  // namespace qkscope
