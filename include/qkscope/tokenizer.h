// Tokenizers: text to token ids and back, with the same ids as the Hugging Face library gives.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "qkscope/version.h"

namespace qkscope {

// Whether a folder or file is one that Tokenizer::load would look into.
QKSCOPE_API bool has_tokenizer(const std::string& folder_or_file);

// Where a token came from: characters (not bytes) [begin, end) of the text.
struct TokenOffset {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  bool operator==(const TokenOffset&) const = default;
};

class QKSCOPE_API Tokenizer {
 public:
  // A tokenizer.json, or a folder that holds one; the tokenizer_config.json beside it says whether
  // bos and eos are added and which side of a long text is cut. Or a GGUF file, or a folder whose
  // only tokenizer is in one.
  static Tokenizer load(const std::string& folder_or_file);
  // From the text of a tokenizer.json, without a tokenizer_config.json. `name` stands for the file
  // in messages.
  static Tokenizer from_json(std::string_view json, const std::string& name = "tokenizer.json");
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
    std::vector<TokenOffset> offsets;  // one per id when asked for
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

  // Ids of the BOS and EOS tokens that tokenizer_config.json or the GGUF metadata name.
  std::optional<std::int32_t> bos_id() const;
  std::optional<std::int32_t> eos_id() const;
  // Ids that encode() puts before every text when it adds special tokens: BOS for most models, none
  // for some.
  std::vector<std::int32_t> prefix_ids() const;

 private:
  struct State;
  explicit Tokenizer(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace qkscope
