#include "qkscope/experimental/generate.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <new>
#include <optional>

#include "base/core/error.h"
#include "base/core/numbers.h"
#include "base/io/json.h"
#include "base/io/mapped_file.h"
#include "engine/api/generation.h"
#include "engine/forward/forward.h"
#include "input/tokenizer/tokenizer_file.h"

namespace qkscope {
namespace {

// Copies the last logits of each sequence; forwards other hooks to the caller's observer.
class LastLogitsObserver : public Observer {
 public:
  explicit LastLogitsObserver(Observer* other) : other_(other != nullptr ? *other : nothing_) {}

  void select_last_rows(const Batch& batch) {
    rows_.clear();
    for (const auto& sequence : batch.sequences)
      rows_.push_back(sequence.begin + sequence.length - 1);
  }
  // Returns the logits, shape (sequences, vocab_size); valid after the pass.
  const Tensor& logits() const { return logits_; }

  bool wants(HookPoint point) const override { return is_logits(point) || other_.wants(point); }
  bool wants_derived() const override { return other_.wants_derived(); }
  void begin_layer(std::int64_t layer) override { other_.begin_layer(layer); }
  Selection selection(HookPoint point) const override {
    if (!is_logits(point)) return {};
    return {.rows = rows_, .heads = {}};
  }
  bool edits(HookPoint point) const override { return !is_logits(point) && caller_edits(point); }
  void edit(HookPoint point, TensorView activation) override { other_.edit(point, activation); }
  bool keeps_on_device() const override { return other_.keeps_on_device(); }

  void observe(HookPoint point, ConstTensorView activation) override {
    if (!is_logits(point)) return other_.observe(point, activation);
    logits_ = to_float32(activation);
    if (!other_.wants(point)) return;
    if (caller_edits(point))
      other_.edit(point, logits_);
    else
      other_.observe(point, logits_);
  }

  bool keep(HookPoint point, const ActivationCopy& activation) override {
    if (!is_logits(point)) return other_.keep(point, activation);
    if (other_.wants(point)) other_.keep(point, activation);
    logits_ = Tensor(activation.view.shape());
    copy_values(logits_, activation.view);
    return false;
  }

 private:
  static bool is_logits(HookPoint point) { return point.stage == Stage::logits; }
  bool caller_edits(HookPoint point) const { return other_.wants(point) && other_.edits(point); }

  NullObserver nothing_;
  Observer& other_;
  std::vector<std::int64_t> rows_;
  Tensor logits_;
};

void check_generate_options(std::span<const std::vector<std::int32_t>> prompts,
                            const GenerateOptions& options) {
  if (prompts.empty()) reject("generate: there is no prompt");
  for (std::size_t i = 0; i < prompts.size(); ++i)
    if (prompts[i].empty()) reject("generate: prompt {} has no tokens; one is needed", i);
  if (options.max_new_tokens < 1)
    reject("generate: max_new_tokens is {}, expected at least 1", options.max_new_tokens);
  if (!(options.temperature >= 0.0) || !std::isfinite(options.temperature))
    reject("generate: temperature is {}, expected 0 (the most likely token) or more",
           options.temperature);
  if (options.top_k < 0)
    reject("generate: top_k is {}, expected 1 or more, or 0 for all tokens", options.top_k);
  if (!(options.top_p > 0.0 && options.top_p <= 1.0))
    reject("generate: top_p is {}, expected more than 0 and at most 1", options.top_p);
  if (options.stop_texts.empty()) return;
  if (options.tokenizer == nullptr) reject("generate: stop texts need a tokenizer");
  for (const auto& text : options.stop_texts)
    if (text.empty()) reject("generate: a stop text is empty");
}

// One prompt with its generated tokens.
class GeneratedSequence {
 public:
  GeneratedSequence(std::int64_t number, const std::vector<std::int32_t>& prompt,
                    const GenerateOptions& options, std::span<const std::int32_t> stop_tokens)
      : number_(number),
        options_(options),
        stop_tokens_(stop_tokens),
        ids_(prompt),
        sampler_(options, number) {
    if (options.tokenizer != nullptr)
      stream_.emplace(*options.tokenizer, prompt, options.stop_texts);
  }

  bool ended() const { return ended_; }

  // Adds to the batch the tokens that are not in the KV cache yet.
  void add_uncached_tokens(Batch& batch, KeyValueCache& cache) const {
    const auto uncached = [&] { return std::span(ids_).subspan(as_index(cache.length(number_))); };
    if (!cache.can_extend(number_, std::ssize(uncached()))) cache.shorten(number_, 0);
    cache.add_to(batch, number_, uncached());
  }

