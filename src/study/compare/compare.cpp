// Implements compare_with_published() and compare_runs().
#include <algorithm>
#include <cmath>
#include <map>

#include "base/core/error.h"
#include "base/core/log.h"
#include "base/core/numbers.h"
#include "base/core/project.h"
#include "base/core/text.h"
#include "base/tables/empty_table.h"
#include "qkscope/experimental/study.h"
#include "study/compare/run_tables.h"

namespace qkscope {
namespace {

using Names = std::vector<std::string>;

bool contains_name(const Names& names, const std::string& name) {
  return std::ranges::count(names, name) > 0;
}

constexpr std::size_t kMostListed = 12;  // most names in an error message

std::vector<AnalyzedRunFolder> find_finished_runs(const std::string& results, const Names& only) {
  auto runs = find_run_folders(results);
  const auto labels = to_vector(runs, &AnalyzedRunFolder::label);
  for (const auto& label : only)
    if (!contains_name(labels, label))
      reject("--only {}: {} has no finished run of this name; there are {}", quote_text(label),
             results, format_name_list(labels, kMostListed));
  if (!only.empty())
    std::erase_if(runs,
                  [&](const AnalyzedRunFolder& run) { return !contains_name(only, run.label); });
  return runs;
}

// A model name in the published numbers, and the runs to compare with its numbers.
struct ModelMatch {
  std::string model;
  std::optional<RunTables> run;  // nullopt: no such run here
};

// Matches runs by their labels; if no label is a published name, by their order.
std::vector<ModelMatch> match_runs(const PublishedNumbers& set,
                                   const std::vector<AnalyzedRunFolder>& runs,
                                   const CompareOptions& options) {
  const auto models = set.model_names();
  if (set.pooled && options.as.empty())
    reject(
        "{}: its numbers are of several runs together; say which with --as SCOPE (and --only LABEL "
        "for the runs that belong to it): {}",
        set.file, format_name_list(models, kMostListed));
  if (!set.pooled && !options.as.empty() && runs.size() > 1)
    reject("--as {}: {} runs cannot stand for one; choose it with --only LABEL",
           quote_text(options.as), runs.size());
  if (!options.as.empty()) {
    if (contains_name(models, options.as)) return {{options.as, RunTables(runs)}};
    const auto near = closest_spelling(options.as, models);
    reject("--as {}: {} has no such name{}; there are {}", quote_text(options.as), set.file,
           near.empty() ? "" : fmt::format("; did you mean {}?", near),
           format_name_list(models, kMostListed));
  }
  std::vector<ModelMatch> matches;
  for (const auto& model : models) {
    const auto found = std::ranges::find(runs, model, &AnalyzedRunFolder::label);
    auto& match = matches.emplace_back(ModelMatch{model, {}});
    if (found != runs.end()) match.run.emplace(std::vector<AnalyzedRunFolder>{*found});
  }
  const auto has_run = [](const ModelMatch& match) { return match.run.has_value(); };
  if (std::ranges::any_of(matches, has_run)) return matches;
  if (runs.size() != models.size())
    reject(
        "no run has a name of {} ({} to {}), and {} finished runs cannot be matched with {} by "
        "their order; --as NAME says what a single run stands for",
        set.file, models.front(), models.back(), runs.size(), models.size());
  log::warn(
      "no label is a published one; matched by order. Another model: trends can be compared, "
      "values cannot");
  for (std::size_t i = 0; i < runs.size(); ++i)
    matches[i].run.emplace(std::vector<AnalyzedRunFolder>{runs[i]});
  return matches;
}

// Returns difference / se, or NaN if the standard error is NaN or 0.
double z_score(double difference, double se) {
  return se > 0 ? difference / se : kNan;
}

void add_comparison_row(Table& table, const PublishedNumber& number, ModelMatch& match) {
  RecomputedValue ours{.missing = "there is no such run here"};
  if (match.run) ours = recompute_published_number(number, *match.run);
  const double published = ours.sign_arbitrary ? std::fabs(number.value) : number.value;
  const double difference = ours.value - published;
  const double se = std::hypot(number.se, ours.se);
  table.add(
      {number.metric, number.model, match.run ? match.run->label() : "", published, ours.value,
       difference, number.se, ours.se, se, z_score(difference, se), ours.column, number.kind,
       number.source,
       ours.sign_arbitrary ? std::string("sizes: the sign is not determined") : ours.missing});
}

// Sorts the rows of the table by metric, in the order of the published file, then by checkpoint.
Table compare_published_numbers(const PublishedNumbers& set, std::vector<ModelMatch> matches,
                                bool every_source) {
  Names metrics;
  std::map<std::pair<std::string, std::string>, std::vector<const PublishedNumber*>> numbers;
  for (const auto& number : set.numbers) {
    if (!number.preferred && !every_source) continue;
    auto& list = numbers[{number.metric, number.model}];
    if (list.empty() && !contains_name(metrics, number.metric)) metrics.push_back(number.metric);
    list.push_back(&number);
  }
  Table table = empty_table(
      "text measure, text checkpoint, text model, real published, real ours, real difference, real "
      "se_published, real se_ours, real se, real z, text our_column, text kind, text source, text "
      "note");
  for (const auto& metric : metrics)
    for (auto& match : matches)
      for (const auto* number : numbers[{metric, match.model}])
        add_comparison_row(table, *number, match);
  return table;
}

struct RunPair {
  RunTables a;
  RunTables b;
};

std::vector<RunPair> pair_runs(const std::string& folder_a, const std::string& folder_b) {
  const auto all_a = find_run_folders(folder_a);
  const auto all_b = find_run_folders(folder_b);
  if (all_a.size() == 1 && all_b.size() == 1) return {{RunTables(all_a), RunTables(all_b)}};
  const auto labels_a = to_vector(all_a, &AnalyzedRunFolder::label);
  const auto labels_b = to_vector(all_b, &AnalyzedRunFolder::label);
  std::vector<RunPair> pairs;
  for (const auto& a : all_a)
    for (const auto& b : all_b)
      if (a.label == b.label) pairs.push_back({RunTables({a}), RunTables({b})});
  if (pairs.empty())
    reject("{} and {}: no label is in both: {} and {}", folder_a, folder_b,
           format_name_list(labels_a, kMostListed), format_name_list(labels_b, kMostListed));
  const auto tell = [](const Names& labels, const Names& others, const std::string& folder) {
    Names alone;
    for (const auto& label : labels)
      if (!contains_name(others, label)) alone.push_back(label);
    if (!alone.empty()) log::warn("only in {}: {}", folder, format_name_list(alone, kMostListed));
  };
  tell(labels_a, labels_b, folder_a);
  tell(labels_b, labels_a, folder_b);
  return pairs;
}

}  // namespace

Table compare_with_published(const std::string& results, const CompareOptions& options) {
  return translate_exceptions([&] {
    const auto set = read_published_numbers(options.published);
    const auto runs = find_finished_runs(results, options.only);
    auto table =
        compare_published_numbers(set, match_runs(set, runs, options), options.every_source);
    const auto& ours = table.find("ours")->reals;
    const auto& notes = table.find("note")->texts;
    if (all_nan(ours))
      reject("{}: none of its numbers can be compared{}", set.file,
             notes.empty() ? "" : fmt::format(": {}", notes.front()));
    return table;
  });
}

Table compare_runs(const std::string& a, const std::string& b) {
  return translate_exceptions([&] {
    auto pairs = pair_runs(a, b);
    for (auto& pair : pairs) {
      Names others;
      for (const auto& [name, value] : pair.a.analysis_options().items())
        if (const auto in_b = pair.b.analysis_options().value(name, Json()); in_b != value)
          others.push_back(fmt::format("{} {} and {}", name, value.dump(), in_b.dump()));
      if (!others.empty())
        log::warn("{} and {} were analysed with other options: {}", pair.a.label(), pair.b.label(),
                  format_name_list(others, kMostListed));
    }
    Table table = empty_table(
        "text measure, text model_a, text model_b, real a, real b, real difference, real se_a, "
        "real se_b, real se, real z");
    for (const auto& metric : list_compared_metrics())
      for (auto& pair : pairs) {
        const auto in_a = evaluate_metric(metric, pair.a);
        const auto in_b = evaluate_metric(metric, pair.b);
        if (std::isnan(in_a.value) && std::isnan(in_b.value)) continue;
        const double difference = in_b.value - in_a.value;
        const double se = std::hypot(in_a.se, in_b.se);
        table.add({metric, pair.a.label(), pair.b.label(), in_a.value, in_b.value, difference,
                   in_a.se, in_b.se, se, z_score(difference, se)});
      }
    if (table.rows() == 0) reject("{} and {}: have no tables of heads to compare", a, b);
    return table;
  });
}

}  // namespace qkscope
