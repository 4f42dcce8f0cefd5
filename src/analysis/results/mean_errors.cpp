#include "analysis/results/mean_errors.h"

#include <algorithm>
#include <cmath>

#include "analysis/methods/jackknife.h"
#include "analysis/results/measures.h"
#include "base/core/nan.h"
#include "base/numerics/correlation.h"

namespace qkscope {
namespace {

constexpr double kOutside = 0.05;  // of the intervals

// A head's number, and the same without each group of texts.
struct Replicated {
  double whole = kNan;
  std::vector<double> without;

  bool complete() const {
    return !without.empty() &&
           std::none_of(without.begin(), without.end(), [](double x) { return std::isnan(x); });
  }
};

std::vector<Replicated> replicated(const AnalysisRun& run, const Measure& measure,
                                   const std::string& group) {
  std::vector<Replicated> heads;
  for (const auto& head : run.heads) {
    if (group != "all" && to_string(head.rope) != group) continue;
    Replicated numbers{measure.of(head), {}};
    if (std::isnan(numbers.whole)) continue;
    for (const auto& report : head.without_group) numbers.without.push_back(measure.of(report));
    heads.push_back(std::move(numbers));
  }
  return heads;
}

// A head that does not exist without some group is left out of all of them: the mean over the
// others must not jump.
double error_of_mean(const std::vector<Replicated>& heads, const Measure& measure,
                     std::size_t groups) {
  std::vector<double> means;
  for (std::size_t group = 0; group < groups; ++group) {
    std::vector<double> values;
    for (const auto& head : heads)
      if (head.complete()) values.push_back(head.without[group]);
    means.push_back(measure.centre(std::move(values)));
  }
  return jackknife_error(means);
}

std::size_t group_count(const AnalysisRun& run) {
  std::size_t groups = 0;
  for (const auto& head : run.heads) groups = std::max(groups, head.without_group.size());
  return groups;
}

std::vector<Measure> measures_of(const AnalyzeOptions& options) {
  std::vector<Measure> all;
  const auto add = [&](const std::vector<Measure>& some) {
    std::copy_if(some.begin(), some.end(), std::back_inserter(all),
                 [](const Measure& measure) { return measure.error; });
  };
  if (options.pca) add(pca_measures());
  if (options.pca) add(class_measures(options.taxonomy));
  if (options.rotation) add(rotation_measures());
  if (options.plasticity) add(plasticity_measures());
  return all;
}

}  // namespace

std::vector<MeanError> mean_errors(const AnalysisRun& run, const AnalyzeOptions& options) {
  const auto groups = group_count(run);
  const double reach =
      groups > 1 ? student_t_quantile(kOutside, static_cast<std::int64_t>(groups) - 1) : kNan;
  std::vector<MeanError> errors;
  for (const auto& measure : measures_of(options))
    for (const char* group : kHeadGroups) {
      const auto heads = replicated(run, measure, group);
      if (heads.empty()) continue;
      std::vector<double> whole;
      for (const auto& head : heads) whole.push_back(head.whole);
      MeanError error;
      error.quantity = measure.quantity();
      error.heads = group;
      error.mean = measure.centre(whole);
      error.se = error_of_mean(heads, measure, groups);
      error.low = error.mean - reach * error.se;
      error.high = error.mean + reach * error.se;
      error.texts = run.texts;
      error.n_heads = std::ssize(heads);
      errors.push_back(std::move(error));
    }
  return errors;
}

}  // namespace qkscope
