// Small statistics of random rows for tests of files, exports and analyses. The rows are kept, so
// that tests can compute every value independently.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "engine/statistics/attention_sums.h"
#include "engine/statistics/moments.h"
#include "qkscope/statistics.h"

namespace qkscope {

struct PlantedStatistics {
  using Place = std::tuple<VectorKind, VectorStage, std::int64_t>;  // with the layer

  Statistics statistics;
  std::vector<std::int64_t> position;        // (tokens) position within the document
  std::map<Place, std::vector<float>> rows;  // (tokens, heads, dim)
  std::vector<DocumentAttention> documents;

  // Rows of one head in a row set ("all", "first", "body"), shape (rows, dim).
  std::vector<std::vector<double>> head_rows(VectorKind kind, VectorStage stage, std::int64_t layer,
                                             std::int64_t head, const std::string& set) const {
    const auto dim = statistics.dim;
    const auto heads = kind == VectorKind::query ? statistics.heads : statistics.key_heads;
    std::vector<std::vector<double>> result;
    const Place place{kind, stage, layer};
    const auto& all = rows.at(place);
    for (std::size_t t = 0; t < position.size(); ++t) {
      const bool first = position[t] < statistics.settings.first;
      if (set != "all" && first != (set == "first")) continue;
      const auto* x = all.data() + (static_cast<std::int64_t>(t) * heads + head) * dim;
      result.emplace_back(x, x + dim);
    }
    return result;
  }
};

namespace planted {

// Computes the moments by their definition in two passes over the rows.
inline HeadMoments moments_of(const std::vector<float>& rows,
                              const std::vector<std::int64_t>& position,
                              const std::vector<bool>& take, const MomentShape& shape,
                              const PositionSums& positions) {
  HeadMoments m = make_head_moments(shape);
  m.positions = positions;
  const auto n = static_cast<double>(positions.n);
  if (positions.n == 0) return m;
  const auto at = [&](std::size_t t, std::int64_t h, std::int64_t j) {
    return static_cast<double>(
        rows[(t * static_cast<std::size_t>(shape.heads) + static_cast<std::size_t>(h)) *
                 static_cast<std::size_t>(shape.dim) +
             static_cast<std::size_t>(j)]);
  };
  for (std::int64_t h = 0; h < shape.heads; ++h) {
    const auto base = static_cast<std::size_t>(h * shape.dim);
    for (std::size_t t = 0; t < position.size(); ++t)
      for (std::int64_t j = 0; take[t] && j < shape.dim; ++j)
        m.mean[base + static_cast<std::size_t>(j)] += at(t, h, j) / n;
    for (std::size_t t = 0; t < position.size(); ++t) {
      if (!take[t]) continue;
      const double dt = static_cast<double>(position[t]) - positions.t_mean;
      const double du = std::log2(static_cast<double>(position[t] + 1)) - positions.u_mean;
      double square = 0;
      for (std::int64_t j = 0; j < shape.dim; ++j) {
        const auto i = base + static_cast<std::size_t>(j);
        const double x = at(t, h, j);
        const double d = x - m.mean[i];
        square += x * x;
        m.ct[i] += d * dt;
        m.cu[i] += d * du;
        m.m3[i] += d * d * d;
        m.m4[i] += d * d * d * d;
        m.min[i] = std::min(m.min[i], static_cast<float>(x));
        m.max[i] = std::max(m.max[i], static_cast<float>(x));
        for (std::int64_t k = j; k < shape.dim; ++k)
          m.m2[static_cast<std::size_t>(h * triangle_size(shape.dim) +
                                        triangle_index(shape.dim, j, k))] +=
              d * (at(t, h, k) - m.mean[base + static_cast<std::size_t>(k)]);
      }
      for (std::int64_t i = 0; i < shape.pairs; ++i)
        m.pair_abs[static_cast<std::size_t>(h * shape.pairs + i)] +=
            std::hypot(at(t, h, i), at(t, h, i + shape.pairs)) / n;
      m.norm_mean[static_cast<std::size_t>(h)] += std::sqrt(square) / n;
      float& largest = m.norm_max[static_cast<std::size_t>(h)];
      largest = std::max(largest, static_cast<float>(std::sqrt(square)));
    }
  }
  return m;
}

inline BucketMoments buckets_of(const std::vector<float>& rows,
                                const std::vector<std::int64_t>& position, std::int64_t size,
                                const MomentShape& shape) {
  BucketMoments b = make_bucket_moments(shape);
  for (const auto t : position) ++b.n[static_cast<std::size_t>(t / size)];
  const auto cell = [&](std::size_t t, std::int64_t h) {
    return static_cast<std::size_t>((h * shape.buckets + position[t] / size) * shape.dim);
  };
  const auto value = [&](std::size_t t, std::int64_t h, std::size_t j) {
    return static_cast<double>(
        rows[(t * static_cast<std::size_t>(shape.heads) + static_cast<std::size_t>(h)) *
                 static_cast<std::size_t>(shape.dim) +
             j]);
  };
  for (int pass = 0; pass < 2; ++pass)
    for (std::size_t t = 0; t < position.size(); ++t)
      for (std::int64_t h = 0; h < shape.heads; ++h)
        for (std::size_t j = 0; j < static_cast<std::size_t>(shape.dim); ++j) {
          const auto i = cell(t, h) + j;
          const auto n = static_cast<double>(b.n[static_cast<std::size_t>(position[t] / size)]);
          const double d = value(t, h, j) - b.mean[i];
          if (pass == 0)
            b.mean[i] += value(t, h, j) / n;
          else
            b.m2[i] += d * d;
        }
  return b;
}

template <typename T>
void fill(std::vector<T>& values, std::mt19937& random) {
  for (auto& value : values) value = static_cast<T>(random() % 1000) / static_cast<T>(1000);
}

// Everything but the sums.
inline void describe(Statistics& s) {
  s.metadata = {{"model", "planted/model"},
                {"commit", "0123456789abcdef"},
                {"dtype", "float32"},
                {"dataset", "rows"},
                {"num_layers", "3"}};
  s.configuration = R"({"made":"up"})";
  s.settings.near_keys = s.settings.all_keys = true;
  s.settings.buckets = 4;
  s.settings.bucket_size = 10;
  s.settings.window = 8;
  s.settings.columns = {{2, 1}};
  s.settings.kl = {{KeyReplacement::Scheme::fp8, KeyReplacement::Scale::head, 0, "fp8"}};
  s.settings.keep = {{KeptKeys::Rule::ends, 4, 16, 0, "first_4_last_16"}};
  s.max_length = 40;
  s.heads = 4;
  s.key_heads = 2;
  s.dim = 8;
  s.layers = s.moment_layers = {0, 1, 2};
  const std::string rope =
      R"({"attention_scaling":1.0,"dim":8,"inv_freq":[1.0,0.1,0.01,0.001],"theta":10000.0,"type":"default"})";
  s.ropes = {rope, "none", rope};
  s.rotary = {8, 0, 8};
  s.windows = {0, 0, 0};
  s.lengths = {9, 20, 33};
  update_position_sums(s);
}

inline void add_moments(PlantedStatistics& planted, VectorKind kind, VectorStage stage,
                        std::int64_t layer, std::mt19937& random,
                        std::normal_distribution<double>& normal) {
  Statistics& s = planted.statistics;
  const bool paired = stage == VectorStage::pre && kind != VectorKind::value;
  const MomentShape shape{kind == VectorKind::query ? s.heads : s.key_heads, s.dim,
                          paired ? s.dim / 2 : 0, s.settings.buckets, false};
  std::vector<float> rows;
  for (const auto t : planted.position)
    for (std::int64_t i = 0; i < shape.heads * shape.dim; ++i)
      rows.push_back(static_cast<float>(0.3 * static_cast<double>(i % 5) - 0.4 +
                                        normal(random) * (1 + 0.1 * static_cast<double>(i)) +
                                        (i % 3 == 0 ? 0.05 : 0.01) * static_cast<double>(t)));
  std::vector<bool> first;
  for (const auto t : planted.position) first.push_back(t < s.settings.first);
  auto body = first;
  body.flip();
  s.moments[{kind, stage}].push_back(
      {moments_of(rows, planted.position, first, shape, s.positions[0]),
       moments_of(rows, planted.position, body, shape, s.positions[1]),
       buckets_of(rows, planted.position, s.settings.bucket_size, shape)});
  planted.rows[{kind, stage, layer}] = std::move(rows);
}

inline void add_attention(PlantedStatistics& planted, std::mt19937& random) {
  Statistics& s = planted.statistics;
  AttentionStatistics& a = s.attention = make_attention_statistics(s.settings, 3, s.heads);
  a.documents = 3;
  for (std::size_t b = 0; b < a.rows.size(); ++b) a.rows[b] = s.bucket_positions[b].n;
  for (auto* values : {&a.sum, &a.square, &a.row_square, &a.document_square, &a.document_cross,
                       &a.document_sum, &a.document_sum_square, &a.key_mass, &a.key_observed})
    fill(*values, random);
  fill(a.max_logit, random);
  for (auto& count : a.document_counts) count = 3;
  for (std::size_t i = 0; i < s.lengths.size(); ++i) {
    DocumentAttention document;
    document.example_key = static_cast<std::int64_t>(i) + (std::int64_t{5} << 32);
    document.tokens = s.lengths[i];
    document.mean.resize(3 * static_cast<std::size_t>(s.heads) * a.columns.size());
    document.values.resize(3 * static_cast<std::size_t>(s.heads) * a.document_columns.size());
    fill(document.mean, random);
    fill(document.values, random);
    document.key_sums.emplace_back(static_cast<std::size_t>(document.tokens));
    fill(document.key_sums.front(), random);
    planted.documents.push_back(std::move(document));
  }
}

}  // namespace planted

// Three layers, the second without RoPE; 4 query and 2 key heads of dimension 8; groups A, B and C.
inline PlantedStatistics planted_statistics() {
  PlantedStatistics planted;
  Statistics& s = planted.statistics;
  planted::describe(s);
  for (const auto length : s.lengths)
    for (std::int64_t t = 0; t < length; ++t) planted.position.push_back(t);
  std::mt19937 random(7);
  std::normal_distribution<double> normal;
  for (const auto kind : {VectorKind::query, VectorKind::key, VectorKind::value})
    for (const auto stage : {VectorStage::pre, VectorStage::post})
      for (std::int64_t layer = 0; layer < 3; ++layer)
        if (kind != VectorKind::value || stage == VectorStage::pre)
          planted::add_moments(planted, kind, stage, layer, random, normal);
  planted::add_attention(planted, random);
  s.retrieval = {{"a", 30, 3, 6, 1.0, true, std::vector<double>(12, 0.5)},
                 {"b", 30, 3, 6, 0.0, false, std::vector<double>(12, 0.25)}};
  return planted;
}

// Reads documents from a vector.
class ListedDocuments : public DocumentSource {
 public:
  explicit ListedDocuments(const std::vector<DocumentAttention>& documents)
      : documents_(documents) {}
  bool next(DocumentAttention& document) override {
    if (next_ == documents_.size()) return false;
    document = documents_[next_++];
    return true;
  }

 private:
  const std::vector<DocumentAttention>& documents_;
  std::size_t next_ = 0;
};

}  // namespace qkscope
