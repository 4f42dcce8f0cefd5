// Text on its way through a tokenizer, and where each of its bytes came from in the document.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace qkscope {

// A half-open range of bytes.
struct Span {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;

  bool operator==(const Span&) const = default;
};

// Starts as a borrowed piece of the document and becomes a copy of its own when something changes
// it. Alignment costs time and memory, so it is kept only when asked for.
class AlignedText {
 public:
  AlignedText() = default;
  // `text` is the document's bytes from `offset` on, and must outlive this object.
  AlignedText(std::string_view text, std::uint32_t offset, bool aligned);

  AlignedText(const AlignedText&) = delete;
  AlignedText& operator=(const AlignedText&) = delete;

  // Makes this text a part of another one, borrowed like a document.
  void borrow(const AlignedText& whole, Span range);

  std::string_view text() const { return text_; }
  bool aligned() const { return aligned_; }
  bool empty() const { return text_.empty(); }

  // The bytes of the document that text()[range] came from; aligned texts only.
  Span source(Span range) const { return {spans_[range.begin].begin, spans_[range.end - 1].end}; }

  // Whether byte `at` of the text is the first of the document. Without alignment this is known
  // only while the text is an unchanged piece of it.
  bool starts_document(std::uint32_t at) const {
    return aligned_ ? spans_[at].begin == 0 : offset_ + at == 0;
  }

  // Builds a changed text beside the old one, front to back, then takes its place. A text that
  // grows without measure is bad input: normalizers in a chain could fill the memory.
  class Rewrite {
   public:
    explicit Rewrite(AlignedText& target);
    // The next `size` bytes of the old text stay.
    void keep(std::size_t size);
    // Puts a character in the place of the next `consumed` bytes; it takes the alignment of the
    // first of them, or of the byte before when it consumes none.
    void put(char32_t code, std::size_t consumed);
    void drop(std::size_t size) { at_ += size; }
    std::size_t position() const { return at_; }          // in the old text
    std::size_t written() const { return text_.size(); }  // bytes of the new text
    std::string_view old() const { return target_.text_; }
    void finish();

   private:
    void check_growth() const;

    AlignedText& target_;
    std::string text_;
    std::vector<Span> spans_;
    std::size_t at_ = 0;
  };

 private:
  std::string_view text_;
  std::string storage_;
  std::vector<Span> spans_;  // one per byte: the whole character of the document it came from
  std::uint32_t offset_ = 0;
  std::size_t most_ = 0;  // bytes that rewriting may make of it
  bool aligned_ = false;
};

}  // namespace qkscope
