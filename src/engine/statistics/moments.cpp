#include "engine/statistics/moments.h"

#include "base/core/error.h"
#include "base/core/numbers.h"
#include "base/core/thread_pool.h"
#include "base/io/json.h"
#include "engine/statistics/attention_sums.h"

namespace qkscope {
namespace {

// Factors of the formulas that merge the moments of two sets of rows.
struct MomentMergeFactors {
  double a;        // rows of the first set
  double b;        // rows of the second set
  double n;        // a + b
  double share;    // b / n
  double product;  // a b / n
};

MomentMergeFactors compute_merge_factors(std::int64_t rows_a, std::int64_t rows_b) {
  const auto a = static_cast<double>(rows_a);
  const auto b = static_cast<double>(rows_b);
  const double n = a + b;
  return {a, b, n, b / n, a * b / n};
}

// Sums of the second, third and fourth power of x - mean for one dimension.
struct CentralMoments {
  double m2, m3, m4;
};

// Merges third and fourth moments by the formulas of Pebay (SAND2008-6212).
void merge_higher_moments(CentralMoments& into, const CentralMoments& part, double delta,
                          const MomentMergeFactors& w) {
  const double square = delta * delta;
  const double ab = w.a * w.b;
  into.m4 += part.m4 + square * square * ab * (w.a * w.a - ab + w.b * w.b) / (w.n * w.n * w.n) +
             6.0 * square * (w.a * w.a * part.m2 + w.b * w.b * into.m2) / (w.n * w.n) +
             4.0 * delta * (w.a * part.m3 - w.b * into.m3) / w.n;
  into.m3 += part.m3 + square * delta * ab * (w.a - w.b) / (w.n * w.n) +
             3.0 * delta * (w.a * part.m2 - w.b * into.m2) / w.n;
}

// Merges the second moments (upper triangles) of two sets of a and b rows by the update of Chan et
// al. `delta`: difference of the means; `product`: a b / (a + b).
void merge_second_moments(double* m2, const double* part, const double* delta, std::int64_t dim,
                          double product) {
  for (std::int64_t i = 0; i < dim; ++i) {
    const double scaled = delta[i] * product;
    for (std::int64_t j = i; j < dim; ++j) *m2++ += *part++ + scaled * delta[j];
  }
}

void merge_head_moments(HeadMoments& into, const HeadMoments& part, const MomentMergeFactors& w,
                        std::int64_t head) {
  const auto dim = into.dim;
  const auto triangle = head * triangle_size(dim);
  const double delta_t = part.positions.t_mean - into.positions.t_mean;
  const double delta_u = part.positions.u_mean - into.positions.u_mean;
  std::vector<double> deltas(as_index(dim));
  for (std::int64_t j = 0; j < dim; ++j) {
    const auto i = as_index(head * dim + j);
    const double delta = deltas[as_index(j)] = part.mean[i] - into.mean[i];
    const auto diagonal = as_index(triangle + triangle_index(dim, j, j));
    CentralMoments powers{into.m2[diagonal], into.m3[i], into.m4[i]};
    merge_higher_moments(powers, {part.m2[diagonal], part.m3[i], part.m4[i]}, delta, w);
    into.m3[i] = powers.m3;
    into.m4[i] = powers.m4;
    into.mean[i] += delta * w.share;
    into.ct[i] += part.ct[i] + delta * delta_t * w.product;
    into.cu[i] += part.cu[i] + delta * delta_u * w.product;
    into.min[i] = std::min(into.min[i], part.min[i]);
    into.max[i] = std::max(into.max[i], part.max[i]);
  }
  merge_second_moments(into.m2.data() + triangle, part.m2.data() + triangle, deltas.data(), dim,
                       w.product);
  const auto average = [&](double& mean, double other) { mean += (other - mean) * w.share; };
  for (auto pair = as_index(head * into.pairs); pair < as_index((head + 1) * into.pairs); ++pair)
    average(into.pair_abs[pair], part.pair_abs[pair]);
  average(into.norm_mean[as_index(head)], part.norm_mean[as_index(head)]);
  auto& longest = into.norm_max[as_index(head)];
  longest = std::max(longest, part.norm_max[as_index(head)]);
}

void merge_bucket_moments(BucketMoments& into, const BucketMoments& part, std::int64_t head,
                          std::int64_t bucket) {
  const auto b = as_index(bucket);
  if (part.n[b] == 0) return;
  const auto w = compute_merge_factors(into.n[b], part.n[b]);
  const auto cell = head * into.buckets + bucket;
  std::vector<double> delta(static_cast<std::size_t>(into.dim));
  for (std::int64_t j = 0; j < into.dim; ++j) {
    const auto i = static_cast<std::size_t>(cell * into.dim + j);
    const double step = part.mean[i] - into.mean[i];
    delta[as_index(j)] = step;
    into.mean[i] += step * w.share;
    into.m2[i] += part.m2[i] + step * step * w.product;
  }
  if (into.cov.empty()) return;
  const auto triangle = cell * triangle_size(into.dim);
  merge_second_moments(into.cov.data() + triangle, part.cov.data() + triangle, delta.data(),
                       into.dim, w.product);
}

// Returns (name, value) pairs of the properties that statistics must share to be merged.
std::vector<std::pair<std::string, std::string>> properties_to_match(const Statistics& s) {
  const auto meta = [&](const char* key) {
    const auto found = s.metadata.find(key);
    return found == s.metadata.end() ? std::string("unknown") : found->second;
  };
  const auto list = [](const auto& values) { return Json(values).dump(); };
  std::vector<std::string> moments;
  for (const auto& [key, layers] : s.moments)
    if (!layers.empty())
      moments.push_back(std::string(kind_name(key.first)) + "." +
                        std::string(stage_name(key.second)));
  return {{"model", meta("model")},
          {"commit", meta("commit")},
          {"dtype", meta("dtype")},
          {"first", std::to_string(s.settings.first)},
          {"buckets", std::to_string(s.settings.buckets)},
          {"bucket size", std::to_string(s.settings.bucket_size)},
          {"RoPE", list(s.ropes)},
          {"heads", list(std::vector{s.heads, s.key_heads, s.dim})},
          {"layers", list(s.layers)},
          {"layers of group A", list(s.moment_layers)},
          {"moments", list(moments)},
          {"bucket covariances", std::to_string(s.settings.bucket_covariance.size())},
          {"all_keys_rows", fmt::format("{}", s.settings.all_keys_rows)},
          {"columns of groups B and C", list(s.attention.columns)}};
}

}  // namespace

void merge_moments(PositionSums& into, const PositionSums& part) {
  if (part.n == 0) return;
  const auto w = compute_merge_factors(into.n, part.n);
  const double t = part.t_mean - into.t_mean;
  const double u = part.u_mean - into.u_mean;
  into.t_m2 += part.t_m2 + t * t * w.product;
  into.u_m2 += part.u_m2 + u * u * w.product;
  into.tu_m2 += part.tu_m2 + t * u * w.product;
  into.t_mean += t * w.share;
  into.u_mean += u * w.share;
  into.n += part.n;
}

void merge_moments(HeadMoments& into, const HeadMoments& part) {
  QKSCOPE_ASSERT(into.heads == part.heads && into.dim == part.dim && into.pairs == part.pairs);
  if (part.n() == 0) return;
  if (into.n() == 0) {
    into = part;
    return;
  }
  const auto weights = compute_merge_factors(into.n(), part.n());
  parallel_for(into.heads, [&](auto head) { merge_head_moments(into, part, weights, head); });
  merge_moments(into.positions, part.positions);
}

void merge_moments(BucketMoments& into, const BucketMoments& part) {
  QKSCOPE_ASSERT(into.heads == part.heads && into.buckets == part.buckets &&
                 into.cov.size() == part.cov.size());
  parallel_for(into.heads, [&](std::int64_t head) {
    for (std::int64_t bucket = 0; bucket < into.buckets; ++bucket)
      merge_bucket_moments(into, part, head, bucket);
  });
  for (std::size_t bucket = 0; bucket < into.n.size(); ++bucket) into.n[bucket] += part.n[bucket];
}

void merge_moments(LayerMoments& into, const LayerMoments& part) {
  merge_moments(into.first, part.first);
  merge_moments(into.body, part.body);
  merge_moments(into.buckets, part.buckets);
}

std::string_view kind_name(VectorKind kind) {
  constexpr std::string_view kNames[] = {"q", "k", "v"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::string_view stage_name(VectorStage stage) {
  return stage == VectorStage::pre ? "pre" : "post";
}

std::string_view set_name(RowSet set) {
  return set == RowSet::first ? "first" : "body";
}

HeadMoments all_rows(const LayerMoments& moments) {
  return translate_exceptions([&] {
    auto all = moments.first;
    merge_moments(all, moments.body);
    return all;
  });
}

const LayerMoments* Statistics::find(VectorKind kind, VectorStage stage, std::int64_t layer) const {
  const auto of_kind = moments.find({kind, stage});
  const auto at = std::lower_bound(moment_layers.begin(), moment_layers.end(), layer);
  if (of_kind == moments.end() || of_kind->second.empty() || at == moment_layers.end() ||
      *at != layer)
    return nullptr;
  return &of_kind->second[as_index(at - moment_layers.begin())];
}

DocumentPositionSums sum_document_positions(std::span<const std::int64_t> lengths,
                                            std::int64_t first, std::int64_t bucket_size,
                                            std::int64_t buckets) {
  DocumentPositionSums sums;
  sums.buckets.resize(as_index(buckets));
  PositionPrefixSums table;
  for (const auto length : lengths) {
    sums.first += table.sums_over(0, std::min(first, length));
    sums.body += table.sums_over(first, length);
    for (std::int64_t bucket = 0; bucket < buckets; ++bucket) {
      const bool last = bucket + 1 == buckets;
      const auto end = last ? length : std::min(length, (bucket + 1) * bucket_size);
      sums.buckets[as_index(bucket)] += table.sums_over(bucket * bucket_size, end);
    }
  }
  return sums;
}

void merge_statistics(Statistics& into, const Statistics& part, const std::string& where,
                      const std::string& part_where) {
  const auto there = properties_to_match(into);
  const auto here = properties_to_match(part);
  for (std::size_t i = 0; i < there.size(); ++i)
    if (there[i].second != here[i].second)
      reject(
          "{} and {} are not statistics of one thing: {} is {} in the first and {} in the second",
          where, part_where, there[i].first, there[i].second, here[i].second);
  for (auto& [key, layers] : into.moments) {
    const auto& others = part.moments.at(key);
    for (std::size_t i = 0; i < layers.size(); ++i) merge_moments(layers[i], others[i]);
  }
  if (!into.attention.empty()) merge_attention_statistics(into.attention, part.attention);
  into.lengths.insert(into.lengths.end(), part.lengths.begin(), part.lengths.end());
  into.retrieval.insert(into.retrieval.end(), part.retrieval.begin(), part.retrieval.end());
  into.max_length = std::max(into.max_length, part.max_length);
  update_position_sums(into);
}

void update_position_sums(Statistics& statistics) {
  const auto& settings = statistics.settings;
  const auto sums = sum_document_positions(statistics.lengths, settings.first, settings.bucket_size,
                                           settings.buckets);
  statistics.positions = {sums.first.to_position_sums(), sums.body.to_position_sums()};
  statistics.bucket_positions.clear();
  for (const auto& bucket : sums.buckets)
    statistics.bucket_positions.push_back(bucket.to_position_sums());
}

}  // namespace qkscope
