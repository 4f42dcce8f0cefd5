#include "cli/analysis_summary.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "qkscope/experimental/text.h"

namespace qkscope::cli {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Correlations of one head's queries and keys with position, on PC0 (first principal component) or
// along the drift axis (covariance of the vectors with position).
struct HeadCorrelations {
  double q = kNan;
  double k = kNan;
};

HeadCorrelations pc0_correlations(const HeadReport& head) {
  if (!head.pca || head.pca->components.empty()) return {};
  return {head.pca->components.front().q.r, head.pca->components.front().k.r};
}

HeadCorrelations axis_correlations(const HeadReport& head) {
  return head.pca ? HeadCorrelations{head.pca->r_q_axis, head.pca->r_k_axis} : HeadCorrelations{};
}

// A per-head quantity whose mean over all heads is printed.
struct PrintedMean {
  const char* quantity;  // in AnalysisRun::errors
  const char* title;
  std::function<double(const HeadReport&)> of;
};

std::vector<PrintedMean> printed_means() {
  const auto rotation = [](double RotationResult::*member) {
    return
        [member](const HeadReport& head) { return head.rotation ? *head.rotation.*member : kNan; };
  };
  const auto plasticity = [](double PlasticityResult::*member) {
    return [member](const HeadReport& head) {
      return head.plasticity ? *head.plasticity.*member : kNan;
    };
  };
  const auto variance = [](const HeadReport& head) {
    return head.pca && !head.pca->components.empty()
               ? head.pca->components.front().explained_variance
               : kNan;
  };
  const auto r_q = [](const HeadReport& head) { return pc0_correlations(head).q; };
  const auto r_k = [](const HeadReport& head) { return std::fabs(pc0_correlations(head).k); };
  return {{"r_q", "correlation of queries with position on PC0 (r_q)", r_q},
          {"abs_r_k", "correlation of keys with position on PC0 (|r_k|)", r_k},
          {"pc0_variance", "variance on PC0", variance},
          {"bias_strength", "positional bias per token (bias_strength)",
           rotation(&RotationResult::bias_strength)},
          {"separation_strength", "query-key separation (separation_strength)",
           rotation(&RotationResult::separation_strength)},
          {"ap_profile_overall", "attention plasticity (ap)",
           plasticity(&PlasticityResult::ap_profile_overall)},
          {"ap_drop", "its drop from the first to the last fifth (ap_drop)",
           plasticity(&PlasticityResult::ap_drop)}};
}

// Returns the standard error of the mean of `quantity` over all heads; NaN if it was not computed.
double standard_error_of(const AnalysisRun& run, const std::string& quantity) {
  for (const auto& error : run.errors)
    if (error.quantity == quantity && error.heads == "all") return error.se;
  return kNan;
}

void print_means(const AnalysisRun& run) {
  bool first = true;
  for (const auto& shown : printed_means()) {
    double sum = 0;
    std::int64_t heads = 0;
    for (const auto& head : run.heads) {
      const double value = shown.of(head);
      if (std::isnan(value)) continue;
      sum += value;
      ++heads;
    }
    if (heads == 0) continue;
    if (first) fmt::print("\n{:<56}{:>10}{:>10}\n", "means over heads", "mean", "error");
    first = false;
    const double se = standard_error_of(run, shown.quantity);
    fmt::print("  {:<54}{:>10.3g}{:>10}\n", shown.title, sum / static_cast<double>(heads),
               std::isnan(se) ? "-" : fmt::format("{:.2g}", se));
  }
}

// Prints the number of heads per class (such as content-focused), by PC0 and by drift axis.
void print_classes(const AnalysisRun& run, const TaxonomyOptions& taxonomy) {
  using enum HeadClass;
  const auto count = [&](const auto& class_of, HeadClass wanted) {
    return std::ranges::count_if(
        run.heads, [&](const HeadReport& head) { return head.pca && class_of(head) == wanted; });
  };
  const auto by_component = [&](const HeadReport& head) {
    const auto r = pc0_correlations(head);
    return classify(r.q, r.k, taxonomy);
  };
  const auto by_axis = [&](const HeadReport& head) { return classify_axis(*head.pca, taxonomy); };
  // AnalysisRun::errors holds standard errors of class fractions; multiplied by the number of
  // classified heads they become errors of counts.
  const auto classified = std::ranges::count_if(run.heads, [&](const HeadReport& head) {
    return head.pca && by_component(head) != undefined;
  });
  fmt::print("\n{:<24}{:>8}{:>10}{:>14}\n", "heads by class", "class", "error", "class_axis");
  for (const auto one :
       {position_dominated, q_positional, k_positional, content_focused, mixed, undefined}) {
    const auto heads = count(by_component, one);
    const auto axis = count(by_axis, one);
    if (one == undefined && heads + axis == 0) continue;
    const auto name = one == undefined ? "undefined" : to_string(one);
    const double se = standard_error_of(run, name) * static_cast<double>(classified);
    fmt::print("  {:<22}{:>8}{:>10}{:>14}\n", name, heads,
               std::isnan(se) ? "-" : fmt::format("{:.1f}", se), axis);
  }
}

struct RankedHead {
  const HeadReport* head = nullptr;
  HeadCorrelations r;

