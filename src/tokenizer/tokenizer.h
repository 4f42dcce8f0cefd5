// A tokenizer.json at work: text to ids, the same ids as the Hugging Face library gives, and back.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/post_processor.h"

namespace qkscope {

struct TokenizerFile;

class Tokenizer {
 public:
  // A tokenizer.json, or a folder that holds one; the tokenizer_config.json beside it says whether
  // bos and eos are added and which side is cut.
  static Tokenizer load(const std::string& folder_or_file);
  explicit Tokenizer(TokenizerFile file);
  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;

  struct EncodeOptions {
    bool add_special_tokens = true;
    std::int64_t max_length = 0;  // ids with the special ones counted in; 0: no limit
    bool offsets = false;         // fill Encoding::offsets; slower
  };
  struct Encoding {
    std::vector<std::int32_t> ids;
    bool truncated = false;            // there were more ids than max_length
    std::vector<TokenOffset> offsets;  // in characters, one per id when asked for
  };

  // Can be called from many threads at once; a long text is itself spread over the threads. With
  // max_length only as much of the text is read as its ids need. Text that is not UTF-8 is bad
  // input; the message says at which byte.
  Encoding encode(std::string_view utf8, const EncodeOptions& options) const;
  Encoding encode(std::string_view utf8) const { return encode(utf8, EncodeOptions()); }

  // Ids that no token has are left out.
  std::string decode(std::span<const std::int32_t> ids, bool skip_special = false) const;

  // The token as the vocabulary spells it ("Ġthe"); empty where no token has the id.
  std::string token_string(std::int32_t id) const;
  std::int64_t vocab_size() const;  // added tokens counted in

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace qkscope
