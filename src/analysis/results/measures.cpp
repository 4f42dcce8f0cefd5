#include "analysis/results/measures.h"

#include <algorithm>
#include <cmath>

#include "base/core/nan.h"

namespace qkscope {
namespace {

constexpr HeadClass kClasses[] = {HeadClass::position_dominated, HeadClass::q_positional,
                                  HeadClass::k_positional, HeadClass::content_focused,
                                  HeadClass::mixed};

// The names outlive every Measure.
constexpr const char* kClassNames[] = {"position_dominated", "q_positional", "k_positional",
                                       "content_focused", "mixed"};

// 1 or 0; NaN where there is nothing to say.
double yes(bool holds, double decided_by) {
  return std::isnan(decided_by) ? kNan : holds ? 1 : 0;
}

}  // namespace

double Measure::centre(std::vector<double> values) const {
  if (values.empty()) return kNan;
  if (!median) {
    double mean = 0;
    for (const double value : values) mean += value / static_cast<double>(values.size());
    return mean;
  }
  std::sort(values.begin(), values.end());
  const auto half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : 0.5 * (values[half - 1] + values[half]);
}

std::vector<Measure> pca_measures() {
  const auto first = [](auto field) {
    return [field](const HeadReport& head) {
      return head.pca && !head.pca->components.empty() ? field(head.pca->components.front()) : kNan;
    };
  };
  const auto field = [](double PcaResult::*member) {
    return [member](const HeadReport& head) { return head.pca ? *head.pca.*member : kNan; };
  };
  return {{.name = "r_q", .of = first([](const PcaComponent& c) { return c.q.r; })},
          {.name = "r_k", .of = first([](const PcaComponent& c) { return c.k.r; })},
          {.name = "abs_r_k", .of = first([](const PcaComponent& c) { return std::fabs(c.k.r); })},
          {.name = "explained_variance",
           .of = first([](const PcaComponent& c) { return c.explained_variance; }),
           .column = "pc0_variance"},
          {.name = "fisher", .of = field(&PcaResult::fisher)},
          {.name = "positional_variance_q",
           .of = field(&PcaResult::positional_variance_q),
           .error = false},
          {.name = "positional_variance_k",
           .of = field(&PcaResult::positional_variance_k),
           .error = false},
          {.name = "qk_accuracy", .of = field(&PcaResult::qk_accuracy)}};
}

std::vector<Measure> class_measures(const TaxonomyOptions& options) {
  std::vector<Measure> measures;
  for (std::size_t i = 0; i < std::size(kClasses); ++i)
    measures.push_back({.name = kClassNames[i], .of = [options, i](const HeadReport& head) {
                          if (!head.pca || head.pca->components.empty()) return kNan;
                          const auto& first = head.pca->components.front();
                          const auto found = classify(first.q.r, first.k.r, options);
                          if (found == HeadClass::undefined) return kNan;
                          return found == kClasses[i] ? 1.0 : 0.0;
                        }});
  return measures;
}

std::vector<Measure> rotation_measures() {
  using R = RotationResult;
  const auto number = [](auto of) {
    return [of](const HeadReport& head) { return head.rotation ? of(*head.rotation) : kNan; };
  };
  const auto field = [&](double R::*member) {
    return number([member](const R& r) { return r.*member; });
  };
  const auto size = [&](double R::*member) {
    return number([member](const R& r) { return std::fabs(r.*member); });
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
           .of = number([](const R& r) { return std::fabs(r.alpha_k / r.alpha_q); }),
           .median = true},
          {.name = "signed_slope_ratio_median",
           .of = number([](const R& r) { return r.alpha_k / r.alpha_q; }),
           .median = true},
          {.name = "mu_q_a", .of = field(&R::mu_q_a)},
          {.name = "mu_k_a", .of = field(&R::mu_k_a)},
          {.name = "bias_strength", .of = field(&R::bias_strength)},
          {.name = "share_positive_bias",
           .of = number([](const R& r) { return yes(r.bias_strength > 0, r.bias_strength); })},
          {.name = "share_positive_mu_q_a",
           .of = number([](const R& r) { return yes(r.mu_q_a > 0, r.mu_q_a); })},
          {.name = "share_var_b_above_a", .of = number([](const R& r) {
                                            return yes(r.var_frac_b > r.var_frac_a,
                                                       r.var_frac_b - r.var_frac_a);
                                          })},
          {.name = "separation_strength", .of = field(&R::separation_strength)},
          {.name = "var_frac_a", .of = field(&R::var_frac_a)},
          {.name = "var_frac_b", .of = field(&R::var_frac_b)},
          {.name = "plane_var_fraction", .of = field(&R::plane_var_fraction)},
          {.name = "residual_pos_r", .of = field(&R::residual_pos_r), .error = false},
          {.name = "content_var_b", .of = field(&R::content_var_b)},
          {.name = "omega_r_squared", .of = field(&R::omega_r_squared), .error = false},
          {.name = "active_planes",
           .of = number([](const R& r) {
             const bool searched =
                 r.complement.empty() || !std::isnan(r.complement.front().angle_r);
             return searched ? static_cast<double>(r.active_planes()) : kNan;
           }),
           .error = false},
          {.name = "active_variance", .of = field(&R::active_variance)},
          {.name = "active_variance_total", .of = field(&R::active_variance_total)},
          {.name = "position_r_null",
           .of = number([](const R& r) { return r.null.position_r; }),
           .error = false},
          {.name = "abs_r_q_a_null",
           .of = number([](const R& r) { return r.null.r_q_a; }),
           .error = false},
          {.name = "abs_r_k_a_null",
           .of = number([](const R& r) { return r.null.r_k_a; }),
           .error = false}};
}

std::vector<Measure> plasticity_measures() {
  using P = PlasticityResult;
  const auto field = [](double P::*member) {
    return [member](const HeadReport& head) {
      return head.plasticity ? *head.plasticity.*member : kNan;
    };
  };
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

std::vector<double> values_of(const AnalysisRun& run, const Measure& measure,
                              const std::string& group) {
  std::vector<double> values;
  for (const auto& head : run.heads) {
    if (group != "all" && to_string(head.rope) != group) continue;
    const double value = measure.of(head);
    if (!std::isnan(value)) values.push_back(value);
  }
  return values;
}

const MeanError* find_error(const AnalysisRun& run, const std::string& quantity,
                            const std::string& heads) {
  const auto found = std::find_if(
      run.errors.begin(), run.errors.end(),
      [&](const MeanError& error) { return error.quantity == quantity && error.heads == heads; });
  return found == run.errors.end() ? nullptr : &*found;
}

}  // namespace qkscope
