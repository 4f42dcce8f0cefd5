#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <numeric>

#include "analysis/methods/moments.h"
#include "analysis/methods/pca.h"
#include "analysis/methods/plasticity.h"
#include "analysis/methods/rotation.h"
#include "analysis/results/head_results.h"
#include "base/core/error.h"
#include "base/core/log.h"
#include "base/core/numbers.h"
#include "base/core/project.h"
#include "base/core/thread_pool.h"
#include "base/numerics/random.h"
#include "capture/format/capture_source.h"
#include "qkscope/experimental/log.h"

namespace qkscope {
namespace {

// Keeps a seeded random sample of `limit` rows in file order; 0 keeps all rows.
void sample_rows(HeadRows& rows, std::int64_t limit, std::uint64_t seed) {
  if (limit <= 0 || rows.size() <= limit) return;
  Random random(seed);
  std::vector<std::size_t> kept;
  const auto total = static_cast<std::size_t>(rows.size());
  for (std::size_t i = 0; i < total && std::ssize(kept) < limit; ++i)
    // Selection sampling: keep a row with probability (rows still needed) / (rows remaining).
    if (random.next_below(total - i) < static_cast<std::uint64_t>(limit) - kept.size())
      kept.push_back(i);
  const auto keep = [&](auto& values, std::size_t width) {
    if (values.empty()) return;
    for (std::size_t to = 0; to < kept.size(); ++to)
      if (kept[to] != to)
        std::move(values.begin() + static_cast<std::ptrdiff_t>(kept[to] * width),
                  values.begin() + static_cast<std::ptrdiff_t>((kept[to] + 1) * width),
                  values.begin() + static_cast<std::ptrdiff_t>(to * width));
    values.resize(kept.size() * width);
  };
  keep(rows.bucket, 1);
  keep(rows.example_id, 1);
  keep(rows.example_key, 1);
  keep(rows.position, 1);
  keep(rows.token_str, 1);
  keep(rows.vectors, static_cast<std::size_t>(rows.head_dim));
}

// Derives an independent seed for each head from the seed of the run.
std::uint64_t seed_of_head(const HeadId& id, std::uint64_t seed) {
  const auto salt = static_cast<std::uint64_t>(id.layer) << 32 |
                    static_cast<std::uint64_t>(id.head) << 1 | (id.kind == HeadKind::key ? 1 : 0);
  return seed ^ (salt + 1) * 0x9E3779B97F4A7C15u;
}

// Rows of one head, and the analyses that define the axes of its scatter plots.
struct ScatterPlotInput {
  const CentredRows& queries;
  const CentredRows& keys;
  const PooledMoments& pooled;
  const HeadReport& report;                      // PCA and rotation, if they ran
  const std::vector<std::string>& query_tokens;  // shape (rows), or empty
  const std::vector<std::string>& key_tokens;
};

std::vector<std::size_t> evenly_spaced_rows_by_position(const RowsView& rows, int count) {
  const auto total = static_cast<std::size_t>(rows.size());
  std::vector<std::size_t> ranks(total);  // row numbers in the order of position and text
  std::iota(ranks.begin(), ranks.end(), std::size_t{0});
  std::ranges::sort(
      ranks, {}, [&](std::size_t row) { return std::pair(rows.position[row], rows.example(row)); });
  const auto wanted = std::min(total, static_cast<std::size_t>(count));
  std::vector<std::size_t> kept;
  for (std::size_t i = 0; i < wanted; ++i)  // the middle of each of `wanted` equal ranges of ranks
    kept.push_back(ranks[(2 * i + 1) * total / (2 * wanted)]);
  return kept;
}

// Axis of a scatter plot: its direction, and the projection that becomes coordinate 0.
struct ScatterAxis {
  std::vector<double> direction;  // empty: the coordinate is NaN
  double origin = 0;

