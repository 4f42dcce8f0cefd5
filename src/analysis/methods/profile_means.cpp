#include <cmath>
#include <vector>

#include "analysis/methods/moments.h"
#include "analysis/methods/plasticity.h"
#include "base/core/error.h"
#include "base/core/numbers.h"
#include "base/core/project.h"

namespace qkscope {
namespace {

using BinKind = ProfileBinMean::Kind;

std::vector<double> profile_values(const PlasticityResult& result, PlasticityKind kind) {
  return to_vector(result.profile, [&](const ProfilePoint& point) {
    return kind == PlasticityKind::free ? point.ap_free : point.mean.ap;
  });
}

std::vector<double> query_counts(const PlasticityResult& result) {
  return to_vector(result.profile, [](const auto& point) { return to_double(point.queries); });
}

// Returns row `group` of an array of shape (groups, points of the profile).
std::span<const double> replicate_values(const PlasticityResult& result,
                                         const std::vector<double>& numbers, int group) {
  const auto points = result.profile.size();
  return std::span(numbers).subspan(as_index(group) * points, points);
}

const std::vector<double>& profile_replicates_of(const PlasticityResult& result,
                                                 PlasticityKind kind) {
  return kind == PlasticityKind::free ? result.profile_without.free : result.profile_without.value;
}

struct ProfileBinsMean {
  double ap = kNan;
  std::int64_t bins = 0;
};

// Returns the mean over the profile bins with centres in [low, high).
ProfileBinsMean mean_over_bins_between(std::span<const ProfilePoint> points,
                                       std::span<const double> values, double low, double high) {
  double sum = 0;
  std::int64_t bins = 0;
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (std::isnan(values[i]) || points[i].centre() < low || points[i].centre() >= high) continue;
    sum += values[i];
    ++bins;
  }
  return {bins > 0 ? sum / static_cast<double>(bins) : kNan, bins};
}

double weighted_mean(std::span<const double> values, std::span<const double> weights) {
  double sum = 0;
  double total = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(values[i])) continue;
    sum += weights[i] * values[i];
    total += weights[i];
  }
  return total > 0 ? sum / total : kNan;
}

std::vector<double> equal_bin_edges(double low, double high, int parts) {
  std::vector<double> edges;
  for (int i = 0; i <= parts; ++i) edges.push_back(low + (high - low) * i / parts);
  return edges;
}

PlasticityMeans compute_profile_means(const PlasticityResult& result,
                                      std::span<const double> values,
                                      std::span<const double> queries) {
  const auto fifths = equal_bin_edges(result.profile_low, result.profile_high, 5);
  PlasticityMeans means;
  means.overall = weighted_mean(values, queries);
  means.first20 = mean_over_bins_between(result.profile, values, fifths[0], fifths[1]).ap;
  means.last20 = mean_over_bins_between(result.profile, values, fifths[4], fifths[5]).ap;
  means.drop = means.first20 - means.last20;
  return means;
}

// Returns the jackknife standard error of a statistic of the profile. of(values, group) computes
// the statistic from the values of the profile without that group of texts.
template <typename Of>
double profile_jackknife_error(const PlasticityResult& result, PlasticityKind kind, const Of& of) {
  const auto& replicates = profile_replicates_of(result, kind);
  std::vector<double> numbers;
  for (int group = 0; group < result.profile_without.groups && !replicates.empty(); ++group)
    numbers.push_back(of(replicate_values(result, replicates, group), group));
  return jackknife_error(numbers);
}

double overall_mean_error(const PlasticityResult& result, PlasticityKind kind) {
  return profile_jackknife_error(result, kind, [&](std::span<const double> values, int group) {
    return weighted_mean(values, replicate_values(result, result.profile_without.queries, group));
  });
}

// Appends the mean of the profile between each pair of adjacent edges.
void add_bin_means(BinKind kind, std::span<const double> edges, std::span<const double> values,
                   PlasticityResult& result) {
  for (std::size_t i = 0; i + 1 < edges.size(); ++i) {
    const auto between = [&](std::span<const double> some) {
      return mean_over_bins_between(result.profile, some, edges[i], edges[i + 1]);
    };
    const auto mean = between(values);
    const double se = profile_jackknife_error(
        result, PlasticityKind::gaussian,
        [&](std::span<const double> some, int) { return between(some).ap; });
    result.profile_bin_means.push_back(
        {kind, static_cast<int>(i), edges[i], edges[i + 1], mean.ap, mean.bins, se});
  }
}

std::vector<double> length_bin_edges(const PlasticityOptions& options, double context) {
  if (!options.length_bins.empty()) return {options.length_bins.begin(), options.length_bins.end()};
  std::vector<double> edges = {0, 1024};
  while (edges.back() < context) edges.push_back(2 * edges.back());
  return edges;
}

}  // namespace

std::string to_string(ProfileBinMean::Kind kind) {
  constexpr const char* kNames[] = {"decile", "quintile", "length"};
  return translate_exceptions(
      [&]() -> std::string { return kNames[static_cast<std::size_t>(kind)]; });
}

void set_plasticity_means(const PlasticityMeans& gaussian, const PlasticityMeans& free,
                          PlasticityResult& result) {
  result.ap_profile_overall = gaussian.overall;
  result.ap_first20 = gaussian.first20;
  result.ap_last20 = gaussian.last20;
  result.ap_drop = gaussian.drop;
  result.ap_free_overall = free.overall;
  result.ap_free_first20 = free.first20;
  result.ap_free_last20 = free.last20;
  result.ap_free_drop = free.drop;
}

PlasticityMeans plasticity_means_without_group(const PlasticityResult& result, PlasticityKind kind,
                                               int group) {
  return compute_profile_means(result,
                               replicate_values(result, profile_replicates_of(result, kind), group),
                               replicate_values(result, result.profile_without.queries, group));
}

void summarize_plasticity_profile(const PlasticityOptions& options, PlasticityResult& result) {
  const auto values = profile_values(result, PlasticityKind::gaussian);
  result.profile_low = 0;
  result.profile_high = result.profile_context;
  if (options.fifths == PlasticityOptions::Fifths::range) {
    bool any = false;
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (std::isnan(values[i])) continue;
      if (!any) result.profile_low = result.profile[i].low;
      result.profile_high = result.profile[i].high;
      any = true;
    }
  }
  const auto means = compute_profile_means(result, values, query_counts(result));
  const auto free = compute_profile_means(result, profile_values(result, PlasticityKind::free),
                                          query_counts(result));
  set_plasticity_means(means, free, result);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto at = [i](std::span<const double> some, int) { return some[i]; };
    result.profile[i].se = profile_jackknife_error(result, PlasticityKind::gaussian, at);
    result.profile[i].se_free = profile_jackknife_error(result, PlasticityKind::free, at);
  }
  if (!result.profile_without.free.empty()) {
    const double error = std::hypot(overall_mean_error(result, PlasticityKind::gaussian),
                                    overall_mean_error(result, PlasticityKind::free));
    const double apart = std::fabs(means.overall - free.overall);
    if (!std::isnan(apart + error)) result.gaussian = apart <= error;
  }
  const double low = result.profile_low;
  const double high = result.profile_high;
  add_bin_means(BinKind::decile, equal_bin_edges(low, high, 10), values, result);
  add_bin_means(BinKind::quintile, equal_bin_edges(low, high, 5), values, result);
  add_bin_means(BinKind::length, length_bin_edges(options, result.profile_context), values, result);
}

}  // namespace qkscope
