#include "analysis/results/row_builder.h"

#include <cmath>
#include <iterator>
#include <utility>

namespace qkscope {

constexpr char kNeedsRowsReason[] = "needs_rows";

RowBuilder::RowBuilder(const AnalysisRun& run, std::string name,
                       const std::vector<ColumnSpec>& columns)
    : run_(run), name_(std::move(name)) {
  for (const auto& column : columns) {
    table_.column(column.name, column.type);
    lacks_rows_.push_back((column.needs == kNeedsRows && run.from_sums) ||
                          (column.needs == kNeedsKeys && !run.compares_keys));
  }
}

void RowBuilder::add(std::vector<Table::Cell> cells, const std::string& reason,
                     const std::string& no_error) {
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const auto* number = std::get_if<double>(&cells[i]);
    if (number == nullptr || !std::isnan(*number)) continue;
    const std::string& name = table_.columns()[i].name;
    const auto& why = name.starts_with("se") && !no_error.empty() ? no_error : reason;
    ++undefined_[name][lacks_rows_[i] ? kNeedsRowsReason : why];
  }
  table_.add(std::move(cells));
}

void RowBuilder::finish(ResultTables& results) {
  // Statistics leave such a table empty: count every head under needs_rows.
  for (std::size_t i = 0; i < lacks_rows_.size(); ++i)
    if (lacks_rows_[i] && table_.rows() == 0)
      undefined_[table_.columns()[i].name][kNeedsRowsReason] = static_cast<int>(run_.heads.size());
  if (!undefined_.empty()) results.undefined[name_ + ".csv"] = std::move(undefined_);
  results.tables.push_back({std::move(name_), std::move(table_)});
}

std::vector<RowBuilder::ColumnSpec> head_columns(std::vector<RowBuilder::ColumnSpec> rest) {
  using Type = Table::Type;
  std::vector<RowBuilder::ColumnSpec> columns = {{"model", Type::text},   {"layer", Type::integer},
                                                 {"head", Type::integer}, {"k_head", Type::integer},
                                                 {"rope", Type::text},    {"attention", Type::text},
                                                 {"n_q", Type::integer},  {"n_k", Type::integer}};
  columns.insert(columns.end(), rest.begin(), rest.end());
  return columns;
}

std::vector<Table::Cell> head_cells(const AnalysisRun& run, const HeadReport& head,
                                    std::vector<Table::Cell> rest) {
  std::vector<Table::Cell> cells = {run.label,
                                    std::int64_t{head.query.layer},
                                    std::int64_t{head.query.head},
                                    std::int64_t{head.k_head},
                                    to_string(head.rope),
                                    attention_name(head.window),
                                    head.n_q,
                                    head.n_k};
  cells.insert(cells.end(), std::make_move_iterator(rest.begin()),
               std::make_move_iterator(rest.end()));
  return cells;
}

std::string undefined_reason(const HeadReport& head) {
  if (head.n_q < 2 || head.n_k < 2) return "single_row";
  if (!head.positions_vary) return "constant_position";
  if (head.n_q < 4) return "too_few_rows";
  return "no_variance";
}

}  // namespace qkscope
