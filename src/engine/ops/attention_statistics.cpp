#include <cmath>
#include <map>
#include <numeric>
#include <vector>

#include "base/core/error.h"
#include "base/core/numbers.h"
#include "base/core/project.h"
#include "base/core/thread_pool.h"
#include "base/numerics/products.h"
#include "engine/ops/all_keys.h"
#include "engine/ops/attention.h"

namespace qkscope {
namespace {

constexpr std::int64_t kQueryRows = 64;
static_assert(kSampledQueries % kQueryRows == 0);
constexpr std::int64_t kSinks = 4;
constexpr std::int64_t kSinkRows = 64;  // rows that the alpha columns cover

// Attention mass on earlier occurrences of the query's token (dup) and the keys after them (ind).
struct RepeatedTokenMass {
  double dup = 0;
  double dup_first = 0;
  double ind = 0;
  double ind_self = 0;
};

// Returns, for each token id that occurs more than once, its positions in ascending order.
std::vector<std::vector<std::int64_t>> repeated_token_positions(std::span<const std::int32_t> ids) {
  std::map<std::int32_t, std::vector<std::int64_t>> places;
  for (std::size_t i = 0; i < ids.size(); ++i)
    places[ids[i]].push_back(static_cast<std::int64_t>(i));
  std::vector<std::vector<std::int64_t>> repeated;
  for (auto& [token, positions] : places)
    if (positions.size() > 1) repeated.push_back(std::move(positions));
  return repeated;
}

// Returns the attention mass of each query on repeated tokens, shape (length).
std::vector<RepeatedTokenMass> repeated_token_masses(
    const HeadAttentionInput& in, std::span<const std::vector<std::int64_t>> repeated) {
  std::vector<RepeatedTokenMass> masses(as_index(in.sequence.length));
  std::vector<float> keys, scores, p;
  const auto attend = [&](std::int64_t query, std::int64_t before) -> std::span<const float> {
    scores.resize(as_index(before));
    rows::dot_products({in.query(query), keys.data(), in.head_width(), before, in.head_width()},
                       in.input->scale, scores.data());
    if (in.input->softcap > 0.0f) rows::soft_cap(scores.data(), before, in.input->softcap);
    p.resize(scores.size());
    keys::compute_attention_weights(scores.data(), before,
                                    keys::HighLowLogSumExp(in.log_sum_exp(query)), p.data());
    return p;
  };
  for (const auto& block : repeated) {
    const auto earlier = std::span(block).first(block.size() - 1);
    for (const std::int64_t offset : {0, 1}) {
      keys.clear();
      for (const auto position : earlier)
        keys.insert(keys.end(), in.key(position + offset),
                    in.key(position + offset) + in.head_width());
      for (std::size_t r = 1; r < block.size(); ++r) {
        const auto query = block[r];
        const auto weights = attend(query, static_cast<std::int64_t>(r));
        auto& mass = masses[as_index(query)];
        for (std::size_t k = 0; k < r; ++k) {
          const auto key = block[k] + offset;
          if (key < in.first_visible_key(query)) continue;
          (offset == 0 ? mass.dup : mass.ind) += weights[k];
          if (offset == 0 && key == 0) mass.dup_first += weights[k];
          if (offset == 1 && key == query) mass.ind_self += weights[k];
        }
      }
    }
  }
  return masses;
}

class HeadAttentionAccumulator {
 public:
  HeadAttentionAccumulator(const HeadAttentionInput& input, const AttentionRequest& request,
                           const CompressedKeys& keys, LayerAttentionSums& out,
                           std::int64_t document)
      : input_(input),
        request_(request),
        out_(out),
        cell_((document * out.heads + input.head) * out.buckets),
        weights_(request.horvitz_thompson_weights(input.sequence.length, document, input.head)),
        all_keys_(input, request, keys,
                  out.key_sums.data() +
                      (layout_.all_keys ? input.sequence.begin * out.heads + input.head : 0)) {}

  void add_all_queries(std::span<const std::vector<std::int64_t>> repeated) {
    masses_ = repeated_token_masses(input_, repeated);
    for (std::int64_t begin = 0; begin < input_.sequence.length; begin += kQueryRows)
      add_query_block(begin, std::min(input_.sequence.length, begin + kQueryRows));
  }

