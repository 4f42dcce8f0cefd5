#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <set>

#include "analysis/methods/moments.h"
#include "analysis/methods/pca.h"
#include "analysis/methods/plasticity.h"
#include "analysis/methods/rotation.h"
#include "analysis/results/head_results.h"
#include "base/core/error.h"
#include "base/core/log.h"
#include "base/core/numbers.h"
#include "base/core/text.h"
#include "base/core/thread_pool.h"
#include "base/io/folder.h"
#include "base/io/mapped_file.h"
#include "capture/format/capture_source.h"
#include "capture/format/layout.h"
#include "capture/format/metadata.h"
#include "capture/stats_format/stats_file.h"
#include "qkscope/experimental/log.h"
#include "qkscope/statistics.h"

namespace qkscope {
namespace {

// Expands a packed upper triangle (row-major) to a symmetric matrix.
Matrix unpack_triangle(const double* triangle, std::int64_t dim) {
  Matrix matrix(dim, dim);
  for (std::int64_t i = 0; i < dim; ++i)
    for (std::int64_t j = i; j < dim; ++j) matrix(i, j) = matrix(j, i) = *triangle++;
  return matrix;
}

std::vector<double> matrix_row(const std::vector<double>& values, std::int64_t row,
                               std::int64_t width) {
  const auto* first = values.data() + row * width;
  return {first, first + width};
}

// Mean absolute deviation of log2(t + 1) over the positions t of all tokens.
double log_position_deviation(std::span<const std::int64_t> counts, const PositionSums& positions) {
  double sum = 0;
  for (std::size_t t = 0; t < counts.size(); ++t)
    sum += static_cast<double>(counts[t]) *
           std::fabs(std::log2(static_cast<double>(t + 1)) - positions.u_mean);
  return sum / static_cast<double>(positions.n);
}

int heads_per_key_head(const Statistics& s) {
  return static_cast<int>(s.heads / s.key_heads);
}

struct AnalysisInputs {
  const AnalyzeOptions& options;
  const Statistics& statistics;
  VectorStage stage;
  PlasticityOptions plasticity;
  std::vector<std::int64_t> times;            // shape (positions): documents with a token there
  std::vector<std::int32_t> position = {};    // shape (positions)
  std::vector<std::int32_t> bucket = {};      // shape (positions)
  std::optional<CaptureSource> capture = {};  // capture given by --keys
};

const LayerMoments& layer_moments(const AnalysisInputs& shared, VectorKind kind,
                                  std::int64_t layer) {
  const auto* found = shared.statistics.find(kind, shared.stage, layer);
  if (found == nullptr)
    reject(
        "{}: there are no {} moments of {} in layer {}; expected statistics of group A with "
        "kinds q and k and this stage",
        shared.options.data_root, stage_name(shared.stage), kind_name(kind), layer);
  return *found;
}

// Moments of the queries and keys of one layer, by position bucket and over all rows.
struct QueryKeyMoments {
  const LayerMoments& queries;
  const LayerMoments& keys;
  HeadMoments all_queries;
  HeadMoments all_keys;
};

std::vector<double> key_mean_signs(const BucketMoments& buckets, std::int64_t head) {
  Matrix means(0, buckets.dim);
  for (std::int64_t b = 0; b < buckets.buckets; ++b) {
    if (buckets.n[as_index(b)] == 0) continue;
    const auto mean = matrix_row(buckets.mean, head * buckets.buckets + b, buckets.dim);
    means.data.insert(means.data.end(), mean.begin(), mean.end());
    ++means.rows;
  }
  return signs_of_bucket_means(means);
}

std::vector<QueryBucketMoments> query_bucket_moments(const Statistics& s, const BucketMoments& from,
                                                     std::int64_t head) {
  std::vector<QueryBucketMoments> buckets;
  for (std::int64_t b = 0; b < from.buckets; ++b) {
    if (from.n[as_index(b)] == 0) continue;
    const auto cell = head * from.buckets + b;
    QueryBucketMoments bucket{static_cast<std::int32_t>(b),
                              from.n[as_index(b)],
                              s.bucket_positions[as_index(b)].t_mean,
                              matrix_row(from.mean, cell, from.dim),
                              {}};
    if (!from.cov.empty())
      bucket.scatter = unpack_triangle(from.cov.data() + cell * triangle_size(from.dim), from.dim);
    buckets.push_back(std::move(bucket));
  }
  return buckets;
}

LinearQueryModel fit_queries(const AnalysisInputs& shared, const QueryKeyMoments& layer,
                             const Moments& queries, std::int64_t head, std::int64_t key_head) {
  const LogPositionMoments log_positions{
      layer.all_queries.positions.u_m2,
      log_position_deviation(shared.times, layer.all_queries.positions),
      matrix_row(layer.all_queries.cu, head, layer.all_queries.dim)};
  return fit_query_model_from_moments(
      queries, log_positions, key_mean_signs(layer.keys.buckets, key_head),
      query_bucket_moments(shared.statistics, layer.queries.buckets, head));
}

// With --keys, assigns the captured rows of the key head to the position buckets of the statistics.
PlasticityResult compute_plasticity(const AnalysisInputs& shared, const LinearQueryModel& model,
                                    const HeadReport& report) {
  if (!shared.capture) return plasticity_of_query_model(model, shared.plasticity);
  const HeadId key{report.query.layer, report.k_head, HeadKind::key};
  HeadFile file = read_capture_head(shared.capture->capture_index(), key);
  if (file.rows.head_dim != shared.statistics.dim)
    reject("--keys {}: vectors have {} numbers, those of the statistics {}", shared.options.keys,
           file.rows.head_dim, shared.statistics.dim);
  PlasticityOptions options = shared.plasticity;
  for (std::size_t i = 0; i < file.rows.position.size(); ++i)
    file.rows.bucket[i] = bucket_of(*options.sampler, file.rows.position[i]);
  options.sliding_window = file.rows.sliding_window;
  const RowsView positions{report.dim, {}, shared.position, {}, shared.bucket, {}};
  return plasticity_of_queries_and_keys({model, positions, shared.times, report.n_q},
                                        make_centred_rows(as_rows_view(file.rows)), options);
}

void analyze_head(const AnalysisInputs& shared, const QueryKeyMoments& layer, HeadReport& report) {
  const auto& options = shared.options;
  const Moments queries = moments_of_head(layer.all_queries, report.query.head);
  const Moments keys = moments_of_head(layer.all_keys, report.k_head);
  report.dim = queries.dim();
  report.n_q = queries.count;
  report.n_k = keys.count;
  report.positions_vary = queries.position_scatter > 0;
  const PooledMoments pooled = pool_moments(queries, keys);
  if (options.pca) {
    report.pca = pca_from_moments(queries, keys, pooled, options.pca_options);
    const int separate = options.pca_options.separate_components;
    if (separate > 0) report.q_components = query_or_key_pca(queries, separate).components;
    if (separate > 0 && report.query.head % heads_per_key_head(shared.statistics) == 0)
      report.k_components = query_or_key_pca(keys, separate).components;
  }
  if (options.rotation)
    report.rotation = rotation_from_moments(queries, keys, pooled, options.rotation_options);
  if (options.plasticity)
    report.plasticity = compute_plasticity(
        shared, fit_queries(shared, layer, queries, report.query.head, report.k_head), report);
}

void check_statistics_options(const AnalyzeOptions& options) {
  if (options.max_tokens > 0)
    reject("{}: statistics have no rows to draw from; leave out --max-tokens", options.data_root);
  if (!options.planes_of.empty())
    reject("{}: statistics have no rows to show on planes; leave out --planes-of",
           options.data_root);
  if (options.head_counts || !options.model.empty() || !options.nope_layers.empty())
    reject(
        "{}: statistics tell head counts and RoPE themselves; leave out --model, "
        "--head-counts and --nope-layers",
        options.data_root);
}

void check_keys_option(const AnalyzeOptions& options, const Statistics& s) {
  if (!options.plasticity)
    reject("--keys {}: the plasticity compares them, which is not asked for", options.keys);
  if (options.pre_rope)
    reject(
        "--keys {}: keys of a capture are compared as they enter the dot product; leave out "
        "--stage pre",
        options.keys);
  if (s.settings.bucket_size * s.settings.buckets < s.max_length)
    reject(
        "--keys {}: the last bucket of these statistics is longer than the others, and the "
        "plasticity takes equal ones; make them with fewer settings: leave out stats.bucket_size",
        options.keys);
  using Kind = PlasticityOptions::QueryModelKind;
  const auto kind = options.plasticity_options.profile_model;
  if (kind == Kind::bin ||
      options.plasticity_options.covariance == PlasticityOptions::Covariance::full)
    reject(
        "--keys {}: --query-model bin and --covariance full take the rows of a capture, which "
        "statistics do not have; expected local, bucket or linear, and diagonal",
        options.keys);
  if (kind == Kind::linear) return;
  if (std::ranges::count(s.settings.bucket_covariance, VectorKind::query) == 0)
    reject(
        "--keys {}: the profile takes the covariance of the queries of each bucket, which "
        "these statistics do not have; give --query-model linear, or make them with "
        "stats.bucket_covariance: [q]",
        options.keys);
}

// The --keys capture must have the same model and dtype as the statistics.
void check_keys_match_statistics(const std::string& keys, const Metadata& capture,
                                 const Metadata& statistics) {
  for (const char* name :
       {metadata::kModel, metadata::kCommit, metadata::kRevision, metadata::kDtype}) {
    const auto a = capture.find(name);
    const auto b = statistics.find(name);
    if (a == capture.end() || b == statistics.end() || a->second == b->second) continue;
    reject(
        "--keys {}: its {} is {}, that of the statistics {}; expected a capture of the same "
        "run",
        keys, name, quote_text(a->second), quote_text(b->second));
  }
  const auto stage = capture.find(metadata::kStage);
  if (stage != capture.end() && stage->second != "post_rope")
    reject("--keys {}: its vectors are {}; expected post_rope, what enters the dot product", keys,
           stage->second);
}

void open_key_capture(AnalysisInputs& shared, const std::vector<HeadId>& queries) {
  const auto& options = shared.options;
  check_keys_option(options, shared.statistics);
  shared.capture.emplace(options.keys, FetchOptions{.quiet = options.quiet, .stop = options.stop});
  std::set<HeadId> keys;
  for (const auto& query : queries)
    keys.insert({query.layer, query.head / heads_per_key_head(shared.statistics), HeadKind::key});
  const auto& there = shared.capture->capture_index().keys;
  for (const auto& key : keys)
    if (!std::binary_search(there.begin(), there.end(), key))
      reject(
          "--keys {}: there is no key head {} of layer {}; choose heads with --heads, or "
          "capture them",
          options.keys, key.head, key.layer);
  shared.capture->fetch_heads({keys.begin(), keys.end()});
  const auto& root = shared.capture->capture_index().data_root;
  check_keys_match_statistics(options.keys, read_head_metadata(head_file_path(root, *keys.begin())),
                              shared.statistics.metadata);
  std::vector<std::int64_t> texts;
  std::set<int> layers;
  for (const auto& key : keys)
    if (layers.insert(key.layer).second)
      std::ranges::copy(read_head_example_ids(head_file_path(root, key)),
                        std::back_inserter(texts));
  shared.plasticity.text_groups =
      JackknifeGroups::from_texts(std::move(texts)).first_text_of_each_group();
}

std::size_t index_of_layer(const Statistics& s, std::int64_t layer) {
  return as_index(std::ranges::find(s.layers, layer) - s.layers.begin());
}

std::optional<std::int32_t> sliding_window_of_layer(const Statistics& s, std::int64_t layer) {
  const auto tokens = s.windows[index_of_layer(s, layer)];
  return tokens > 0 ? std::optional(static_cast<std::int32_t>(tokens)) : std::nullopt;
}

AnalysisInputs make_analysis_inputs(const AnalyzeOptions& options, const Statistics& s) {
  AnalysisInputs shared{.options = options,
                        .statistics = s,
                        .stage = options.pre_rope ? VectorStage::pre : VectorStage::post,
                        .plasticity = options.plasticity_options,
                        .times = count_documents_by_position(s)};
  check_plasticity_bins(shared.plasticity);
  shared.plasticity.seed = options.seed;
  // Use the same position buckets as the statistics.
  shared.plasticity.sampler = {SamplerType::uniform, 1.0, s.settings.bucket_size, {}};
  for (std::size_t t = 0; t < shared.times.size(); ++t) {
    shared.position.push_back(static_cast<std::int32_t>(t));
    shared.bucket.push_back(bucket_of(*shared.plasticity.sampler, shared.position.back()));
  }
  return shared;
}

std::vector<HeadReport> make_head_reports(const Statistics& s, const std::vector<HeadId>& queries) {
  std::vector<HeadReport> reports;
  for (const auto& query : queries) {
    HeadReport report;
    report.query = query;
    report.k_head = query.head / heads_per_key_head(s);
    report.rope = s.rotary[index_of_layer(s, query.layer)] > 0 ? RopeUse::rope : RopeUse::nope;
    report.window = sliding_window_of_layer(s, query.layer);
    reports.push_back(std::move(report));
  }
  return reports;
}

void analyze_layer(const AnalysisInputs& shared, std::span<HeadReport> heads) {
  const auto layer = heads.front().query.layer;
  const auto& queries = layer_moments(shared, VectorKind::query, layer);
  const auto& keys = layer_moments(shared, VectorKind::key, layer);
  const QueryKeyMoments both{queries, keys, all_rows(queries), all_rows(keys)};
  parallel_for(std::ssize(heads), [&](std::int64_t i) {
    HeadReport& report = heads[as_index(i)];
    try {
      analyze_head(shared, both, report);
    } catch (const Error& error) {
      mark_head_failed(report, error);
    }
  });
  if (shared.options.geometry) add_geometry_from_statistics(shared.statistics, heads);
}

}  // namespace

Moments moments_of_head(const HeadMoments& from, std::int64_t head) {
  Moments moments;
  moments.count = from.n();
  moments.mean = matrix_row(from.mean, head, from.dim);
  moments.scatter = unpack_triangle(from.m2.data() + head * triangle_size(from.dim), from.dim);
  moments.position_mean = from.positions.t_mean;
  moments.position_scatter = from.positions.t_m2;
  moments.cross_scatter = matrix_row(from.ct, head, from.dim);
  return moments;
}

std::vector<std::int64_t> count_documents_by_position(const Statistics& s) {
  std::vector<std::int64_t> ends(as_index(s.max_length) + 1);
  for (const auto length : s.lengths) ++ends[as_index(length)];
  std::vector<std::int64_t> counts;
  auto left = std::ssize(s.lengths);
  for (std::int64_t t = 0; left > ends[as_index(t)]; ++t)
    counts.push_back(left -= ends[as_index(t)]);
  return counts;
}

bool is_statistics_folder(const std::string& folder) {
  return path_exists(folder + "/" + stats_layout::kStateFile);
}

AnalysisRun analyze_statistics(const AnalyzeOptions& options) {
  check_statistics_options(options);
  const Statistics s = read_statistics(options.data_root);
  if (s.moments.empty())
    reject("{}: these statistics have no moments (group A), from which the analyses follow",
           options.data_root);
  Stopwatch watch;
  CaptureIndex index;
  index.data_root = options.data_root;
  for (const auto layer : s.moment_layers)
    for (std::int64_t head = 0; head < s.heads; ++head)
      index.queries.push_back({static_cast<int>(layer), static_cast<int>(head), HeadKind::query});
  auto queries = select_query_heads(index, options);
  keep_heads_of_attention_kind(queries, options,
                               [&](int layer) { return sliding_window_of_layer(s, layer); });
  AnalysisInputs shared = make_analysis_inputs(options, s);
  AnalysisRun run;
  run.from_sums = true;
  run.compares_keys = !options.keys.empty();
  if (run.compares_keys) open_key_capture(shared, queries);
  run.capture = s.metadata;
  run.state = std::string(MappedFile(options.data_root + "/" + stats_layout::kStateFile).text());
  run.texts = std::ssize(s.lengths);
  const auto model = run.capture.find(metadata::kModel);
  if (model != run.capture.end()) model->second = id_or_base_name(model->second);
  run.label = !options.label.empty()       ? options.label
              : model != run.capture.end() ? model->second
                                           : id_or_base_name(options.data_root);
  run.heads = make_head_reports(s, queries);
  run.more = statistics_tables(s, run.label, queries);
  Progress progress(
      {.what = "analyze", .unit = "heads", .total = std::ssize(run.heads), .quiet = options.quiet});
  for (std::size_t begin = 0; begin < run.heads.size();) {
    auto end = begin;
    while (end < run.heads.size() && run.heads[end].query.layer == run.heads[begin].query.layer)
      ++end;
    analyze_layer(shared, std::span(run.heads).subspan(begin, end - begin));
    progress.update(static_cast<std::int64_t>(end));
    begin = end;
  }
  progress.finish();
  if (options.geometry && !options.weights.empty())
    add_weight_ranks(options.weights, options.quiet, run);
  add_warnings_and_notes(run, options);
  run.seconds = watch.lap_seconds();
  return run;
}

}  // namespace qkscope
