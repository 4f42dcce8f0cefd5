#include "engine/device/cuda/pass_rows.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/device/backend.h"
#include "engine/device/cuda/cuda_error.h"
#include "engine/ops/attention.h"

namespace qkscope::cuda {
std::int64_t PassRows::count() const {
  return narrowed() ? static_cast<std::int64_t>(kept_.size()) : batch_->rows();
}

std::int64_t PassRows::row_of(std::int64_t number) const {
  return narrowed() ? kept_[static_cast<std::size_t>(number)] : number;
}

std::int32_t PassRows::number_of(std::int64_t row) const {
  return static_cast<std::int32_t>(running_row(kept_, row));
}

void PassRows::begin(const Batch& batch) {
  batch_ = &batch;
  kept_.clear();
  key_rows_.clear();
  ids_.upload(std::span<const std::int32_t>(batch.ids), "row numbers", stream_);
  place_rows();
}

void PassRows::place_keys(std::vector<std::int64_t> first_rows) {
  key_rows_ = std::move(first_rows);
  for (auto& [window, range] : ranges_) range.count = 0;
}

std::int64_t PassRows::first_key(std::int32_t sequence) const {
  const auto number = static_cast<std::size_t>(sequence);
  return key_rows_.empty() ? batch_->sequences[number].begin : key_rows_[number];
}

void PassRows::keep(std::span<const std::int64_t> rows) {
  kept_.assign(rows.begin(), rows.end());
  const std::vector<std::int32_t> kept(rows.begin(), rows.end());
  device_kept_.upload(std::span<const std::int32_t>(kept), "row numbers", stream_);
  place_rows();
}

void PassRows::place_rows() {
  const auto rows = static_cast<std::size_t>(count());
  positions_.resize(rows);
  sequences_.resize(rows);
  std::size_t sequence = 0;
  for (std::size_t i = 0; i < rows; ++i) {
    const auto row = row_of(static_cast<std::int64_t>(i));
    while (row >= batch_->sequences[sequence].begin + batch_->sequences[sequence].length)
      ++sequence;
    const auto& its = batch_->sequences[sequence];
    positions_[i] = static_cast<std::int32_t>(its.past + row - its.begin);
    sequences_[i] = static_cast<std::int32_t>(sequence);
  }
  device_positions_.upload(std::span<const std::int32_t>(positions_), "row numbers", stream_);
  device_sequences_.upload(std::span<const std::int32_t>(sequences_), "row numbers", stream_);
  for (auto& [window, range] : ranges_) range.count = 0;
  fill_tables();
  if (model_.query_scaling) scale_queries();
}

void PassRows::fill_tables() {
  tables_.resize(model_.ropes.size());
  const auto element = static_cast<std::int64_t>(dtype_size(dtype_));
  for (std::size_t i = 0; i < tables_.size(); ++i) {
    const auto& rope = model_.ropes[i];
    const auto half = rope.dim / 2;
    std::vector<float> frequencies;
    std::vector<float> factors;
    for (const auto& sequence : batch_->sequences) {
      const auto of_sequence = rope_frequencies(rope, sequence.end());
      frequencies.insert(frequencies.end(), of_sequence.inverse.begin(), of_sequence.inverse.end());
      factors.push_back(of_sequence.attention_factor);
    }
    const auto inverse_count = frequencies.size();
    frequencies.insert(frequencies.end(), factors.begin(), factors.end());
    frequencies_.upload(std::span<const float>(frequencies), "row numbers", stream_);
    const auto bytes = count() * half * element;
    fill_rotary_table({.positions = device_positions_.as<std::int32_t>(),
                       .sequences = device_sequences_.as<std::int32_t>(),
                       .inverse = frequencies_.as<float>(),
                       .factors = frequencies_.as<float>() + inverse_count,
                       .cos = tables_[i].cos.reserve(bytes, "rotary tables"),
                       .sin = tables_[i].sin.reserve(bytes, "rotary tables"),
                       .rows = count(),
                       .half = half,
                       .dtype = dtype_},
                      stream_);
  }
}

void PassRows::scale_queries() {
  const auto& scaling = *model_.query_scaling;
  std::vector<float> factors(positions_.size());
  for (std::size_t i = 0; i < factors.size(); ++i) {
    const auto turns = static_cast<float>(positions_[i] / scaling.original_max);
    factors[i] = 1.0f + static_cast<float>(scaling.beta) * std::log(1.0f + turns);
  }
  query_scale_.upload(std::span<const float>(factors), "row numbers", stream_);
}

const float* PassRows::query_scale() const {
  return model_.query_scaling ? query_scale_.as<float>() : nullptr;
}

RotaryView PassRows::rotary(int rope) const {
  if (rope < 0) return {};
  const auto& table = tables_[static_cast<std::size_t>(rope)];
  return {table.cos.data(), table.sin.data(), model_.ropes[static_cast<std::size_t>(rope)].dim};
}

std::vector<std::int32_t> PassRows::places(std::span<const std::int64_t> rows,
                                           std::int64_t window) const {
  const auto count = rows.size();
  std::vector<std::int32_t> numbers(4 * count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto number = number_of(rows[i]);
    const auto at = static_cast<std::size_t>(number);
    const auto begin = first_key(sequences_[at]);
    numbers[i] = number;
    numbers[count + i] =
        static_cast<std::int32_t>(begin + first_visible_key(positions_[at], window));
    numbers[2 * count + i] = static_cast<std::int32_t>(begin + positions_[at]);
    numbers[3 * count + i] = static_cast<std::int32_t>(begin);
  }
  return numbers;
}

KeyRange PassRows::keys(std::int64_t window) {
  auto& range = ranges_[window];
  const auto rows = count();
  if (range.count != rows) {
    std::vector<std::int64_t> running(static_cast<std::size_t>(rows));
    for (std::int64_t i = 0; i < rows; ++i) running[static_cast<std::size_t>(i)] = row_of(i);
    range.numbers.upload(std::span<const std::int32_t>(places(running, window)), "row numbers",
                         stream_);
    range.count = rows;
  }
  const auto* numbers = range.numbers.as<std::int32_t>();
  return {numbers + rows, numbers + 2 * rows, numbers + 3 * rows};
}

}  // namespace qkscope::cuda
