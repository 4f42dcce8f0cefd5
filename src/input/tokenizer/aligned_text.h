// Text in a tokenizer pipeline with the source position of every byte in the document.
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

// Starts as a view of the document and becomes a copy on the first change. Alignment costs time and
// memory and is tracked only on request.
class AlignedText {
 public:
  AlignedText() = default;
  // `text` is the part of the document that starts at byte `offset`; it must outlive this object.
  AlignedText(std::string_view text, std::uint32_t offset, bool aligned);

  AlignedText(const AlignedText&) = delete;
  AlignedText& operator=(const AlignedText&) = delete;

  // Makes this text a view of a part of another text.
  void borrow(const AlignedText& whole, Span range);

  std::string_view text() const { return text_; }
  bool aligned() const { return aligned_; }
  bool empty() const { return text_.empty(); }

  // Returns the bytes of the document that produced text()[range]. Requires alignment.
  Span source(Span range) const { return {spans_[range.begin].begin, spans_[range.end - 1].end}; }

  // Returns true if byte `at` is the first byte of the document. Without alignment, the result is
  // only valid while the text is unmodified.
  bool starts_document(std::uint32_t at) const {
    return aligned_ ? spans_[at].begin == 0 : offset_ + at == 0;
  }

  // Rewrites a text from front to back. Throws bad input if the text grows more than 64-fold,
  // because chained normalizers could otherwise exhaust memory.
  class Rewrite {
   public:
    explicit Rewrite(AlignedText& target);
    // Copies the next `size` bytes unchanged.
    void keep(std::size_t size);
    // Writes a character that replaces the next `consumed` bytes. Its alignment is that of the
    // first consumed byte, or of the previous byte if none is consumed.
    void put(char32_t code, std::size_t consumed);
    void drop(std::size_t size) { at_ += size; }
    std::size_t position() const { return at_; }          // read position in the old text
    std::size_t written() const { return text_.size(); }  // size of the new text in bytes
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
  std::vector<Span> spans_;  // per byte: the source character in the document
  std::uint32_t offset_ = 0;
  std::size_t most_ = 0;  // size limit in bytes after rewriting
  bool aligned_ = false;
};

}  // namespace qkscope
