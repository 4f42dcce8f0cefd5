#include "engine/device/cuda/statistics/statistics_scores.h"

#include <algorithm>
#include <numeric>

namespace qkscope::cuda {

std::vector<RowTile> row_tiles(std::span<const Sequence> sequences, std::int64_t rows) {
  std::vector<RowTile> tiles;
  for (const auto& sequence : sequences)
    for (std::int64_t first = 0; first < sequence.length; first += rows)
      tiles.push_back({static_cast<std::int32_t>(sequence.begin),
                       static_cast<std::int32_t>(sequence.length),
                       static_cast<std::int32_t>(first)});
  std::stable_sort(tiles.begin(), tiles.end(),
                   [](const RowTile& a, const RowTile& b) { return a.first > b.first; });
  return tiles;
}

TokenRows token_rows(const Batch& batch) {
  constexpr std::int32_t kTileRows = 64;
  TokenRows out;
  std::vector<std::int32_t> order;
  for (const auto& sequence : batch.sequences) {
    order.resize(static_cast<std::size_t>(sequence.length));
    std::iota(order.begin(), order.end(), static_cast<std::int32_t>(sequence.begin));
    const auto id = [&](std::int32_t row) { return batch.ids[static_cast<std::size_t>(row)]; };
    std::stable_sort(order.begin(), order.end(),
                     [&](std::int32_t a, std::int32_t b) { return id(a) < id(b); });
    const auto first = static_cast<std::int32_t>(out.rows.size());
    for (auto from = order.begin(); from != order.end();) {
      const auto to =
          std::find_if(from, order.end(), [&](std::int32_t row) { return id(row) != id(*from); });
      const auto block = static_cast<std::int32_t>(out.rows.size());
      if (to - from > 1)
        for (auto row = from; row != to; ++row) out.rows.push_back({*row, block});
      from = to;
    }
    const auto last = static_cast<std::int32_t>(out.rows.size());
    for (auto from = first; from < last; from += kTileRows)
      out.tiles.push_back(
          {from, std::min(from + kTileRows, last), static_cast<std::int32_t>(sequence.begin)});
  }
  return out;
}

std::vector<RowCell> row_cells(std::span<const Sequence> sequences, std::int64_t bucket_size,
                               std::int64_t buckets) {
  std::vector<RowCell> cells;
  std::int32_t document = 0;
  for (const auto& sequence : sequences) {
    for (std::int64_t bucket = 0; bucket < buckets; ++bucket) {
      const auto from = bucket * bucket_size;
      const auto to =
          bucket + 1 == buckets ? sequence.length : std::min(sequence.length, from + bucket_size);
      if (from >= to) break;
      cells.push_back({static_cast<std::int32_t>(sequence.begin + from),
                       static_cast<std::int32_t>(sequence.begin + to),
                       static_cast<std::int32_t>(from), document,
                       static_cast<std::int32_t>(bucket)});
    }
    ++document;
  }
  return cells;
}

}  // namespace qkscope::cuda
