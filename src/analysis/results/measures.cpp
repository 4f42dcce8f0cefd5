#include <algorithm>
#include <cmath>
#include <iterator>

#include "analysis/methods/moments.h"
#include "analysis/results/head_results.h"
#include "analysis/results/results_folder.h"
#include "base/core/numbers.h"
#include "base/core/project.h"
#include "base/numerics/sample_statistics.h"

namespace qkscope {
namespace {

constexpr double kOutside = 0.05;  // two-sided error probability of the confidence intervals

// Returns 1 for a positive number, 0 for other numbers, NaN for NaN.
double positive_indicator(double number) {
  return std::isnan(number) ? kNan : number > 0 ? 1 : 0;
}

// Returns a function that evaluates `of` on an analysis of a head; NaN if the analysis did not run.
template <typename Result, typename Of>
auto measure_getter(std::optional<Result> HeadReport::*analysis, Of of) {
  return [=](const HeadReport& head) -> double {
    return head.*analysis ? std::invoke(of, *(head.*analysis)) : kNan;
  };
}

// Measures that have a jackknife error, in the order of errors.csv.
std::vector<HeadMeasure> measures_with_error(const AnalyzeOptions& options) {
  std::vector<HeadMeasure> all;
  const auto add = [&](const std::vector<HeadMeasure>& some) {
    std::ranges::copy_if(some, std::back_inserter(all), &HeadMeasure::error);
  };
  for (const auto& analysis : kAnalyses) {
    if (!(options.*analysis.wanted)) continue;
    add(analysis.measures());
    if (analysis.wanted != &AnalyzeOptions::pca) continue;
    for (const auto by : {HeadClassCriterion::first_component, HeadClassCriterion::drift_axis})
      add(class_membership_measures(by, options.taxonomy));
  }
  return all;
}

}  // namespace

bool is_in_head_group(const HeadReport& head, const std::string& group) {
  return group == "all" || group == to_string(head.rope) ||
         group == (head.window ? "sliding" : "full");
}

double HeadMeasure::central_value(std::vector<double> values) const {
  if (values.empty()) return kNan;
  if (median) return qkscope::median(values);
  double mean = 0;
  for (const double value : values) mean += value / static_cast<double>(values.size());
  return mean;
}

std::vector<HeadMeasure> pca_measures() {
  using R = PcaResult;
  const auto field = [](auto of) { return measure_getter(&HeadReport::pca, of); };
  const auto size = [&](double R::*member) {
    return field([member](const R& r) { return std::fabs(r.*member); });
  };
  const auto first = [&](auto of) {
    return field([of](const R& r) {
      return r.components.empty() ? kNan : std::invoke(of, r.components.front());
    });
  };
  const auto position_variance = [](const R& r) {
    const int pc = position_component(r);
    return pc < 0 ? kNan : r.explained_variance[static_cast<std::size_t>(pc)];
  };
  return {{.name = "r_q", .of = first([](const PcaComponent& c) { return c.q.r; })},
          {.name = "r_k", .of = first([](const PcaComponent& c) { return c.k.r; })},
          {.name = "abs_r_k", .of = first([](const PcaComponent& c) { return std::fabs(c.k.r); })},
          {.name = "explained_variance",
           .of = first(&PcaComponent::explained_variance),
           .column = "pc0_variance"},
          {.name = "fisher", .of = field(&R::fisher)},
          {.name = "positional_variance_q", .of = field(&R::positional_variance_q), .error = false},
          {.name = "positional_variance_k", .of = field(&R::positional_variance_k), .error = false},
          {.name = "qk_accuracy", .of = field(&R::qk_accuracy)},
          {.name = "r_q_axis", .of = field(&R::r_q_axis)},
          {.name = "r_k_axis", .of = field(&R::r_k_axis)},
          {.name = "abs_r_q_axis", .of = size(&R::r_q_axis)},
          {.name = "abs_r_k_axis", .of = size(&R::r_k_axis)},
          {.name = "pc_position_variance", .of = field(position_variance), .error = false}};
}

HeadClass classify_head(const HeadReport& head, HeadClassCriterion by,
                        const TaxonomyOptions& options) {
  if (!head.pca || head.pca->components.empty()) return HeadClass::undefined;
  if (by == HeadClassCriterion::drift_axis) return classify_axis(*head.pca, options);
  const auto& first = head.pca->components.front();
  return classify(first.q.r, first.k.r, options);
}

std::vector<HeadMeasure> class_membership_measures(HeadClassCriterion by,
                                                   const TaxonomyOptions& options) {
  std::vector<HeadMeasure> measures;
  for (const auto one : {HeadClass::position_dominated, HeadClass::q_positional,
                         HeadClass::k_positional, HeadClass::content_focused, HeadClass::mixed})
    measures.push_back(
        {.name = to_string(one),
         .of =
             [options, by, one](const HeadReport& head) {
               const auto found = classify_head(head, by, options);
               return found == HeadClass::undefined ? kNan : found == one ? 1.0 : 0.0;
             },
         .column = by == HeadClassCriterion::drift_axis ? to_string(one) + "_axis" : ""});
  return measures;
}

std::vector<HeadMeasure> rotation_measures() {
  using R = RotationResult;
  const auto field = [](auto of) { return measure_getter(&HeadReport::rotation, of); };
  const auto size = [&](double R::*member) {
    return field([member](const R& r) { return std::fabs(r.*member); });
  };
  const auto null = [&](double PositionNull::*member) {
    return field([member](const R& r) { return r.null.*member; });
  };
  return {{.name = "position_r", .of = field(&R::position_r)},
          {.name = "r_q_a", .of = field(&R::r_q_a)},
          {.name = "abs_r_q_a", .of = size(&R::r_q_a)},
          {.name = "r_k_a", .of = field(&R::r_k_a)},
          {.name = "abs_r_k_a", .of = size(&R::r_k_a)},
          {.name = "alpha_q", .of = field(&R::alpha_q)},
          {.name = "abs_alpha_q", .of = size(&R::alpha_q)},
          {.name = "alpha_k", .of = field(&R::alpha_k)},
          {.name = "abs_alpha_k", .of = size(&R::alpha_k)},
          {.name = "slope_ratio_median",
           .of = field([](const R& r) { return std::fabs(r.alpha_k / r.alpha_q); }),
           .median = true},
          {.name = "signed_slope_ratio_median",
           .of = field([](const R& r) { return r.alpha_k / r.alpha_q; }),
           .median = true},
          {.name = "mu_q_a", .of = field(&R::mu_q_a)},
          {.name = "mu_k_a", .of = field(&R::mu_k_a)},
          {.name = "bias_strength", .of = field(&R::bias_strength)},
          {.name = "share_positive_bias",
           .of = field([](const R& r) { return positive_indicator(r.bias_strength); })},
          {.name = "share_positive_mu_q_a",
           .of = field([](const R& r) { return positive_indicator(r.mu_q_a); })},
          {.name = "share_var_b_above_a",
           .of = field([](const R& r) { return positive_indicator(r.var_frac_b - r.var_frac_a); })},
          {.name = "separation_strength", .of = field(&R::separation_strength)},
          {.name = "var_frac_a", .of = field(&R::var_frac_a)},
          {.name = "var_frac_b", .of = field(&R::var_frac_b)},
          {.name = "plane_var_fraction", .of = field(&R::plane_var_fraction)},
          {.name = "residual_pos_r", .of = field(&R::residual_pos_r), .error = false},
          {.name = "content_var_b", .of = field(&R::content_var_b)},
          {.name = "omega_r_squared", .of = field(&R::omega_r_squared), .error = false},
          {.name = "active_planes",
           .of = field([](const R& r) {
             const bool searched =
                 r.complement.empty() || !std::isnan(r.complement.front().angle_r);
             return searched ? static_cast<double>(r.active_planes()) : kNan;
           }),
           .error = false},
          {.name = "active_variance", .of = field(&R::active_variance)},
          {.name = "active_variance_total", .of = field(&R::active_variance_total)},
          {.name = "position_r_null", .of = null(&PositionNull::position_r), .error = false},
          {.name = "abs_r_q_a_null", .of = null(&PositionNull::r_q_a), .error = false},
          {.name = "abs_r_k_a_null", .of = null(&PositionNull::r_k_a), .error = false}};
}

std::vector<HeadMeasure> plasticity_measures() {
  using P = PlasticityResult;
  const auto field = [](auto of) { return measure_getter(&HeadReport::plasticity, of); };
  return {{.name = "q_R2_pos", .of = field(&P::r2_pos), .error = false},
          {.name = "q_beta_norm", .of = field(&P::beta_norm), .error = false},
          {.name = "q_R2_scalar", .of = field(&P::r2_scalar), .error = false},
          {.name = "q_mae_ratio", .of = field(&P::mae_ratio), .error = false},
          {.name = "ap_overall", .of = field(&P::ap_overall), .error = false},
          {.name = "ap_profile_overall", .of = field(&P::ap_profile_overall)},
          {.name = "ap_first20", .of = field(&P::ap_first20)},
          {.name = "ap_last20", .of = field(&P::ap_last20)},
          {.name = "ap_drop", .of = field(&P::ap_drop)},
          {.name = "ap_free_overall", .of = field(&P::ap_free_overall)},
          {.name = "ap_free_first20", .of = field(&P::ap_free_first20)},
          {.name = "ap_free_last20", .of = field(&P::ap_free_last20)},
          {.name = "ap_free_drop", .of = field(&P::ap_free_drop)}};
}

std::vector<HeadMeasure> geometry_measures() {
  std::vector<HeadMeasure> measures;
  for (const auto& column : geometry_columns())
    measures.push_back({.name = column.name,
                        .of =
                            [name = column.name](const HeadReport& head) {
                              return head.geometry ? head.geometry->value(name) : kNan;
                            },
                        .error = column.has_error});
  return measures;
}

std::vector<double> values_of_measure(const AnalysisRun& run, const HeadMeasure& measure,
                                      const std::string& group) {
  std::vector<double> values;
  for (const auto& head : run.heads)
    if (is_in_head_group(head, group)) values.push_back(measure.of(head));
  std::erase_if(values, [](double value) { return std::isnan(value); });
  return values;
}

HeadClassCount count_heads_of_class(const AnalysisRun& run, const HeadMeasure& one_class,
                                    const std::string& group) {
  const auto values = values_of_measure(run, one_class, group);
  return {std::ranges::count(values, 1.0), std::ssize(values)};
}

std::vector<MeanError> compute_errors_of_means(const AnalysisRun& run,
                                               const AnalyzeOptions& options) {
  std::size_t groups = 0;
  for (const auto& head : run.heads) groups = std::max(groups, head.without_group.size());
  const double reach =
      groups > 1 ? student_t_critical_value(kOutside, static_cast<std::int64_t>(groups) - 1) : kNan;
  std::vector<MeanError> errors;
  for (const auto& measure : measures_with_error(options))
    for (const char* group : kHeadGroups) {
      std::vector<double> values;
      // Leave-one-out replicates, shape (groups of texts, heads). A head that lacks a value in some
      // replicate is left out of all, so that every mean is over the same heads.
      std::vector<std::vector<double>> without(groups);
      for (const auto& head : run.heads) {
        const double value = is_in_head_group(head, group) ? measure.of(head) : kNan;
        if (std::isnan(value)) continue;
        values.push_back(value);
        const auto replicates = to_vector(head.without_group, measure.of);
        if (std::ranges::any_of(replicates, [](double x) { return std::isnan(x); })) continue;
        for (std::size_t i = 0; i < replicates.size(); ++i) without[i].push_back(replicates[i]);
      }
      if (values.empty()) continue;
      const double mean = measure.central_value(values);
      const double se = jackknife_error(to_vector(
          without, [&](const auto& of_heads) { return measure.central_value(of_heads); }));
      errors.push_back({measure.quantity_name(), group, mean, se, mean - reach * se,
                        mean + reach * se, run.texts, std::ssize(values)});
    }
  return errors;
}

const MeanError* find_error_of_mean(const AnalysisRun& run, const std::string& quantity,
                                    const std::string& heads) {
  const auto found = std::ranges::find_if(run.errors, [&](const MeanError& error) {
    return error.quantity == quantity && error.heads == heads;
  });
  return found == run.errors.end() ? nullptr : &*found;
}

}  // namespace qkscope
