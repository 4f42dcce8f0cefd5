// Implements pool_results() from qkscope/experimental/study.h: statistics over the heads of several
// analyses.
#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/ranges.h>

#include "base/core/error.h"
#include "base/core/numbers.h"
#include "base/core/text.h"
#include "base/io/json.h"
#include "base/numerics/correlation.h"
#include "qkscope/experimental/study.h"
#include "study/compare/pool_inputs.h"
#include "study/sweep/sweep.h"

namespace qkscope {
namespace {

using Type = Table::Type;
using Heads = std::vector<const PooledHead*>;

constexpr char kAll[] = "all";

struct Spread {
  std::int64_t n = 0;
  double mean = kNan;
  double median = kNan;
  double deviation = kNan;  // ddof 1
  double least = kNan;
  double most = kNan;
};

Spread spread_of(std::vector<double> values) {
  Spread spread;
  spread.n = std::ssize(values);
  if (values.empty()) return spread;
  std::sort(values.begin(), values.end());
  const auto n = static_cast<double>(values.size());
  spread.mean = 0;
  for (const double value : values) spread.mean += value / n;
  const auto half = values.size() / 2;
  spread.median = values.size() % 2 == 1 ? values[half] : 0.5 * (values[half - 1] + values[half]);
  double squares = 0;
  for (const double value : values) squares += (value - spread.mean) * (value - spread.mean);
  if (values.size() > 1) spread.deviation = std::sqrt(squares / (n - 1));
  spread.least = values.front();
  spread.most = values.back();
  return spread;
}

std::vector<double> numbers_of(const Heads& heads, const std::string& quantity) {
  std::vector<double> values;
  for (const auto* head : heads)
    if (const double value = head->value(quantity); !std::isnan(value)) values.push_back(value);
  return values;
}

// "all", followed by the label of each run.
std::vector<std::string> models_of(const std::vector<PooledHead>& heads) {
  std::vector<std::string> models = {kAll};
  for (const auto& head : heads)
    if (models.back() != head.model) models.push_back(head.model);
  return models;
}

Heads heads_of(const std::vector<PooledHead>& heads, const std::string& model,
               const std::string& layers = kAll) {
  Heads chosen;
  for (const auto& head : heads)
    if ((model == kAll || head.model == model) &&
        (layers == kAll || layers == head.rope || layers == head.attention))
      chosen.push_back(&head);
  return chosen;
}

Table pooled_table(const std::vector<PooledHead>& heads) {
  Table table;
  for (const char* name : {"model", "heads", "quantity"}) table.column(name, Type::text);
  table.column("n_heads", Type::integer);
  for (const char* name : {"mean", "median", "std", "min", "max"}) table.column(name, Type::real);
  for (const auto& model : models_of(heads))
    for (const char* layers : {kAll, "rope", "nope", "full", "sliding"}) {
      const auto chosen = heads_of(heads, model, layers);
      for (const auto& quantity : pooled_quantities(heads)) {
        const auto spread = spread_of(numbers_of(chosen, quantity));
        if (spread.n > 0)
          table.add({model, std::string(layers), quantity, spread.n, spread.mean, spread.median,
                     spread.deviation, spread.least, spread.most});
      }
    }
  return table;
}

Table depth_table(const std::vector<PooledHead>& heads, int bins) {
  Table table;
  table.column("model", Type::text).column("quantity", Type::text).column("bin", Type::integer);
  table.column("depth_low", Type::real).column("depth_high", Type::real);
  table.column("n_heads", Type::integer).column("mean", Type::real).column("median", Type::real);
  for (const auto& model : models_of(heads)) {
    std::vector<Heads> at(static_cast<std::size_t>(bins));
    for (const auto* head : heads_of(heads, model))
      at[static_cast<std::size_t>(std::min(static_cast<int>(head->depth * bins), bins - 1))]
          .push_back(head);
    for (const auto& quantity : pooled_quantities(heads))
      for (int bin = 0; bin < bins; ++bin) {
        const auto spread = spread_of(numbers_of(at[static_cast<std::size_t>(bin)], quantity));
        if (spread.n > 0)
          table.add({model, quantity, std::int64_t{bin}, static_cast<double>(bin) / bins,
                     (bin + 1.0) / bins, spread.n, spread.mean, spread.median});
      }
  }
  return table;
}

void add_correlation_columns(Table& table, const char* count) {
  table.column(count, Type::integer);
  for (const char* name : {"pearson", "pearson_p", "spearman", "spearman_p"})
    table.column(name, Type::real);
}

Table correlation_table(const std::vector<PooledHead>& heads,
                        const std::vector<std::pair<std::string, std::string>>& pairs) {
  Table table;
  for (const char* name : {"model", "x", "y"}) table.column(name, Type::text);
  add_correlation_columns(table, "n_heads");
  for (const auto& [x, y] : pairs) {
    for (const auto& model : models_of(heads)) {
      std::vector<double> of_x;
      std::vector<double> of_y;
      for (const auto* head : heads_of(heads, model)) {
        of_x.push_back(head->value(x));
        of_y.push_back(head->value(y));
      }
      const auto found = correlate(of_x, of_y);
      table.add({model, x, y, found.n, found.pearson.r, found.pearson.p, found.spearman.r,
                 found.spearman.p});
    }
  }
  return table;
}

std::vector<OverviewRow> overviews(const std::vector<RunFolder>& runs) {
  std::vector<OverviewRow> rows;
  rows.reserve(runs.size());
  for (const auto& run : runs) rows.push_back(overview_of_results(run.folder, run.label));
  return rows;
}

std::vector<std::string> labels_of(const std::vector<OverviewRow>& runs) {
  std::vector<std::string> labels;
  labels.reserve(runs.size());
  for (const auto& run : runs) labels.push_back(run.label);
  return labels;
}

Table score_table(const std::vector<OverviewRow>& runs, const PoolOptions& options) {
  Table table;
  table.column("score", Type::text).column("measure", Type::text);
  add_correlation_columns(table, "n_models");
  const auto scores = read_scores(options.scores, options.by);
  std::set<std::string> scored;
  for (const auto& score : scores)
    for (const auto& [model, value] : score.models) scored.insert(model);
  if (std::ranges::none_of(runs,
                           [&](const OverviewRow& run) { return scored.contains(run.label); }))
    bad_input("{}: no run has a name of column {}; runs are {}, the file has {}", options.scores,
              in_quotes(options.by), fmt::join(labels_of(runs), ", "), fmt::join(scored, ", "));
  for (const auto& score : scores)
    for (const auto& measure : overview_measures()) {
      std::vector<double> of_runs;
      std::vector<double> of_score;
      for (const auto& run : runs) {
        const auto found = score.models.find(run.label);
        of_runs.push_back(run.value(measure));
        of_score.push_back(found == score.models.end() ? kNan : found->second);
      }
      const auto found = correlate(of_runs, of_score);
      if (found.n > 0)
        table.add({score.name, measure, found.n, found.pearson.r, found.pearson.p, found.spearman.r,
                   found.spearman.p});
    }
  return table;
}

void check_quantity(const std::string& name, const std::vector<std::string>& known) {
  if (std::ranges::find(known, name) != known.end()) return;
  const auto near = nearest(name, known);
  bad_input("pool: {} is not a number of these heads{}; there are {}", in_quotes(name),
            near.empty() ? "" : fmt::format(", is {} meant?", near), fmt::join(known, ", "));
}

}  // namespace

PooledTables pool_results(const PoolOptions& options) {
  return translate_exceptions([&] {
    if (options.results.empty()) bad_input("pool: no results are named");
    if (options.depth_bins < 1) bad_input("pool: {} bins of depth", options.depth_bins);
    std::vector<RunFolder> runs;
    for (const auto& folder : options.results) {
      const auto found = runs_in(folder);
      runs.insert(runs.end(), found.begin(), found.end());
    }
    const auto heads = pooled_heads(runs);
    const auto known = pooled_quantities(heads);
    for (const auto& [x, y] : options.pairs)
      for (const auto& name : {x, y}) check_quantity(name, known);
    PooledTables tables;
    tables.pooled = pooled_table(heads);
    tables.depth = depth_table(heads, options.depth_bins);
    tables.correlations = correlation_table(heads, options.pairs);
    if (!options.scores.empty()) tables.scores = score_table(overviews(runs), options);
    return tables;
  });
}

}  // namespace qkscope
