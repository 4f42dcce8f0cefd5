#include <algorithm>
#include <cmath>
#include <set>

#include "analysis/results/head_results.h"
#include "analysis/results/results_folder.h"
#include "base/core/error.h"
#include "base/core/numbers.h"
#include "base/core/project.h"
#include "base/core/text.h"
#include "base/core/thread_pool.h"
#include "base/io/json.h"
#include "base/numerics/products.h"
#include "capture/format/metadata.h"
#include "engine/model/loaded_checkpoint.h"
#include "engine/model/model_config.h"
#include "engine/statistics/attention_sums.h"
#include "qkscope/hub.h"

namespace qkscope {

namespace embedded {
extern const char geometry_columns[];  // the file geometry_columns.txt
}

namespace {

constexpr char kPreRope[] = "pre_rope";

RotaryEmbedding rope_of_capture(const Metadata& metadata, const std::vector<double>& inv_freq) {
  RotaryEmbedding rotary{inv_freq};
  const auto rope = metadata.find(metadata::kRope);
  if (rope == metadata.end() || rope->second == metadata::kRopeNone) return rotary;
  const Json json = parse_json(rope->second, metadata::kRope);
  rotary.interleaved = json.value("interleaved", false);
  rotary.begin = json.value("begin", std::size_t{0});
  return rotary;
}

// Applies RoPE to rows that were captured before RoPE and returns the vectors.
std::vector<float> rotated_vectors(const HeadRows& rows, const RotaryEmbedding& rope) {
  std::vector<float> rotated;
  const auto dim = static_cast<std::size_t>(rows.head_dim);
  for (std::size_t row = 0; row < rows.position.size(); ++row) {
    std::vector<double> x(rows.vectors.begin() + static_cast<std::ptrdiff_t>(row * dim),
                          rows.vectors.begin() + static_cast<std::ptrdiff_t>((row + 1) * dim));
    const std::span<double> vectors[] = {x};
    undo_rope(rope, -std::int64_t{rows.position[row]}, vectors);
    rotated.insert(rotated.end(), x.begin(), x.end());
  }
  return rotated;
}

RotaryEmbedding rope_of_layer(const Statistics& s, std::int64_t place) {
  RotaryEmbedding rope;
  if (s.rotary[as_index(place)] == 0) return rope;
  const Json json = parse_json(s.ropes[as_index(place)], "RoPE of the statistics");
  rope.inv_freq = json.at("inv_freq").get<std::vector<double>>();
  rope.interleaved = s.interleaved;
  rope.attention_factor = json.value("attention_scaling", 1.0);
  rope.begin = json.value("begin", std::size_t{0});
  return rope;
}

// Scale of the dot product q.k in the attention scores; NaN in statistics of older versions.
double score_scale(const Statistics& s, std::int64_t layer) {
  const auto found = s.metadata.find(metadata::kScoreScales);
  if (found == s.metadata.end()) return kNan;
  return parse_json(found->second, metadata::kScoreScales).at(as_index(layer)).get<double>();
}

// Moments of one layer that exclude the first tokens of each text, or null if unavailable.
const HeadMoments* moments_after_start(const Statistics& s, VectorKind kind, VectorStage stage,
                                       std::int64_t layer) {
  const auto* moments = s.find(kind, stage, layer);
  return moments != nullptr && moments->body.n() > 1 ? &moments->body : nullptr;
}

// Adds the ranks of a head's queries, keys or values from moments before and after RoPE.
void add_vector_ranks(const std::string& side, const HeadMoments* pre, const HeadMoments* post,
                      std::int64_t head, GeometryResult& result) {
  CovarianceRanks ranks;
  if (pre != nullptr) {
    ranks = covariance_ranks(moments_of_head(*pre, head));
    add_rank_columns(side + "_pre", ranks, result);
  }
  if (post == nullptr) return;
  if (pre == nullptr || pre->m2 != post->m2) ranks = covariance_ranks(moments_of_head(*post, head));
  add_rank_columns(side + "_post", ranks, result);
}

// Returns distance bins whose attention mass the caller sets; `window` is 0 for full attention.
std::vector<DistanceBin> distance_bins(const std::vector<std::int64_t>& documents,
                                       std::int64_t window) {
  const auto length = std::ssize(documents);
  std::vector<double> pairs(documents.size());  // at distance D: tokens at positions >= D
  double later = 0;
  for (auto d = documents.size(); d-- > 0;) pairs[d] = later += static_cast<double>(documents[d]);
  const auto limit = window > 0 ? std::min(window, length) : length;
  std::vector<DistanceBin> bins;
  for (std::int64_t width = 0; width < kDistances; ++width) {
    const auto low = width == 0 ? std::int64_t{0} : std::int64_t{1} << (width - 1);
    const auto end = width + 1 == kDistances ? limit : std::int64_t{1} << width;
    const auto high = std::min(end, limit);
    if (low >= high) break;
    DistanceBin bin{.low = low, .high = high};
    bin.pairs.assign(pairs.begin() + low, pairs.begin() + high);
    bin.queries = bin.pairs.front();
    bins.push_back(std::move(bin));
  }
  return bins;
}

// Statistics and settings of one layer, shared by all its heads.
struct LayerGeometry {
  const Statistics& s;
  std::int64_t layer;
  std::int64_t place = std::ranges::find(s.layers, layer) - s.layers.begin();  // in s.layers
  const HeadMoments* q_pre = moments_after_start(s, VectorKind::query, VectorStage::pre, layer);
  const HeadMoments* q_post = moments_after_start(s, VectorKind::query, VectorStage::post, layer);
  const HeadMoments* k_pre = moments_after_start(s, VectorKind::key, VectorStage::pre, layer);
  const HeadMoments* k_post = moments_after_start(s, VectorKind::key, VectorStage::post, layer);
  const HeadMoments* v_pre = moments_after_start(s, VectorKind::value, VectorStage::pre, layer);
  RotaryEmbedding rope = rope_of_layer(s, place);
  std::vector<std::int64_t> documents = count_documents_by_position(s);
  std::vector<DistanceBin> bins = distance_bins(documents, s.windows[as_index(place)]);

