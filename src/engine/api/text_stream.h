// Incremental decoding of token ids into text.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "qkscope/tokenizer.h"

namespace qkscope {

// Decodes a growing sequence and stops at stop texts.
class TextStream {
 public:
  // Decodes the tokens that follow a prompt. Stop texts must not be empty.
  TextStream(const Tokenizer& tokenizer, std::span<const std::int32_t> prompt,
             std::span<const std::string> stop_texts)
      : tokenizer_(tokenizer), stop_texts_(stop_texts) {
    const auto context = prompt.last(std::min(kContext, prompt.size()));
    ids_.assign(context.begin(), context.end());
    read_ = ids_.size();
  }

  // Returns newly readable text. Incomplete characters and prefixes of a stop text are held back.
  std::string add(std::int32_t id) {
    ids_.push_back(id);
    held_ += read(false);
    return release(false);
  }
  // Returns true once a stop text was found; all text before it has been returned.
  bool stopped() const { return stopped_; }
  // Returns the text held back so far; call after the last token.
  std::string finish() {
    if (stopped_) return {};
    held_ += read(true);
    return release(true);
  }

 private:
  // Tokens of context: the text of a token may depend on the tokens right before it.
  static constexpr std::size_t kContext = 6;
  static constexpr std::string_view kReplacement =
      "\uFFFD";  // U+FFFD marks bytes that form no character

  // Length of the longest suffix of the text that is a proper prefix of a stop text.
  static std::size_t stop_prefix_length(const std::string& text,
                                        std::span<const std::string> stop_texts) {
    std::size_t most = 0;
    for (const auto& stop : stop_texts)
      for (auto size = std::min(text.size(), stop.size() - 1); size > most; --size)
        if (text.compare(text.size() - size, size, stop, 0, size) == 0) most = size;
    return most;
  }

  // Decodes the ids that were not decoded yet, in the context of the ids before them.
  std::string read(bool last) {
    const std::span ids(ids_);
    const auto before = tokenizer_.decode(ids.first(read_), true);
    const auto whole = tokenizer_.decode(ids, true);
    if (whole.size() <= before.size() || (!last && whole.ends_with(kReplacement))) return {};
    const auto first = read_ > kContext ? read_ - kContext : 0;
    ids_.erase(ids_.begin(), ids_.begin() + static_cast<std::ptrdiff_t>(first));
    read_ = ids_.size();
    return whole.substr(before.size());
  }

  std::string release(bool last) {
    auto end = std::string::npos;
    for (const auto& stop : stop_texts_) end = std::min(end, held_.find(stop));
    stopped_ = end != std::string::npos;
    if (!stopped_) end = held_.size() - (last ? 0 : stop_prefix_length(held_, stop_texts_));
    auto given = held_.substr(0, end);
    held_.erase(0, stopped_ ? held_.size() : end);
    return given;
  }

  const Tokenizer& tokenizer_;
  std::span<const std::string> stop_texts_;
  std::vector<std::int32_t> ids_;  // a few tokens of context, then tokens not decoded yet
  std::size_t read_ = 0;           // number of decoded ids_
  std::string held_;               // decoded text not returned yet
  bool stopped_ = false;
};

}  // namespace qkscope
