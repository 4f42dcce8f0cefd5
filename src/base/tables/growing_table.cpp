#include "base/tables/growing_table.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include <arrow/api.h>

#include "base/tables/arrow_columns.h"

namespace qkscope {
namespace {

using Column = Table::Column;

// Calls function(a, b) for each pair of value vectors of two columns of the same type.
template <typename Other, typename Function>
void for_values(Column& a, Other& b, const Function& function) {
  function(a.integers, b.integers);
  function(a.reals, b.reals);
  function(a.texts, b.texts);
}

bool same_columns(const std::vector<Column>& a, const std::vector<Column>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Column& x, const Column& y) {
    return x.name == y.name && x.type == y.type;
  });
}

}  // namespace

GrowingTable::GrowingTable(std::string path, bool csv) : path_(std::move(path)) {
  if (csv) csv_.emplace(path_ + ".csv");
}

bool GrowingTable::append(std::vector<Column> part) {
  const bool first = !std::exchange(begun_, true);
  if (first)
    for (const auto& column : part) waiting_.push_back({column.name, column.type, {}, {}, {}});
  if (!same_columns(waiting_, part)) return false;
  const Table table(std::move(part));
  if (csv_) {
    const auto text = table.to_csv();
    csv_->write(std::string_view(text).substr(first ? 0 : text.find('\n') + 1));
  }
  for (std::size_t i = 0; i < waiting_.size(); ++i)
    for_values(waiting_[i], table.columns()[i], [](auto& all, const auto& more) {
      all.insert(all.end(), more.begin(), more.end());
    });
  rows_ += table.rows();
  while (rows_ >= kTableRowGroup) write_group(kTableRowGroup);
  return true;
}

// Writes the first `rows` waiting rows as a row group.
void GrowingTable::write_group(std::int64_t rows) {
  std::vector<Column> group;
  group.reserve(waiting_.size());
  for (auto& column : waiting_) {
    group.push_back({column.name, column.type, {}, {}, {}});
    for_values(column, group.back(), [&](auto& from, auto& to) {
      const auto end = from.begin() + std::min<std::ptrdiff_t>(rows, std::ssize(from));
      to.assign(std::make_move_iterator(from.begin()), std::make_move_iterator(end));
      from.erase(from.begin(), end);
    });
  }
  const auto table = to_arrow(Table(std::move(group)));
  if (!parquet_)
    parquet_ = std::make_unique<AtomicParquetFile>(path_ + ".parquet", *table->schema());
  parquet_->append(*table);
  rows_ -= rows;
}

void GrowingTable::finish() {
  if (rows_ > 0 || !parquet_) write_group(rows_);
  if (csv_) csv_->commit();
  parquet_->finish();
}

}  // namespace qkscope
