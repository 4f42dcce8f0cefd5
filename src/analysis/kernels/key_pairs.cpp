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
    copy_rotated(keys, order[i], model, sorted.vectors.row(static_cast<std::int64_t>(i)));
  }
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
      columns_(columns),
      sink_(std::move(sink)),
      scores_(multiply_transposed(keys.vectors, columns.mean)),
      end_column_(columns.size()),
      squares_(static_cast<std::size_t>(keys.vectors.cols * kPanelColumns)),
      sums_(static_cast<std::size_t>(columns.size() * kPanelColumns)),
      start_(kBlock * static_cast<std::size_t>(columns.size())),
      slope_(kBlock * static_cast<std::size_t>(columns.size())) {
  for (std::int64_t i = 0; i < keys.vectors.rows; ++i)
    moves_.push_back(keys.vectors(i, 0) * columns.drift);
  waiting_.reserve(kBlock);
}

void PairEvaluator::set_columns(std::int64_t first, std::int64_t end) {
  flush();
  first_column_ = first;
  end_column_ = end;
}

void PairEvaluator::take_variances(std::span<const Pair> pairs, double* variance) {
  // In difference form nothing cancels, however close two keys are.
  squared_differences(keys_.vectors, pairs, squares_.data());
  const auto columns = end_column_ - first_column_;
  multiply_panel(columns_.variance.row(first_column_), columns, keys_.vectors.cols, squares_.data(),
                 sums_.data());
  for (std::size_t p = 0; p < pairs.size(); ++p)
    for (std::int64_t c = 0; c < columns; ++c)
      variance[static_cast<std::int64_t>(p) * columns + c] =
          sums_[static_cast<std::size_t>(c) * kPanelColumns + p];
}

void PairEvaluator::flush() {
  const auto count = waiting_.size();
  const auto columns = end_column_ - first_column_;
  if (count == 0 || columns <= 0) {
    waiting_.clear();
    return;
  }
  const std::span<const Pair> pairs(waiting_);
  for (std::size_t p = 0; p < count; p += kPanelColumns)
    take_variances(pairs.subspan(p, std::min<std::size_t>(kPanelColumns, count - p)),
                   start_.data() + static_cast<std::int64_t>(p) * columns);
  // Equal keys (variance 0) leave the query no preference: p = 1/2.
  z_lines({scores_, moves_, pairs, first_column_, columns}, start_.data(), slope_.data());
  const auto size = count * static_cast<std::size_t>(columns);
  sink_({pairs, first_column_, columns, std::span(start_).first(size),
         std::span(slope_).first(size)});
  waiting_.clear();
}

}  // namespace qkscope
