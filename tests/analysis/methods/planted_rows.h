// Planted heads for tests, with everything the analyses take.
#pragma once

#include <numeric>
#include <utility>

#include "analysis/methods/moments.h"
#include "analysis/methods/planted.h"
#include "analysis/methods/plasticity.h"
#include "base/numerics/random.h"
#include "sanitized.h"

namespace qkscope {

struct PlantedHead {
  HeadRows query_rows;
  HeadRows key_rows;
  CentredRows queries;
  CentredRows keys;
  PooledMoments pooled;

  PlantedHead(HeadRows q, HeadRows k)
      : query_rows(std::move(q)),
        key_rows(std::move(k)),
        queries(make_centred_rows(as_rows_view(query_rows))),
        keys(make_centred_rows(as_rows_view(key_rows))),
        pooled(pool_moments(queries, keys)) {}
};

inline PlasticityResult attention_plasticity(const CentredRows& queries, const CentredRows& keys,
                                             const PlasticityOptions& options) {
  return attention_plasticity(queries, keys, key_mean_signs(keys), options);
}

// Small enough for hundreds of repetitions.
inline PlantedOptions small_head(std::uint64_t seed) {
  PlantedOptions options;
  options.dim = 8;
  options.examples = 40;
  options.context = 1024;
  options.bucket_size = 128;
  options.drift_q = 2e-3;
  options.drift_k = 1e-3;
  options.separation = 2;
  options.seed = seed;
  return options;
}

inline PlantedHead plant(const PlantedOptions& options, std::uint64_t rows_seed) {
  return {generate_planted_rows(options, HeadKind::query, 2 * rows_seed),
          generate_planted_rows(options, HeadKind::key, 2 * rows_seed + 1)};
}

// The rows of the texts that are not in the group.
inline HeadRows rows_without(const HeadRows& rows, const JackknifeGroups& texts, int group) {
  HeadRows kept;
  kept.head_dim = rows.head_dim;
  const auto dim = static_cast<std::size_t>(rows.head_dim);
  for (std::size_t i = 0; i < rows.position.size(); ++i) {
    if (texts.group_of(rows.example(i)) == group) continue;
    kept.position.push_back(rows.position[i]);
    kept.example_id.push_back(rows.example_id[i]);
    kept.bucket.push_back(rows.bucket[i]);
    kept.vectors.insert(kept.vectors.end(), rows.vectors.begin() + static_cast<long>(i * dim),
                        rows.vectors.begin() + static_cast<long>((i + 1) * dim));
  }
  return kept;
}

// The same rows in another order.
inline HeadRows shuffled(const HeadRows& rows, std::uint64_t seed) {
  std::vector<std::size_t> order(rows.position.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  Random random(seed);
  for (auto i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.next_below(i)]);
  HeadRows result;
  result.head_dim = rows.head_dim;
  const auto dim = static_cast<std::size_t>(rows.head_dim);
  for (const auto i : order) {
    result.position.push_back(rows.position[i]);
    result.example_id.push_back(rows.example_id[i]);
    result.bucket.push_back(rows.bucket[i]);
    result.vectors.insert(result.vectors.end(), rows.vectors.begin() + static_cast<long>(i * dim),
                          rows.vectors.begin() + static_cast<long>((i + 1) * dim));
  }
  return result;
}

}  // namespace qkscope
