#include "results/row_builder.h"

#include <cmath>
#include <iterator>
#include <utility>

namespace qkscope {

RowBuilder::RowBuilder(std::string name, const std::vector<ColumnSpec>& columns)
    : name_(std::move(name)) {
  for (const auto& column : columns) table_.column(column.name, column.type);
}

void RowBuilder::add(std::vector<Table::Cell> cells, const std::string& reason,
                     const std::string& no_error) {
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const auto* number = std::get_if<double>(&cells[i]);
    if (number == nullptr || !std::isnan(*number)) continue;
    const std::string& name = table_.columns()[i].name;
    ++undefined_[name][name == "se" && !no_error.empty() ? no_error : reason];
  }
  table_.add(std::move(cells));
}

void RowBuilder::finish(ResultTables& results) {
  if (!undefined_.empty()) results.undefined[name_ + ".csv"] = std::move(undefined_);
  results.tables.push_back({std::move(name_), std::move(table_)});
}

std::vector<RowBuilder::ColumnSpec> head_columns(std::vector<RowBuilder::ColumnSpec> rest) {
  using Type = Table::Type;
  std::vector<RowBuilder::ColumnSpec> columns = {{"model", Type::text},   {"layer", Type::integer},
                                                 {"head", Type::integer}, {"k_head", Type::integer},
                                                 {"rope", Type::text},    {"n_q", Type::integer},
                                                 {"n_k", Type::integer}};
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
