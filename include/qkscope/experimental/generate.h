// Text generation with a KV cache, so that each pass computes only new tokens.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "qkscope/forward.h"
#include "qkscope/model.h"
#include "qkscope/tokenizer.h"
#include "qkscope/version.h"

namespace qkscope {

// KV cache of several texts in device memory. The model must outlive the cache. Not thread-safe.
class QKSCOPE_API KeyValueCache {
 public:
  // Allocates space for `sequences` texts of up to `positions` tokens. Throws a bad-input error if
  // memory is insufficient.
  KeyValueCache(const Model& model, std::int64_t sequences, std::int64_t positions);
  ~KeyValueCache();
  KeyValueCache(KeyValueCache&&) noexcept;
  KeyValueCache& operator=(KeyValueCache&&) noexcept;

  std::int64_t sequences() const;
  std::int64_t positions() const;                            // capacity of a text in tokens
  std::int64_t length(std::int64_t sequence) const;          // cached tokens of a text
  void shorten(std::int64_t sequence, std::int64_t length);  // discards later tokens

  // Returns true if the cached keys stay valid when `more` tokens follow, false if the text passes
  // a length at which RoPE changes its frequencies (dynamic, longrope); the text then has to run
  // again from the start.
  bool can_extend(std::int64_t sequence, std::int64_t more) const;

  // Adds the next tokens of one text to a batch; call once per text for each batch.
  void add_to(Batch& batch, std::int64_t sequence, std::span<const std::int32_t> ids) const;

  // Runs a batch filled by add_to() like Model::run, and appends its keys and values to the cache.
  // All layers run; the observer sees the rows of the batch, and scores and patterns include cached
  // keys. On the CPU the results are bit-identical to those of one pass over the whole text.
  void run(const Batch& batch, Observer& observer);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Returns the KV cache size per token in bytes.
QKSCOPE_API std::int64_t cache_bytes_per_token(const Model& model);

// Returns the end-of-text tokens (eos_token_id) of generation_config.json or config.json; empty if
// neither has them.
QKSCOPE_API std::vector<std::int32_t> end_tokens(const Model& model);

// A new token, for the callback.
struct GeneratedToken {
  std::int64_t sequence = 0;  // index of the prompt
  std::int32_t id = 0;
  // New text completed by this token; requires a tokenizer. Empty while a UTF-8 character is
  // incomplete or the text may be the beginning of a stop string.
  std::string_view text;
};

// Options of generate().
struct GenerateOptions {
  std::int64_t max_new_tokens = 128;
  double temperature = 0.0;  // divides the logits; 0: greedy
  std::int64_t top_k = 0;    // sample from the k most likely tokens; 0: all
  double top_p = 1.0;        // nucleus sampling: smallest set with this total probability
  std::uint64_t seed = 0;    // samples of a text do not depend on other texts
  std::vector<std::int32_t> stop_tokens = {};  // in addition to end_tokens()
  bool stops_at_end = true;                    // stop at end_tokens()
  std::vector<std::string> stop_texts = {};    // require the tokenizer
  const Tokenizer* tokenizer = nullptr;
  // Called for every new token; return false to stop generating this text.
  std::function<bool(const GeneratedToken&)> on_token = {};
  // Observes every forward pass: first the pass over the prompts, then passes with one row per
  // unfinished text. Logits have shape (texts, vocab_size), for the last position of each text, and
  // may be edited before sampling. selection() and score_rows() are not used.
  Observer* observer = nullptr;
};

// Why a text ended.
enum class GenerateEnd { length, stop_token, stop_text, callback };

// Result of one prompt.
struct Generated {
  std::vector<std::int32_t> ids;  // new tokens, including a stop token
  std::string text;  // decoded text up to a stop token or stop text; only with a tokenizer
  GenerateEnd end = GenerateEnd::length;
};

// Generates a continuation of each prompt; prompts must not be empty. All prompts run in one pass.
// Each later step runs one token per text, or all of the text if KeyValueCache::can_extend() is
// false. A model with learned position embeddings stops at its last position.
QKSCOPE_API std::vector<Generated> generate(const Model& model,
                                            std::span<const std::vector<std::int32_t>> prompts,
                                            const GenerateOptions& options = {});

}  // namespace qkscope
