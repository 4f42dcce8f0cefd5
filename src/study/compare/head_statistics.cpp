#include "study/compare/head_statistics.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/core/nan.h"
#include "base/numerics/sample_statistics.h"

namespace qkscope {
namespace {

// Tenths of layer / last layer; the last layer belongs to the last tenth. Whole numbers decide, so
// that a layer on an edge does not depend on rounding.
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
    return static_cast<double>(std::count_if(values.begin(), values.end(), holds));
  };
  switch (statistic.kind) {
    case Statistic::Kind::mean:
      return mean_of(values);
    case Statistic::Kind::deviation:
      return deviation_of(values);
    case Statistic::Kind::quantile:
      return quantile_of(values, statistic.at);
    case Statistic::Kind::maximum:
      return values.empty() ? kNan : *std::max_element(values.begin(), values.end());
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
