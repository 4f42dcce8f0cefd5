// Incremental decoding of token ids into text.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "qkscope/tokenizer.h"

namespace qkscope {

// Decodes a growing sequence and stops at stop texts.
class TextStream {
 public:
  // Decodes the tokens that follow a prompt. Stop texts must not be empty.
  TextStream(const Tokenizer& tokenizer, std::span<const std::int32_t> prompt,
             std::span<const std::string> stop_texts);

  // Returns newly readable text. Incomplete characters and prefixes of a stop text are held back.
  std::string add(std::int32_t id);
  // Returns true once a stop text was found; all text before it has been returned.
  bool stopped() const { return stopped_; }
  // Returns the text held back so far; call after the last token.
  std::string finish();

 private:
  std::string read(bool last);
  std::string release(bool last);

  const Tokenizer& tokenizer_;
  std::span<const std::string> stop_texts_;
  std::vector<std::int32_t> ids_;  // a few tokens of context, then tokens not decoded yet
  std::size_t read_ = 0;           // number of decoded ids_
  std::string held_;               // decoded text not returned yet
  bool stopped_ = false;
};

}  // namespace qkscope
