// Token ids as text while they come.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "qkscope/tokenizer.h"

namespace qkscope {

class TextStream {
 public:
  // What follows the ids of a prompt; stop texts must not be empty.
  TextStream(const Tokenizer& tokenizer, std::span<const std::int32_t> prompt,
             std::span<const std::string> stop_texts);

  // The text that can be read with this token and could not before. A character that is not
  // complete is held back, and so is what may be the begin of a stop text.
  std::string add(std::int32_t id);
  // A stop text has come: everything before it was given.
  bool stopped() const { return stopped_; }
  // What was held back, when no more tokens come.
  std::string finish();

 private:
  std::string read(bool last);
  std::string release(bool last);

  const Tokenizer& tokenizer_;
  std::span<const std::string> stop_texts_;
  std::vector<std::int32_t> ids_;  // some before the text, and those that were not read yet
  std::size_t read_ = 0;           // of ids_
  std::string held_;               // read and not given
  bool stopped_ = false;
};

}  // namespace qkscope