  void sample_token(std::span<const float> logits, std::int64_t max_tokens) {
    const auto id = sampler_.sample_token(logits);
    ids_.push_back(id);
    result_.ids.push_back(id);
    const bool stops = std::ranges::find(stop_tokens_, id) != stop_tokens_.end();
    std::string text = stream_ && !stops ? stream_->add_token(id) : std::string();
    if (stops)
      end_with(GenerateEnd::stop_token);
    else if (stream_ && stream_->stopped())
      end_with(GenerateEnd::stop_text);
    else if (std::ssize(ids_) >= max_tokens || std::ssize(result_.ids) >= options_.max_new_tokens)
      end_with(GenerateEnd::length);
    if (ended_ && stream_) text += stream_->flush();
    result_.text += text;
    const bool wants_more = !options_.on_token || options_.on_token({number_, id, text});
    if (!wants_more && !ended_) end_with(GenerateEnd::callback);
  }

  Generated result() && { return std::move(result_); }

 private:
  void end_with(GenerateEnd reason) {
    ended_ = true;
    result_.end = reason;
  }

  std::int64_t number_;
  const GenerateOptions& options_;
  std::span<const std::int32_t> stop_tokens_;
  std::vector<std::int32_t> ids_;  // prompt and generated tokens
  TokenSampler sampler_;
  std::optional<IncrementalDecoder> stream_;
  Generated result_;
  bool ended_ = false;
};

std::vector<std::int32_t> parse_eos_token_ids(const Json& value, const std::string& where) {
  if (value.is_number_integer()) return {value.get<std::int32_t>()};
  std::vector<std::int32_t> ids;
  if (value.is_array())
    for (const auto& id : value) {
      if (!id.is_number_integer())
        reject("{}: eos_token_id holds {}, expected token ids", where, id.dump());
      ids.push_back(id.get<std::int32_t>());
    }
  return ids;
}

// Reads eos_token_id from the top level of a JSON file or from its text_config section.
std::vector<std::int32_t> read_eos_token_ids(const std::string& file) {
  if (!std::filesystem::exists(file)) return {};
  const auto json = parse_json(MappedFile(file).text(), file);
  for (const auto* part : {&json, json.contains("text_config") ? &json["text_config"] : nullptr})
    if (part != nullptr && part->is_object() && part->contains("eos_token_id"))
      if (auto ids = parse_eos_token_ids((*part)["eos_token_id"], file); !ids.empty()) return ids;
  return {};
}

// Maximum sequence length: limited by learned position embeddings, else unlimited.
std::int64_t token_limit(const ModelConfig& model) {
  return model.learned_positions() ? model.max_positions : std::numeric_limits<std::int64_t>::max();
}

std::vector<Generated> generate_texts(const Model& model,
                                      std::span<const std::vector<std::int32_t>> prompts,
                                      const GenerateOptions& options) {
  auto stop_tokens = options.stops_at_end ? end_tokens(model) : std::vector<std::int32_t>();
  stop_tokens.insert(stop_tokens.end(), options.stop_tokens.begin(), options.stop_tokens.end());
  std::vector<GeneratedSequence> texts;
  for (const auto& prompt : prompts)
    texts.emplace_back(std::ssize(texts), prompt, options, stop_tokens);
  const auto longest =
      std::ssize(*std::ranges::max_element(prompts, {}, &std::vector<std::int32_t>::size));
  const auto positions = std::min(longest + options.max_new_tokens, token_limit(model.config()));
  KeyValueCache cache(model, std::ssize(texts), std::max<std::int64_t>(longest, positions));
  LastLogitsObserver observer(options.observer);
  while (true) {
    Batch batch;
    std::vector<GeneratedSequence*> running;
    for (auto& text : texts)
      if (!text.ended()) {
        text.add_uncached_tokens(batch, cache);
        running.push_back(&text);
      }
    if (running.empty()) break;
    observer.select_last_rows(batch);
    cache.run(batch, observer);
    const auto width = as_index(model.config().vocab_size);
    for (std::size_t i = 0; i < running.size(); ++i)
      running[i]->sample_token({observer.logits().data<float>() + i * width, width},
                               token_limit(model.config()));
  }
  std::vector<Generated> results;
  results.reserve(texts.size());
  for (auto& text : texts) results.push_back(std::move(text).result());
  return results;
}

}  // namespace

std::vector<std::int32_t> end_tokens(const Model& model) {
  return translate_exceptions([&] {
    auto ids = read_eos_token_ids(model.folder() + "/generation_config.json");
    if (ids.empty()) ids = read_eos_token_ids(model.folder() + "/config.json");
    if (!ids.empty()) return ids;
    const auto gguf = find_gguf_tokenizer(model.folder());
    return gguf.empty() ? ids : gguf_end_token_ids(gguf);
  });
}

std::vector<Generated> generate(const Model& model,
                                std::span<const std::vector<std::int32_t>> prompts,
                                const GenerateOptions& options) {
  translate_exceptions([&] { check_generate_options(prompts, options); });
  try {
    return generate_texts(model, prompts, options);
  } catch (const std::bad_alloc&) {  // other exceptions are Errors or come from a callback
    rethrow_as_error();
  }
}

}  // namespace qkscope