  void add_query_head(std::int64_t head, std::int64_t key_head, GeometryResult& result) const {
    add_vector_ranks("q", q_pre, q_post, head, result);
    if (q_post != nullptr && k_post != nullptr)
      add_logit_columns(moments_of_head(*q_post, head), moments_of_head(*k_post, key_head), result);
    auto measured = bins;
    const bool all_keys = !s.attention.empty() && s.settings.all_keys;
    if (!s.attention.empty()) add_sink_column(head, result);
    if (all_keys) {
      const auto first = find_column("dist_0");
      for (std::size_t width = 0; width < measured.size(); ++width) {
        const auto found = column_summary(head, first + static_cast<std::int64_t>(width));
        measured[width].mass = found.mean * query_count();
        measured[width].relative_se = found.se / found.mean;
      }
      add_attention_decay_columns(measured, std::ssize(documents), result);
    }
    if (q_pre == nullptr || k_pre == nullptr || rope.pair_count() == 0) return;
    const Moments queries = moments_of_head(*q_pre, head);
    const Moments keys = moments_of_head(*k_pre, key_head);
    add_frequency_columns({queries, pair_magnitudes(*q_pre, head)},
                          {keys, pair_magnitudes(*k_pre, key_head)}, rope, result);
    const double scale = score_scale(s, layer);
    add_distance_preference_columns(
        mean_score_by_distance(queries, keys, rope, std::isnan(scale) ? 1 : scale,
                               std::ssize(documents)),
        measured, result);
    if (std::isnan(scale)) result.columns.erase("distance_preference_range");
  }

 private:
  std::span<const double> pair_magnitudes(const HeadMoments& moments, std::int64_t head) const {
    return {moments.pair_abs.data() + head * moments.pairs, rope.pair_count()};
  }

  // Returns the index of a column in the attention sums, or the number of columns if it is missing.
  std::int64_t find_column(const std::string& name) const {
    return std::ranges::find(s.attention.columns, name) - s.attention.columns.begin();
  }
  // Mean of a column over rows, and the standard error of the mean over documents.
  ColumnSummary column_summary(std::int64_t head, std::int64_t column) const {
    return summarize_column(s.attention, place, head, -1, column);
  }
  double query_count() const { return static_cast<double>(count_query_rows(s.attention, -1)); }

