#include "study/compare/run_numbers.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/core/error.h"
#include "base/core/numbers.h"
#include "base/io/folder.h"
#include "base/numerics/sample_statistics.h"
#include "base/tables/csv.h"
#include "study/sweep/sweep_folder.h"

namespace qkscope {
namespace {

std::vector<RunFolder> runs_of_sweep(const std::string& path) {
  const SweepFolder folder(path);
  std::vector<RunFolder> runs;
  for (const auto& run : read_sweep_index(folder).runs)
    if (run.state == RunState::done) runs.push_back({run.label, folder.results(run.label)});
  if (runs.empty()) bad_input("{}: no run of this sweep is finished", path);
  return runs;
}

// The column of head numbers: "head", or "q_head" in older tables.
const Table::Column* head_column(const Table& table) {
  const auto* head = table.find("head");
  return head != nullptr ? head : table.find("q_head");
}

double head_number(const Table& table, const HeadColumn& wanted, std::size_t row) {
  const auto& column = *table.find(wanted.column);
  if (!wanted.is.empty())
    return column.texts[row].empty() ? kNan : column.texts[row] == wanted.is ? 1.0 : 0.0;
  double value = column.number(row);
  if (!wanted.over.empty()) value /= table.find(wanted.over)->number(row);
  if (std::isinf(value)) return kNan;
  return wanted.absolute ? std::fabs(value) : value;
}

bool holds(const Table& table, const HeadColumn& wanted) {
  const auto* column = table.find(wanted.column);
  if (column == nullptr || (column->type == Table::Type::text) != !wanted.is.empty()) return false;
  const auto* over = wanted.over.empty() ? column : table.find(wanted.over);
  return over != nullptr && table.find("layer") != nullptr && head_column(table) != nullptr;
}

void append_heads(const Table& table, const HeadColumn& wanted, std::vector<HeadNumber>& heads) {
  const auto& layers = table.find("layer")->integers;
  const auto& numbers = head_column(table)->integers;
  const auto* component = table.find("pc");
  for (std::size_t row = 0; row < static_cast<std::size_t>(table.rows()); ++row) {
    if (component != nullptr && component->integers[row] != wanted.pc) continue;
    const double value = head_number(table, wanted, row);
    if (!std::isnan(value)) heads.push_back({layers[row], numbers[row], value});
  }
}

// Profiles by (layer, head).
using ProfileMap = std::map<std::pair<std::int64_t, std::int64_t>, HeadProfile>;

// Returns the profiles of a head_profile table; empty if the table has no bins.
ProfileMap profiles_in(const Table& table) {
  ProfileMap profiles;
  const auto* layer = table.find("layer");
  const auto* head = head_column(table);
  const auto* low = table.find("bin_low");
  const auto* high = table.find("bin_high");
  const auto* ap = table.find("ap");
  for (const auto* column : {layer, head, low, high, ap})
    if (column == nullptr) return profiles;
  for (std::size_t row = 0; row < static_cast<std::size_t>(table.rows()); ++row) {
    if (std::isnan(ap->reals[row])) continue;
    auto& profile = profiles[{layer->integers[row], head->integers[row]}];
    profile.layer = layer->integers[row];
    profile.values.push_back({low->number(row), high->number(row), ap->reals[row]});
  }
  return profiles;
}

// Values of the heads in the tenth of the depth (layer / last layer) that starts at `begin`.
// Integer arithmetic makes layers on an edge independent of rounding.
std::vector<double> at_depth(const std::vector<HeadNumber>& heads, double begin) {
  std::int64_t last = 0;
  for (const auto& head : heads) last = std::max(last, head.layer);
  const auto tenth = static_cast<std::int64_t>(std::lround(10 * begin));
  std::vector<double> values;
  for (const auto& head : heads)
    if (std::min<std::int64_t>(9, last == 0 ? 0 : 10 * head.layer / last) == tenth)
      values.push_back(head.value);
  return values;
}

}  // namespace

std::vector<RunFolder> runs_in(const std::string& folder) {
  if (path_exists(folder + "/runs.json")) return runs_of_sweep(folder);
  const auto file = folder + "/summary.json";
  if (!path_exists(file))
    bad_input(
        "{}: there is no runs.json and no summary.json; expected the folder of a sweep "
        "(RESULTS/NAME) or the results of 'qkscope analyze'",
        folder);
  const Json summary = load_json(file);
  if (!summary.is_object() || !summary.value("model", Json()).is_string())
    bad_input("{}: not a summary as an analysis writes it", file);
  return {{summary["model"].get<std::string>(), folder}};
}

std::string HeadColumn::shown() const {
  auto name = over.empty() ? column : column + " / " + over;
  if (absolute) name = "|" + name + "|";
  if (!is.empty()) name += " " + is;
  if (table == "qk") name += fmt::format(" of pc {}", pc);
  return table + " " + name;
}

std::string RunNumbers::label() const {
  return runs_.size() == 1 ? runs_.front().label : fmt::format("{} runs", runs_.size());
}

const std::vector<Table>* RunNumbers::tables(const std::string& name) {
  const auto [found, anew] = tables_.try_emplace(name);
  if (anew) {
    std::vector<Table> all;
    for (const auto& run : runs_) {
      const auto file = run.folder + "/" + name + ".parquet";
      if (path_exists(file)) all.push_back(read_parquet_table_with_gaps(file));
    }
    if (all.size() == runs_.size()) found->second = std::move(all);
  }
  return found->second ? &*found->second : nullptr;
}

std::optional<std::vector<HeadNumber>> RunNumbers::heads(const HeadColumn& column) {
  const auto* all = tables(column.table);
  if (all == nullptr) return {};
  std::vector<HeadNumber> heads;
  for (const auto& table : *all) {
    if (!holds(table, column)) return {};
    append_heads(table, column, heads);
  }
  return heads;
}

const std::vector<HeadProfile>& RunNumbers::profiles() {
  if (profiles_) return *profiles_;
  profiles_.emplace();
  const auto* all = tables("head_profile");
  if (all == nullptr) return *profiles_;
  for (const auto& table : *all)
    for (auto& [head, profile] : profiles_in(table)) {
      std::ranges::sort(profile.values,
                        [](const ProfileValue& a, const ProfileValue& b) { return a.low < b.low; });
      profiles_->push_back(std::move(profile));
    }
  return *profiles_;
}

const std::map<std::string, double>& RunNumbers::errors() {
  if (errors_) return *errors_;
  errors_.emplace();
  const auto file = runs_.front().folder + "/errors.csv";
  if (runs_.size() > 1 || !path_exists(file)) return *errors_;
  using Type = Table::Type;
  const auto table =
      read_csv_table(file, {{"quantity", Type::text}, {"heads", Type::text}, {"se", Type::real}});
  const auto& columns = table.columns();
  for (std::size_t row = 0; row < static_cast<std::size_t>(table.rows()); ++row)
    if (columns[1].texts[row] == "all")
      errors_->emplace(columns[0].texts[row], columns[2].reals[row]);
  return *errors_;
}

double RunNumbers::error_of(const std::string& quantity) {
  const auto found = errors().find(quantity);
  return found == errors().end() ? kNan : found->second;
}

const Json& RunNumbers::options() {
  if (options_) return *options_;
  options_ = Json::object();
  const auto file = runs_.front().folder + "/summary.json";
  const Json summary = path_exists(file) ? load_json(file) : Json();
  if (summary.is_object() && summary.contains("options") && summary["options"].is_object())
    options_ = summary["options"];
  return *options_;
}

std::string shown(const Statistic& statistic) {
  switch (statistic.kind) {
    case Statistic::Kind::mean:
      return "mean of ";
    case Statistic::Kind::deviation:
      return "standard deviation of ";
    case Statistic::Kind::quantile:
      return fmt::format("{:g} % quantile of ", 100 * statistic.at);
    case Statistic::Kind::maximum:
      return "largest ";
    case Statistic::Kind::share_above:
      return fmt::format("share above {:g} of ", statistic.at);
    case Statistic::Kind::heads_below:
      return fmt::format("heads below {:g} in ", statistic.at);
    case Statistic::Kind::heads_with:
    case Statistic::Kind::heads:
      return "heads with ";
    case Statistic::Kind::depth:
      return fmt::format("mean at depth {:.1f} to {:.1f} of ", statistic.at, statistic.at + 0.1);
  }
  return "";
}

double statistic_of(const std::vector<HeadNumber>& heads, const Statistic& statistic) {
  std::vector<double> values;
  values.reserve(heads.size());
  for (const auto& head : heads) values.push_back(head.value);
  const auto heads_where = [&](auto holds) {
    return static_cast<double>(std::ranges::count_if(values, holds));
  };
  switch (statistic.kind) {
    case Statistic::Kind::mean:
      return mean_of(values);
    case Statistic::Kind::deviation:
      return deviation_of(values);
    case Statistic::Kind::quantile:
      return quantile_of(values, statistic.at);
    case Statistic::Kind::maximum:
      return values.empty() ? kNan : std::ranges::max(values);
    case Statistic::Kind::share_above:
      return values.empty() ? kNan : heads_where([&](double value) {
                                       return value > statistic.at;
                                     }) / static_cast<double>(values.size());
    case Statistic::Kind::heads_below:
      return heads_where([&](double value) { return value < statistic.at; });
    case Statistic::Kind::heads_with:
      return heads_where([](double value) { return value != 0; });
    case Statistic::Kind::heads:
      return static_cast<double>(values.size());
    case Statistic::Kind::depth:
      return mean_of(at_depth(heads, statistic.at));
  }
  return kNan;
}

}  // namespace qkscope