  double coordinate(const CentredRows& rows, std::size_t row) const {
    if (direction.empty()) return kNan;
    const auto dim = direction.size();
    return dot(rows.source.vectors.subspan(row * dim, dim), direction) - origin;
  }
};

// Returns the axes of scatter points: a, b, c0, c1, the principal components, and two axes per
// plane of the orthogonal complement. Coordinates except a and b are relative to the pooled mean.
std::vector<ScatterAxis> scatter_axes(const ScatterPlotInput& source, int pairs) {
  const auto rotation = source.report.rotation.value_or(RotationResult());
  std::vector<ScatterAxis> axes = {{rotation.a}, {rotation.b}};
  const auto add = [&](const std::vector<double>& direction) {
    axes.push_back({direction, direction.empty() ? 0 : dot(direction, source.pooled.mean)});
  };
  add(rotation.c0);
  add(rotation.c1);
  if (source.report.pca)
    for (const auto& component : source.report.pca->components) add(component.direction);
  if (pairs == 0 || rotation.a.empty() || rotation.b.empty()) return axes;
  const Matrix planes =
      orthogonal_complement(source.pooled, rotation.a, rotation.b, 2 * pairs).axes;
  for (std::int64_t i = 0; i < planes.rows / 2 * 2; ++i)
    add({planes.row(i), planes.row(i) + planes.cols});
  return axes;
}

// Samples points of scatter plots: queries, then keys, at most `per_side` of each, evenly spaced by
// position. The result does not depend on row order. `pairs`: number of complement planes to use.
std::vector<ScatterPoint> sample_scatter_points(const ScatterPlotInput& source, int per_side,
                                                int pairs) {
  const auto axes = scatter_axes(source, pairs);
  const auto components = source.report.pca ? std::ssize(source.report.pca->components) : 0;
  std::vector<ScatterPoint> points;
  for (const auto side : {HeadKind::query, HeadKind::key}) {
    const bool query = side == HeadKind::query;
    const CentredRows& rows = query ? source.queries : source.keys;
    const auto& tokens = query ? source.query_tokens : source.key_tokens;
    for (const auto row : evenly_spaced_rows_by_position(rows.source, per_side)) {
      const auto x = to_vector(axes, [&](const auto& axis) { return axis.coordinate(rows, row); });
      const auto planes = x.begin() + 4 + components;
      points.push_back({.side = side,
                        .position = rows.source.position[row],
                        .token = tokens.empty() ? "" : tokens[row],
                        .pc = {x.begin() + 4, planes},
                        .a = x[0],
                        .b = x[1],
                        .c0 = x[2],
                        .c1 = x[3],
                        .planes = {planes, x.end()}});
    }
  }
  return points;
}

// Rows, moments and components of one key head, shared by its query heads (GQA).
struct KeyHead {
  HeadFile file;
  GroupedRows rows;
  std::vector<Moments> without_group;
  std::vector<SideComponent> components;
  CovarianceRanks ranks;
  std::vector<double> signs;
};

// Runs the analyses of a capture, one KeyHeadGroup per call. Thread-safe.
class HeadRunner {
 public:
  HeadRunner(const AnalyzeOptions& options, const CaptureIndex& index, const ModelInfo* model,
             const JackknifeGroups& texts, AnalysisRun& run)
      : options_(options), index_(index), model_(model), texts_(texts), run_(run) {}

  // Fills in the reports of all query heads in the group.
  void run_group(const KeyHeadGroup& group) {
    [[maybe_unused]] thread_local const bool asked = (request_huge_pages(), true);
    AnalysisTimes times;
    KeyHead key;
    try {
      key = translate_exceptions([&] { return prepare_key_head(group.key, times); });
    } catch (const Error& error) {
      for (const auto i : group.heads) mark_head_failed(run_.heads[i], error);
      return;
    }
    for (const auto i : group.heads) {
      HeadReport& report = run_.heads[i];
      try {
        translate_exceptions([&] { run_head(report, key, times); });
        report.k_components = std::exchange(key.components, {});
        // Copy the report after the head's large buffers are freed: long-lived results that lie
        // between these buffers would fragment the heap.
        report = HeadReport(report);
      } catch (const Error& error) {
        mark_head_failed(report, error);
      }
    }
    const std::lock_guard lock(mutex_);
    for (const auto part : {&AnalysisTimes::read, &AnalysisTimes::moments, &AnalysisTimes::pca,
                            &AnalysisTimes::rotation, &AnalysisTimes::plasticity,
                            &AnalysisTimes::geometry, &AnalysisTimes::errors})
      run_.times.*part += times.*part;
  }

 private:
  HeadFile read_rows(const HeadId& id) const {
    const std::string path = head_file_path(options_.data_root, id);
    HeadFile file = read_capture_head(index_, id);
    if (file.rows.size() == 0) reject("{}: no rows", path);
    if (model_ != nullptr) model_->check_head(id, file.rows.head_dim, path);
    file.rows.sliding_window = window_of_layer(file.rows, id.layer, model_);
    sample_rows(file.rows, options_.max_tokens, seed_of_head(id, options_.seed));
    return file;
  }

  // The jackknife and the cross-fitted drift axis of the PCA need leave-one-group-out moments.
  bool needs_text_groups() const { return options_.errors || options_.pca; }

