#include "study/compare/pool_inputs.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <set>
#include <utility>

#include <fmt/ranges.h>

#include "base/core/error.h"
#include "base/core/numbers.h"
#include "base/core/text.h"
#include "base/io/folder.h"
#include "base/tables/csv.h"

namespace qkscope {
namespace {

// Access to one row of a table by column name.
class TableRow {
 public:
  TableRow(const Table& table, std::size_t row) : table_(table), row_(row) {}

  double number(const std::string& column) const {
    const auto* found = table_.find(column);
    return found == nullptr || found->type == Table::Type::text ? kNan : found->number(row_);
  }
  std::string text(const std::string& column) const {
    const auto* found = table_.find(column);
    return found == nullptr || found->type != Table::Type::text ? "" : found->texts[row_];
  }

 private:
  const Table& table_;
  std::size_t row_;
};

void put(PooledHead& head, const std::string& quantity, double value) {
  if (std::isfinite(value)) head.values[quantity] = value;
}

double share(bool holds, double decided_by) {
  return std::isnan(decided_by) ? kNan : holds ? 1 : 0;
}

void take_qk(const TableRow& row, PooledHead& head) {
  const auto pc = static_cast<int>(row.number("pc"));
  for (const char* name : {"r_q", "r_k", "explained_variance"})
    put(head, fmt::format("{}_pc{}", name, pc), row.number(name));
  if (pc != 0) return;
  put(head, "abs_r_k", std::fabs(row.number("r_k")));
  put(head, "abs_mu_q_pc0", std::fabs(row.number("mu_q")));
  put(head, "qk_distance_pc0", std::fabs(row.number("mu_q") - row.number("mu_k")));
  for (const char* name : {"fisher", "positional_variance_q", "positional_variance_k"})
    put(head, name, row.number(name));
  put(head, "linear_accuracy_pc0_pc1", row.number("qk_accuracy"));
}

void take_class(const TableRow& row, PooledHead& head) {
  const auto put_class = [&](const char* column, const std::string& suffix) {
    const auto found = row.text(column);
    if (found.empty()) return;
    for (const char* name :
         {"position_dominated", "q_positional", "k_positional", "content_focused", "mixed"})
      put(head, name + suffix, found == name ? 1 : 0);
  };
  put_class("class", "");
  put_class("class_axis", "_axis");
  for (const char* name : {"r_q_axis", "r_k_axis"})
    put(head, std::string("abs_") + name, std::fabs(row.number(name)));
  for (const char* name : {"pc_position", "pc_position_variance"})
    put(head, name, row.number(name));
}

void take_rotated(const TableRow& row, PooledHead& head) {
  for (const char* name :
       {"position_r", "r_q_a", "r_k_a", "alpha_q", "alpha_k", "mu_q_a", "mu_k_a", "bias_strength",
        "separation_strength", "var_frac_a", "var_frac_b", "plane_var_fraction", "residual_pos_r",
        "content_var_b", "active_planes", "position_r_null", "r_q_a_null", "r_k_a_null"})
    put(head, name, row.number(name));
  for (const char* name : {"r_q_a", "r_k_a", "alpha_q", "alpha_k"})
    put(head, std::string("abs_") + name, std::fabs(row.number(name)));
  put(head, "slope_ratio", std::fabs(row.number("alpha_k") / row.number("alpha_q")));
  const double bias = row.number("bias_strength");
  put(head, "share_positive_bias", share(bias > 0, bias));
  put(head, "share_positive_mu_q_a", share(row.number("mu_q_a") > 0, row.number("mu_q_a")));
  const double b_above_a = row.number("var_frac_b") - row.number("var_frac_a");
  put(head, "share_var_b_above_a", share(b_above_a > 0, b_above_a));
}

void take_complement(const TableRow& row, PooledHead& head) {
  if (std::isnan(row.number("active"))) return;
  const double before = head.value("active_variance");
  head.values["active_variance"] = (std::isnan(before) ? 0 : before) +
                                   (row.number("active") == 1 ? row.number("variance_share") : 0);
}

void take_metrics(const TableRow& row, PooledHead& head) {
  for (const char* name :
       {"ap_overall", "ap_profile_overall", "ap_first20", "ap_last20", "ap_drop", "q_R2_pos"})
    put(head, name, row.number(name));
}

struct Source {
  const char* table;
  void (*take)(const TableRow& row, PooledHead& head);
};
constexpr Source kSources[] = {{"qk", take_qk},
                               {"taxonomy", take_class},
                               {"rotated", take_rotated},
                               {"complement", take_complement},
                               {"head_metrics", take_metrics}};

void read_table(const std::string& file, const Source& source,
                std::map<std::pair<std::int64_t, std::int64_t>, PooledHead>& heads) {
  const Table table = read_parquet_table_with_gaps(file);
  for (std::size_t i = 0; i < static_cast<std::size_t>(table.rows()); ++i) {
    const TableRow row(table, i);
    const auto layer = static_cast<std::int64_t>(row.number("layer"));
    const double number = table.find("head") ? row.number("head") : row.number("q_head");
    const auto head = static_cast<std::int64_t>(number);
    auto& pooled = heads[{layer, head}];
    pooled.layer = layer;
    pooled.head = head;
    if (const auto rope = row.text("rope"); !rope.empty()) pooled.rope = rope;
    if (row.text("attention").starts_with("sliding")) pooled.attention = "sliding";
    source.take(row, pooled);
  }
}

// Returns NaN if the field is not a number.
double parse_score(const std::string& field) {
  double value = 0;
  const auto* end = field.data() + field.size();
  const auto [at, error] = std::from_chars(field.data(), end, value);
  return error == std::errc() && at == end ? value : kNan;
}

bool has(const std::vector<std::string>& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

// Collects scores in the order of the file.
class ScoreList {
 public:
  explicit ScoreList(std::string file) : file_(std::move(file)) {}

  void add(const std::string& name, const std::string& model, double value, std::size_t row) {
    if (model.empty() || std::isnan(value)) return;
    auto found =
        std::ranges::find_if(scores_, [&](const Score& score) { return score.name == name; });
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

double PooledHead::value(const std::string& quantity) const {
  const auto found = values.find(quantity);
  return found == values.end() ? kNan : found->second;
}

std::vector<PooledHead> pooled_heads(const std::vector<RunFolder>& runs) {
  std::vector<PooledHead> all;
  std::set<std::string> labels;
  for (const auto& run : runs) {
    if (!labels.insert(run.label).second)
      bad_input("{}: there is another run named {}; give each its own --label", run.folder,
                run.label);
    std::map<std::pair<std::int64_t, std::int64_t>, PooledHead> heads;
    for (const auto& source : kSources) {
      const auto file = run.folder + "/" + source.table + ".parquet";
      if (path_exists(file)) read_table(file, source, heads);
    }
    if (heads.empty()) bad_input("{}: there are no tables of heads here", run.folder);
    const auto last = std::max<std::int64_t>(1, heads.rbegin()->first.first);
    for (auto& [place, head] : heads) {
      head.model = run.label;
      head.depth = static_cast<double>(head.layer) / static_cast<double>(last);
      all.push_back(std::move(head));
    }
  }
  return all;
}

std::vector<std::string> pooled_quantities(const std::vector<PooledHead>& heads) {
  std::set<std::string> names;
  for (const auto& head : heads)
    for (const auto& [name, value] : head.values) names.insert(name);
  return {names.begin(), names.end()};
}

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
          scores.add(column.name, models[row], parse_score(column.texts[row]), row);
      continue;
    }
    std::vector<std::string> name;
    for (const char* part : {"benchmark", "mode", "length_tokens", "metric"})
      if (const auto* column = table.find(part); column && !column->texts[row].empty())
        name.push_back(column->texts[row]);
    scores.add(fmt::format("{}", fmt::join(name, " / ")), models[row],
               parse_score(table.find("value")->texts[row]), row);
  }
  auto list = scores.take();
  if (list.empty()) bad_input("{}: holds no score of a model", file);
  return list;
}

}  // namespace qkscope
