#include "analysis/methods/kernels/key_pairs.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>

#include "analysis/methods/kernels/vector_loops.h"
#include "base/numerics/normal.h"
#include "base/numerics/products.h"

namespace qkscope {
namespace {

// Rows in the order of example, bin and position.
std::vector<std::int64_t> sorted_order(const Rows& source, std::span<const std::int32_t> bin) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(source.size()));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  const auto before = [&](std::int64_t x, std::int64_t y) {
    const auto key = [&](std::int64_t i) {
      const auto at = static_cast<std::size_t>(i);
      return std::tuple(source.example(at), bin[at], source.position[at], i);
    };
    return key(x) < key(y);
  };
  // Captures are written in this order.
  if (!std::is_sorted(order.begin(), order.end(), before))
    std::sort(order.begin(), order.end(), before);
  return order;
}

// The transpose, with what products read behind the last column.
Matrix side_by_side(const Matrix& rows) {
  Matrix columns(rows.cols, rows.rows + kTileColumns);
  for (std::int64_t i = 0; i < rows.rows; ++i)
    for (std::int64_t j = 0; j < rows.cols; ++j) columns(j, i) = rows(i, j);
  return columns;
}

}  // namespace

SortedKeys sort_keys(const Rows& keys, std::span<const std::int32_t> bin) {
  SortedKeys sorted;
  sorted.row = sorted_order(keys, bin);
  const auto count = sorted.row.size();
  sorted.example.reserve(count);
  sorted.bin.reserve(count);
  sorted.position.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto from = static_cast<std::size_t>(sorted.row[i]);
    if (i == 0 || keys.example(from) != sorted.text.back()) {
      sorted.begin.push_back(static_cast<std::int64_t>(i));
      sorted.text.push_back(keys.example(from));
    }
    sorted.example.push_back(static_cast<std::int32_t>(sorted.begin.size() - 1));
    sorted.bin.push_back(bin[from]);
    sorted.position.push_back(keys.position[from]);
  }
  sorted.begin.push_back(keys.size());
  return sorted;
}

void take_block(const CentredRows& keys, const QueryModel& model, const SortedKeys& sorted,
                std::int64_t begin, std::int64_t end, KeyTile& block) {
  const auto dim = static_cast<std::size_t>(keys.dim());
  const auto rows =
      std::span(sorted.row)
          .subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
  block.first = begin;
  block.vectors.rows = end - begin;
  block.vectors.cols = keys.dim();
  const auto size = rows.size() * dim + TurnedRows::kBehind;
  if (block.vectors.data.size() < size) block.vectors.data.resize(size);
  block.score.resize(rows.size());
  turn_rows(
      {keys.source.vectors.data(), dim, rows, keys.mean, model.sign, model.reflection, model.alpha},
      block.vectors.data.data(), block.score.data());
}

void QueryPoints::add(std::int32_t bin_number, double mean_position, std::int32_t column_number,
                      double column_position) {
  bin.push_back(bin_number);
  position.push_back(mean_position);
  column.push_back(column_number);
  shift.push_back(mean_position - column_position);
}

std::vector<std::int32_t> QueryPoints::column_ends() const {
  std::vector<std::int32_t> ends(column.size(), static_cast<std::int32_t>(column.size()));
  for (auto c = column.size(); c-- > 1;)
    ends[c - 1] = column[c - 1] == column[c] ? ends[c] : static_cast<std::int32_t>(c);
  return ends;
}

std::int64_t QueryPoints::after(std::int32_t key_bin) const {
  return std::upper_bound(bin.begin(), bin.end(), key_bin) - bin.begin();
}

PairEvaluator::PairEvaluator(const QueryColumns& columns, Sink sink, Wanted wanted)
    : sink_(std::move(sink)),
      wanted_(wanted),
      means_(side_by_side(columns.mean)),
      drift_(columns.drift),
      all_queries_(columns.size() == 1 && columns.bucket.empty()),
      scores_(0, columns.size()),
      weights_(side_by_side(columns.variance)),
      columns_{0, columns.size()} {
  waiting_.reserve(kBlock);
  waiting_columns_.reserve(kBlock);
}

void PairEvaluator::set_keys(const KeyTile& keys) {
  flush();
  keys_ = &keys;
  const auto count = keys.vectors.rows;
  if (scores_.rows < count + kTileColumns) scores_ = Matrix(count + kTileColumns, scores_.cols);
  if (all_queries_ && !keys.score.empty())
    std::copy(keys.score.begin(), keys.score.end(), scores_.data.begin());
  else
    multiply_narrow(keys.vectors.data.data(), count, means_.rows, means_.data.data(), means_.cols,
                    scores_.cols, scores_.data.data());
  moves_.clear();
  for (std::int64_t i = 0; i < count; ++i) moves_.push_back(keys.vectors(i, 0) * drift_);
}

// Neighbours with the same columns share a tile.
void PairEvaluator::lay_tiles() {
  tiles_.clear();
  std::int64_t offset = 0;
  const auto pairs = std::ssize(waiting_);
  for (std::int64_t p = 0, next = 0; p < pairs; p = next) {
    const auto columns = waiting_columns_[static_cast<std::size_t>(p)];
    const auto stride = (columns.end - columns.first + 1) / 2 * 2;
    const auto end = std::min(pairs, p + kTilePairs);
    next = p + 1;
    while (next < end && waiting_columns_[static_cast<std::size_t>(next)] == columns) ++next;
    tiles_.push_back({p, next - p, columns.first, stride, offset});
    offset += (next - p) * stride;
  }
  if (std::ssize(start_) < offset + kTileColumns) {
    start_.resize(static_cast<std::size_t>(offset + kTileColumns));
    if (wanted_ == Wanted::lines) slope_.resize(start_.size());
  }
}

void PairEvaluator::flush() {
  if (waiting_.empty()) return;
  lay_tiles();
  const std::span<const Pair> pairs(waiting_);
  z_lines({*keys_, scores_, moves_, weights_}, pairs, tiles_, start_.data(),
          wanted_ == Wanted::lines ? slope_.data() : nullptr);
  const auto& last = tiles_.back();
  if (wanted_ == Wanted::plasticities)
    plasticity_from_table(
        std::span(start_).first(static_cast<std::size_t>(last.offset + last.count * last.stride)));
  for (const auto& tile : tiles_) {
    const auto at = static_cast<std::size_t>(tile.offset);
    const auto size = static_cast<std::size_t>(tile.count * tile.stride);
    sink_(
        {pairs.subspan(static_cast<std::size_t>(tile.first), static_cast<std::size_t>(tile.count)),
         tile.column, tile.stride, std::span(start_).subspan(at, size),
         wanted_ == Wanted::lines ? std::span(slope_).subspan(at, size)
                                  : std::span<const double>()});
  }
  waiting_.clear();
  waiting_columns_.clear();
}

}  // namespace qkscope