 private:
  void add_query_block(std::int64_t begin, std::int64_t end) {
    const auto count = end - begin;
    block_.assign(as_index(count * layout_.columns()), 0.0);
    tile_.load_queries(input_, begin, count);
    add_first_keys(begin, end);
    add_last_keys(begin, end);
    for (auto i = begin; i < end; ++i) {
      double* const v = query_statistics(i - begin);
      const auto& mass = masses_[as_index(i)];
      v[column_offset(NearKeyColumn::dup)] = mass.dup;
      v[column_offset(NearKeyColumn::dup_first)] = mass.dup_first;
      v[column_offset(NearKeyColumn::ind)] = mass.ind;
      v[column_offset(NearKeyColumn::ind_self)] = mass.ind_self;
      v[column_offset(NearKeyColumn::max_logit)] = input_.max_logit(i);
      v[column_offset(NearKeyColumn::lse)] = input_.log_sum_exp(i);
      v[column_offset(NearKeyColumn::top1)] = std::exp(input_.max_logit(i) - input_.log_sum_exp(i));
    }
    const double weight = weights_[as_index(begin / kSampledQueries)];
    if (layout_.all_keys && weight > 0)
      all_keys_.compute_query_statistics(tile_, begin, end, block_.data());
    for (auto i = begin; i < end; ++i) add_to_bucket(i, query_statistics(i - begin), weight);
  }

  double* query_statistics(std::int64_t query) { return block_.data() + query * layout_.columns(); }
  static std::int64_t column_offset(NearKeyColumn column) {
    return AttentionColumnLayout::offset(column);
  }

  // Sets p_ to the attention weights of query i on keys [first, end); scores_ starts at key `held`.
  void compute_attention_weights(std::int64_t i, std::int64_t begin, std::int64_t held,
                                 std::int64_t first, std::int64_t end) {
    first_ = std::max(first, input_.first_visible_key(i));
    const auto count = end - first_;
    if (count <= 0) return;
    p_.resize(as_index(count));
    keys::compute_attention_weights(scores_.row(i - begin) + (first_ - held), count,
                                    keys::HighLowLogSumExp(input_.log_sum_exp(i)), p_.data());
  }
  double attention_weight(std::int64_t key) const { return p_[as_index(key - first_)]; }
  double attention_mass(std::int64_t begin, std::int64_t end) const {
    return keys::sum_attention_weights(p_.data() + (begin - first_), end - begin);
  }

  void add_first_keys(std::int64_t begin, std::int64_t end) {
    const auto keys = std::min(end, std::max(kSinks, layout_.stream_first));
    tile_.compute_scores(input_.key(0), input_.key_stride(), keys, scores_);
    for (auto i = begin; i < end; ++i) {
      double* const v = query_statistics(i - begin);
      const auto far = std::min({layout_.stream_first, keys, i - layout_.stream_last + 1});
      const auto sinks = std::min(kSinks, i + 1);
      compute_attention_weights(i, begin, 0, 0, std::max(far, sinks));
      v[column_offset(NearKeyColumn::stream)] += attention_mass(first_, far);
      for (auto j = first_; j < sinks; ++j) {
        const double p = attention_weight(j);
        if (j == 0 && i >= kSinkAboveHalfFrom && p > 0.5) v[layout_.sink_above_half_column()] = 1;
        v[column_offset(NearKeyColumn::sink_0) + j] = p;
        v[column_offset(NearKeyColumn::sink_4)] += p;
        if (i < kSinkRows) v[column_offset(NearKeyColumn::alpha_0) + j] = p;
        if (i == 1 && j == 0) v[column_offset(NearKeyColumn::prev_first)] = p;
      }
    }
  }

  void add_last_keys(std::int64_t begin, std::int64_t end) {
    const auto reach = std::max(layout_.window, layout_.stream_last);
    const auto first = std::max<std::int64_t>(0, begin - reach + 1);
    tile_.compute_scores(input_.key(first), input_.key_stride(), end - first, scores_);
    for (auto i = begin; i < end; ++i) {
      double* const v = query_statistics(i - begin);
      compute_attention_weights(i, begin, first, std::max(first, i - reach + 1), i + 1);
      const auto seen = first_;
      for (std::int64_t band = 0; band < layout_.near_distance_band_count(); ++band) {
        const auto [nearest, farthest] = distance_range(band);
        v[layout_.near_distance_band_column(band)] +=
            attention_mass(std::max(seen, i - farthest + 1), i - nearest + 1);
      }
      v[column_offset(NearKeyColumn::stream)] +=
          attention_mass(std::max(seen, i - layout_.stream_last + 1), i + 1);
      v[column_offset(NearKeyColumn::self)] = attention_weight(i);
      if (i - 1 >= seen) v[column_offset(NearKeyColumn::prev)] = attention_weight(i - 1);
    }
  }

