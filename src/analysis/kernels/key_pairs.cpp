#include "analysis/kernels/key_pairs.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>

#include "analysis/kernels/vector_loops.h"
#include "numerics/products.h"

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

// The transpose, with what a narrow product reads behind its last column.
Matrix side_by_side(const Matrix& rows) {
  Matrix columns(rows.cols, rows.rows + kPanelColumns - 1);
  for (std::int64_t i = 0; i < rows.rows; ++i)
    for (std::int64_t j = 0; j < rows.cols; ++j) columns(j, i) = rows(i, j);
  return columns;
}

}  // namespace

SortedKeys sort_keys(const CentredRows& keys, const QueryModel& model,
                     std::span<const std::int32_t> bin) {
  const auto& source = keys.source;
  const auto order = sorted_order(source, bin);
  SortedKeys sorted;
  sorted.vectors = Matrix(keys.size(), keys.dim());
  for (std::size_t i = 0; i < order.size(); ++i) {
    const auto from = static_cast<std::size_t>(order[i]);
    const bool new_example =
        i == 0 || source.example(from) != source.example(static_cast<std::size_t>(order[i - 1]));
    if (new_example) {
      sorted.begin.push_back(static_cast<std::int64_t>(i));
      sorted.text.push_back(source.example(from));
    }
    sorted.example.push_back(static_cast<std::int32_t>(sorted.begin.size() - 1));
    sorted.bin.push_back(bin[from]);
    sorted.position.push_back(source.position[from]);
  }
  turn_rows({source.vectors.data(), static_cast<std::size_t>(keys.dim()), order, keys.mean,
             model.sign, model.reflection},
            sorted.vectors.data.data());
  sorted.begin.push_back(keys.size());
  return sorted;
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

PairEvaluator::PairEvaluator(const SortedKeys& keys, const QueryColumns& columns, Sink sink)
    : keys_(keys),
      sink_(std::move(sink)),
      scores_(keys.vectors.rows, columns.size()),
      end_column_(columns.size()),
      weights_(side_by_side(columns.variance)),
      start_(kBlock * static_cast<std::size_t>(columns.size())),
      slope_(kBlock * static_cast<std::size_t>(columns.size())) {
  for (std::int64_t i = 0; i < keys.vectors.rows; ++i)
    moves_.push_back(keys.vectors(i, 0) * columns.drift);
  const Matrix means = side_by_side(columns.mean);
  multiply_narrow(keys.vectors.data.data(), keys.vectors.rows, means.rows, means.data.data(),
                  means.cols, columns.size(), scores_.data.data());
  waiting_.reserve(kBlock);
}

void PairEvaluator::set_columns(std::int64_t first, std::int64_t end) {
  flush();
  first_column_ = first;
  end_column_ = end;
}

void PairEvaluator::flush() {
  const auto count = waiting_.size();
  const auto columns = end_column_ - first_column_;
  if (count == 0 || columns <= 0) {
    waiting_.clear();
    return;
  }
  const std::span<const Pair> pairs(waiting_);
  // In difference form nothing cancels, however close two keys are.
  weighted_squares(keys_.vectors, pairs, {weights_.row(0) + first_column_, weights_.cols, columns},
                   start_.data());
  // Equal keys (variance 0) leave the query no preference: p = 1/2.
  z_lines({scores_, moves_, pairs, first_column_, columns}, start_.data(), slope_.data());
  const auto size = count * static_cast<std::size_t>(columns);
  sink_({pairs, first_column_, columns, std::span(start_).first(size),
         std::span(slope_).first(size)});
  waiting_.clear();
}

}  // namespace qkscope
