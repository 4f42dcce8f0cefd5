#include <algorithm>

#include "base/core/error.h"
#include "base/core/numbers.h"
#include "base/core/translate_exceptions.h"
#include "engine/api/model_state.h"
#include "engine/device/memory_plan.h"
#include "engine/forward/forward.h"
#include "qkscope/experimental/generate.h"

namespace qkscope {
namespace {

// Returns true if RoPE uses the same frequencies for sequences of `length` and of `other`
// positions.
bool same_frequencies(const ModelConfig& model, std::int64_t length, std::int64_t other) {
  return std::all_of(model.ropes.begin(), model.ropes.end(), [&](const RopeConfig& rope) {
    if (rope.type != RopeType::dynamic && rope.type != RopeType::longrope) return true;
    const auto a = rope_frequencies(rope, length);
    const auto b = rope_frequencies(rope, other);
    return a.inverse == b.inverse && a.attention_factor == b.attention_factor;
  });
}

}  // namespace

struct KeyValueCache::State {
  Model::State& model;
  std::int64_t positions;
  std::vector<std::int64_t> lengths;     // (sequences)
  std::unique_ptr<Backend> own_backend;  // CPU only; on CUDA the backend of the model is used
  std::unique_ptr<KeyValueStore> store;

  Backend& backend() const { return own_backend ? *own_backend : *model.backend; }
  const ModelConfig& config() const { return model.checkpoint.config; }

  std::int64_t& length(std::int64_t sequence) {
    if (sequence < 0 || sequence >= std::ssize(lengths))
      bad_input("cache: found sequence {}, it has {}, numbered from 0", sequence, lengths.size());
    return lengths[as_index(sequence)];
  }

  void check(const Sequence& sequence) {
    const auto cached = length(sequence.slot);
    if (sequence.past != cached)
      bad_input("cache: a batch goes on at position {} of sequence {}, of which {} are there",
                sequence.past, sequence.slot, cached);
    if (sequence.end() > positions)
      bad_input("cache: sequence {} would have {} tokens, there is room for {}", sequence.slot,
                sequence.end(), positions);
    if (cached > 0 && !same_frequencies(config(), cached, sequence.end()))
      bad_input(
          "cache: between {} and {} tokens RoPE changes its frequencies; forget sequence {} and "
          "run "
          "its whole text",
          cached, sequence.end(), sequence.slot);
  }

  void check(const Batch& batch) {
    std::vector<bool> seen(lengths.size());
    for (const auto& sequence : batch.sequences) {
      check(sequence);
      if (seen[as_index(sequence.slot)])
        bad_input("cache: sequence {} is twice in a batch", sequence.slot);
      seen[as_index(sequence.slot)] = true;
    }
  }
};

KeyValueCache::KeyValueCache(const Model& model, std::int64_t sequences, std::int64_t positions) {
  translate_exceptions([&] {
    if (sequences < 1 || positions < 1)
      bad_input("cache: room for {} texts of {} tokens; expected at least one of each", sequences,
                positions);
    auto& owner = *model.state_;
    state_ = std::make_unique<State>(State{owner, positions, {}, nullptr, nullptr});
    state_->lengths.resize(as_index(sequences));
    if (!owner.backend) state_->own_backend = make_backend(owner.checkpoint);
    if (!owner.backend) check_host_cache(owner.checkpoint.config, sequences, positions);
    state_->store = state_->backend().make_store(sequences, positions);
  });
}

KeyValueCache::~KeyValueCache() = default;
KeyValueCache::KeyValueCache(KeyValueCache&&) noexcept = default;
KeyValueCache& KeyValueCache::operator=(KeyValueCache&&) noexcept = default;

std::int64_t KeyValueCache::sequences() const {
  return std::ssize(state_->lengths);
}

std::int64_t KeyValueCache::positions() const {
  return state_->positions;
}

std::int64_t KeyValueCache::length(std::int64_t sequence) const {
  return translate_exceptions([&] { return state_->length(sequence); });
}

void KeyValueCache::shorten(std::int64_t sequence, std::int64_t length) {
  translate_exceptions([&] {
    auto& cached = state_->length(sequence);
    if (length < 0 || length > cached)
      bad_input("cache: sequence {} cannot be shortened to {} tokens, it has {}", sequence, length,
                cached);
    if (length > 0 && !same_frequencies(state_->config(), length, cached)) length = 0;
    cached = length;
  });
}

bool KeyValueCache::can_go_on(std::int64_t sequence, std::int64_t more) const {
  return translate_exceptions([&] {
    const auto cached = state_->length(sequence);
    return cached == 0 || same_frequencies(state_->config(), cached, cached + more);
  });
}

void KeyValueCache::add_to(Batch& batch, std::int64_t sequence,
                           std::span<const std::int32_t> ids) const {
  translate_exceptions([&] {
    const auto past = state_->length(sequence);
    batch.add(ids);
    batch.sequences.back().past = past;
    batch.sequences.back().slot = sequence;
  });
}

void KeyValueCache::run(const Batch& batch, Observer& observer) {
  run_observed(observer, [&](Observer& recorder) {
    state_->check(batch);
    const auto pass = [&] { forward(state_->backend(), batch, recorder, *state_->store); };
    if (state_->own_backend)
      pass();
    else
      state_->model.run_exclusive(pass);
    for (const auto& sequence : batch.sequences) state_->length(sequence.slot) = sequence.end();
  });
}

std::int64_t cache_bytes_per_token(const Model& model) {
  const auto dtype = model.device().kind == Device::Kind::cpu ? DType::f32 : model.dtype();
  return translate_exceptions([&] { return cache_token_bytes(model.config(), dtype); });
}

}  // namespace qkscope