  // Returns the range [nearest, farthest) of distances with the given bit width.
  static std::pair<std::int64_t, std::int64_t> distance_range(std::int64_t width) {
    if (width == 0) return {0, 1};
    return {std::int64_t{1} << (width - 1), std::int64_t{1} << width};
  }

  // Adds statistics v of query i to its position bucket; `weight` scales the all-keys columns.
  void add_to_bucket(std::int64_t i, const double* v, double weight) {
    const auto bucket = std::min(i / request_.bucket_size, request_.buckets - 1);
    const auto columns = layout_.columns();
    double* const sum = out_.sum.data() + (cell_ + bucket) * columns;
    double* const square = out_.square.data() + (cell_ + bucket) * columns;
    for (std::int64_t c = 0; c < columns; ++c) {
      const double w = layout_.is_all_keys_column(c) ? weight : 1;
      sum[c] += w * v[c];
      square[c] += w * v[c] * v[c];
    }
    auto& largest = out_.max_logit[as_index(cell_ + bucket)];
    largest = std::max(largest, static_cast<float>(input_.max_logit(i)));
  }

  const HeadAttentionInput& input_;
  const AttentionRequest& request_;
  const AttentionColumnLayout& layout_ = request_.layout;
  LayerAttentionSums& out_;
  std::int64_t cell_;           // index of the first bucket of this document and head
  std::vector<float> weights_;  // (blocks of kSampledQueries) sampling weights
  std::vector<double> block_;   // (queries of the block, columns)
  std::vector<RepeatedTokenMass> masses_;
  QueryTile tile_;
  ScoreBlock scores_;
  std::vector<float> p_;  // attention weights of one query, from key first_ on
  std::int64_t first_ = 0;
  AllKeysAccumulator all_keys_;
};

HeadAttentionInput make_head_input(const AttentionStatisticsInput& attended, std::int64_t document,
                                   std::int64_t head) {
  const auto& sequence = attended.input.sequences[as_index(document)];
  return {.input = &attended.input,
          .row_sums = attended.row_sums.data() + sequence.begin * attended.input.q.dim(1) + head,
          .ids = attended.ids.data() + sequence.begin,
          .sequence = sequence,
          .head = head};
}

CompressedKeys compress_keys(const HeadAttentionInput& in, const AttentionRequest& request) {
  CompressedKeys keys;
  const gemm::StridedVectors rows{in.key(0), in.key_stride(), in.sequence.length, in.head_width()};
  const float scale =
      request.key_scales.empty() ? 0.0f : request.key_scales[as_index(in.key_head())];
  for (const auto& replacement : request.replacements)
    keys.replaced.push_back(fake_quantize_keys(rows, replacement, scale));
  for (const auto& set : request.kept) {
    auto& kept = keys.kept.emplace_back();
    if (set.rule == KeptKeys::Rule::short_keys) kept = kept_key_mask(rows, nullptr, set.share);
    if (set.rule == KeptKeys::Rule::filtered_keys)
      kept = kept_key_mask(rows, request.key_filters.data() + in.key_head() * in.head_width(),
                           set.share);
  }
  return keys;
}

class HeadMomentAccumulator {
 public:
  // `shape` is the shape of the moments of a single head.
  HeadMomentAccumulator(ConstTensorView x, const Sequence& sequence, const MomentRequest& request,
                        const MomentShape& shape, std::int64_t head)
      : request_(request),
        shape_(shape),
        stride_(x.stride(0)),
        values_(x.data<float>() + sequence.begin * x.stride(0) + head * x.stride(1)) {}

  void add_chunk(const PositionChunk& chunk, const PositionSums& positions) {
    part_ = make_head_moments(shape_);
    part_.positions = positions;
    load_chunk(chunk);
    centre_rows_and_add_powers(chunk);
    compute_second_moments(chunk);
    merge_moments(chunk.first ? sums_.first : sums_.body, part_);
    add_to_bucket(chunk);
  }

