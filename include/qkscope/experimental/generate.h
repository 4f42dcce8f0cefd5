// Going on with texts: a cache of keys and values, so that a pass computes only the tokens that are
// new, and generating by sampling from the logits.
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

// The keys and values of several texts, in the memory of the model's device. The model must outlive
// it. One thread at a time.
class QKSCOPE_API KeyValueCache {
 public:
  // Room for `sequences` texts of up to `positions` tokens each; bad input where memory does not
  // suffice.
  KeyValueCache(const Model& model, std::int64_t sequences, std::int64_t positions);
  ~KeyValueCache();
  KeyValueCache(KeyValueCache&&) noexcept;
  KeyValueCache& operator=(KeyValueCache&&) noexcept;

  std::int64_t sequences() const;
  std::int64_t positions() const;                            // that a text may have
  std::int64_t length(std::int64_t sequence) const;          // positions that are there of a text
  void shorten(std::int64_t sequence, std::int64_t length);  // forgets what comes after

  // Whether the keys of a text are those that it has when `more` tokens follow. Not where they pass
  // a length at which RoPE takes other frequencies (dynamic, longrope): the text then has to run
  // again from its begin.
  bool can_go_on(std::int64_t sequence, std::int64_t more) const;

  // Adds tokens to a batch that follow what is there of a text; one call per text and batch.
  void add_to(Batch& batch, std::int64_t sequence, std::span<const std::int32_t> ids) const;

  // As Model::run, for a batch that add_to() filled, after which the texts are so much longer. All
  // layers run, whatever the observer wants; it sees the rows of the batch. Scores and patterns
  // have the keys of the whole text. On the CPU every row has the bits that it has in a pass over
  // the whole text.
  void run(const Batch& batch, Observer& observer);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Bytes that the keys and values of one token take in a cache.
QKSCOPE_API std::int64_t cache_bytes_per_token(const Model& model);

// The tokens that end a text, as generation_config.json or config.json of the checkpoint say
// (eos_token_id); empty where neither does.
QKSCOPE_API std::vector<std::int32_t> end_tokens(const Model& model);

struct GeneratedToken {
  std::int64_t sequence = 0;  // which prompt it follows
  std::int32_t id = 0;
  // What can be read now that was not before; with a tokenizer only. Empty while a character is
  // not complete or a stop text may be about to come.
  std::string_view text;
};

struct GenerateOptions {
  std::int64_t max_new_tokens = 128;
  double temperature = 0.0;  // logits are divided by it; 0: the most likely token
  std::int64_t top_k = 0;    // only the k most likely tokens; 0: all
  double top_p = 1.0;        // of those the fewest whose probabilities sum to this
  std::uint64_t seed = 0;    // a text is sampled the same way whatever runs beside it
  std::vector<std::int32_t> stop_tokens = {};  // beside end_tokens()
  bool stops_at_end = true;                    // at end_tokens()
  std::vector<std::string> stop_texts = {};    // need the tokenizer
  const Tokenizer* tokenizer = nullptr;
  // Called for every token as it comes; false ends the text.
  std::function<bool(const GeneratedToken&)> on_token = {};
  // Sees and edits what it wants of every pass: first the prompts, then one row for each text that
  // goes on. Of the logits it gets those of the last position of each text, (texts, vocab_size),
  // before they are sampled from. Its selection() and score_rows() are not asked.
  Observer* observer = nullptr;
};

enum class GenerateEnd { length, stop_token, stop_text, callback };

struct Generated {
  std::vector<std::int32_t> ids;  // new ones, a stop token included
  std::string text;               // of them, up to a stop token or text; with a tokenizer only
  GenerateEnd end = GenerateEnd::length;
};

// Goes on with each prompt (token ids, at least one): the prompts run in one pass, then one row per
// text and token with a cache of keys and values. Where the positions of a model are learned, a
// text ends with the last of them.
QKSCOPE_API std::vector<Generated> generate(const Model& model,
                                            std::span<const std::vector<std::int32_t>> prompts,
                                            const GenerateOptions& options = {});

}  // namespace qkscope