  // Principal components of queries or keys, and the covariance spectrum for the rank measures.
  QueryOrKeyPca compute_separate_pca(const Moments& rows) const {
    const int components = options_.pca ? options_.pca_options.separate_components : 0;
    if (components <= 0 && !options_.geometry) return {};
    return query_or_key_pca(rows, std::max(0, components));
  }

  KeyHead prepare_key_head(const HeadId& id, AnalysisTimes& times) const {
    Stopwatch watch;
    KeyHead key;
    key.file = read_rows(id);
    times.read += watch.lap_seconds();
    key.rows = make_grouped_rows(as_rows_view(key.file.rows), texts_);
    times.moments += watch.lap_seconds();
    if (needs_text_groups()) key.without_group = leave_one_group_out_moments(key.rows);
    times.errors += watch.lap_seconds();
    QueryOrKeyPca pca = compute_separate_pca(key.rows.rows);
    times.pca += watch.lap_seconds();
    if (options_.geometry) key.ranks = covariance_ranks(pca.spectrum, key.without_group);
    key.components = std::move(pca.components);
    times.geometry += watch.lap_seconds();
    if (options_.plasticity) key.signs = key_mean_signs(key.rows.rows);
    times.plasticity += watch.lap_seconds();
    return key;
  }

  // Determines whether a layer uses RoPE: from the head's file, else --nope-layers or config.json.
  RopeInfo rope_of_layer(const HeadFile& file, int layer, const std::string& path) const {
    RopeInfo rope = rope_info(file.metadata, path);
    if (rope.use != RopeUse::unknown) return rope;
    if (model_ != nullptr) rope = model_->rope(layer);
    const auto& nope = options_.nope_layers;
    if (nope.empty()) return rope;
    const bool without = std::ranges::count(nope, layer) > 0;
    rope.use = without ? RopeUse::nope : RopeUse::rope;
    if (without) rope.inv_freq.clear();
    return rope;
  }

  // Warns if positions span a long range: the frequency search has a grid point per position.
  void warn_long_span(std::span<const std::int32_t> queries, std::span<const std::int32_t> keys) {
    constexpr std::int64_t kLongSpan = std::int64_t{1} << 21;
    std::int64_t first = INT32_MAX, last = INT32_MIN;
    for (const auto side : {queries, keys})
      for (const std::int64_t position : side) {
        first = std::min(first, position);
        last = std::max(last, position);
      }
    if (last - first < kLongSpan || warned_.test_and_set()) return;
    log::warn(
        "positions span {} tokens: the frequency search takes minutes per head; --pairs 1 takes "
        "less, --only pca,plasticity leaves it out",
        last - first);
  }

  void compute_rotation(HeadReport& report, const CentredRows& queries, const CentredRows& keys,
                        const PooledMoments& pooled, const std::vector<double>& inv_freq) {
    warn_long_span(queries.source.position, keys.source.position);
    RotationOptions rotation = options_.rotation_options;
    rotation.inv_freq = inv_freq;
    std::erase(rotation.inv_freq, 0.0);  // pairs that do not rotate
    rotation.seed = seed_of_head(report.query, options_.seed);
    std::unique_ptr<RotationWorkspace> memory;
    {
      const std::lock_guard lock(mutex_);
      if (memory_.empty()) memory_.push_back(std::make_unique<RotationWorkspace>());
      memory = std::move(memory_.back());
      memory_.pop_back();
    }
    report.rotation = analyze_planar_rotation(queries, keys, pooled, rotation, memory.get());
    const std::lock_guard lock(mutex_);
    memory_.push_back(std::move(memory));
  }

  void compute_plasticity(HeadReport& report, const HeadFile& file, const CentredRows& queries,
                          const KeyHead& key) const {
    PlasticityOptions plasticity = options_.plasticity_options;
    plasticity.seed = options_.seed;
    plasticity.sliding_window = file.rows.sliding_window;
    plasticity.sampler =
        sampler_options(file.metadata, head_file_path(options_.data_root, report.query));
    if (!plasticity.sampler) plasticity.sampler = index_.sampler;
    plasticity.text_groups = texts_.first_text_of_each_group();
    plasticity.replicates = options_.errors;
    report.plasticity = attention_plasticity(queries, key.rows.rows, key.signs, plasticity);
  }

