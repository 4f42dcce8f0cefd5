// Heads with known structure: a drift along one direction, queries apart from keys along another,
// planes that turn with position, noise. What is planted is what the analyses must find.
#pragma once

#include <cstdint>
#include <vector>

#include "analysis/moments.h"

namespace qkscope {

struct PlantedPlane {
  double omega = 0;  // radians per token
  double radius = 0;
};

struct PlantedOptions {
  int dim = 128;
  int examples = 500;
  std::int32_t context = 131072;    // tokens per example
  std::int32_t bucket_size = 8192;  // tokens
  double rows_per_bucket = 1;       // sampled, on average, per example
  double drift_q = 3e-5;            // per token, along a
  double drift_k = 2e-5;
  double mean_q_a = 0.5;  // at the middle of the context
  double mean_k_a = -0.5;
  double separation = 2;  // distance of the means along b
  double noise = 1;       // standard deviation in every direction
  std::vector<PlantedPlane> planes;
  bool round_to_bf16 = false;  // as captured from a model that runs in bfloat16
  std::uint64_t seed = 0;
};

struct SampledRows {
  int dim = 0;
  std::vector<float> vectors;            // (rows, dim)
  std::vector<std::int32_t> position;    // (rows)
  std::vector<std::int32_t> example_id;  // (rows)
  std::vector<std::int32_t> bucket;      // (rows)

  Rows rows() const { return {dim, vectors, position, example_id, bucket}; }
};

// Directions of a planted head: rows 0 and 1 are a and b, then two per plane. (dim, dim)
// orthonormal.
Matrix planted_basis(const PlantedOptions& options);

enum class PlantedKind { queries, keys };

// `rows_seed` decides positions and noise; the options' seed decides the basis.
SampledRows plant_rows(const PlantedOptions& options, PlantedKind kind, std::uint64_t rows_seed);

}  // namespace qkscope
