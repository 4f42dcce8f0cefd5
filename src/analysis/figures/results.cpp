#include "analysis/figures/results.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "analysis/figures/run_facts.h"
#include "base/core/error.h"
#include "base/core/nan.h"
#include "base/io/folder.h"

namespace qkscope {
namespace {

constexpr const char* kTables[] = {"qk",
                                   "taxonomy",
                                   "rotated",
                                   "complement",
                                   "head_metrics",
                                   "head_profile",
                                   "pair_heatmap",
                                   "head_component_weights",
                                   "head_scatter",
                                   "head_planes",
                                   "head_bucket_plasticity",
                                   "attention",
                                   "distance",
                                   "key_channels"};

// The runs of a table in order of appearance, with what a sweep says about them.
void collect_runs(const Table& table, std::vector<Run>& runs) {
  const auto* model = table.find("model");
  if (!model || model->type != Table::Type::text) return;
  const auto* phase = table.find("phase");
  const auto* order = table.find("order");
  for (std::size_t row = 0; row < model->texts.size(); ++row) {
    const std::string& label = model->texts[row];
    if (!runs.empty() && runs.back().label == label) continue;
    if (std::any_of(runs.begin(), runs.end(), [&](const Run& run) { return run.label == label; }))
      continue;
    Run run;
    run.label = label;
    run.order = std::ssize(runs);
    if (phase && phase->type == Table::Type::text) run.phase = phase->texts[row];
    if (order && order->type == Table::Type::integer) run.order = order->integers[row];
    runs.push_back(std::move(run));
  }
}

std::string interval_key(std::size_t run, const std::string& quantity, const std::string& heads) {
  return fmt::format("{}/{}/{}", run, quantity, heads);
}

}  // namespace

Frame::Frame(Table table, std::string path, std::vector<int> run)
    : table_(std::move(table)), path_(std::move(path)), run_(std::move(run)) {}

const Table::Column& Frame::column(std::string_view name, Table::Type type) const {
  const auto* found = table_.find(name);
  if (!found || found->type != type)
    bad_input("{}: column '{}' is missing or of another type; analyse again with this version",
              path_, name);
  return *found;
}

const std::vector<double>& Frame::reals(std::string_view name) const {
  return column(name, Table::Type::real).reals;
}

const std::vector<std::int64_t>& Frame::integers(std::string_view name) const {
  const auto& values = integers_with_gaps(name);
  if (std::find(values.begin(), values.end(), Table::kNoInteger) != values.end())
    bad_input("{}: empty fields in the column '{}' of integers", path_, name);
  return values;
}

const std::vector<std::int64_t>& Frame::integers_with_gaps(std::string_view name) const {
  return column(name, Table::Type::integer).integers;
}

const std::vector<std::string>& Frame::texts(std::string_view name) const {
  return column(name, Table::Type::text).texts;
}

const std::vector<std::int64_t>& Frame::heads() const {
  return integers(has("head") ? "head" : "q_head");
}

Results::Results(std::string folder, FigureChoices choices)
    : folder_(std::move(folder)), choices_(std::move(choices)) {
  if (!is_folder(folder_)) bad_input("{}: there is no such folder", folder_);
  bool any = false;
  for (const auto* name : kTables) {
    if (!has(name)) continue;
    any = true;
    // The first table with rows names all runs: every analysis of a sweep writes the same ones.
    collect_runs(read_parquet_table_with_gaps(path(name)), runs_);
    if (!runs_.empty()) break;
  }
  if (!any)
    bad_input(
        "{}: no result tables (qk.parquet, rotated.parquet, head_metrics.parquet ...); expected "
        "the folder that 'qkscope analyze --out' or 'qkscope sweep' wrote",
        folder_);
  std::stable_sort(runs_.begin(), runs_.end(),
                   [](const Run& x, const Run& y) { return x.order < y.order; });
  RunFacts facts = read_run_facts(folder_, runs_);
  name_ = std::move(facts.name);
  other_runs_ = std::move(facts.others);
  read_intervals();
}

void Results::read_intervals() {
  if (!has("errors")) return;
  const Table table = read_parquet_table(path("errors"));
  const auto column = [&](const char* name, Table::Type type) -> const Table::Column& {
    const auto* found = table.find(name);
    if (!found || found->type != type)
      bad_input("{}: column '{}' is missing or of another type; analyse again with this version",
                path("errors"), name);
    return *found;
  };
  const auto& quantity = column("quantity", Table::Type::text).texts;
  const auto& heads = column("heads", Table::Type::text).texts;
  const auto& low = column("low", Table::Type::real).reals;
  const auto& high = column("high", Table::Type::real).reals;
  const auto* model = table.find("model");
  for (std::size_t row = 0; row < quantity.size(); ++row) {
    const int run = model ? run_of(model->texts[row]) : single() ? 0 : -1;
    if (run < 0 || std::isnan(low[row]) || std::isnan(high[row])) continue;
    intervals_[interval_key(static_cast<std::size_t>(run), quantity[row], heads[row])] = {
        low[row], high[row]};
  }
}

std::optional<Interval> Results::interval(std::size_t run, const std::string& quantity,
                                          const std::string& heads) const {
  const auto found = intervals_.find(interval_key(run, quantity, heads));
  if (found == intervals_.end()) return std::nullopt;
  return found->second;
}

std::string Results::path(const std::string& table) const {
  return folder_ + "/" + table + ".parquet";
}

bool Results::has(const std::string& table) const {
  return path_exists(path(table));
}

int Results::run_of(const std::string& label) const {
  for (std::size_t i = 0; i < runs_.size(); ++i)
    if (runs_[i].label == label) return static_cast<int>(i);
  return -1;
}

const Frame& Results::frame(const std::string& name) const {
  auto& frame = frames_[name];
  if (frame) return *frame;
  Table table = read_parquet_table_with_gaps(path(name));
  const auto* model = table.find("model");
  if (!model || model->type != Table::Type::text)
    bad_input("{}: there is no text column 'model'; expected a table of 'qkscope analyze'",
              path(name));
  std::vector<int> run;
  for (const auto& label : model->texts) {
    const bool same = !run.empty() && run.back() >= 0 &&
                      runs_[static_cast<std::size_t>(run.back())].label == label;
    run.push_back(same ? run.back() : run_of(label));
    if (run.back() < 0)
      bad_input("{}: model '{}' is in no other table; analyse again", path(name), label);
  }
  frame = std::make_unique<Frame>(std::move(table), path(name), std::move(run));
  return *frame;
}

std::vector<std::vector<double>> by_run(const Results& results, const Frame& frame,
                                        const std::vector<double>& values,
                                        const std::function<bool(std::size_t)>& take) {
  std::vector<std::vector<double>> groups(results.runs().size());
  for (std::size_t row = 0; row < frame.rows(); ++row)
    if (!std::isnan(values[row]) && take(row))
      groups[static_cast<std::size_t>(frame.run()[row])].push_back(values[row]);
  return groups;
}

std::vector<std::vector<double>> by_run(const Results& results, const Frame& frame,
                                        const std::vector<double>& values) {
  return by_run(results, frame, values, [](std::size_t) { return true; });
}

bool any_nope(const Frame& frame) {
  const auto& rope = frame.texts("rope");
  return std::find(rope.begin(), rope.end(), "nope") != rope.end();
}

std::string profile_error_column(const Frame& profile) {
  for (const char* column : {"se", "stderr"})
    if (profile.has(column)) return column;
  return "";
}

std::string bounds_text(const Results& results) {
  const Run& first = results.runs().front();
  for (const auto& run : results.runs())
    if (run.high != first.high || run.low != first.low)
      return "the low and high bound that each run was analysed with";
  return fmt::format("{} and {}", first.low, first.high);
}

std::vector<double> absolute(std::vector<double> values) {
  for (double& value : values) value = std::fabs(value);
  return values;
}

bool all_empty(const std::vector<std::vector<double>>& groups) {
  return std::all_of(groups.begin(), groups.end(), [](const auto& group) { return group.empty(); });
}

std::vector<double> largest_by_run(const Results& results, const Frame& frame,
                                   const std::string& column) {
  std::vector<double> largest;
  for (const auto& group : by_run(results, frame, frame.reals(column)))
    largest.push_back(group.empty() ? 1 : *std::max_element(group.begin(), group.end()));
  return largest;
}

}  // namespace qkscope
