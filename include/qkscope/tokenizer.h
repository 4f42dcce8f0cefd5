// Tokenizer: converts text to token ids and back, with the ids of the Hugging Face tokenizers
// library.
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

// Returns true if Tokenizer::load() would find a tokenizer at this path.
QKSCOPE_API bool has_tokenizer(const std::string& folder_or_file);

// Position of a token in the text: the half-open range [begin, end) of characters (code points),
// not bytes.
struct TokenOffset {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  bool operator==(const TokenOffset&) const = default;
};

class QKSCOPE_API Tokenizer {
 public:
  // Loads a tokenizer.json, a folder that contains one, a GGUF file, or a folder whose only
  // tokenizer is in a GGUF file. A tokenizer_config.json next to tokenizer.json sets add_bos_token,
  // add_eos_token and the truncation side.
  static Tokenizer load(const std::string& folder_or_file);
  // Parses the content of a tokenizer.json; no tokenizer_config.json is read. Error messages call
  // the source `name`.
  static Tokenizer from_json(std::string_view json, const std::string& name = "tokenizer.json");
  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;

  struct EncodeOptions {
    bool add_special_tokens = true;
    std::int64_t max_length = 0;  // maximum number of ids, special tokens included; 0: no limit
    bool offsets = false;         // compute Encoding::offsets, which is slower
  };
  struct Encoding {
    std::vector<std::int32_t> ids;
    bool truncated = false;            // the text had more ids than max_length
    std::vector<TokenOffset> offsets;  // one per id if EncodeOptions::offsets is set, else empty
  };

  // Thread-safe. Long texts are split and encoded in parallel. With max_length, encoding stops once
  // enough ids are known. Throws a bad-input error that names the byte position if the text is not
  // valid UTF-8.
  Encoding encode(std::string_view utf8, const EncodeOptions& options) const;
  Encoding encode(std::string_view utf8) const { return encode(utf8, EncodeOptions()); }

  // Converts ids to text. Ids outside the vocabulary are skipped.
  std::string decode(std::span<const std::int32_t> ids, bool skip_special = false) const;

  // Returns the token as spelled in the vocabulary ("Ġthe"), or "" if no token has this id.
  std::string token_string(std::int32_t id) const;
  std::int64_t vocab_size() const;  // includes added tokens

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
