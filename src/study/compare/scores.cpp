#include "study/compare/scores.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <fmt/ranges.h>

#include "base/core/error.h"
#include "base/core/nan.h"
#include "base/core/text.h"
#include "base/tables/csv.h"

namespace qkscope {
namespace {

// NaN where the field is not a number.
double number_in(const std::string& field) {
  double value = 0;
  const auto* end = field.data() + field.size();
  const auto [at, error] = std::from_chars(field.data(), end, value);
  return error == std::errc() && at == end ? value : kNan;
}

bool has(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Scores in the order in which the file has them.
class ScoreList {
 public:
  explicit ScoreList(std::string file) : file_(std::move(file)) {}

  void add(const std::string& name, const std::string& model, double value, std::size_t row) {
    if (model.empty() || std::isnan(value)) return;
    auto found = std::find_if(scores_.begin(), scores_.end(),
                              [&](const Score& score) { return score.name == name; });
    if (found == scores_.end()) found = scores_.insert(scores_.end(), {name, {}});
    if (!found->models.emplace(model, value).second)
      bad_input("{}: row {}: {} of {} is there twice", file_, row + 2, name, model);
  }

  std::vector<Score> take() { return std::move(scores_); }

 private:
  std::string file_;
  std::vector<Score> scores_;
};

}  // namespace

std::vector<Score> read_scores(const std::string& file, const std::string& by) {
  const auto header = read_csv_header(file);
  if (!has(header, by))
    bad_input("{}: there is no column {} with the names of models; it has {}", file, in_quotes(by),
              fmt::join(header, ", "));
  std::vector<CsvColumn> columns;
  for (const auto& name : header) columns.push_back({name, Table::Type::text});
  const Table table = read_csv_table(file, columns);
  const auto& models = table.find(by)->texts;
  const bool is_long = has(header, "metric") && has(header, "value");
  ScoreList scores(file);
  for (std::size_t row = 0; row < models.size(); ++row) {
    if (!is_long) {
      for (const auto& column : table.columns())
        if (column.name != by)
          scores.add(column.name, models[row], number_in(column.texts[row]), row);
      continue;
    }
    std::vector<std::string> name;
    for (const char* part : {"benchmark", "mode", "length_tokens", "metric"})
      if (const auto* column = table.find(part); column && !column->texts[row].empty())
        name.push_back(column->texts[row]);
    scores.add(fmt::format("{}", fmt::join(name, " / ")), models[row],
               number_in(table.find("value")->texts[row]), row);
  }
  auto list = scores.take();
  if (list.empty()) bad_input("{}: holds no score of a model", file);
  return list;
}

}  // namespace qkscope