  const LayerMoments& moments() const { return sums_; }
  bool all_values_finite() const { return finite_; }

 private:
  double* row(std::int64_t r) { return rows_.data() + r * shape_.dim; }

  // Converts rows to float64 and accumulates sums, extrema and norms of the uncentred values.
  void load_chunk(const PositionChunk& chunk) {
    rows_.resize(as_index(chunk.rows() * shape_.dim));
    double* const mean = part_.mean.data();
    float* const low = part_.min.data();
    float* const high = part_.max.data();
    double norms = 0;
    for (std::int64_t r = 0; r < chunk.rows(); ++r) {
      const float* const from = values_ + (chunk.begin + r) * stride_;
      double* const to = row(r);
      for (std::int64_t j = 0; j < shape_.dim; ++j) {
        to[j] = from[j];
        mean[j] += from[j];
        low[j] = std::min(low[j], from[j]);
        high[j] = std::max(high[j], from[j]);
      }
      const double norm = std::sqrt(std::inner_product(to, to + shape_.dim, to, 0.0));
      norms += norm;
      part_.norm_max[0] = std::max(part_.norm_max[0], static_cast<float>(norm));
      add_rotary_pair_norms(to);
    }
    finite_ = finite_ && std::isfinite(norms);
    const auto n = static_cast<double>(chunk.rows());
    part_.norm_mean[0] = norms / n;
    for (auto& sum : part_.mean) sum /= n;
    for (auto& pair : part_.pair_abs) pair /= n;
  }

  void add_rotary_pair_norms(const double* x) {
    const auto pairs = shape_.pairs;
    x += request_.first_rotated;
    for (std::int64_t i = 0; i < pairs; ++i) {
      const double a = request_.interleaved ? x[2 * i] : x[i];
      const double b = request_.interleaved ? x[2 * i + 1] : x[i + pairs];
      part_.pair_abs[as_index(i)] += std::sqrt(a * a + b * b);
    }
  }

  void centre_rows_and_add_powers(const PositionChunk& chunk) {
    const double* const mean = part_.mean.data();
    double* const ct = part_.ct.data();
    double* const cu = part_.cu.data();
    double* const m3 = part_.m3.data();
    double* const m4 = part_.m4.data();
    for (std::int64_t r = 0; r < chunk.rows(); ++r) {
      const auto position = static_cast<double>(chunk.begin + r);
      const double t = position - part_.positions.t_mean;
      const double u = std::log2(position + 1.0) - part_.positions.u_mean;
      double* const x = row(r);
      for (std::int64_t j = 0; j < shape_.dim; ++j) {
        x[j] -= mean[j];
        const double square = x[j] * x[j];
        ct[j] += x[j] * t;
        cu[j] += x[j] * u;
        m3[j] += square * x[j];
        m4[j] += square * square;
      }
    }
  }

  void compute_second_moments(const PositionChunk& chunk) {
    std::fill(gram_.data.begin(), gram_.data.end(), 0.0);
    add_gram(rows_.data(), chunk.rows(), gram_);
    double* out = part_.m2.data();
    for (std::int64_t i = 0; i < shape_.dim; ++i)
      out = std::copy(gram_.row(i) + i, gram_.row(i) + shape_.dim, out);
  }

  void add_to_bucket(const PositionChunk& chunk) {
    auto part = make_bucket_moments(shape_);
    part.n[as_index(chunk.bucket)] = chunk.rows();
    for (std::int64_t j = 0; j < shape_.dim; ++j) {
      const auto i = as_index(chunk.bucket * shape_.dim + j);
      part.mean[i] = part_.mean[as_index(j)];
      part.m2[i] = gram_(j, j);
    }
    if (shape_.bucket_covariance)
      std::copy(part_.m2.begin(), part_.m2.end(),
                part.cov.begin() + chunk.bucket * triangle_size(shape_.dim));
    merge_moments(sums_.buckets, part);
  }