  double weaker_correlation() const { return std::min(std::fabs(r.q), std::fabs(r.k)); }
  double stronger_correlation() const { return std::max(std::fabs(r.q), std::fabs(r.k)); }
};

void print_heads(const std::string& title, const std::vector<RankedHead>& heads) {
  constexpr std::size_t kShown = 5;
  fmt::print("\n{:<24}{:>8}{:>8}{:>8}\n", title, "r_q", "r_k", "ap");
  for (std::size_t i = 0; i < std::min(kShown, heads.size()); ++i) {
    const auto& [head, r] = heads[i];
    const bool has_profile = head->plasticity && !std::isnan(head->plasticity->ap_profile_overall);
    fmt::print("  {:<22}{:>8.2f}{:>8.2f}{:>8}\n",
               fmt::format("layer {} head {}", head->query.layer, head->query.head), r.q, r.k,
               has_profile ? fmt::format("{:.2f}", head->plasticity->ap_profile_overall) : "-");
  }
}

// Prints the most positional and the most content-focused heads, ranked by correlation with
// position along the drift axis, or on PC0 if no head has a drift axis (a single text).
void print_extremes(const AnalysisRun& run) {
  const bool has_axis = std::ranges::any_of(
      run.heads, [](const HeadReport& head) { return !std::isnan(axis_correlations(head).q); });
  std::vector<RankedHead> heads;
  for (const auto& head : run.heads) {
    const auto r = has_axis ? axis_correlations(head) : pc0_correlations(head);
    if (!std::isnan(r.q) && !std::isnan(r.k)) heads.push_back({&head, r});
  }
  if (heads.empty()) return;
  const char* where = has_axis ? "along the drift axis" : "on PC0";
  fmt::print("\nr_q and r_k {}:", where);
  std::ranges::stable_sort(heads, std::greater(), &RankedHead::weaker_correlation);
  print_heads("most positional", heads);
  std::ranges::stable_sort(heads, {}, &RankedHead::stronger_correlation);
  print_heads("most content-focused", heads);
}

}  // namespace

void print_analysis(const AnalysisRun& run, const AnalyzeOptions& options) {
  const auto analysed =
      std::ranges::count_if(run.heads, [](const HeadReport& head) { return head.error.empty(); });
  if (analysed == 0) return;
  fmt::print("{}: {} head{}, {} text{}\n", printable(run.label), analysed, analysed == 1 ? "" : "s",
             run.texts, run.texts == 1 ? "" : "s");
  if (options.pca) print_classes(run, options.taxonomy);
  print_means(run);
  if (options.pca) print_extremes(run);
}

}  // namespace qkscope::cli