  void run_head(HeadReport& report, const KeyHead& key, AnalysisTimes& times) {
    Stopwatch watch;
    const HeadFile file = read_rows(report.query);
    const CentredRows& keys = key.rows.rows;
    times.read += watch.lap_seconds();
    const std::string path = head_file_path(options_.data_root, report.query);
    if (file.rows.head_dim != key.file.rows.head_dim)
      reject("{}: vectors have {} numbers, those of key head {} have {}", path, file.rows.head_dim,
             report.k_head, key.file.rows.head_dim);
    if (file.rows.sliding_window != key.file.rows.sliding_window)
      reject("{}: sliding window {}, its key head {} has {}", path,
             file.rows.sliding_window.value_or(0), report.k_head,
             key.file.rows.sliding_window.value_or(0));
    const RopeInfo rope = rope_of_layer(file, report.query.layer, path);
    report.rope = rope.use;
    report.window = file.rows.sliding_window;
    report.dim = file.rows.head_dim;
    report.n_q = file.rows.size();
    report.n_k = keys.count;
    const GroupedRows grouped = make_grouped_rows(as_rows_view(file.rows), texts_);
    const CentredRows& queries = grouped.rows;
    report.positions_vary = queries.position_scatter > 0 && keys.position_scatter > 0;
    const PooledMoments pooled = pool_moments(queries, keys);
    times.moments += watch.lap_seconds();
    std::vector<Moments> without_group;
    if (needs_text_groups()) without_group = leave_one_group_out_moments(grouped);
    times.errors += watch.lap_seconds();
    if (options_.pca) {
      report.pca = combined_pca(queries, keys, pooled, options_.pca_options, &texts_);
      correlate_along_drift_axis(grouped, key.rows, without_group, key.without_group, *report.pca);
    }
    QueryOrKeyPca side = compute_separate_pca(queries);
    report.q_components = std::move(side.components);
    times.pca += watch.lap_seconds();
    if (options_.rotation) compute_rotation(report, queries, keys, pooled, rope.inv_freq);
    times.rotation += watch.lap_seconds();
    if (options_.plasticity) compute_plasticity(report, file, queries, key);
    times.plasticity += watch.lap_seconds();
    if (options_.geometry)
      report.geometry = compute_geometry_from_capture(
          {file, key.file, queries, keys, covariance_ranks(side.spectrum, without_group), key.ranks,
           texts_},
          rope.use, rope.inv_freq, options_.geometry_options,
          seed_of_head(report.query, options_.seed));
    times.geometry += watch.lap_seconds();
    if (options_.errors)
      report.without_group =
          jackknife_replicates(report, without_group, key.without_group, options_);
    if (report.rotation)
      report.rotation->active_axes = {};  // large, and only jackknife_replicates() needs it
    times.errors += watch.lap_seconds();
    if (options_.scatter <= 0) return;
    const bool planes = std::ranges::count(options_.planes_of, report.query) > 0;
    report.scatter = sample_scatter_points(
        {queries, keys, pooled, report, file.rows.token_str, key.file.rows.token_str},
        options_.scatter, planes ? options_.rotation_options.pairs : 0);
  }

  const AnalyzeOptions& options_;
  const CaptureIndex& index_;
  const ModelInfo* model_;
  const JackknifeGroups& texts_;
  AnalysisRun& run_;
  std::atomic_flag warned_;
  std::mutex mutex_;                                        // guards run_.times and memory_
  std::vector<std::unique_ptr<RotationWorkspace>> memory_;  // for reuse, at most one per thread
};

}  // namespace

void analyze_key_head_groups(const AnalyzeOptions& options, const CaptureIndex& index,
                             const ModelInfo* model, const JackknifeGroups& texts,
                             std::vector<KeyHeadGroup> groups, AnalysisRun& run) {
  HeadRunner runner(options, index, model, texts, run);
  // Start with the largest groups, so that threads finish at about the same time.
  std::ranges::stable_sort(groups, std::ranges::greater{},
                           [](const KeyHeadGroup& group) { return group.heads.size(); });
  Progress progress(
      {.what = "analyze", .unit = "heads", .total = std::ssize(run.heads), .quiet = options.quiet});
  std::mutex mutex;
  std::int64_t done = 0;
  parallel_for(std::ssize(groups), [&](std::int64_t i) {
    const auto& group = groups[static_cast<std::size_t>(i)];
    runner.run_group(group);
    const std::lock_guard lock(mutex);
    done += std::ssize(group.heads);
    progress.update(done);
  });
  progress.finish();
}

void mark_head_failed(HeadReport& report, const Error& error) {
  report.pca.reset();
  report.rotation.reset();
  report.plasticity.reset();
  report.geometry.reset();
  report.without_group.clear();
  report.error = error.what();
  report.error_kind = error.kind();
}

std::optional<std::int32_t> window_of_layer(const HeadRows& rows, int layer,
                                            const ModelInfo* model) {
  return rows.window_missing && model != nullptr ? model->window(layer) : rows.sliding_window;
}

}  // namespace qkscope