  const MomentRequest& request_;
  MomentShape shape_;
  std::int64_t stride_;
  const float* values_;
  LayerMoments sums_ = make_layer_moments(shape_);
  HeadMoments part_ = make_head_moments(shape_);  // moments of the current chunk
  std::vector<double> rows_;                      // (rows of the chunk, dim) centred
  Matrix gram_{shape_.dim, shape_.dim};
  bool finite_ = true;
};

template <typename T>
void copy_head_moments(const std::vector<T>& one, std::int64_t head, std::vector<T>& all) {
  std::copy(one.begin(), one.end(), all.begin() + head * std::ssize(one));
}

void copy_head_moments(const HeadMoments& one, std::int64_t head, HeadMoments& all) {
  using M = HeadMoments;
  all.positions = one.positions;
  for (const auto field :
       {&M::mean, &M::m2, &M::ct, &M::cu, &M::m3, &M::m4, &M::pair_abs, &M::norm_mean})
    copy_head_moments(one.*field, head, all.*field);
  for (const auto field : {&M::min, &M::max, &M::norm_max})
    copy_head_moments(one.*field, head, all.*field);
}

void copy_head_moments(const LayerMoments& one, std::int64_t head, LayerMoments& all) {
  copy_head_moments(one.first, head, all.first);
  copy_head_moments(one.body, head, all.body);
  all.buckets.n = one.buckets.n;
  for (const auto field : {&BucketMoments::mean, &BucketMoments::m2, &BucketMoments::cov})
    copy_head_moments(one.buckets.*field, head, all.buckets.*field);
}

}  // namespace

LayerAttentionSums compute_attention_statistics(const AttentionStatisticsInput& attended,
                                                const AttentionRequest& request) {
  const auto& input = attended.input;
  QKSCOPE_ASSERT(input.queries.empty());
  const auto heads = input.q.dim(1);
  const auto key_heads = input.k.dim(1);
  const auto documents = std::ssize(input.sequences);
  auto out = make_layer_attention_sums(documents, heads, request.buckets, request.layout.columns());
  if (request.layout.all_keys) out.key_sums.resize(as_index(input.q.dim(0) * heads));
  std::vector<std::vector<std::vector<std::int64_t>>> repeated(as_index(documents));
  std::vector<CompressedKeys> keys(as_index(documents * key_heads));
  parallel_for(documents * key_heads, [&](std::int64_t task) {
    const auto in =
        make_head_input(attended, task / key_heads, task % key_heads * (heads / key_heads));
    keys[as_index(task)] = compress_keys(in, request);
    if (task % key_heads == 0)
      repeated[as_index(task / key_heads)] =
          repeated_token_positions({in.ids, as_index(in.sequence.length)});
  });
  parallel_for(documents * heads, [&](std::int64_t task) {
    const auto document = task / heads;
    const auto in = make_head_input(attended, document, task % heads);
    const auto& shared = keys[as_index(document * key_heads + in.key_head())];
    HeadAttentionAccumulator(in, request, shared, out, document)
        .add_all_queries(repeated[as_index(document)]);
  });
  if (!request.sample.takes_all_queries()) out.key_sums.clear();
  return out;
}

DocumentMoments compute_document_moments(ConstTensorView x, const Sequence& sequence,
                                         const MomentRequest& request) {
  const auto heads = request.shape.heads;
  QKSCOPE_ASSERT(x.dim(1) == heads && x.dim(2) == request.shape.dim);
  DocumentMoments result{make_layer_moments(request.shape), {}};
  const auto chunks =
      split_document(sequence.length, request.first, request.bucket_size, request.shape.buckets);
  PositionPrefixSums table;
  const auto positions = to_vector(chunks, [&](const auto& chunk) {
    return table.sums_over(chunk.begin, chunk.end).to_position_sums();
  });
  auto one_head = request.shape;
  one_head.heads = 1;
  std::vector<LayerMoments> sums(as_index(heads));
  std::vector<char> finite(as_index(heads));
  parallel_for(heads, [&](std::int64_t head) {
    HeadMomentAccumulator head_sums(x, sequence, request, one_head, head);
    for (std::size_t i = 0; i < chunks.size(); ++i) head_sums.add_chunk(chunks[i], positions[i]);
    sums[as_index(head)] = head_sums.moments();
    finite[as_index(head)] = head_sums.all_values_finite() ? 1 : 0;
  });
  for (std::int64_t head = 0; head < heads; ++head) {
    copy_head_moments(sums[as_index(head)], head, result.moments);
    if (finite[as_index(head)] == 0 && !result.nonfinite_head) result.nonfinite_head = head;
  }
  return result;
}

}  // namespace qkscope
