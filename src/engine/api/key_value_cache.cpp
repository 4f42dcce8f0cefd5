#include <algorithm>

#include "base/core/error.h"
#include "base/core/translate_exceptions.h"
#include "engine/api/model_state.h"
#include "engine/api/watched_observer.h"
#include "engine/device/memory_plan.h"
#include "engine/forward/forward.h"
#include "qkscope/experimental/generate.h"

namespace qkscope {
namespace {

// Whether a model turns keys the same way in texts of these two lengths.
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
  std::unique_ptr<Backend> own_backend;  // on the CPU
  std::unique_ptr<KeyValueStore> store;

  Backend& backend() const { return own_backend ? *own_backend : *model.backend; }
  const ModelConfig& config() const { return model.checkpoint.config; }

  std::int64_t& length(std::int64_t sequence) {
    if (sequence < 0 || sequence >= static_cast<std::int64_t>(lengths.size()))
      bad_input("cache: found sequence {}, it has {}, numbered from 0", sequence, lengths.size());
    return lengths[static_cast<std::size_t>(sequence)];
  }

  void check(const Sequence& sequence) {
    const auto there = length(sequence.slot);
    if (sequence.past != there)
      bad_input("cache: a batch goes on at position {} of sequence {}, of which {} are there",
                sequence.past, sequence.slot, there);
    if (sequence.end() > positions)
      bad_input("cache: sequence {} would have {} tokens, there is room for {}", sequence.slot,
                sequence.end(), positions);
    if (there > 0 && !same_frequencies(config(), there, sequence.end()))
      bad_input(
          "cache: between {} and {} tokens RoPE changes its frequencies; forget sequence {} and "
          "run "
          "its whole text",
          there, sequence.end(), sequence.slot);
  }

  void check(const Batch& batch) {
    std::vector<bool> met(lengths.size());
    for (const auto& sequence : batch.sequences) {
      check(sequence);
      if (met[static_cast<std::size_t>(sequence.slot)])
        bad_input("cache: sequence {} is twice in a batch", sequence.slot);
      met[static_cast<std::size_t>(sequence.slot)] = true;
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
    state_->lengths.resize(static_cast<std::size_t>(sequences));
    if (!owner.backend) state_->own_backend = make_backend(owner.checkpoint);
    if (!owner.backend) check_host_cache(owner.checkpoint.config, sequences, positions);
    state_->store = state_->backend().make_store(sequences, positions);
  });
}

KeyValueCache::~KeyValueCache() = default;
KeyValueCache::KeyValueCache(KeyValueCache&&) noexcept = default;
KeyValueCache& KeyValueCache::operator=(KeyValueCache&&) noexcept = default;

std::int64_t KeyValueCache::sequences() const {
  return static_cast<std::int64_t>(state_->lengths.size());
}

std::int64_t KeyValueCache::positions() const {
  return state_->positions;
}

std::int64_t KeyValueCache::length(std::int64_t sequence) const {
  return translate_exceptions([&] { return state_->length(sequence); });
}

void KeyValueCache::shorten(std::int64_t sequence, std::int64_t length) {
  translate_exceptions([&] {
    auto& there = state_->length(sequence);
    if (length < 0 || length > there)
      bad_input("cache: sequence {} cannot be shortened to {} tokens, it has {}", sequence, length,
                there);
    if (length > 0 && !same_frequencies(state_->config(), length, there)) length = 0;
    there = length;
  });
}

bool KeyValueCache::can_go_on(std::int64_t sequence, std::int64_t more) const {
  return translate_exceptions([&] {
    const auto there = state_->length(sequence);
    return there == 0 || same_frequencies(state_->config(), there, there + more);
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
  WatchedObserver watched(observer);
  try {
    state_->check(batch);
    const auto pass = [&] { forward(state_->backend(), batch, watched, *state_->store); };
    if (state_->own_backend)
      pass();
    else
      state_->model.run_alone(pass);
    for (const auto& sequence : batch.sequences) state_->length(sequence.slot) = sequence.end();
  } catch (...) {
    watched.rethrow_if_thrown();
    rethrow_as_error();
  }
}

std::int64_t cache_bytes_per_token(const Model& model) {
  const auto dtype = model.device().kind == Device::Kind::cpu ? DType::f32 : model.dtype();
  return translate_exceptions([&] { return cache_token_bytes(model.config(), dtype); });
}

}  // namespace qkscope
