// Planar rotation: the direction a along which a head's rows drift with position, the direction b
// that separates queries from keys, and what is left when both are taken away.
#pragma once

#include <string>
#include <vector>

#include "analysis/moments.h"
#include "numerics/frequency_search.h"

namespace qkscope {

struct RotationOptions {
  enum class Separation { mean, eigen };
  Separation separation = Separation::mean;
  std::vector<double> inv_freq;  // the layer's RoPE frequencies; empty when it has none
  double max_omega = 1;          // top of the band searched when inv_freq is empty
  int pairs = 30;                // planes of the complement
  double active_angle_r = 0.9;   // a plane turns with position above this
};

struct ComplementPair {
  double variance_share = 0;        // of the variance left without a and b
  double variance_share_total = 0;  // of all variance
  double angle_r = 0;
  double omega = 0;             // radians per token
  double nearest_inv_freq = 0;  // NaN when the layer has none
  double separability = 0;      // 0.5 mixed, 1 apart
  bool active = false;
};

struct RotationResult {
  std::vector<double> a;   // (dim)
  std::vector<double> b;   // (dim)
  std::vector<double> c0;  // (dim): the two axes of the complement's first plane; empty when there
  std::vector<double> c1;  // is none
  double position_r = 0;
  double r_q_a = 0;
  double r_k_a = 0;
  double alpha_q = 0;  // per token
  double alpha_k = 0;
  double mu_q_a = 0;
  double mu_k_a = 0;
  double mu_q_b = 0;
  double mu_k_b = 0;
  double bias_strength = 0;
  double separation_strength = 0;
  double var_frac_a = 0;
  double var_frac_b = 0;
  double plane_var_fraction = 0;
  double residual_pos_r = 0;
  double content_var_b = 0;
  double omega = 0;
  double omega_r_squared = 0;
  std::vector<ComplementPair> complement;
  std::string undefined;  // why a, and with it most numbers, do not exist; empty when they do

  int active_planes() const;
};

RotationResult planar_rotation(const CentredRows& queries, const CentredRows& keys,
                               const PooledMoments& pooled, const RotationOptions& options);

// Rows' coordinates on directions (count, dim) around the pooled mean: (count, rows).
Matrix project_rows(const CentredRows& rows, const PooledMoments& pooled, const Matrix& directions);

// A unit vector's reflection plane: I - 2 w w^T takes `from` (unit) to `to` (unit); w is empty when
// they are equal.
std::vector<double> householder_between(std::span<const double> from, std::span<const double> to);
// x becomes x - 2 w (w.x); nothing when w is empty.
void reflect(std::span<double> x, std::span<const double> w);
void reflect_rows(Matrix& rows, std::span<const double> w);

}  // namespace qkscope