  void add_sink_column(std::int64_t head, GeometryResult& result) const {
    const auto column = find_column(kSinkAboveHalf);
    double rows = 0;
    for (auto t = as_index(kSinkAboveHalfFrom); t < documents.size(); ++t)
      rows += static_cast<double>(documents[t]);
    if (column == std::ssize(s.attention.columns) || rows == 0) return;
    const auto found = column_summary(head, column);
    const double share = query_count() / rows;
    result.set("sink_fraction", found.mean * share, found.se * share);
  }
};

// Returns X X^T (d_head, d_head) for each head, where X contains the head's rows of the projection
// matrix, scaled by the weights of the input norm and of the q or k norm.
std::vector<Matrix> head_gram_matrices(const Linear& projection, const NormWeights& input_norm,
                                       const NormWeights& head_norm, std::int64_t d_head) {
  const Tensor weight = to_float32(projection.weight);
  const auto columns = projection.weight.in();
  std::vector<Matrix> grams(as_index(projection.weight.out() / d_head));
  parallel_for(std::ssize(grams), [&](std::int64_t head) {
    Matrix rows(d_head, columns);
    for (std::int64_t i = 0; i < d_head; ++i) {
      const auto row = head * d_head + i;
      const float* from = weight.data<float>() + row * columns;
      const auto& norm = head_norm.weight;
      const double scale = norm.empty() ? 1 : norm[as_index(row) % norm.size()];
      for (std::int64_t j = 0; j < columns; ++j)
        rows(i, j) = scale * from[j] * (input_norm.empty() ? 1 : input_norm.weight[as_index(j)]);
    }
    grams[as_index(head)] = multiply_by_transpose(rows, rows);
  });
  return grams;
}

// Returns the group lines (if `groups`) or column lines of geometry_columns.txt, split into fields.
std::vector<std::vector<std::string>> read_geometry_lines(bool groups) {
  std::vector<std::vector<std::string>> lines;
  for (const auto& line : split(embedded::geometry_columns, '\n')) {
    if (line.empty() || line.starts_with('#') || line.starts_with('?') != groups) continue;
    lines.push_back(split(line.substr(groups ? 1 : 0), '|'));
    std::ranges::transform(lines.back(), lines.back().begin(), trim_white_space);
  }
  return lines;
}

}  // namespace

GeometryResult compute_geometry_from_capture(const HeadGeometryInput& head, RopeUse rope_use,
                                             const std::vector<double>& inv_freq,
                                             const GeometryOptions& options, std::uint64_t seed) {
  const Metadata& metadata = head.query_file.metadata;
  const auto found = metadata.find(metadata::kStage);
  const bool pre = found != metadata.end() && found->second == kPreRope;
  const RotaryEmbedding rope = rope_of_capture(metadata, inv_freq);
  const bool same_stages = rope_use == RopeUse::nope;
  GeometryResult result;
  for (const char* stage : {"pre", "post"}) {
    if (!same_stages && (std::string(stage) == "pre") != pre) continue;
    add_rank_columns(fmt::format("q_{}", stage), head.query_ranks, result);
    add_rank_columns(fmt::format("k_{}", stage), head.key_ranks, result);
  }
  if (!pre || same_stages) add_logit_columns(head.queries, head.keys, result);
  RowsView queries = as_rows_view(head.query_file.rows);
  RowsView keys = as_rows_view(head.key_file.rows);
  const bool can_rotate = same_stages || !inv_freq.empty();
  if (pre && !can_rotate) return result;
  std::vector<float> rotated_queries;
  std::vector<float> rotated_keys;
  if (pre && !same_stages) {
    queries.vectors = rotated_queries = rotated_vectors(head.query_file.rows, rope);
    keys.vectors = rotated_keys = rotated_vectors(head.key_file.rows, rope);
  }
  const QueryKeyRows rows{queries, keys, head.texts,
                          head.query_file.rows.sliding_window.value_or(0)};
  add_score_columns(rows, can_rotate ? &rope : nullptr, options, seed, result);
  return result;
}

void add_geometry_from_statistics(const Statistics& s, std::span<HeadReport> heads) {
  const LayerGeometry layer{s, heads.front().query.layer};
  std::map<int, GeometryResult> of_keys;
  for (const auto& report : heads) of_keys.try_emplace(report.k_head);
  // Ranks of keys and values are computed once per key head, for all its query heads (GQA).
  const auto list = to_vector(of_keys, [](auto& entry) { return &entry; });
  parallel_for(std::ssize(list), [&](std::int64_t i) {
    auto& [key_head, result] = *list[as_index(i)];
    add_vector_ranks("k", layer.k_pre, layer.k_post, key_head, result);
    add_vector_ranks("v", layer.v_pre, nullptr, key_head, result);
  });
  parallel_for(std::ssize(heads), [&](std::int64_t i) {
    HeadReport& report = heads[as_index(i)];
    if (!report.error.empty()) return;
    report.geometry = of_keys.at(report.k_head);
    layer.add_query_head(report.query.head, report.k_head, *report.geometry);
  });
}

void add_weight_ranks(const std::string& model, bool quiet, AnalysisRun& run) {
  const auto [name, revision] = split_model_and_revision(model);
  const LoadedCheckpoint loaded =
      load_unprocessed_checkpoint(fetch_checkpoint(name, revision, {.quiet = quiet}));
  if (loaded.config.has_latent_attention())
    reject(
        "--weights {}: q and k of {} models are projections of normalised latents, so that W_Q and "
        "W_K are no single matrices; leave --weights out",
        model, loaded.config.family);
  require_uniform_head_shapes(loaded.config, "--weights " + model);
  std::set<int> layers;
  for (const auto& head : run.heads) {
    if (head.query.layer >= loaded.config.n_layers || head.query.head >= loaded.config.n_heads ||
        (head.error.empty() && head.dim != loaded.config.d_head))
      reject(
          "--weights {}: {} layers with {} query heads of {} numbers, but the vectors are of layer "
          "{}, head {} with {} numbers; name the model that was run",
          model, loaded.config.n_layers, loaded.config.n_heads, loaded.config.d_head,
          head.query.layer, head.query.head, head.dim);
    layers.insert(head.query.layer);
  }
  for (const int layer : layers) {
    const auto& weights = loaded.weights.layers[static_cast<std::size_t>(layer)];
    const auto queries =
        head_gram_matrices(weights.q, weights.input_norm, weights.q_norm, loaded.config.d_head);
    const auto keys =
        head_gram_matrices(weights.k, weights.input_norm, weights.k_norm, loaded.config.d_head);
    parallel_for(std::ssize(run.heads), [&](std::int64_t i) {
      HeadReport& head = run.heads[as_index(i)];
      if (head.query.layer != layer || !head.geometry) return;
      // Squared singular values of X^T Y are the eigenvalues of (X X^T)(Y Y^T).
      const auto ranks = effective_ranks(
          product_spectrum(queries[as_index(head.query.head)], keys[as_index(head.k_head)]));
      head.geometry->set("weight_rank_90", ranks.rank_90);
      head.geometry->set("weight_rank_participation", ranks.participation);
    });
  }
}

const std::vector<GeometryColumn>& geometry_columns() {
  static const auto kColumns = to_vector(read_geometry_lines(false), [](const auto& fields) {
    const auto has_flag = [&](const char* flag) {
      return fields[4].find(flag) != std::string::npos;
    };
    return GeometryColumn{fields[0], fields[1],         fields[2],       fields[3],
                          fields[5], has_flag("error"), has_flag("null")};
  });
  return kColumns;
}

const std::vector<GeometryColumnGroup>& geometry_column_groups() {
  static const auto kGroups = to_vector(read_geometry_lines(true), [](const auto& fields) {
    return GeometryColumnGroup{fields[0], fields[1], fields[2]};
  });
  return kGroups;
}

std::string missing_geometry_reason(const GeometryColumn& column, const AnalysisRun& run,
                                    const HeadReport& head) {
  if (column.source == "weights") return "needs_weights";
  if (column.source == "rows" && run.from_sums) return "needs_rows";
  if (column.source != "rows" && !run.from_sums) return "needs_statistics";
  const bool of_frequencies =
      column.source == "rotary" || column.name.starts_with("distance_preference");
  if (of_frequencies && head.rope == RopeUse::nope) return "no_rope";
  if (column.source == "attention") return "needs_attention";
  return run.from_sums ? "not_in_statistics" : undefined_result_reason(head);
}

}  // namespace qkscope
