// Evaluates published numbers that have several values per head: profile bins, heat-map cells and
// PCA components.
#include <cmath>

#include <fmt/format.h>

#include "base/core/numbers.h"
#include "base/numerics/sample_statistics.h"
#include "study/compare/run_tables.h"

namespace qkscope {
namespace {

// Unweighted mean over the bins whose centre lies in the wanted bin. Fractions refer to the range
// from the first to the last bin with a value, as in ap_first20 and ap_last20.
double mean_over_bins(const HeadProfile& profile, const ProfileBin& wanted) {
  constexpr double kRounding = 1e-9;
  const double first = profile.values.front().low;
  const double range = profile.values.back().high - first;
  std::vector<double> inside;
  for (const auto& value : profile.values) {
    const double place =
        wanted.fraction ? (value.middle_position() - first) / range : value.middle_position();
    // A centre on an edge belongs to the upper bin; the tolerance absorbs rounding of 0.3.
    if (place >= wanted.low - kRounding && place < wanted.high - kRounding)
      inside.push_back(value.ap);
  }
  return mean_of(inside);
}

// Mean of value(profile), without NaN, over all heads or over the heads of the published layer.
template <typename Value>
MeasuredValue mean_over_heads(const PublishedNumber& published, RunTables& run, Value value,
                              const std::string& column) {
  if (run.profiles().empty())
    return unavailable_value("the results have no profile with bins (head_profile)");
  std::vector<double> values;
  for (const auto& profile : run.profiles()) {
    const double of_head = value(profile);
    if ((!published.layer || profile.layer == *published.layer) && !std::isnan(of_head))
      values.push_back(of_head);
  }
  if (values.empty()) return unavailable_value("no bin of our profile lies there");
  return {.value = mean_of(values), .column = column};
}

std::string describe(const ProfileBin& bin) {
  return bin.fraction ? fmt::format("{:g} to {:g} % of the range", 100 * bin.low, 100 * bin.high)
                      : fmt::format("{:g} to {:g} tokens", bin.low, bin.high);
}

// Value of the profile bin that contains the centre of the published bin, mean over heads.
MeasuredValue evaluate_profile_line(const PublishedNumber& published, RunTables& run) {
  const double middle = 0.5 * (published.bin.low + published.bin.high);
  const auto at_middle = [&](const HeadProfile& profile) {
    for (const auto& bin : profile.values)
      if (bin.low <= middle && middle < bin.high) return bin.ap;
    return kNan;
  };
  return mean_over_heads(published, run, at_middle,
                         fmt::format("head_profile ap at {:.0f} tokens", middle));
}

// Value of the same heat-map cell, mean over heads.
MeasuredValue evaluate_heatmap_cell(const PublishedNumber& published, RunTables& run) {
  const auto values =
      run.values_where("pair_heatmap", "ap",
                       {{"key_distance_low", published.bin.low},
                        {"key_distance_high", published.bin.high},
                        {"query_distance_low", static_cast<double>(published.index)}});
  if (!values) return unavailable_value("the results have no table pair_heatmap");
  if (values->empty()) return unavailable_value("our heatmap has no such cell");
  return {.value = mean_of(*values), .column = "mean of pair_heatmap ap"};
}

// Weight of one dimension, mean over heads.
MeasuredValue evaluate_component_weight(const PublishedNumber& published, RunTables& run) {
  const auto values = run.values_where("head_component_weights", "component_weight",
                                       {{"component", static_cast<double>(published.index)}});
  if (!values) return unavailable_value("the results have no table head_component_weights");
  if (values->empty()) return unavailable_value("our heads have no such dimension");
  return {.value = mean_of(*values), .column = "mean of head_component_weights component_weight"};
}

// Absolute value of one component of the PCA of the queries or keys of one head.
MeasuredValue evaluate_pca_component(const PublishedNumber& published, RunTables& run) {
  const bool correlation = published.quantity.starts_with("correlation");
  const std::string column = correlation ? "correlation" : "explained_variance_ratio";
  const auto values = run.values_where("correlations", column,
                                       {{"layer", static_cast<double>(*published.layer)},
                                        {"head", static_cast<double>(published.head)},
                                        {"kind", std::string(1, published.side)},
                                        {"pca_dim", static_cast<double>(published.index)}});
  if (!values) return unavailable_value("the results have no table correlations");
  if (values->empty()) return unavailable_value("this head was not analysed");
  return {.value = std::fabs(values->back()),
          .column = correlation ? "correlations |correlation|" : "correlations " + column,
          .sign_arbitrary = true};
}

}  // namespace

MeasuredValue evaluate_published_profile(const PublishedNumber& published, RunTables& run) {
  auto column = "head_profile ap, " + describe(published.bin);
  if (published.minus) column += " less " + describe(*published.minus);
  const auto in_bins = [&](const HeadProfile& profile) {
    const double mean = mean_over_bins(profile, published.bin);
    return published.minus ? mean - mean_over_bins(profile, *published.minus) : mean;
  };
  return mean_over_heads(published, run, in_bins, column);
}

MeasuredValue evaluate_table_value(const PublishedNumber& published, RunTables& run) {
  using ValueKind = PublishedNumber::ValueKind;
  switch (published.value_kind) {
    case ValueKind::profile:
      return evaluate_published_profile(published, run);
    case ValueKind::line:
      return evaluate_profile_line(published, run);
    case ValueKind::heatmap:
      return evaluate_heatmap_cell(published, run);
    case ValueKind::weight:
      return evaluate_component_weight(published, run);
    case ValueKind::components:
      return evaluate_pca_component(published, run);
    case ValueKind::quantity:
      break;
  }
  return unavailable_value("not computed by qkscope");
}

MeasuredValue evaluate_complement_share(RunTables& run, std::int64_t layer, std::int64_t head,
                                        std::int64_t pair) {
  const auto values = run.values_where("complement", "variance_share",
                                       {{"layer", static_cast<double>(layer)},
                                        {"head", static_cast<double>(head)},
                                        {"pair", static_cast<double>(pair)}});
  if (!values) return unavailable_value("the results have no table complement");
  if (values->empty())
    return unavailable_value(fmt::format("layer {} head {} was not analysed", layer, head));
  return {.value = values->back(),
          .column = fmt::format("complement variance_share of layer {} head {}", layer, head)};
}

}  // namespace qkscope
